// SPDX-License-Identifier: Apache-2.0
// Tensors of the host, in files, and as weights on a device.
#include <map>

#include "c/device.h"
#include "models/files/safetensors.h"

namespace {

using namespace vkf;
using namespace vkf::c;

constexpr std::array kPackOn = {PackOn::by_device, PackOn::host, PackOn::device};

/// Turns a tensor of C into one of C++ without its data.
HostTensor header_of(const vkf_tensor& t) {
    HostTensor out{text(t.name, "a tensor's name"), dtype_of(t.dtype), {}, {}};
    out.type = weight_type_of(t.type).value_or(WeightType::f32);
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

std::vector<HostTensor> list_of(std::uint32_t count, const vkf_tensor* tensors, HostTensor (*one)(const vkf_tensor&)) {
    std::vector<HostTensor> list;
    for (std::uint32_t i = 0; i < count; ++i) {
        list.push_back(one((&need(tensors, "tensors"))[i]));
    }
    return list;
}

vkf_weight_layout* layout_of(const vkf_device* device, std::span<const HostTensor> tensors,
                             const vkf_load_options* options) {
    const Capabilities& on = need(device, "device").device.capabilities();
    const vkf_graph* graph = read(options, "load").graph;
    return new vkf_weight_layout{graph ? make_weight_layout(*graph, tensors, on, load_of(options))
                                       : make_weight_layout(tensors, on, load_of(options))};
}

Weights load(const vkf_device* device, std::span<const HostTensor> tensors, const vkf_load_options* options) {
    const Device& on = need(device, "device").device;
    const vkf_graph* graph = read(options, "load").graph;
    return graph ? on.load(*graph, tensors, load_of(options)) : on.load(tensors, load_of(options));
}

}  // namespace

std::vector<vkf::HostTensor> vkf::c::tensors_of(std::uint32_t count, const vkf_tensor* tensors) {
    return list_of(count, tensors, tensor_of);
}

vkf::LoadProgress vkf::c::progress_of(ProgressOfC progress, void* user) {
    if (!progress) {
        return {};
    }
    return [=](std::uint64_t done, std::uint64_t all) { progress(user, done, all); };
}

vkf::LoadOptions vkf::c::load_of(const vkf_load_options* options) {
    const vkf_load_options o = read(options, "load");
    LoadOptions out;
    out.matrices = weight_type_of(o.matrices);
    if (o.choose) {
        out.choose = [o](const HostTensor& t) {
            const vkf_tensor matrix{t.name.c_str(),
                                    t.data.data(),
                                    t.data.size(),
                                    t.shape.data(),
                                    static_cast<std::uint32_t>(t.shape.size()),
                                    dtype_to_c(t.dtype),
                                    VKF_WEIGHT_AS_GIVEN,
                                    0};
            return weight_type_of(o.choose(o.user, &matrix));
        };
    }
    out.pack_on = pick(kPackOn, o.pack_on, "place to pack");
    out.progress = progress_of(o.progress, o.user);
    return out;
}

vkf_result vkf_weights_load(vkf_device* device, uint32_t count, const vkf_tensor* tensors,
                            const vkf_load_options* options, vkf_weights** weights) {
    return make(__func__, weights, [&] { return new vkf_weights{load(device, tensors_of(count, tensors), options)}; });
}

vkf_result vkf_weights_load_planned(vkf_device* device, uint32_t count, const vkf_tensor* tensors,
                                    const vkf_weight_layout* layout, const vkf_load_options* options,
                                    vkf_weights** weights) {
    return make(__func__, weights, [&] {
        const Device& on = need(device, "device").device;
        const LoadOptions o = load_of(options);
        return new vkf_weights{on.load(tensors_of(count, tensors), need(layout, "layout"), o.progress, o.pack_on)};
    });
}

vkf_result vkf_weights_load_file(vkf_device* device, const char* path, const vkf_load_options* options,
                                 vkf_weights** weights) {
    return make(__func__, weights, [&] {
        const Safetensors file(path_of(text(path, "path")));
        return new vkf_weights{load(device, file, options)};
    });
}

void vkf_weights_destroy(vkf_weights* weights) { delete weights; }

vkf_result vkf_weights_tensors(const vkf_weights* weights, vkf_stored_tensor* tensors, uint32_t* count) {
    return guard(__func__, [&] { give_tensors(need(weights, "weights").layout(), tensors, count); });
}

vkf_result vkf_weights_bytes(const vkf_weights* weights, uint64_t* bytes) {
    return give(__func__, bytes, [&] { return need(weights, "weights").bytes(); });
}

vkf_result vkf_weights_bytes_of_type(const vkf_weights* weights, vkf_weight_type type, uint64_t* bytes) {
    return give(__func__, bytes, [&] {
        const std::optional<WeightType> kept = weight_type_of(type);
        if (!kept) {
            throw Error("the type must be named");
        }
        return need(weights, "weights").bytes(*kept);
    });
}

vkf_result vkf_weights_bytes_packed_on_device(const vkf_weights* weights, uint64_t* bytes) {
    return give(__func__, bytes, [&] { return need(weights, "weights").bytes_packed_on_device(); });
}

vkf_result vkf_weight_layout_create(const vkf_device* device, uint32_t count, const vkf_tensor* tensors,
                                    const vkf_load_options* options, vkf_weight_layout** layout) {
    return make(__func__, layout, [&] { return layout_of(device, list_of(count, tensors, header_of), options); });
}

vkf_result vkf_weight_layout_create_file(const vkf_device* device, const char* path, const vkf_load_options* options,
                                         vkf_weight_layout** layout) {
    return make(__func__, layout, [&] { return layout_of(device, Safetensors(path_of(text(path, "path"))), options); });
}

void vkf_weight_layout_destroy(vkf_weight_layout* layout) { delete layout; }

vkf_result vkf_weight_layout_tensors(const vkf_weight_layout* layout, vkf_stored_tensor* tensors, uint32_t* count) {
    return guard(__func__, [&] { give_tensors(need(layout, "layout"), tensors, count); });
}

vkf_result vkf_weight_layout_bytes(const vkf_weight_layout* layout, uint64_t* bytes) {
    return give(__func__, bytes, [&] { return need(layout, "layout").bytes(); });
}

vkf_result vkf_save_safetensors(const char* path, uint32_t count, const vkf_tensor* tensors, uint32_t metadata_count,
                                const vkf_metadata* metadata) {
    return guard(__func__, [&] {
        std::map<std::string, std::string> entries;
        for (std::uint32_t i = 0; i < metadata_count; ++i) {
            const vkf_metadata& entry = (&need(metadata, "metadata"))[i];
            if (!entries.emplace(text(entry.key, "a key"), text(entry.value, "a value")).second) {
                throw Error("the metadata has \"" + std::string(entry.key) + "\" twice");
            }
        }
        save_safetensors(path_of(text(path, "path")), tensors_of(count, tensors), entries);
    });
}
