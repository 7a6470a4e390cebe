// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <optional>

#include "c/device.h"
#include "runtime/device/device.h"
#include "runtime/device/device_core.h"
#include "runtime/device/insides.h"
#include "runtime/device/program_core.h"

namespace vkf::c {

/// The room in which a slot's recording is translated, made ahead so that recording allocates
/// nothing.
struct Slot {
    std::vector<BufferRange> buffers;
    std::vector<ImageView> images;
    std::vector<SizeSetting> sizes;
};

}  // namespace vkf::c

using namespace vkf;
using namespace vkf::c;

struct vkf_ticket {
    Ticket ticket;
};

struct vkf_program {
    std::optional<Program> own;  // empty: of a model, or destroyed
    std::string name;
    Program* program = nullptr;  // null: destroyed, see Graveyard
    std::vector<Slot> slots = {};
    std::weak_ptr<Graveyard> graveyard = {};  // the graveyard of a checked program's device
    vkf_program* next = nullptr;              // the next program in the graveyard
};

vkf::c::Graveyard::~Graveyard() {
    while (first) {
        delete std::exchange(first, first->next);
    }
}

namespace {

/// The program of a handle; throws for one that is null or destroyed.
template <class Handle>
auto& alive(Handle* handle) {
    if (!need(handle, "program").program) {
        throw Error("the program was destroyed before", handle->name);
    }
    return *handle->program;
}

/// Checks for functions that do not throw: VKF_OK or the failure.
vkf_result check_alive(const char* function, const vkf_program* handle) noexcept {
    if (!handle) {
        return fail(VKF_ERROR, "%s: program is null", function);
    }
    if (!handle->program) {
        return fail(VKF_ERROR, "%s: %s: the program was destroyed before", function, handle->name.c_str());
    }
    return VKF_OK;
}

/// The same for a slot of a program that is there.
vkf_result check_slot(const char* function, const vkf_program* handle, std::uint32_t slot) noexcept {
    if (slot >= handle->slots.size()) {
        return fail(VKF_ERROR, "%s: %s: slot %u of %u", function, handle->name.c_str(), slot,
                    static_cast<std::uint32_t>(handle->slots.size()));
    }
    return VKF_OK;
}

BufferRange range_of(const vkf_buffer_range& r) noexcept {
    BufferRange out;
    out.name = r.name ? r.name : "";
    out.buffer = r.buffer;
    out.offset = r.offset;
    out.bytes = r.bytes;
    out.acquire_from = r.acquires ? r.acquire_from : kSameQueueFamily;
    out.release_to = r.releases ? r.release_to : kSameQueueFamily;
    out.buffer_bytes = r.buffer_bytes;
    out.buffer_usage = r.buffer_usage;
    out.buffer_device = r.buffer_device;
    return out;
}

SizeSetting setting_of(const vkf_size_setting& s) noexcept { return {s.name ? s.name : "", s.value}; }

ImageView view_of(const vkf_image_view& v) noexcept {
    constexpr std::uint32_t kGeneral = 1;
    return {v.name ? v.name : "", v.view, v.layout == 0 ? kGeneral : v.layout, v.width, v.height};
}

/// Takes an array of a recording: VKF_OK, or the failure, which names the array and the element.
template <class From, class To, class Convert>
vkf_result translate(const char* function, const vkf_program& program, const char* array, const From* from,
                     std::uint32_t count, Convert convert, std::vector<To>& to) noexcept {
    const char* name = program.name.c_str();
    to.clear();
    if (count != 0 && !from) {
        return fail(VKF_ERROR, "%s: %s: %s is null", function, name, array);
    }
    if (count > to.capacity()) {
        return fail(VKF_ERROR, "%s: %s: %s has %u elements; recording has room for %llu", function, name, array, count,
                    static_cast<unsigned long long>(to.capacity()));
    }
    for (std::uint32_t i = 0; i < count; ++i) {
        From element;
        if (const char* wrong = copy_element(from, i, element)) {
            return fail(VKF_ERROR, "%s: %s: %s[%u]: %s", function, name, array, i, wrong);
        }
        to.push_back(convert(element));
    }
    return VKF_OK;
}

vkf_result translate(const char* function, vkf_program& program, const vkf_recording& r) noexcept {
    Slot& slot = program.slots[r.slot];
    vkf_result result = translate(function, program, "buffers", r.buffers, r.buffer_count, range_of, slot.buffers);
    if (result == VKF_OK) {
        result = translate(function, program, "images", r.images, r.image_count, view_of, slot.images);
    }
    if (result == VKF_OK) {
        result = translate(function, program, "sizes", r.sizes, r.size_count, setting_of, slot.sizes);
    }
    return result;
}

/// Calls `record(program, recording)` with the recording in C++'s terms.
template <class Record>
vkf_result with_recording(const char* function, vkf_program* handle, const vkf_recording* recording,
                          Record record) noexcept {
    if (const vkf_result wrong = check_alive(function, handle); wrong != VKF_OK) {
        return wrong;
    }
    if (!recording) {
        return fail(VKF_ERROR, "%s: recording is null", function);
    }
    vkf_recording r;
    if (const char* wrong = copy_struct(recording, r)) {
        return fail(VKF_ERROR, "%s: %s: recording: %s", function, handle->name.c_str(), wrong);
    }
    Recording out;
    out.slot = r.slot;
    if (r.slot < handle->slots.size()) {  // else record() says that there is no such slot
        if (const vkf_result wrong = translate(function, *handle, r); wrong != VKF_OK) {
            return wrong;
        }
        const Slot& slot = handle->slots[r.slot];
        out.buffers = slot.buffers;
        out.images = slot.images;
        out.sizes = slot.sizes;
    }
    return result_of(record(*handle->program, out));
}

CompileOptions options_of(const vkf_compile_options* options) {
    const vkf_compile_options o = read(options);
    CompileOptions out;
    out.name = text_or(o.name, out.name.c_str());
    if (o.state) {
        out.state = *o.state;
    }
    out.slots = or_default(o.slots, out.slots);
    out.profile = o.profile;
    out.checked = o.checked;
    out.arithmetic = arithmetic_of(o.arithmetic);
    out.rewrite = on_or_default(o.rewrite, out.rewrite);
    if (o.communicator) {
        out.communicator = o.communicator->ranks;
    }
    return out;
}

void make_slots(vkf_program& p, std::uint32_t slots) {
    const Plan& plan = Insides::core(*p.program).plan;
    const auto bound = std::count_if(plan.storages.begin(), plan.storages.end(), [](const StorageInfo& s) {
        return s.kind == StorageKind::input || s.kind == StorageKind::output;
    });
    const std::size_t room = static_cast<std::size_t>(bound) + VKF_MORE_THAN_NEEDED;
    p.slots.resize(slots);
    for (Slot& slot : p.slots) {
        slot.buffers.reserve(room);
        slot.images.reserve(room);
        slot.sizes.reserve(plan.symbols.size() + VKF_MORE_THAN_NEEDED);
    }
}

vkf_program* handle_of(const vkf_device& device, Program program, const CompileOptions& options) {
    auto handle = std::make_unique<vkf_program>(vkf_program{std::move(program), options.name});
    handle->program = &*handle->own;
    make_slots(*handle, options.slots);
    if (options.checked || Insides::core(device.device).options.checked) {
        handle->graveyard = device.graveyard;
    }
    return handle.release();
}

template <class T>
std::span<const T> numbers(const T* data, std::uint64_t count) {
    if (count == 0) {
        return {};
    }
    return {&need(data, "data"), static_cast<std::size_t>(count)};
}

}  // namespace

vkf::Arithmetic vkf::c::arithmetic_of(std::uint32_t arithmetic) {
    return pick(std::array{Arithmetic::f32, Arithmetic::f16, Arithmetic::int8}, arithmetic, "arithmetic");
}

std::shared_ptr<vkf_program> vkf::c::lent(Program& program) {
    const CompileOptions& options = Insides::core(program).options;
    auto handle = std::make_shared<vkf_program>(vkf_program{{}, options.name, &program});
    make_slots(*handle, options.slots);
    return handle;
}

vkf_result vkf_compile(vkf_device* device, const vkf_graph* graph, const vkf_weights* weights,
                       const vkf_compile_options* options, vkf_program** program) {
    return make(__func__, program, [&] {
        const CompileOptions o = options_of(options);
        vkf_device& d = need(device, "device");
        return handle_of(d, d.device.compile(need(graph, "graph"), weights ? Weights(*weights) : Weights(), o), o);
    });
}

vkf_result vkf_compile_layout(vkf_device* device, const vkf_graph* graph, const vkf_weight_layout* layout,
                              const vkf_compile_options* options, vkf_program** program) {
    return make(__func__, program, [&] {
        const CompileOptions o = options_of(options);
        vkf_device& d = need(device, "device");
        const WeightLayout& weights = need(layout, "layout");
        return handle_of(d, d.device.compile(need(graph, "graph"), weights, o), o);
    });
}

vkf_result vkf_program_set_weights(vkf_program* program, const vkf_weights* weights) {
    return guard(__func__, [&] { alive(program).set_weights(need(weights, "weights")); });
}

void vkf_program_destroy(vkf_program* program) {
    if (!program) {
        return;
    }
    if (program->program && !program->own) {
        fail(VKF_ERROR, "%s: %s: the program is its model's or trainer's own", __func__, program->name.c_str());
        return;
    }
    const std::shared_ptr<Graveyard> graveyard = program->graveyard.lock();
    if (!graveyard) {
        delete program;
        return;
    }
    if (!program->program) {
        fail(VKF_ERROR, "%s: %s: the program was destroyed before", __func__, program->name.c_str());
        return;
    }
    program->program = nullptr;
    program->own.reset();  // waits, and calls hooks of the host's: not under the lock
    decltype(program->slots)().swap(program->slots);
    const std::lock_guard lock(graveyard->mutex);
    program->next = std::exchange(graveyard->first, program);
}

vkf_result vkf_program_memory(const vkf_program* program, vkf_memory_sizes* sizes) {
    return guard(__func__, [&] {
        const MemorySizes& m = alive(program).memory();
        fill(need(sizes, "sizes"),
             {0, m.weights, m.state, m.constants, m.scratch, m.inputs, m.outputs, m.mirrors, m.exchanged});
    });
}

vkf_result vkf_program_allocate(vkf_program* program, const vkf_buffer_range* scratch) {
    return guard(__func__, [&] {
        Program& p = alive(program);
        if (scratch) {
            p.allocate(range_of(read(scratch, "scratch")));
        } else {
            p.allocate();
        }
    });
}

vkf_result vkf_program_set(vkf_program* program, const char* symbol, int64_t value) {
    return guard(__func__, [&] { alive(program).set(text(symbol, "symbol"), value); });
}

vkf_result vkf_program_upload(vkf_program* program, const char* input, const float* data, uint64_t count) {
    return guard(__func__, [&] { alive(program).upload(text(input, "input"), numbers(data, count)); });
}

vkf_result vkf_program_upload_i32(vkf_program* program, const char* input, const int32_t* data, uint64_t count) {
    return guard(__func__, [&] { alive(program).upload(text(input, "input"), numbers(data, count)); });
}

vkf_result vkf_program_upload_bits(vkf_program* program, const char* input, const uint16_t* data, uint64_t count) {
    return guard(__func__, [&] { alive(program).upload(text(input, "input"), numbers(data, count)); });
}

vkf_result vkf_program_bind(vkf_program* program, const char* name, const vkf_device_tensor* tensor) {
    return guard(__func__,
                 [&] { alive(program).bind(text(name, "name"), tensor ? DeviceTensor(*tensor) : DeviceTensor()); });
}

vkf_result vkf_program_run(vkf_program* program) {
    return guard(__func__, [&] { alive(program).run(); });
}

vkf_result vkf_program_submit(vkf_program* program, vkf_ticket** ticket) {
    return make(__func__, ticket, [&] { return new vkf_ticket{alive(program).submit()}; });
}

void vkf_ticket_destroy(vkf_ticket* ticket) { delete ticket; }

vkf_result vkf_ticket_wait(const vkf_ticket* ticket, uint64_t timeout, bool* done) {
    return give(__func__, done, [&] {
        const Ticket& t = need(ticket, "ticket").ticket;
        constexpr auto kLongest = static_cast<std::uint64_t>(std::chrono::nanoseconds::max().count());
        return timeout == 0 ? t.done() : t.wait(std::chrono::nanoseconds(std::min(timeout, kLongest)));
    });
}

vkf_result vkf_ticket_semaphore(const vkf_ticket* ticket, VkSemaphore* semaphore, uint64_t* value) {
    return guard(__func__, [&] {
        const Ticket& t = need(ticket, "ticket").ticket;
        VkSemaphore& out = need(semaphore, "semaphore");
        need(value, "value") = t.value();
        out = t.semaphore();
    });
}

vkf_result vkf_program_download(vkf_program* program, const char* output, float* data, uint64_t capacity,
                                uint64_t* count) {
    return guard(__func__, [&] {
        const std::string name = text(output, "output");
        give_numbers<float>("output " + name, alive(program).download(name), data, capacity, count);
    });
}

vkf_result vkf_program_download_i32(vkf_program* program, const char* output, int32_t* data, uint64_t capacity,
                                    uint64_t* count) {
    return guard(__func__, [&] {
        const std::string name = text(output, "output");
        give_numbers<std::int32_t>("output " + name, alive(program).download_i32(name), data, capacity, count);
    });
}

vkf_result vkf_program_download_bits(vkf_program* program, const char* output, uint16_t* data, uint64_t capacity,
                                     uint64_t* count) {
    return guard(__func__, [&] {
        const std::string name = text(output, "output");
        give_numbers<std::uint16_t>("output " + name, alive(program).download_bits(name), data, capacity, count);
    });
}

vkf_result vkf_program_shape(const vkf_program* program, const char* name, int64_t shape[VKF_MAX_RANK],
                             uint32_t* rank) {
    return guard(__func__, [&] {
        const std::vector<std::int64_t> sizes = alive(program).shape(text(name, "name"));
        need(rank, "rank") = static_cast<std::uint32_t>(sizes.size());
        for (std::size_t i = 0; shape && i < sizes.size(); ++i) {
            shape[i] = sizes[i];
        }
    });
}

vkf_result vkf_program_record(vkf_program* program, VkCommandBuffer commands, const vkf_recording* recording) {
    if (!commands) {
        return fail(VKF_ERROR, "%s: commands is null", __func__);
    }
    return with_recording(__func__, program, recording,
                          [commands](Program& p, const Recording& r) noexcept { return p.record(commands, r); });
}

vkf_result vkf_program_begin(vkf_program* program, const vkf_recording* recording) {
    return with_recording(__func__, program, recording,
                          [](Program& p, const Recording& r) noexcept { return p.begin(r); });
}

vkf_result vkf_program_record_segment(vkf_program* program, VkCommandBuffer commands, double budget, uint32_t slot,
                                      vkf_segment* segment) {
    if (const vkf_result wrong = check_alive(__func__, program); wrong != VKF_OK) {
        return wrong;
    }
    if (!commands || !segment) {
        return fail(VKF_ERROR, "%s: commands or segment is null", __func__);
    }
    if (const vkf_result wrong = check_slot(__func__, program, slot); wrong != VKF_OK) {
        return wrong;
    }
    if (const char* wrong = check_size<vkf_segment>(segment->struct_size)) {
        return fail(VKF_ERROR, "%s: of segment, %s", __func__, wrong);
    }
    Segment s;
    const vkf_result result = result_of(program->program->record_segment(commands, budget, s, slot));
    if (result == VKF_OK) {
        fill(*segment, {0, s.last, s.cost.flops, s.cost.bytes, s.done});
    }
    return result;
}

vkf_result vkf_program_finished(vkf_program* program, uint32_t slot) {
    if (const vkf_result wrong = check_alive(__func__, program); wrong != VKF_OK) {
        return wrong;
    }
    if (const vkf_result wrong = check_slot(__func__, program, slot); wrong != VKF_OK) {
        return wrong;
    }
    program->program->finished(slot);
    return VKF_OK;
}

vkf_result vkf_program_cost(const vkf_program* program, uint32_t count, const vkf_size_setting* sizes, double* flops,
                            double* bytes) {
    return guard(__func__, [&] {
        std::vector<SizeSetting> settings;
        for (std::uint32_t i = 0; i < count; ++i) {
            const vkf_size_setting& s = (&need(sizes, "sizes"))[i];
            settings.push_back({&need(s.name, "a size's name"), s.value});
        }
        const Cost cost = alive(program).cost(settings);
        double& moved = need(bytes, "bytes");
        need(flops, "flops") = cost.flops;
        moved = cost.bytes;
    });
}

vkf_result vkf_program_arithmetic(const vkf_program* program, vkf_arithmetic_use* use) {
    return guard(__func__, [&] {
        const ArithmeticUse& u = alive(program).arithmetic();
        fill(need(use, "use"), {0,
                                static_cast<std::uint8_t>(u.asked),
                                static_cast<std::uint8_t>(u.used),
                                {},
                                static_cast<std::uint32_t>(u.in_fp32.size()),
                                0});
    });
}

vkf_result vkf_program_fp32_reason(const vkf_program* program, uint32_t index, vkf_fp32_reason* reason) {
    return guard(__func__, [&] {
        const std::vector<Fp32Reason>& all = alive(program).arithmetic().in_fp32;
        if (index >= all.size()) {
            throw Error("reason " + std::to_string(index) + " of " + std::to_string(all.size()));
        }
        fill(need(reason, "reason"), {0, all[index].dispatches, all[index].reason.c_str()});
    });
}

vkf_result vkf_program_explain(const vkf_program* program, char* text, size_t capacity, size_t* needed) {
    return guard(__func__, [&] { give_text(alive(program).explain(), text, capacity, needed); });
}

vkf_result vkf_program_dot(const vkf_program* program, char* text, size_t capacity, size_t* needed) {
    return guard(__func__, [&] { give_text(alive(program).dot(), text, capacity, needed); });
}

vkf_result vkf_program_times(const vkf_program* program, vkf_dispatch_time* times, uint32_t* count) {
    return guard(__func__, [&] {
        const std::vector<DispatchTime>& all = alive(program).times();
        give_list(all.size(), times, count, [&](std::size_t i) {
            const DispatchTime& t = all[i];
            return vkf_dispatch_time{0, 0, t.label.c_str(), t.kernel.c_str(), t.start_ms, t.ms, t.flops, t.bytes};
        });
    });
}

vkf_result vkf_program_time_table(const vkf_program* program, char* text, size_t capacity, size_t* needed) {
    return guard(__func__, [&] { give_text(alive(program).time_table(), text, capacity, needed); });
}

vkf_result vkf_program_write_trace(const vkf_program* program, const char* path) {
    return guard(__func__, [&] { alive(program).write_trace(path_of(text(path, "path"))); });
}
