// SPDX-License-Identifier: Apache-2.0
#include "tests/fixtures.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <random>
#include <system_error>

#include "ops/ops.h"
#include "runtime/device/device.h"
#include "runtime/device/device_core.h"
#include "runtime/device/insides.h"
#include "tests/op_check.h"
#include "tests/reference.h"

namespace vkf::test {

namespace {

void set_variable(const std::string& name, const std::optional<std::string>& value) {
#if defined(_WIN32)
    _putenv_s(name.c_str(), value.value_or("").c_str());
#else
    if (value) {
        setenv(name.c_str(), value->c_str(), 1);
    } else {
        unsetenv(name.c_str());
    }
#endif
}

Tensor weight() { return random_tensor({SmallModel::kWidth, SmallModel::kWidth}, 1001); }
Tensor bias() { return random_tensor({SmallModel::kWidth}, 1002); }

}  // namespace

std::ptrdiff_t open_descriptors() {
#if defined(__linux__)
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
#else
    return 0;
#endif
}

Environment::Environment(const char* name, std::optional<std::string> value) : name_(name) {
    if (const char* before = std::getenv(name)) {
        before_ = before;
    }
    set_variable(name_, value);
}

Environment::~Environment() { set_variable(name_, before_); }

TemporaryFolder::TemporaryFolder()
    : path_(std::filesystem::temp_directory_path() / ("vkformer-" + std::to_string(std::random_device{}()))) {
    std::filesystem::create_directories(path_);
}

TemporaryFolder::~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
}

std::vector<std::string> TemporaryFolder::files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path_)) {
        names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
}

std::string last_words(Device&& device) {
    const std::shared_ptr<InstanceCore> instance = Insides::core(device).instance;
    Insides::take_core(device).reset();
    std::string words;
    for (const std::string& message : instance->log.take()) {
        words += message + "\n";
    }
    return words;
}

void SmallModel::describe(Graph& graph, const Dim& tokens) {
    const Value x = graph.input("x", {tokens, kWidth});
    const Value hidden = linear(x, graph.weight("w", {kWidth, kWidth}), graph.weight("b", {kWidth}), Activation::gelu);
    graph.output("y", softmax(scale(hidden, 2.0f)));  // three dispatches, which nothing makes fewer
}

Weights SmallModel::load(const Device& device) {
    const std::vector<float> w = weight().floats();
    const std::vector<float> b = bias().floats();
    const std::vector<HostTensor> tensors = {
        {"w", DType::f32, {kWidth, kWidth}, std::as_bytes(std::span(w))},
        {"b", DType::f32, {kWidth}, std::as_bytes(std::span(b))},
    };
    return device.load(tensors);
}

Tensor SmallModel::answer(std::int64_t tokens) {
    const Tensor x = input(tokens);
    reference::MatmulOptions options;
    options.bias = bias();
    options.activation = Activation::gelu;
    options.transpose_b = true;
    const Tensor hidden = reference::matmul(x, weight(), options);
    return reference::softmax(reference::add(hidden, hidden));
}

std::string SmallModel::check(Program& program, std::int64_t tokens) {
    upload(program, "x", input(tokens));
    program.run();
    return difference(download(program, "y"), answer(tokens), tolerance());
}

}  // namespace vkf::test
