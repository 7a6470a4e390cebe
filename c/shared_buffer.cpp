// SPDX-License-Identifier: Apache-2.0
#include "c/device.h"

struct vkf_shared_buffer {
    vkf::SharedBuffer shared;
};

using namespace vkf::c;

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
        const vkf::SharedBuffer& of = need(shared, "shared").shared;
        std::uint64_t& size = need(bytes, "bytes");
        need(buffer, "buffer") = of.buffer();
        size = of.bytes();
    });
}

vkf_result vkf_shared_buffer_export_fd(const vkf_shared_buffer* shared, int* descriptor) {
    return guard(__func__, [&] {
        int& out = need(descriptor, "descriptor");
        out = need(shared, "shared").shared.export_fd();
    });
}

vkf_result vkf_shared_host_alignment(const vkf_device* device, uint64_t* bytes) {
    return give(__func__, bytes, [&] { return need(device, "device").device.shared_host_alignment(); });
}
