// SPDX-License-Identifier: Apache-2.0
// What tests of the runtime share: an environment variable for a while, a folder for a while, a
// device that must leave nothing behind, and a program small enough to know by heart.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/device/device.h"
#include "runtime/device/program.h"
#include "tests/errors.h"
#include "tests/tensor.h"

namespace vkf::test {

/// fp32 numbers, which must outlive it.
inline HostTensor host_tensor(const std::string& name, std::vector<std::int64_t> shape,
                              const std::vector<float>& data) {
    return {name, DType::f32, std::move(shape), std::as_bytes(std::span(data))};
}

/// Sets (or, without a value, removes) an environment variable while it lives.
class Environment {
public:
    Environment(const char* name, std::optional<std::string> value);
    ~Environment();
    Environment(const Environment&) = delete;
    Environment& operator=(const Environment&) = delete;

private:
    std::string name_;
    std::optional<std::string> before_;
};

/// No variable decides which kernels are left out.
struct LeftOutByFile : Environment {
    LeftOutByFile() : Environment("VKFORMER_LEAVE_OUT", std::nullopt) {}
};

/// The file descriptors that this process has open, on Linux; 0 elsewhere.
std::ptrdiff_t open_descriptors();

/// A folder of its own, gone at the end.
class TemporaryFolder {
public:
    TemporaryFolder();
    ~TemporaryFolder();
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;

    const std::filesystem::path& path() const { return path_; }
    /// Names of the files in it.
    std::vector<std::string> files() const;

private:
    std::filesystem::path path_;
};

/// Destroys the device, of which nothing else may be left, and returns what validation had to say
/// of its whole life.
std::string last_words(Device&& device);

/// y = softmax(2 gelu(x w^T + b)) over (tokens, kWidth): several dispatches that depend on each
/// other.
class SmallModel {
public:
    static constexpr std::int64_t kWidth = 24;

    /// Describes it in a graph: input "x", weights "w" and "b", output "y".
    static void describe(Graph& graph, const Dim& tokens);
    /// Describes it with a symbol "tokens" of that maximum.
    static void describe(Graph& graph, std::int64_t max_tokens) { describe(graph, graph.symbol("tokens", max_tokens)); }
    static Weights load(const Device& device);
    static Tensor input(std::int64_t tokens) {
        return random_tensor({tokens, kWidth}, static_cast<std::uint32_t>(tokens));
    }
    /// The answer for input(tokens), and how far from it is right.
    static Tensor answer(std::int64_t tokens);
    static Tolerance tolerance() { return {1e-5, 1e-4, {}}; }
    /// Uploads input(tokens), runs, and returns "" or how "y" differs from answer(tokens).
    static std::string check(Program& program, std::int64_t tokens);
};

}  // namespace vkf::test
