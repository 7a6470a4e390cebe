// SPDX-License-Identifier: Apache-2.0
// A graph compiled for a device: runs by itself, or records into the host's command buffer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "../compile/arithmetic_use.h"
#include "../compile/memory_sizes.h"
#include "compile_options.h"
#include "device_tensor.h"
#include "recording.h"
#include "status.h"
#include "ticket.h"
#include "vulkan_handles.h"
#include "weights.h"

namespace vkf {

struct ProgramCore;

/// A program is externally synchronised, but different slots may be recorded by different threads
/// at once. A moved-from Program throws at any use but assignment and destruction.
class VKF_API Program {
public:
    Program(Program&&) noexcept;
    Program& operator=(Program&&) noexcept;
    ~Program();  // waits for its own runs; recordings of a host must have finished

    /// Bytes by kind at the largest sizes; known before anything is allocated.
    const MemorySizes& memory() const;
    /// Gives weights to a program that was compiled for their layout alone. Call it before memory
    /// is allocated. Throws naming a weight that is missing, or that has another shape, type or
    /// order than the layout. Without weights allocate(), upload() and run() throw, naming one.
    void set_weights(const Weights& weights);
    /// Makes all that record() needs: scratch, constants, state where it has its own, and
    /// descriptor sets. upload() and run() make what they need themselves, memory for inputs and
    /// outputs too. Throws where a driver makes no pipeline for buffers of a host's.
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
    /// Lets runs read an input, or write an output, where a tensor lies, instead of in memory of
    /// its own: nothing is copied, and what one program wrote the next one reads. The tensor has
    /// the type of the input or output, and at each run its shape at the sizes set; run()
    /// throws where it has not, or where the memory of an output is bound twice. An output that is
    /// bound is not downloaded: read the tensor. The tensor stays bound, and lives, until another
    /// bind() or an upload(); an empty one takes the binding back, and an input then counts as
    /// never uploaded. Waits for a run under way; once an output was bound anew, download() needs
    /// another run. record() binds what the host gives. Throws naming an input or output that is
    /// not there, is an image or has numbers that upload() checks, another type, another device.
    void bind(std::string_view name, const DeviceTensor& tensor);
    /// Submits a run and does not wait for it, but for what ranks exchange. One run of a program is
    /// under way at a time: whatever needs the last one to have finished waits for it, that is
    /// submit(), run(), upload(), download() and times(). Meanwhile the State is in use, and slot 0
    /// of record(). Throws as run() does.
    Ticket submit();
    /// Submits and waits. Throws when an input was never uploaded or has another size since, or a
    /// size does not fit.
    void run();
    /// An output of the last run, at the sizes of that run. One of f16 or bf16 is widened, exactly.
    std::vector<float> download(std::string_view output);
    std::vector<std::int32_t> download_i32(std::string_view output);
    /// The bits of an f16 or bf16 output's elements.
    std::vector<std::uint16_t> download_bits(std::string_view output);
    /// Reads into the caller's memory, which must have exactly that many elements. After a first
    /// run, set(), upload(), run() and this allocate nothing on the host.
    void download(std::string_view output, std::span<float> to);
    void download(std::string_view output, std::span<std::int32_t> to);
    void download(std::string_view output, std::span<std::uint16_t> to);
    /// The current sizes of an input or output.
    std::vector<std::int64_t> shape(std::string_view name) const;

    /// allocate() with scratch memory of the host's: memory().scratch bytes at a multiple of
    /// Capabilities::storage_alignment, in a buffer with VK_BUFFER_USAGE_STORAGE_BUFFER_BIT that
    /// outlives the program. Between recordings the scratch holds nothing of value, so the host may
    /// use it; what the host did there needs a dependency to COMPUTE_SHADER. Until a recording has
    /// finished, segments included, nobody else may write there. `name` is ignored. Where
    /// memory().scratch is 0, the buffer may be null.
    void allocate(const BufferRange& scratch);

    /// Records the whole program into the host's command buffer: begun, outside a render pass, of
    /// the device's queue family.
    ///
    /// record() does not submit, wait, allocate, lock or throw. allocate() must have come before.
    /// Nothing bounds the time that it takes on the device: a watchdog may want record_segment().
    /// The status tells an error; after one the command buffer may hold a part of the program.
    ///
    /// Before: the host makes what wrote the inputs available and visible to COMPUTE_SHADER /
    /// SHADER_READ, or leaves that to the acquire of BufferRange::acquire_from. An output that
    /// earlier commands still read needs an execution dependency to COMPUTE_SHADER. Earlier
    /// recordings of this program, or of others with the same State, need nothing if they are in
    /// order on the same queue: a barrier of ours stands in front. No output may overlap another
    /// range.
    ///
    /// After: COMPUTE_SHADER / SHADER_WRITE has written the outputs, images too; the host makes
    /// them visible to its use.
    ///
    /// Clobbers: the pipeline and all descriptor sets of the compute bind point, for binding set 0
    /// disturbs those above it, and all push constants, of whatever stages.
    ///
    /// In flight: as many recordings as CompileOptions::slots. A slot is free again when its last
    /// recording has finished, or was dropped with its command buffer; recording the slot again
    /// makes the last recording invalid. All slots share scratch and state, so their recordings
    /// execute one after the other, in the order submitted, on one queue.
    ///
    /// Threads: different slots may be recorded by different threads at once; everything else is
    /// externally synchronised.
    Status record(VkCommandBuffer commands, const Recording& recording) noexcept;
    Status record(VkCommandBuffer commands, std::span<const BufferRange> buffers, std::span<const SizeSetting> sizes,
                  std::uint32_t slot = 0) noexcept {
        return record(commands, {.buffers = buffers, .sizes = sizes, .slot = slot});
    }

    /// begin() and record_segment() record in segments, for example one a frame. begin() binds the
    /// arguments to a slot. Each record_segment() goes on where the last one stopped, until
    /// `budget` (operations plus bytes, see cost()), which is above 0, is used up; it records at
    /// least one work group. Submit the command buffers in order to one queue. The result equals
    /// that of record(), bit for bit. The bound ranges are in use until the segment with `last` has
    /// finished. Until it is recorded, do not record another slot of this program, nor record or
    /// run another program with its State or scratch; run() and submit() of this one throw. A
    /// begin(), record() or finished() of the slot gives up what is left; a checked program wants
    /// finished() once a segment was recorded.
    Status begin(const Recording& recording) noexcept;
    Status record_segment(VkCommandBuffer commands, double budget, Segment& segment, std::uint32_t slot = 0) noexcept;
    /// The cost of the whole program at these sizes.
    Cost cost(std::span<const SizeSetting> sizes = {}) const;
    /// Tells that the slot's last recording has finished or was dropped, which a checked program
    /// wants to know. Segments that are left to record are given up.
    void finished(std::uint32_t slot) noexcept;

    /// Says what came of CompileOptions::arithmetic: what products and fused attention compute
    /// with, and why some stay in fp32. Lives as long as the program.
    const ArithmeticUse& arithmetic() const;
    /// A table: every dispatch with its kernel, constants, memory, and why this variant.
    std::string explain() const;
    /// The graph in Graphviz' language, with shapes and arena offsets.
    std::string dot() const;
    /// Times of the last run, when compiled with `profile` for a queue that has timestamps; else
    /// none.
    const std::vector<DispatchTime>& times() const;
    /// times() as a table with GFLOP/s and GB/s; without times, a table without rows.
    std::string time_table() const;
    /// times() as a trace for chrome://tracing or ui.perfetto.dev; without times, one without
    /// events.
    void write_trace(const std::filesystem::path& path) const;

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
