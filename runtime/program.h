// SPDX-License-Identifier: Apache-2.0
// A graph compiled for a device: runs by itself, or records into the host's command buffer.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device.h"
#include "plan.h"
#include "vulkan_handles.h"
#include "weights.h"

namespace vkf {

struct ProgramCore;

struct CompileOptions {
    std::string name = "program";  ///< for debug labels and messages
    /// The state the program works on, shared with other programs; empty: one of its own.
    State state = {};
    /// How many recordings may be in flight at once (record()); run() uses slot 0.
    std::uint32_t slots = 1;
    /// Timestamps around every dispatch.
    bool profile = false;
};

/// What record() says; no allocation, no exception.
struct Status {
    int result = 0;  ///< 0: done; otherwise a VkResult, or -1 for wrong use
    std::array<char, 240> message{};
    explicit operator bool() const noexcept { return result == 0; }
};

/// A host's buffer range for an input or output. `offset` is a multiple of Capabilities::storage_alignment; `bytes` covers the
/// tensor at its largest; the buffer has VK_BUFFER_USAGE_STORAGE_BUFFER_BIT.
struct BufferRange {
    std::string_view name;
    VkBuffer buffer{};
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
};

struct SizeSetting {
    std::string_view name;
    std::int64_t value = 0;
};

/// One dispatch of a profiled run.
struct DispatchTime {
    std::string label, kernel;
    double start_ms = 0, ms = 0;
    double flops = 0, bytes = 0;
};

/// Externally synchronised; different slots may be recorded by different threads at once. One that was moved from throws at any
/// use but assignment and destruction.
class VKF_API Program {
public:
    Program(Program&&) noexcept;
    Program& operator=(Program&&) noexcept;
    ~Program();  // waits for its own runs; recordings of a host must have finished

    /// Bytes by kind at the largest sizes; known before anything is allocated.
    const MemorySizes& memory() const;
    /// Allocates scratch and constants (and state, where it has its own), which is all that record() needs; upload() and run()
    /// imply it, and add memory for inputs and outputs.
    void allocate();

    /// Sets a symbol for the following uploads and runs. Symbols start at their maxima. Throws for unknown names and values
    /// outside 0..max.
    void set(std::string_view symbol, std::int64_t value);
    /// Copies an input's elements at its current sizes, row-major. Throws naming the input, its shape and the count given.
    void upload(std::string_view input, std::span<const float> data);
    void upload(std::string_view input, std::span<const std::int32_t> data);
    /// Submits and waits. Throws when an input was never uploaded or has another size since, or a size does not fit.
    void run();
    /// An output of the last run, at the sizes of that run.
    std::vector<float> download(std::string_view output);
    std::vector<std::int32_t> download_i32(std::string_view output);
    /// Current sizes of an input or output.
    std::vector<std::int64_t> shape(std::string_view name) const;

    /// Records into the host's command buffer (begun, outside a render pass, of the device's queue family). Every input and
    /// output is named in `bindings`. Nothing is submitted, waited for or allocated: allocate() must have come before.
    /// Before: writes to the inputs are made available to COMPUTE_SHADER / SHADER_READ by the host. After: outputs are
    /// written by COMPUTE_SHADER / SHADER_WRITE; the host makes them visible to its own use. Clobbers the bound compute
    /// pipeline, descriptor set 0 and push constants of the compute bind point. A slot must not be recorded again while its
    /// last recording is pending, and recording it again makes that one invalid.
    Status record(VkCommandBuffer commands, std::span<const BufferRange> bindings, std::span<const SizeSetting> sizes,
                  std::uint32_t slot = 0) noexcept;

    /// A table: every dispatch with its kernel, constants, memory, and why this variant.
    std::string explain() const;
    /// The graph in Graphviz' language, with shapes and arena offsets.
    std::string dot() const;
    /// Times of the last run, when compiled with `profile`.
    const std::vector<DispatchTime>& times() const;
    /// times() as a table with GFLOP/s and GB/s.
    std::string time_table() const;
    /// times() as a trace for chrome://tracing or ui.perfetto.dev.
    void write_trace(const std::filesystem::path& path) const;
    /// Number of submissions the last run was split into.
    std::size_t submissions() const;
    const Plan& plan() const;

private:
    friend class Device;
    /// A unique_ptr that throws where it is used empty.
    class Core {
    public:
        explicit Core(std::unique_ptr<ProgramCore> core);
        explicit operator bool() const noexcept { return core_ != nullptr; }
        ProgramCore& operator*() const;
        ProgramCore* operator->() const { return &**this; }

    private:
        std::unique_ptr<ProgramCore> core_;
    };

    explicit Program(std::unique_ptr<ProgramCore> core);
    Core core_;
};

}  // namespace vkf
