// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <filesystem>
#include <map>

#include "c/device.h"
#include "models/files/safetensors.h"
#include "models/files/state_file.h"
#include "ops/tuning.h"
#include "runtime/device/tuning.h"

struct vkf_requirements {
    vkf::DeviceRequirements needs;
    std::vector<const char*> all = needs.extensions(), required = needs.extensions(false);
};

struct vkf_shared_buffer {
    vkf::SharedBuffer shared;
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
    out.staging_bytes = or_default(o.staging_bytes, out.staging_bytes);
    if (o.submit_budget != 0) {
        out.submit_budget = o.submit_budget < 0 ? 0 : o.submit_budget;
    }
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
    out.without_queue = h.without_queue;
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
    return out;
}
static_assert(VKF_DEVICE_CPU == static_cast<int>(DeviceType::cpu));

/// Without its data.
HostTensor header_of(const vkf_tensor& t) {
    HostTensor out{text(t.name, "a tensor's name"), dtype_of(t.dtype), {}, {}};
    if (t.rank != 0) {
        out.shape.assign(&need(t.shape, "a tensor's shape"), t.shape + t.rank);
    }
    return out;
}

HostTensor tensor_of(const vkf_tensor& t) {
    HostTensor out = header_of(t);
    if (t.bytes != 0) {
        out.data = {&need(static_cast<const std::byte*>(t.data), "a tensor's data"), static_cast<std::size_t>(t.bytes)};
    }
    return out;
}

std::vector<HostTensor> tensors_of(std::uint32_t count, const vkf_tensor* tensors,
                                   HostTensor (*one)(const vkf_tensor&) = tensor_of) {
    std::vector<HostTensor> list;
    for (std::uint32_t i = 0; i < count; ++i) {
        list.push_back(one((&need(tensors, "tensors"))[i]));
    }
    return list;
}

vkf_weight_layout* layout_of(const vkf_device* device, std::span<const HostTensor> tensors,
                             const vkf_load_options* options) {
    const Capabilities& on = need(device, "device").device.capabilities();
    const vkf_graph* graph = read(options).graph;
    return new vkf_weight_layout{graph ? make_weight_layout(*graph, tensors, on, load_of(options))
                                       : make_weight_layout(tensors, on, load_of(options))};
}

const Tunable& tunable_at(std::uint32_t index) {
    if (index >= tunables().size()) {
        throw Error("there are " + std::to_string(tunables().size()) + " choices");
    }
    return tunables()[index];
}

StatePart part_of(const vkf_state_part& part) { return {static_cast<std::size_t>(part.dim), part.length}; }

}  // namespace

vkf::LoadOptions vkf::c::load_of(const vkf_load_options* options) {
    const vkf_load_options o = read(options);
    LoadOptions out;
    out.matrices = weight_type_of(o.matrices);
    if (o.choose) {
        out.choose = [o](const HostTensor& t) {
            const vkf_tensor matrix{t.name.c_str(),
                                    t.data.data(),
                                    t.data.size(),
                                    t.shape.data(),
                                    static_cast<std::uint32_t>(t.shape.size()),
                                    dtype_to_c(t.dtype)};
            return weight_type_of(o.choose(o.user, &matrix));
        };
    }
    if (o.progress) {
        out.progress = [o](std::uint64_t done, std::uint64_t all) { o.progress(o.user, done, all); };
    }
    return out;
}

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
        need(count, "count") = static_cast<std::uint32_t>(list.size());
        need(names, "names") = list.data();
    });
}

vkf_result vkf_requirements_features(vkf_requirements* requirements, const void* next, const void** chain) {
    return give(__func__, chain, [&] { return need(requirements, "requirements").needs.features(next); });
}

vkf_result vkf_device_list(vkf_get_instance_proc_addr get_instance_proc_addr, vkf_capabilities* list, uint32_t* count) {
    return guard(__func__, [&] {
        const std::uint32_t room = list ? need(count, "count") : 0;
        need(count, "count") = 0;
        const std::vector<Capabilities> devices = Device::list(get_instance_proc_addr);
        const std::size_t stride = room != 0 ? need_struct(list, "list").struct_size : 0;
        for (std::size_t i = 0; i < devices.size() && i < room; ++i) {
            fill(*reinterpret_cast<vkf_capabilities*>(reinterpret_cast<std::byte*>(list) + i * stride),
                 capabilities_to_c(devices[i]));
        }
        *count = static_cast<std::uint32_t>(devices.size());
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

vkf_result vkf_device_take_messages(vkf_device* device, char* text, size_t capacity, size_t* needed) {
    return guard(__func__, [&] {
        vkf_device& d = need(device, "device");
        const std::lock_guard lock(d.messages_mutex);
        for (const std::string& message : d.device.messages()) {
            d.messages += message + '\n';
        }
        give_text(d.messages, text, capacity, needed);
        if (d.messages.size() < capacity) {
            d.messages.clear();
        }
    });
}

vkf_result vkf_device_save_pipeline_cache(vkf_device* device) {
    return guard(__func__, [&] {
        if (!need(device, "device").device.save_pipeline_cache()) {
            throw Error("there is nowhere to write it");
        }
    });
}

vkf_result vkf_device_save_tuning(const vkf_device* device, const char* choices, char* path, size_t capacity,
                                  size_t* needed) {
    return guard(__func__, [&] {
        const Device& d = need(device, "device").device;
        give_text(utf8_name(save_tuning(d, text(choices, "choices"))), path, capacity, needed);
    });
}

vkf_result vkf_device_tuning_file(const vkf_device* device, char* path, size_t capacity, size_t* needed) {
    return guard(__func__,
                 [&] { give_text(utf8_name(tuning_file(need(device, "device").device)), path, capacity, needed); });
}

vkf_result vkf_tunable(uint32_t index, const char** name, const char** what) {
    return guard(__func__, [&] {
        const Tunable& t = tunable_at(index);
        need(name, "name") = t.name.data();
        need(what, "what") = t.what.data();
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
        return fail(VKF_ERROR, "%s: %s", __func__, wrong);
    }
    return result_of(device->device.record_upload(commands, {s.buffer, s.offset, s.bytes, s.mapped}));
}

vkf_result vkf_device_pending_uploads(const vkf_device* device, uint64_t* bytes) {
    return give(__func__, bytes, [&] { return need(device, "device").device.pending_uploads(); });
}

namespace {

Weights load(const vkf_device* device, std::span<const HostTensor> tensors, const vkf_load_options* options) {
    const Device& on = need(device, "device").device;
    const vkf_graph* graph = read(options).graph;
    return graph ? on.load(*graph, tensors, load_of(options)) : on.load(tensors, load_of(options));
}

}  // namespace

vkf_result vkf_weights_load(vkf_device* device, uint32_t count, const vkf_tensor* tensors,
                            const vkf_load_options* options, vkf_weights** weights) {
    return make(__func__, weights, [&] { return new vkf_weights{load(device, tensors_of(count, tensors), options)}; });
}

vkf_result vkf_weights_load_file(vkf_device* device, const char* path, const vkf_load_options* options,
                                 vkf_weights** weights) {
    return make(__func__, weights, [&] {
        const Safetensors file(path_of(text(path, "path")));
        return new vkf_weights{load(device, file, options)};
    });
}

void vkf_weights_destroy(vkf_weights* weights) { delete weights; }

vkf_result vkf_weights_bytes(const vkf_weights* weights, uint64_t* bytes) {
    return give(__func__, bytes, [&] { return need(weights, "weights").bytes(); });
}

vkf_result vkf_weight_layout_create(const vkf_device* device, uint32_t count, const vkf_tensor* tensors,
                                    const vkf_load_options* options, vkf_weight_layout** layout) {
    return make(__func__, layout, [&] { return layout_of(device, tensors_of(count, tensors, header_of), options); });
}

vkf_result vkf_weight_layout_create_file(const vkf_device* device, const char* path, const vkf_load_options* options,
                                         vkf_weight_layout** layout) {
    return make(__func__, layout, [&] { return layout_of(device, Safetensors(path_of(text(path, "path"))), options); });
}

void vkf_weight_layout_destroy(vkf_weight_layout* layout) { delete layout; }

vkf_result vkf_weight_layout_bytes(const vkf_weight_layout* layout, uint64_t* bytes) {
    return give(__func__, bytes, [&] { return need(layout, "layout").bytes(); });
}

vkf_result vkf_state_create(vkf_device* device, uint32_t count, const vkf_graph* const* graphs, vkf_state** state) {
    return make(__func__, state, [&] {
        std::vector<const Graph*> list;
        for (std::uint32_t i = 0; i < count; ++i) {
            list.push_back(&need((&need(graphs, "graphs"))[i], "a graph"));
        }
        return new vkf_state{need(device, "device").device.make_state(list)};
    });
}

void vkf_state_destroy(vkf_state* state) { delete state; }

vkf_result vkf_state_clear(vkf_state* state) {
    return guard(__func__, [&] { need(state, "state").clear(); });
}

vkf_result vkf_state_read(const vkf_state* state, const vkf_state_part* part, void* bytes, uint64_t capacity,
                          uint64_t* count) {
    return guard(__func__, [&] {
        const vkf_state_part& p = need(part, "part");
        const std::string name = text(p.name, "the part's name");
        give_numbers<std::byte>("state " + name, need(state, "state").read(name, part_of(p)),
                                static_cast<std::byte*>(bytes), capacity, count);
    });
}

vkf_result vkf_state_write(vkf_state* state, const vkf_state_part* part, const void* bytes, uint64_t count) {
    return guard(__func__, [&] {
        const vkf_state_part& p = need(part, "part");
        const auto* from = static_cast<const std::byte*>(bytes);
        need(state, "state")
            .write(text(p.name, "the part's name"), {count == 0 ? from : &need(from, "bytes"), count}, part_of(p));
    });
}

vkf_result vkf_state_save(const vkf_state* state, const char* path, uint32_t count, const vkf_state_part* parts) {
    return guard(__func__, [&] {
        std::map<std::string, StatePart> some;
        for (std::uint32_t i = 0; i < count; ++i) {
            const vkf_state_part& p = (&need(parts, "parts"))[i];
            some[text(p.name, "a part's name")] = part_of(p);
        }
        save_state(path_of(text(path, "path")), need(state, "state"), some);
    });
}

vkf_result vkf_state_restore(vkf_state* state, const char* path) {
    return guard(__func__, [&] { restore_state(path_of(text(path, "path")), need(state, "state")); });
}

vkf_result vkf_save_safetensors(const char* path, uint32_t count, const vkf_tensor* tensors) {
    return guard(__func__, [&] { save_safetensors(path_of(text(path, "path")), tensors_of(count, tensors)); });
}

vkf_result vkf_shared_buffer_create(vkf_device* device, uint64_t bytes, vkf_shared_buffer** shared) {
    return make(__func__, shared,
                [&] { return new vkf_shared_buffer{need(device, "device").device.make_shared_buffer(bytes)}; });
}

vkf_result vkf_shared_buffer_import_fd(vkf_device* device, int descriptor, uint64_t bytes, vkf_shared_buffer** shared) {
    return make(__func__, shared,
                [&] { return new vkf_shared_buffer{need(device, "device").device.import_fd(descriptor, bytes)}; });
}

vkf_result vkf_shared_buffer_import_host(vkf_device* device, void* memory, uint64_t bytes, vkf_shared_buffer** shared) {
    return make(__func__, shared, [&] {
        std::byte& first = need(static_cast<std::byte*>(memory), "memory");
        return new vkf_shared_buffer{
            need(device, "device").device.import_host({&first, static_cast<std::size_t>(bytes)})};
    });
}

vkf_result vkf_shared_buffer_import_hardware_buffer(vkf_device* device, struct AHardwareBuffer* buffer,
                                                    vkf_shared_buffer** shared) {
    return make(__func__, shared,
                [&] { return new vkf_shared_buffer{need(device, "device").device.import_hardware_buffer(buffer)}; });
}

void vkf_shared_buffer_destroy(vkf_shared_buffer* shared) { delete shared; }

vkf_result vkf_shared_buffer_get(const vkf_shared_buffer* shared, VkBuffer* buffer, uint64_t* bytes) {
    return guard(__func__, [&] {
        need(buffer, "buffer") = need(shared, "shared").shared.buffer();
        need(bytes, "bytes") = shared->shared.bytes();
    });
}

vkf_result vkf_shared_buffer_export_fd(const vkf_shared_buffer* shared, int* descriptor) {
    return guard(__func__, [&] {
        int& out = need(descriptor, "descriptor");
        out = -1;
        out = need(shared, "shared").shared.export_fd();
    });
}

vkf_result vkf_shared_host_alignment(const vkf_device* device, uint64_t* bytes) {
    return give(__func__, bytes, [&] { return need(device, "device").device.shared_host_alignment(); });
}
