// SPDX-License-Identifier: Apache-2.0
// Running a program by itself, the mirrors of its inputs and outputs copied.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <string>
#include <utility>

#include "runtime/device/barrier.h"
#include "runtime/device/program_core.h"

namespace vkf {

namespace {

/// Hands out the run's command buffers, submitting each as it is full. Unless the run is handed on,
/// nothing of it is open or under way behind it.
class Submissions {
public:
    Submissions(ProgramCore& core, Sink& sink) : core_(core), sink_(sink) {}
    ~Submissions() {
        if (!handed_on_) {
            abandon();
        }
        // what was submitted with the fence has ended, or the device was given up
        if (fence_ && !core_.device->given_up) {
            core_.device->api.vkDestroyFence(core_.device->handle, fence_, nullptr);
        }
    }
    Submissions(const Submissions&) = delete;
    Submissions& operator=(const Submissions&) = delete;

    VkCommandBuffer begin() {
        const DeviceTable& vk = core_.device->api;
        if (used_ == core_.commands.size()) {
            const VkCommandBufferAllocateInfo info{VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO, nullptr,
                                                   core_.command_pool, VK_COMMAND_BUFFER_LEVEL_PRIMARY, 1};
            VkCommandBuffer commands = VK_NULL_HANDLE;
            core_.device->check_result(vk.vkAllocateCommandBuffers(core_.device->handle, &info, &commands),
                                       "vkAllocateCommandBuffers");
            core_.commands.push_back(commands);
        }
        const VkCommandBufferBeginInfo info{VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO, nullptr,
                                            VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT, nullptr};
        core_.device->check_result(vk.vkBeginCommandBuffer(core_.commands[used_], &info), "vkBeginCommandBuffer");
        open_ = core_.commands[used_++];
        return open_;
    }

    /// Submits the last command buffer. Who waits for the runs waits for all of this one.
    void hand_on(VkCommandBuffer last, SubmittedRuns& runs) {
        end(last);
        runs.reset();
        submitted_ = true;
        runs.submit(last);
        count_writes();
        handed_on_ = true;
    }

    /// The function for Sink::next. It keeps an exception for run() to rethrow.
    static VkCommandBuffer next(void* self, VkCommandBuffer full) {
        auto& s = *static_cast<Submissions*>(self);
        try {
            s.submit(full, VK_NULL_HANDLE);
            return s.begin();
        } catch (...) {
            s.error = std::current_exception();
            return VK_NULL_HANDLE;
        }
    }

    /// The function for Sink::begin_together. It keeps an exception likewise.
    static VkCommandBuffer begin_together(void* self, VkCommandBuffer full, std::size_t dispatch,
                                          const Command& command) {
        auto& s = *static_cast<Submissions*>(self);
        try {
            if (!s.fence_) {
                s.fence_ = s.core_.device->make_fence();
            }
            s.submit(full, s.fence_);
            s.dispatch_ = dispatch;
            s.command_ = command;
            return s.begin();
        } catch (...) {
            s.error = std::current_exception();
            return VK_NULL_HANDLE;
        }
    }

    /// The function for Sink::end_together. It keeps an exception likewise.
    static VkCommandBuffer end_together(void* self, VkCommandBuffer meanwhile, bool anything) {
        auto& s = *static_cast<Submissions*>(self);
        DeviceCore& device = *s.core_.device;
        try {
            if (anything) {
                s.submit(meanwhile, VK_NULL_HANDLE);
                meanwhile = s.begin();
            }
            device.wait(s.fence_);
            device.check_result(device.api.vkResetFences(device.handle, 1, &s.fence_), "vkResetFences");
            s.core_.exchange(s.dispatch_, s.command_);
            return meanwhile;
        } catch (...) {
            s.error = std::current_exception();
            return VK_NULL_HANDLE;
        }
    }

    std::size_t used() const { return used_; }
    std::exception_ptr error;

private:
    void end(VkCommandBuffer commands) {
        if (core_.has_canary()) {
            core_.runs->canary.record(core_.device, commands);
        }
        open_ = VK_NULL_HANDLE;
        core_.device->check_result(core_.device->api.vkEndCommandBuffer(commands), "vkEndCommandBuffer");
    }

    void submit(VkCommandBuffer commands, VkFence fence) {
        end(commands);
        submitted_ = true;
        core_.runs->follow(core_.device->submit(commands, fence));
        count_writes();
    }

    void count_writes() noexcept { core_.runs->state_writes += std::exchange(sink_.writes_state, false) ? 1 : 0; }

    /// Ends what is recorded, which left open could not be begun again, and waits for the rest.
    void abandon() {
        if (open_) {
            core_.device->api.vkEndCommandBuffer(open_);
        }
        if (submitted_) {
            core_.device->wait_idle();
        }
    }

    ProgramCore& core_;
    Sink& sink_;
    std::size_t used_ = 0;
    VkCommandBuffer open_ = VK_NULL_HANDLE;  ///< being recorded
    bool submitted_ = false;                 ///< some of it, or so it was tried
    bool handed_on_ = false;
    // of the collective that has begun
    VkFence fence_ = VK_NULL_HANDLE;
    std::size_t dispatch_ = 0;
    Command command_;
};

/// Puts this rank's numbers in their place in `out`, where those of all lie then; rank r has
/// columns[r] of each row.
void gather(Communicator& ranks, const std::vector<std::uint32_t>& columns, std::span<const std::byte> in,
            std::byte* out) {
    const auto rank = static_cast<std::size_t>(ranks.rank());
    std::vector<std::uint64_t> bytes;
    std::uint64_t all = 0, before = 0;
    for (std::size_t r = 0; r < columns.size(); ++r) {
        before = r == rank ? all : before;
        bytes.push_back(in.size() / columns[rank] * columns[r]);
        all += bytes.back();
    }
    std::memcpy(out + before, in.data(), in.size());
    ranks.all_gather({out, static_cast<std::size_t>(all)}, bytes);
}

}  // namespace

void ProgramCore::finish_run() {
    if (!run_unread) {
        return;
    }
    run_unread = false;
    runs->wait();
    device->check_alive();  // a ticket may have been told first that the device was lost
    if (runs->dropped == runs->submitted) {
        return;  // or that the run did not run
    }
    for (InputState& input : inputs) {
        input.dirty = false;
    }
    ran = true;
    if (options.profile && queries) {
        read_times();
    }
}

void ProgramCore::exchange(std::size_t dispatch, const Command& command) {
    const PlannedDispatch& planned = plan.dispatches[dispatch];
    CollectivePush at{};
    std::memcpy(&at, command.push_bytes().data(), sizeof(at));
    const auto first = [&](std::size_t binding, std::uint32_t offset) {
        const Window& w = planned.windows[binding];
        return exchanged.mapped() + plan.exchange_offset[w.storage] + w.base + std::uint64_t{offset} * sizeof(float);
    };
    const std::byte* in = first(0, at.input_offset);
    std::byte* out = first(1, at.output_offset);
    const auto numbers = static_cast<std::size_t>(command.groups());
    const std::size_t bytes = numbers * sizeof(float);
    Communicator& ranks = *options.communicator;
    switch (planned.dispatch.collective) {
        case Collective::none: break;
        case Collective::all_reduce:
            if (in != out) {
                std::memcpy(out, in, bytes);
            }
            ranks.all_reduce({reinterpret_cast<float*>(out), numbers});
            break;
        case Collective::all_gather: gather(ranks, planned.dispatch.words, {in, bytes}, out); break;
        case Collective::broadcast: {
            const auto from = static_cast<int>(planned.dispatch.words[0]);
            if (in != out && from == ranks.rank()) {
                std::memcpy(out, in, bytes);
            }
            ranks.broadcast({out, bytes}, from);
            break;
        }
    }
}

void ProgramCore::run() {
    submit(false);
    finish_run();
}

void ProgramCore::check_inputs() {
    for (const InputState& input : inputs) {
        if (bound_tensors[input.storage]) {
            continue;
        }
        const StorageInfo& info = plan.storages[input.storage];
        const auto where = [&] { return options.name + ": input " + info.name; };
        if (!input.uploaded) {
            throw Error("was never uploaded", where());
        }
        const std::uint64_t wanted = elements_of(input.storage, sizes);
        if (input.uploaded_elements != wanted) {
            throw Error(std::to_string(input.uploaded_elements) +
                            " elements were uploaded, at the sizes set now it has " + std::to_string(wanted),
                        where());
        }
        for (std::size_t i = 0; i < info.shape.size(); ++i) {
            if (input.uploaded_shape[i] != info.shape[i].eval(sizes)) {
                throw Error("was uploaded in another shape than it has at the sizes set now", where());
            }
        }
        for (std::size_t c = 0; c < plan.content_checks.size(); ++c) {
            const ContentCheck& check = plan.content_checks[c];
            if (check.storage == input.storage && check.limit.eval(sizes) != checked_limits[c]) {
                const std::byte* mapped = io.mapped() ? io.mapped() : upload_mirror.mapped();
                checked_limits[c] =
                    check_numbers(c, std::span(mapped + io_offset[input.storage], wanted * sizeof(std::int32_t)));
            }
        }
    }
}

Ticket ProgramCore::submit(bool ticket) {
    if (device->deferred) {
        throw Error("the host submits for this device (BorrowedDevice::host_submits): record() the program instead",
                    options.name);
    }
    device->check_alive();
    for (const StorageInfo& s : plan.storages) {
        refuse_image(s);
    }
    for (std::size_t slot = 0; slot < slots.size(); ++slot) {
        if (slots[slot].segments_left) {  // their scratch and state are those of a run
            throw Error("run() would spoil the recording of slot " + std::to_string(slot) +
                            ", of which segments are left to record",
                        options.name);
        }
    }
    if (!slots.empty() && slots[0].in_use) {
        throw Error("run() takes slot 0, whose recording was not told to have finished", options.name);
    }
    if (Status wrong = check_sizes(sizes); !wrong) {
        refuse(wrong);
    }
    check_bound();
    check_inputs();
    allocate_io();
    const DeviceTable& vk = device->api;
    if (!command_pool) {
        const VkCommandPoolCreateInfo info{VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO, nullptr,
                                           VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT, device->queue_family};
        device->check_result(vk.vkCreateCommandPool(device->handle, &info, nullptr, &command_pool),
                             "vkCreateCommandPool");
    }
    finish_run();
    if (!runs) {
        runs = std::make_shared<SubmittedRuns>(device, options.name);
    }
    if (ticket) {
        runs->make_semaphore();
    }
    const auto query_count = static_cast<std::uint32_t>(2 * plan.dispatches.size());
    const bool profile = options.profile && device->capabilities.timestamp_period > 0 && query_count > 0;
    if (profile && !queries) {
        const VkQueryPoolCreateInfo info{
            VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO, nullptr, 0, VK_QUERY_TYPE_TIMESTAMP, query_count, 0};
        device->check_result(vk.vkCreateQueryPool(device->handle, &info, nullptr, &queries), "vkCreateQueryPool");
    }
    RecordingSlot& used = slots[0];
    for (const StorageId s : externals) {
        used.places[s] = place_of(s);
    }
    run_sets.make_views(used.places);
    run_sets.bind(0, used.places);

    run_sizes.reserve(sizes.size());  // no exception may come after the submission
    // from here on the outputs are no longer those of the last run
    ran = false;
    timed = false;
    runs->begin();
    Sink sink;
    Submissions submissions_of_run(*this, sink);
    sink.commands = submissions_of_run.begin();
    sink.sets = &run_sets;
    sink.next = Submissions::next;
    sink.begin_together = Submissions::begin_together;
    sink.end_together = Submissions::end_together;
    sink.user = &submissions_of_run;
    sink.budget = device->submit_budget;
    sink.queries = profile ? queries : VkQueryPool(VK_NULL_HANDLE);

    if (profile) {
        vk.vkCmdResetQueryPool(sink.commands, queries, 0, query_count);
    }
    sink.mirrors = !io.mapped();
    open(sink.commands, used, true, sink.mirrors);
    Position at;
    run_cost = {};
    const Status status = record(sink, 0, sizes, at, run_cost);
    if (submissions_of_run.error) {
        std::rethrow_exception(submissions_of_run.error);
    }
    if (!status) {
        refuse(status);
    }
    barrier(vk, sink.commands, sink.mirrors ? kTransfer : kCompute,
            sink.mirrors ? VK_ACCESS_TRANSFER_WRITE_BIT : VK_ACCESS_SHADER_WRITE_BIT, VK_PIPELINE_STAGE_HOST_BIT,
            VK_ACCESS_HOST_READ_BIT);
    submissions_of_run.hand_on(sink.commands, *runs);
    submissions = submissions_of_run.used();
    if (plan.memory.exchanged == 0) {  // else other ranks take part of the time
        runs->timed.work = run_cost.total();
    }
    run_sizes = sizes;
    run_unread = true;
    return Ticket(runs, runs->submitted);
}

void ProgramCore::read_times() {
    ticks.resize(2 * plan.dispatches.size());
    device->check_result(
        device->api.vkGetQueryPoolResults(device->handle, queries, 0, static_cast<std::uint32_t>(ticks.size()),
                                          ticks.size() * sizeof(std::uint64_t), ticks.data(), sizeof(std::uint64_t),
                                          VK_QUERY_RESULT_64_BIT),
        "vkGetQueryPoolResults");
    const double ms_per_tick = static_cast<double>(device->capabilities.timestamp_period) * 1e-6;
    const std::uint64_t valid = ~std::uint64_t{0} >> (64 - std::min(device->capabilities.timestamp_bits, 64u));
    const auto ms = [&](std::uint64_t from, std::uint64_t to) {
        return static_cast<double>((to - from) & valid) * ms_per_tick;
    };
    for (std::size_t d = 0; d < times.size(); ++d) {
        times[d].start_ms = ms(ticks[0], ticks[2 * d]);
        times[d].ms = ms(ticks[2 * d], ticks[2 * d + 1]);
    }
    timed = true;
}

}  // namespace vkf
