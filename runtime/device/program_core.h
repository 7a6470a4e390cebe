// SPDX-License-Identifier: Apache-2.0
// A program's Vulkan side.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "runtime/compile/plan.h"
#include "runtime/device/compile_options.h"
#include "runtime/device/descriptor_sets.h"
#include "runtime/device/device_core.h"
#include "runtime/device/device_tensor.h"
#include "runtime/device/memory.h"
#include "runtime/device/recording.h"
#include "runtime/device/state.h"
#include "runtime/device/status.h"
#include "runtime/device/submitted_runs.h"
#include "runtime/device/ticket.h"
#include "runtime/device/weights.h"

namespace vkf {

/// The command buffer in which recording goes on: run() changes the command buffer when a
/// submission is full.
struct Sink {
    VkCommandBuffer commands = VK_NULL_HANDLE;
    const DescriptorSets* sets = nullptr;  ///< what is recorded is bound to these
    /// A function that is called between dispatches once `budget` is used up; gives the command
    /// buffer to go on with. Null: never.
    VkCommandBuffer (*next)(void* user, VkCommandBuffer full) = nullptr;
    void* user = nullptr;
    /// operations plus bytes in one submission or segment; 0: no bound
    double budget = 0;
    bool pause = false;                    ///< stop once `budget` is used up
    VkQueryPool queries = VK_NULL_HANDLE;  ///< two timestamps a dispatch, when set
    bool mirrors = false;                  ///< the plan's copies are recorded, too
    bool writes_state = false;             ///< what was recorded since the last submission does
    /// A function that submits what was recorded, begins a collective with what it makes, and gives
    /// the command buffer to go on with; null where nobody can wait.
    VkCommandBuffer (*begin_together)(void* user, VkCommandBuffer full, std::size_t dispatch,
                                      const Command& command) = nullptr;
    /// A function that ends the collective: what was recorded since, if anything, is submitted
    /// first, so that it runs while ranks exchange.
    VkCommandBuffer (*end_together)(void* user, VkCommandBuffer meanwhile, bool anything) = nullptr;
};

struct InputState {
    StorageId storage = 0;
    std::uint64_t uploaded_elements = 0;
    std::array<std::int64_t, kMaxRank> uploaded_shape{};
    bool uploaded = false;
    /// the mirror is newer than the device, as far as runs are known to have finished
    bool dirty = false;
};

/// The place up to which a recording has come.
struct Position {
    std::size_t entry = 0;    ///< first entry of Plan::work that is not recorded yet
    std::uint64_t group = 0;  ///< its first group that is not recorded yet
};

/// What recording into one of the program's slots needs, made by allocate(): slots can be recorded
/// side by side, and nothing is allocated meanwhile.
struct RecordingSlot {
    std::vector<std::int64_t> sizes;
    std::vector<Place> places;
    Position at;                 ///< where the next segment begins
    Cost total, spent;           ///< cost of the whole recording, and of its segments so far
    bool segments_left = false;  ///< begin() came, the last segment not yet
    bool in_use = false;         ///< recorded and not finished, as a checked program was told
};

/// The type that a caller has elements as: `bits` are those of f16 and bf16. Floats stand for them
/// too, and are converted.
enum class HostType : std::uint8_t { f32, i32, bits };

/// An output as it lies in memory.
struct OutputBytes {
    DType dtype = DType::f32;
    std::span<const std::byte> bytes;

    std::uint64_t elements() const noexcept { return bytes.size() / size_of(dtype); }
};

struct ProgramCore {
    static constexpr std::uint32_t kNoSlot = ~0u;

    std::shared_ptr<DeviceCore> device;
    Plan plan;
    CompileOptions options;
    Weights weights;
    State state;

    PipelineTable pipelines;          ///< those of run()
    std::vector<std::int64_t> sizes;  ///< current value of each symbol

    // memory, made by allocate()
    bool allocated = false;
    BufferRange scratch_of_host;  ///< given to allocate(); without a buffer there is none
    /// number of the last upload that must come first where the host submits, see Deferred
    std::uint64_t uploads_before = 0;
    Block arena, exchanged, constants, io, upload_mirror, readback_mirror;
    std::vector<Place> places;  ///< the place of every storage but inputs and outputs
    /// places of inputs and outputs in `io`; the mirrors hold one part each
    std::vector<std::uint64_t> io_offset;
    std::uint64_t outputs_at = 0;  ///< where the outputs begin in `io`, after the inputs
    DescriptorSets run_sets;       ///< of slot 0 alone, made by allocate_io()
    DescriptorSets record_sets;    ///< made by allocate_for_host()

    std::vector<StorageId> externals;  ///< inputs and outputs
    std::vector<RecordingSlot> slots;
    /// the slot of which segments are left to record
    std::atomic<std::uint32_t> segmented = kNoSlot;

    // running
    std::vector<InputState> inputs;
    std::vector<std::int64_t> checked_limits;  ///< [content check]; what uploads were held to
    std::vector<DeviceTensor> bound_tensors;   ///< [storage]; what inputs and outputs are bound to
    VkCommandPool command_pool = VK_NULL_HANDLE;
    std::vector<VkCommandBuffer> commands;  ///< grows to the most submissions a run needed
    std::shared_ptr<SubmittedRuns> runs;    ///< made by the first run
    /// true: finish_run() has not yet read what a run that was submitted left behind
    bool run_unread = false;
    VkQueryPool queries = VK_NULL_HANDLE;
    std::size_t submissions = 0;
    std::vector<std::int64_t> run_sizes;  ///< sizes of the last run
    Cost run_cost;                        ///< its work
    bool ran = false;                     ///< the outputs are those of the last run
    /// How many submissions have written states. A run that threw has changed none if there are no
    /// more.
    std::uint64_t state_writes() const noexcept { return runs ? runs->state_writes : 0; }
    std::vector<std::uint64_t> ticks;  ///< two timestamps a dispatch
    std::vector<DispatchTime> times;
    bool timed = false;  ///< a run's times were read

    ~ProgramCore();

    // --- what several of the files ask -----------------------------------------------------------

    bool has_host_scratch() const noexcept {
        return scratch_of_host.buffer != VK_NULL_HANDLE && scratch_of_host.bytes != 0;
    }
    /// True where an input or output of that name is bound to a tensor.
    bool is_bound(StorageKind kind, std::string_view name) const {
        return bool(bound_tensors[plan.named(kind, name, options.name)]);
    }
    /// True where wrong use is looked for: checked programs and devices.
    bool checked() const noexcept { return options.checked || device->options.checked; }
    /// True where each submission of a run is asked whether it ran.
    bool has_canary() const noexcept { return options.checked || device->canary; }
    /// Throws what is wrong as an Error at the program, whose name its message begins with.
    [[noreturn]] void refuse(const Status& wrong) const;
    /// Throws for an image, which only a host can bind.
    void refuse_image(const StorageInfo& info) const;
    Status check_sizes(std::span<const std::int64_t> values) const noexcept;
    std::uint64_t elements_of(StorageId storage, std::span<const std::int64_t> values) const noexcept;
    /// The sizes of an input or output at the symbols' values now.
    std::vector<std::int64_t> shape_of(StorageId external) const;
    Cost cost(std::span<const std::int64_t> values) const noexcept;

    // --- memory: program_memory.cpp --------------------------------------------------------------

    /// Allocates what all need. If `host_scratch` has a buffer, the arena lies there.
    void allocate(const BufferRange& host_scratch = {});
    /// Calls allocate(), and makes what run() needs besides.
    void allocate_io();
    /// Calls allocate(), and makes what record() needs besides.
    void allocate_for_host(const BufferRange& host_scratch = {});

    // --- a host's recording: accept.cpp, record.cpp ----------------------------------------------

    /// Takes a host's recording into its slot: sizes and places.
    Status accept(const Recording& recording) noexcept;
    Status accept_buffer(StorageId id, const Recording& recording, Place& place) const noexcept;
    Status accept_image(StorageId id, const Recording& recording, std::span<const std::int64_t> values,
                        Place& place) const noexcept;
    /// Fails where record() cannot take that slot.
    Status check_slot(std::uint32_t slot) const noexcept;
    Status check_statements(const Recording& recording) const noexcept;
    /// Checks a range against what the host told of its buffer.
    Status check_range(const BufferRange& range) const noexcept;
    /// Writes the symbols' values to `out`: those given, else those set.
    Status settle(std::span<const SizeSetting> settings, std::span<std::int64_t> out) const noexcept;
    /// The input or output of that name; null where there is none.
    const StorageInfo* external(std::string_view name, bool image) const noexcept;
    /// Records the first barrier and the acquires; `mirrors` as in Sink.
    void open(VkCommandBuffer commands, const RecordingSlot& used, bool first, bool mirrors = false) const noexcept;
    /// Records the releases at the end.
    void close(VkCommandBuffer commands, const RecordingSlot& used) const noexcept;

    // --- recording, a host's and a run's: recorder.cpp -------------------------------------------

    /// Computes kernel, push constants and groups of one dispatch at these sizes.
    Status prepare(std::size_t dispatch, std::span<const std::int64_t> values, Command& command) const noexcept;
    /// Records the plan's work from `at` on, which is moved behind what was recorded; adds to
    /// `spent`.
    Status record(Sink& sink, std::uint32_t slot, std::span<const std::int64_t> values, Position& at,
                  Cost& spent) noexcept;

    // --- runs: run.cpp ---------------------------------------------------------------------------

    /// Throws unless every input that is not bound was uploaded in the shape that it has now.
    /// Numbers whose limit is another than when they came are checked again.
    void check_inputs();
    /// `ticket`: somebody will look at it.
    Ticket submit(bool ticket);
    /// Waits for what submit() left under way, and reads its timestamps.
    void finish_run();
    void run();
    /// Does a collective on what lies in `exchanged`, which the device has finished writing.
    void exchange(std::size_t dispatch, const Command& command);

    // --- inputs and outputs of runs: program.cpp, bind.cpp ---------------------------------------

    void upload(std::string_view name, HostType type, std::span<const std::byte> data);
    /// Returns the limit of a check at the sizes set now. Throws where the numbers of its input are
    /// not what it asks for.
    std::int64_t check_numbers(std::size_t check, std::span<const std::byte> data) const;
    void download(std::string_view name, HostType type, std::span<std::byte> to);
    /// Waits for the last run. Throws where a caller cannot have it as `type`.
    OutputBytes output(std::string_view name, HostType type);
    /// The input was uploaded since the last run that finished.
    bool is_dirty(StorageId input) const noexcept;
    void bind(std::string_view name, const DeviceTensor& tensor);
    /// Puts a tensor, or none, in the place of the one that was bound. No run uses that any more.
    void put_bound(StorageId id, DeviceTensor tensor) noexcept;
    /// Throws unless every bound tensor has the shape that its input or output has now, and outputs
    /// share their memory with nothing.
    void check_bound() const;
    /// The place where a run finds an input or output.
    Place place_of(StorageId external) const;

private:
    void place_storages(const BufferRange& host_scratch);
    void read_times();
};

}  // namespace vkf
