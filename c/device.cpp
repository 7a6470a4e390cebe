// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string_view>

#include "c/device.h"
#include "ops/tuning.h"
#include "runtime/base/map_file.h"
#include "runtime/device/device_core.h"
#include "runtime/device/insides.h"
#include "runtime/device/left_out.h"
#include "runtime/device/tuning.h"

struct vkf_requirements {
    vkf::DeviceRequirements needs;
    std::vector<const char*> all = needs.extensions(), required = needs.extensions(false);
};

namespace {

using namespace vkf;
using namespace vkf::c;

DeviceOptions options_of(const vkf_device_options* options) {
    const vkf_device_options o = read(options);
    DeviceOptions out;
    out.select = text_or(o.select);
    out.validation = o.validation;
    out.minimum_profile = o.minimum_profile;
    out.cache_folder = path_of(text_or(o.cache_folder));
    out.tuning = text_or(o.tuning);
    out.leave_out = text_or(o.leave_out);
    out.staging_bytes = or_default(o.staging_bytes, out.staging_bytes);
    if (o.submit_budget != 0) {
        out.submit_budget = o.submit_budget < 0 ? 0 : o.submit_budget;
    }
    if (o.wait_seconds != 0) {
        out.wait_seconds = o.wait_seconds < 0 ? 0 : o.wait_seconds;
    }
    out.canary = o.canary;
    out.checked = o.checked;
    out.get_instance_proc_addr = o.get_instance_proc_addr;
    return out;
}

/// A host's allocator behind C++'s signatures.
struct Hooks {
    vkf_borrowed_device host;

    static int allocate(void* user, const MemoryRequest& request, MemoryPiece* piece) {
        const vkf_borrowed_device& host = static_cast<const Hooks*>(user)->host;
        const vkf_memory_request asked{request.bytes, request.alignment, request.type_bits,
                                       request.need,  request.wish,      request.purpose};
        vkf_memory_piece given{};
        const int result = host.allocate(host.memory_user, &asked, &given);
        *piece = {given.memory, given.offset, given.mapped, given.tag};
        return result;
    }

    static void release(void* user, const MemoryPiece& piece) {
        const vkf_borrowed_device& host = static_cast<const Hooks*>(user)->host;
        const vkf_memory_piece given{piece.memory, piece.offset, piece.mapped, piece.tag};
        host.release(host.memory_user, &given);
    }
};

BorrowedDevice borrowed_of(const vkf_borrowed_device& h) {
    BorrowedDevice out;
    out.instance = h.instance;
    out.physical = h.physical;
    out.device = h.device;
    out.queue_family = h.queue_family;
    out.queue = h.queue;
    out.host_submits = h.host_submits;
    out.keep_uploads = h.keep_uploads;
    out.debug_utils = h.debug_utils;
    out.lock = h.lock;
    out.unlock = h.unlock;
    out.user = h.user;
    out.created_with = h.created_with;
    out.get_instance_proc_addr = h.get_instance_proc_addr;
    out.pipeline_cache = h.pipeline_cache;
    if (h.allocate || h.release) {
        const auto hooks = std::make_shared<Hooks>(Hooks{h});
        out.memory = {h.allocate ? Hooks::allocate : nullptr, h.release ? Hooks::release : nullptr, hooks.get()};
        out.keep = hooks;
    }
    return out;
}

vkf_capabilities capabilities_to_c(const Capabilities& c) {
    vkf_capabilities out{};
    out.type = static_cast<vkf_device_type>(c.type);
    std::snprintf(out.name, sizeof(out.name), "%s", c.name.c_str());
    std::snprintf(out.driver, sizeof(out.driver), "%s", c.driver.c_str());
    out.api_version = c.api_version;
    out.vendor_id = c.vendor_id;
    out.device_id = c.device_id;
    out.driver_version = c.driver_version;
    out.storage_alignment = c.storage_alignment;
    out.storage_range = c.storage_range;
    out.max_allocation = c.max_allocation;
    out.storage_buffers = c.storage_buffers;
    out.max_invocations = c.max_invocations;
    out.shared_memory = c.shared_memory;
    out.storage_16bit = c.storage_16bit;
    out.storage_image_any_format = c.storage_image_any_format;
    out.external_memory_fd = c.external_memory_fd;
    out.external_memory_host = c.external_memory_host;
    out.external_memory_android = c.external_memory_android;
    out.unified_memory = c.unified_memory;
    out.minimum_profile = c.minimum_profile;
    out.device_memory = c.device_memory;
    std::copy(c.cache_uuid.begin(), c.cache_uuid.end(), out.cache_uuid);
    std::copy(c.max_group_size.begin(), c.max_group_size.end(), out.max_group_size);
    std::copy(c.max_groups.begin(), c.max_groups.end(), out.max_groups);
    out.push_constants = c.push_constants;
    out.subgroup_size = c.subgroup_size;
    out.exact_subgroup_size = c.exact_subgroup_size;
    out.matrix_subgroup_size = c.matrix_subgroup_size;
    out.max_subgroups = c.max_subgroups;
    out.timestamp_bits = c.timestamp_bits;
    out.timestamp_period = c.timestamp_period;
    out.timeline_semaphore = c.timeline_semaphore;
    out.subgroup_shuffle = c.subgroup_shuffle;
    out.subgroup_arithmetic = c.subgroup_arithmetic;
    out.subgroup_quad = c.subgroup_quad;
    out.int64 = c.int64;
    out.texel_buffers = c.texel_buffers;
    out.float16 = c.float16;
    out.matrix_kernels = c.matrix_kernels;
    out.cooperative_matrix = c.cooperative_matrix;
    out.matrix_elements = c.matrix_elements;
    out.matrix_elements_ext = c.matrix_elements_ext;
    out.cooperative_matrix_int8 = c.cooperative_matrix_int8;
    out.integer_dot = c.integer_dot;
    out.fast_integer_dot = c.fast_integer_dot;
    out.portability_subset = c.portability_subset;
    out.float_controls = c.float_controls;
    out.keeps_special_f32 = c.keeps_special_f32;
    out.keeps_special_f16 = c.keeps_special_f16;
    out.keeps_subnormal_f16 = c.keeps_subnormal_f16;
    out.rounds_alike = c.rounds_alike;
    out.tuning_is_asked = c.tuning_is_asked;
    return out;
}
static_assert(VKF_DEVICE_CPU == static_cast<int>(DeviceType::cpu));

const Tunable& tunable_at(std::uint32_t index) {
    if (index >= tunables().size()) {
        throw Error("there are " + std::to_string(tunables().size()) + " choices");
    }
    return tunables()[index];
}

}  // namespace

std::filesystem::path vkf::c::path_of(const std::string& utf8) { return std::u8string(utf8.begin(), utf8.end()); }

vkf_result vkf_requirements_create(VkInstance instance, VkPhysicalDevice physical,
                                   vkf_get_instance_proc_addr get_instance_proc_addr, vkf_requirements** requirements) {
    return make(__func__, requirements,
                [&] { return new vkf_requirements{Device::requirements(instance, physical, get_instance_proc_addr)}; });
}

void vkf_requirements_destroy(vkf_requirements* requirements) { delete requirements; }

vkf_result vkf_requirements_count(const vkf_requirements* requirements, uint32_t* count) {
    return give(__func__, count,
                [&] { return static_cast<std::uint32_t>(need(requirements, "requirements").needs.list().size()); });
}

vkf_result vkf_requirements_get(const vkf_requirements* requirements, uint32_t index, vkf_requirement* requirement) {
    return guard(__func__, [&] {
        const auto& list = need(requirements, "requirements").needs.list();
        if (index >= list.size()) {
            throw Error("requirement " + std::to_string(index) + " of " + std::to_string(list.size()));
        }
        const DeviceRequirement& r = list[index];
        fill(need(requirement, "requirement"), {0, r.required, r.extension, r.name.c_str(), r.buys.c_str()});
    });
}

vkf_result vkf_requirements_extensions(const vkf_requirements* requirements, bool wished, const char* const** names,
                                       uint32_t* count) {
    return guard(__func__, [&] {
        const auto& list =
            wished ? need(requirements, "requirements").all : need(requirements, "requirements").required;
        const char* const*& all = need(names, "names");
        need(count, "count") = static_cast<std::uint32_t>(list.size());
        all = list.data();
    });
}

vkf_result vkf_requirements_features(vkf_requirements* requirements, const void* next, const void** chain) {
    return give(__func__, chain, [&] { return need(requirements, "requirements").needs.features(next); });
}

vkf_result vkf_device_list(vkf_get_instance_proc_addr get_instance_proc_addr, vkf_capabilities* list, uint32_t* count) {
    return guard(__func__, [&] {
        need(count, "count");
        const std::vector<Capabilities> devices = Device::list(get_instance_proc_addr);
        give_list(devices.size(), list, count, [&](std::size_t i) { return capabilities_to_c(devices[i]); });
    });
}

vkf_result vkf_device_create(const vkf_device_options* options, vkf_device** device) {
    return make(__func__, device, [&] { return new vkf_device{Device::create(options_of(options))}; });
}

vkf_result vkf_device_borrow(const vkf_borrowed_device* host, const vkf_device_options* options, vkf_device** device) {
    return make(__func__, device, [&] {
        const BorrowedDevice lent = borrowed_of(read_needed(host, "host"));
        return new vkf_device{Device::borrow(lent, options_of(options))};
    });
}

void vkf_device_destroy(vkf_device* device) { delete device; }

vkf_result vkf_device_capabilities(const vkf_device* device, vkf_capabilities* capabilities) {
    return guard(__func__, [&] {
        fill(need(capabilities, "capabilities"), capabilities_to_c(need(device, "device").device.capabilities()));
    });
}

vkf_result vkf_device_memory_use(const vkf_device* device, vkf_device_memory* memory) {
    return guard(__func__, [&] {
        const DeviceMemory m = need(device, "device").device.memory_use();
        fill(need(memory, "memory"), {0, m.allocated, m.outside, m.heap, m.budget, m.used});
    });
}

vkf_result vkf_device_take_messages(vkf_device* device, char* text, size_t capacity, size_t* needed) {
    return guard(__func__, [&] {
        vkf_device& d = need(device, "device");
        const std::lock_guard lock(d.messages_mutex);
        for (const std::string& message : d.device.messages()) {
            d.messages += message + '\n';
        }
        give_text(d.messages, text, capacity, needed);
        const std::string_view given = std::string_view(d.messages).substr(0, capacity == 0 ? 0 : capacity - 1);
        d.messages.erase(0, given.rfind('\n') + 1);  // npos + 1 is 0
    });
}

vkf_result vkf_device_save_pipeline_cache(vkf_device* device) {
    return guard(__func__, [&] {
        const DeviceCore& core = Insides::core(need(device, "device").device);
        if (core.given_up.of_an_earlier_era()) {
            core.check_alive();  // says so; another thread may have held the lock
        }
        if (!core.pipelines->save()) {
            throw Error("there is nowhere to write it");
        }
    });
}

vkf_result vkf_device_save_tuning(const vkf_device* device, const char* choices, char* path, size_t capacity,
                                  size_t* needed) {
    return guard(__func__, [&] {
        const Device& d = need(device, "device").device;
        need_room(path, capacity);
        give_text(utf8_name(save_tuning(d, text(choices, "choices"))), path, capacity, needed);
    });
}

vkf_result vkf_device_tuning_file(const vkf_device* device, char* path, size_t capacity, size_t* needed) {
    return guard(__func__,
                 [&] { give_text(utf8_name(tuning_file(need(device, "device").device)), path, capacity, needed); });
}

vkf_result vkf_device_save_left_out(const vkf_device* device, uint32_t count, const vkf_left_out* kernels, char* path,
                                    size_t capacity, size_t* needed) {
    return guard(__func__, [&] {
        const Device& d = need(device, "device").device;
        std::vector<LeftOut> all;
        for (uint32_t i = 0; i < count; ++i) {
            const vkf_left_out& k = (&need(kernels, "kernels"))[i];
            all.push_back({text(k.kernel, "kernel"), text(k.why, "why")});
        }
        need_room(path, capacity);
        give_text(utf8_name(save_left_out(d, all)), path, capacity, needed);
    });
}

vkf_result vkf_device_left_out_file(const vkf_device* device, char* path, size_t capacity, size_t* needed) {
    return guard(__func__,
                 [&] { give_text(utf8_name(left_out_file(need(device, "device").device)), path, capacity, needed); });
}

vkf_result vkf_device_left_out(const vkf_device* device, char* text, size_t capacity, size_t* needed) {
    return guard(__func__, [&] {
        std::string lines;
        for (const LeftOut& kernel : need(device, "device").device.left_out()) {
            lines += kernel.kernel + " " + kernel.why + "\n";
        }
        give_text(lines, text, capacity, needed);
    });
}

vkf_result vkf_device_self_test(const vkf_device* device, const vkf_self_test_options* options, vkf_verdict* verdict) {
    return guard(__func__, [&] {
        const vkf_self_test_options o = read(options);
        SelfTestOptions out;
        out.thorough = o.thorough;
        out.repeats = or_default(o.repeats, out.repeats);
        out.seconds = o.seconds;
        if (o.progress) {
            out.progress = [o](const SelfCheck& c) {
                o.progress(o.user, c.kernel.c_str(), c.what.c_str(), c.problem.c_str(), c.error, c.ms);
            };
        }
        vkf_verdict& found = need(verdict, "verdict");
        found = static_cast<vkf_verdict>(need(device, "device").device.self_test(out).verdict);
    });
}

vkf_result vkf_tunable(uint32_t index, const char** name, const char** what) {
    return guard(__func__, [&] {
        const Tunable& t = tunable_at(index);
        const char*& meaning = need(what, "what");
        need(name, "name") = t.name.data();
        meaning = t.what.data();
    });
}

vkf_result vkf_tunable_values(const vkf_device* device, uint32_t index, uint32_t* values, uint64_t capacity,
                              uint64_t* count) {
    return guard(__func__, [&] {
        const std::vector<std::uint32_t> can = tunable_at(index).values(need(device, "device").device.capabilities());
        give_numbers<std::uint32_t>("the list of values", can, values, capacity, count);
    });
}

vkf_result vkf_device_record_upload(vkf_device* device, VkCommandBuffer commands, const vkf_staging_range* staging) {
    if (!device || !commands || !staging) {
        return fail(VKF_ERROR, "%s: device, commands or staging is null", __func__);
    }
    vkf_staging_range s;
    if (const char* wrong = copy_struct(staging, s)) {
        return fail(VKF_ERROR, "%s: staging: %s", __func__, wrong);
    }
    return result_of(device->device.record_upload(commands, {s.buffer, s.offset, s.bytes, s.mapped}));
}

vkf_result vkf_device_pending_uploads(const vkf_device* device, uint64_t* bytes) {
    return give(__func__, bytes, [&] { return need(device, "device").device.pending_uploads(); });
}

vkf_result vkf_device_recorded_uploads(const vkf_device* device, uint64_t* bytes) {
    return give(__func__, bytes, [&] { return need(device, "device").device.recorded_uploads(); });
}

vkf_result vkf_device_uploads_finished(vkf_device* device, uint64_t recorded) {
    return guard(__func__, [&] { need(device, "device").device.uploads_finished(recorded); });
}

vkf_result vkf_device_uploads_dropped(vkf_device* device) {
    if (!device) {
        return fail(VKF_ERROR, "%s: device is null", __func__);
    }
    return result_of(device->device.uploads_dropped());
}
