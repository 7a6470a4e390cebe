// SPDX-License-Identifier: Apache-2.0
// A graph compiled for a device: runs by itself, or records into the host's command buffer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "../compile/memory_sizes.h"
#include "compile_options.h"
#include "recording.h"
#include "status.h"
#include "ticket.h"
#include "vulkan_handles.h"
#include "weights.h"

namespace vkf {

struct ProgramCore;

/// Externally synchronised; different slots may be recorded by different threads at once. One that
/// was moved from throws at any use but assignment and destruction.
class VKF_API Program {
public:
    Program(Program&&) noexcept;
    Program& operator=(Program&&) noexcept;
    ~Program();  // waits for its own runs; recordings of a host must have finished

    /// Bytes by kind at the largest sizes; known before anything is allocated.
    const MemorySizes& memory() const;
    /// What it was compiled for by their layout alone: before memory is allocated. Throws naming a
    /// weight that is missing, or lies there in another shape, type or order than it was compiled
    /// for. allocate(), upload() and run() without them throw, naming one.
    void set_weights(const Weights& weights);
    /// Allocates scratch and constants (and state, where it has its own), which is all that
    /// record() needs; upload() and run() imply it, and add memory for inputs and outputs.
    void allocate();

    /// Sets a symbol for the following uploads and runs. Symbols start at their maxima. Throws for
    /// unknown names and values outside 0..max.
    void set(std::string_view symbol, std::int64_t value);
    /// Copies an input's elements at its current sizes, row-major. Throws naming the input, its
    /// shape and the count given. Floats become f16 or bf16 where the input is: to the nearest,
    /// ties to even.
    void upload(std::string_view input, std::span<const float> data);
    void upload(std::string_view input, std::span<const std::int32_t> data);
    /// The bits of an f16 or bf16 input's elements.
    void upload(std::string_view input, std::span<const std::uint16_t> data);
    /// Submits a run and does not wait for it. One run of a program is under way at a time:
    /// whatever needs the last one to have finished waits for it, that is submit(), run(),
    /// upload(), download() and times(). Meanwhile the State is in use, and slot 0 of record().
    /// Throws as run() does.
    Ticket submit();
    /// Submits and waits. Throws when an input was never uploaded or has another size since, or a
    /// size does not fit.
    void run();
    /// An output of the last run, at the sizes of that run. One of f16 or bf16 is widened, exactly.
    std::vector<float> download(std::string_view output);
    std::vector<std::int32_t> download_i32(std::string_view output);
    /// The bits of an f16 or bf16 output's elements.
    std::vector<std::uint16_t> download_bits(std::string_view output);
    /// The same into memory of the caller's, of just that many elements: set(), upload(), run() and
    /// this allocate nothing on the host once a first run has.
    void download(std::string_view output, std::span<float> to);
    void download(std::string_view output, std::span<std::int32_t> to);
    void download(std::string_view output, std::span<std::uint16_t> to);
    /// Current sizes of an input or output.
    std::vector<std::int64_t> shape(std::string_view name) const;

    /// The same with scratch of the host's: memory().scratch bytes at a multiple of
    /// Capabilities::storage_alignment, in a buffer with VK_BUFFER_USAGE_STORAGE_BUFFER_BIT that
    /// outlives the program. Between recordings it holds nothing of value, and what the host did
    /// there before needs a dependency to COMPUTE_SHADER; until one has finished, segments
    /// included, nobody else writes there. `name` is not looked at.
    void allocate(const BufferRange& scratch);

    /// Records the whole program into the host's command buffer: begun, outside a render pass, of
    /// the device's queue family.
    ///
    /// Nothing is submitted, waited for, allocated or locked, and nothing is thrown: allocate()
    /// must have come before, and an error is told by the status. After an error the command buffer
    /// may hold a part of the program. Before: what wrote the inputs is made available and visible
    /// to COMPUTE_SHADER / SHADER_READ by the host, or by the
    ///   acquire of BufferRange::acquire_from. An output that is still read by earlier commands
    ///   needs an execution dependency
    ///   to COMPUTE_SHADER. Earlier recordings of this program, or of others with the same State,
    ///   in order on the same queue
    ///   need nothing: a barrier of ours stands in front. No output overlaps another range.
    /// After: outputs are written by COMPUTE_SHADER / SHADER_WRITE (images: the same); the host
    /// makes them visible to its use. Clobbers: the bound compute pipeline, descriptor set 0 and
    /// the push constants of the compute bind point. In flight: as many recordings as
    /// CompileOptions::slots. A slot is free again when its last recording has finished, or
    ///   was dropped with its command buffer; recording it again makes the last one invalid. All
    ///   slots share scratch and
    ///   state, so their recordings execute one after the other, in the order submitted, on one
    ///   queue.
    /// Threads: different slots may be recorded by different threads at once; everything else is
    /// externally synchronised.
    Status record(VkCommandBuffer commands, const Recording& recording) noexcept;
    Status record(VkCommandBuffer commands, std::span<const BufferRange> buffers, std::span<const SizeSetting> sizes,
                  std::uint32_t slot = 0) noexcept {
        return record(commands, {.buffers = buffers, .sizes = sizes, .slot = slot});
    }

    /// The same in pieces, each into a command buffer of its own or of one frame: begin() binds a
    /// slot, then record_segment() records from where the last one stopped until `budget`
    /// (operations plus bytes, see cost()) is used up, and at least one work group. Command buffers
    /// are submitted in order to one queue. The result is that of the whole, bit for bit. Until
    /// `last` has finished, the bound ranges are in use; until it is recorded, no other slot of
    /// this program, nor another program with its State or scratch, may be recorded between. A
    /// begin() or record() of the slot gives up what is left.
    Status begin(const Recording& recording) noexcept;
    Status record_segment(VkCommandBuffer commands, double budget, Segment& segment, std::uint32_t slot = 0) noexcept;
    /// Of the whole program at these sizes.
    Cost cost(std::span<const SizeSetting> sizes = {}) const;
    /// Tells a checked program that the slot's last recording has finished or was dropped.
    void finished(std::uint32_t slot) noexcept;

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

private:
    friend class Device;
    friend struct Insides;
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
