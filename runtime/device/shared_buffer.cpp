// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/shared_buffer.h"

#include "runtime/device/device.h"
#include "runtime/device/device_core.h"
#include "runtime/device/memory.h"

// after volk.h, whose types it uses
#include <vulkan/vulkan_android.h>

#if defined(__unix__) || defined(__APPLE__)
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#endif

namespace vkf {

namespace {

// File descriptors, which some systems do not have.
#if defined(__unix__) || defined(__APPLE__)
int duplicate_descriptor(int descriptor) noexcept { return fcntl(descriptor, F_DUPFD_CLOEXEC, 0); }
void close_descriptor(int descriptor) noexcept { close(descriptor); }

/// Says why a descriptor cannot be of so many bytes of memory. Drivers give descriptors of files,
/// of devices and of what has no type; of the latter two nobody can tell the size.
std::string why_no_memory(int descriptor, std::uint64_t bytes) {
    struct stat about {};
    if (fstat(descriptor, &about) != 0) {
        return {};
    }
    switch (about.st_mode & S_IFMT) {
        case S_IFIFO: return "is a pipe";
        case S_IFSOCK: return "is a socket";
        case S_IFDIR: return "is a folder";
        case S_IFREG:
            if (const auto there = static_cast<std::uint64_t>(about.st_size); there < bytes) {
                return "is a file of " + std::to_string(there) + " bytes, and the device wants " +
                       std::to_string(bytes);
            }
            break;
        default: break;
    }
    return {};
}
#else
int duplicate_descriptor(int) noexcept { return -1; }
void close_descriptor(int) noexcept {}
std::string why_no_memory(int, std::uint64_t) { return {}; }
#endif

}  // namespace

struct SharedBuffer::Core {
    std::shared_ptr<DeviceCore> device;
    VkBuffer buffer = VK_NULL_HANDLE;
    VkDeviceMemory memory = VK_NULL_HANDLE;
    std::uint64_t bytes = 0;
    std::uint64_t allocated = 0;  ///< from the driver; 0: the memory is another's
    bool exportable = false;
    int imported = -1;  ///< what it was imported from, to be handed on; -1: it was not

    ~Core() {
        device->allocated -= allocated;
        if (imported >= 0) {
            close_descriptor(imported);
        }
        if (device->given_up) {
            return;
        }
        device->api.vkDestroyBuffer(device->handle, buffer, nullptr);
        device->api.vkFreeMemory(device->handle, memory, nullptr);
    }
};

namespace {

constexpr const char* kMake = "Device::make_shared_buffer";
constexpr const char* kImportFd = "Device::import_fd";
constexpr const char* kImportHost = "Device::import_host";
constexpr const char* kImportAndroid = "Device::import_hardware_buffer";

void need(bool has, const char* extension, const char* call) {
    if (!has) {
        throw Error(std::string("the device was made without ") + extension, call);
    }
}

/// Chooses the type of memory for the buffer; the same type for the same request, which importing
/// an opaque descriptor relies on.
std::uint32_t type_for(const DeviceCore& device, std::uint32_t allowed, const char* call) {
    const std::uint32_t type = memory_type(device, allowed, 0, VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT);
    if (type == kNoMemoryType) {
        throw Error("the device has no memory of a fitting type", call);
    }
    return type;
}

void require_room(std::uint64_t bytes, const char* of_what, std::uint64_t most, const char* call) {
    if (bytes > most) {
        throw Error(std::to_string(bytes) + " bytes were asked for; " + of_what + " " + std::to_string(most), call,
                    VK_ERROR_OUT_OF_DEVICE_MEMORY);
    }
}

void require_heap(const DeviceCore& device, std::uint64_t bytes, std::uint32_t type, const char* call) {
    const VkPhysicalDeviceMemoryProperties& memory = device.memory;
    require_room(bytes, "the heap has", memory.memoryHeaps[memory.memoryTypes[type].heapIndex].size, call);
}

/// The buffer, not yet on memory.
VkMemoryRequirements make_buffer(DeviceCore& device, std::uint64_t bytes, VkExternalMemoryHandleTypeFlagBits type,
                                 VkBuffer& buffer, const char* call) {
    if (bytes == 0) {
        throw Error("0 bytes were asked for", call);
    }
    require_room(bytes, "one allocation has at most", device.capabilities.max_allocation, call);
    const VkExternalMemoryBufferCreateInfo external{VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO, nullptr,
                                                    VkExternalMemoryHandleTypeFlags(type)};
    VkBufferCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO;
    info.pNext = &external;
    info.size = bytes;
    info.usage =
        VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT;
    device.check_result(device.api.vkCreateBuffer(device.handle, &info, nullptr, &buffer), "vkCreateBuffer");
    VkMemoryRequirements needs{};
    device.api.vkGetBufferMemoryRequirements(device.handle, buffer, &needs);
    return needs;
}

void put_on_memory(DeviceCore& device, const void* how, std::uint64_t bytes, std::uint32_t type, VkBuffer buffer,
                   VkDeviceMemory& memory, const char* call) {
    require_heap(device, bytes, type, call);
    // The memory is of one buffer alone: some drivers share no other memory.
    const VkMemoryDedicatedAllocateInfo dedicated{VK_STRUCTURE_TYPE_MEMORY_DEDICATED_ALLOCATE_INFO, how, VK_NULL_HANDLE,
                                                  buffer};
    const VkMemoryAllocateInfo info{VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, &dedicated, bytes, type};
    const VkResult result = device.api.vkAllocateMemory(device.handle, &info, nullptr, &memory);
    device.heard(result);
    if (result != VK_SUCCESS) {
        throw Error(std::to_string(bytes) + " bytes: vkAllocateMemory gave " + result_name(result), call, result);
    }
    device.check_result(device.api.vkBindBufferMemory(device.handle, buffer, memory, 0), "vkBindBufferMemory");
}

std::uint64_t host_alignment(const DeviceCore& device) {
    VkPhysicalDeviceExternalMemoryHostPropertiesEXT host{};
    host.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_MEMORY_HOST_PROPERTIES_EXT;
    VkPhysicalDeviceProperties2 properties{};
    properties.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2;
    properties.pNext = &host;
    device.instance->api.vkGetPhysicalDeviceProperties2(device.physical, &properties);
    return host.minImportedHostPointerAlignment;
}

}  // namespace

VkBuffer SharedBuffer::buffer() const noexcept { return core_->buffer; }

std::uint64_t SharedBuffer::bytes() const noexcept { return core_->bytes; }

int SharedBuffer::export_fd() const {
    constexpr const char* kCall = "SharedBuffer::export_fd";
    if (!core_->exportable) {
        throw Error("memory that was imported from the host has no descriptor", kCall);
    }
    DeviceCore& device = *core_->device;
    device.check_alive();
    if (core_->imported >= 0) {
        const int copy = duplicate_descriptor(core_->imported);
        if (copy < 0) {
            throw Error("descriptor " + std::to_string(core_->imported) + " cannot be duplicated", kCall);
        }
        return copy;
    }
    const VkMemoryGetFdInfoKHR info{VK_STRUCTURE_TYPE_MEMORY_GET_FD_INFO_KHR, nullptr, core_->memory,
                                    VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT};
    int descriptor = -1;
    const VkResult result = device.api.vkGetMemoryFdKHR(device.handle, &info, &descriptor);
    device.heard(result);
    if (result != VK_SUCCESS) {
        throw Error("vkGetMemoryFdKHR gave " + result_name(result), kCall, result);
    }
    return descriptor;
}

SharedBuffer Device::make_shared_buffer(std::uint64_t bytes) const {
    core_->check_alive();
    need(core_->capabilities.external_memory_fd && core_->api.vkGetMemoryFdKHR, "VK_KHR_external_memory_fd", kMake);
    auto shared = std::make_shared<SharedBuffer::Core>();
    shared->device = core_;
    shared->bytes = bytes;
    shared->exportable = true;
    constexpr auto kType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT;
    const VkMemoryRequirements needs = make_buffer(*core_, bytes, kType, shared->buffer, kMake);
    const VkExportMemoryAllocateInfo how{VK_STRUCTURE_TYPE_EXPORT_MEMORY_ALLOCATE_INFO, nullptr, kType};
    put_on_memory(*core_, &how, needs.size, type_for(*core_, needs.memoryTypeBits, kMake), shared->buffer,
                  shared->memory, kMake);
    shared->allocated = needs.size;
    core_->allocated += needs.size;
    return SharedBuffer(std::move(shared));
}

SharedBuffer Device::import_fd(int descriptor, std::uint64_t bytes) const {
    core_->check_alive();
    need(core_->capabilities.external_memory_fd && core_->api.vkGetMemoryFdKHR, "VK_KHR_external_memory_fd", kImportFd);
    if (descriptor < 0) {
        throw Error("descriptor " + std::to_string(descriptor) + " is none", kImportFd);
    }
    auto shared = std::make_shared<SharedBuffer::Core>();
    shared->device = core_;
    shared->bytes = bytes;
    shared->exportable = true;
    constexpr auto kType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT;
    const VkMemoryRequirements needs = make_buffer(*core_, bytes, kType, shared->buffer, kImportFd);
    // drivers wait at a pipe for ever, and take files that are too small
    if (const std::string why = why_no_memory(descriptor, needs.size); !why.empty()) {
        throw Error("descriptor " + std::to_string(descriptor) + " " + why, kImportFd);
    }
    // A copy goes to the driver, which takes it over as soon as it has memory. Another is kept, to
    // be handed on: NVIDIA's driver 580 gives memory of its own to an import that is to be exported
    // too. The caller's is closed when all is well.
    shared->imported = duplicate_descriptor(descriptor);
    const int copy = duplicate_descriptor(descriptor);
    if (copy < 0 || shared->imported < 0) {
        if (copy >= 0) {
            close_descriptor(copy);
        }
        throw Error("descriptor " + std::to_string(descriptor) + " cannot be duplicated", kImportFd);
    }
    const VkImportMemoryFdInfoKHR how{VK_STRUCTURE_TYPE_IMPORT_MEMORY_FD_INFO_KHR, nullptr, kType, copy};
    try {
        put_on_memory(*core_, &how, needs.size, type_for(*core_, needs.memoryTypeBits, kImportFd), shared->buffer,
                      shared->memory, kImportFd);
    } catch (...) {
        if (!shared->memory) {
            close_descriptor(copy);
        }
        throw;
    }
    close_descriptor(descriptor);
    return SharedBuffer(std::move(shared));
}

std::uint64_t Device::shared_host_alignment() const {
    need(core_->capabilities.external_memory_host, "VK_EXT_external_memory_host", "Device::shared_host_alignment");
    return host_alignment(*core_);
}

SharedBuffer Device::import_host(std::span<std::byte> memory) const {
    core_->check_alive();
    need(core_->capabilities.external_memory_host && core_->api.vkGetMemoryHostPointerPropertiesEXT,
         "VK_EXT_external_memory_host", kImportHost);
    const std::uint64_t alignment = host_alignment(*core_);
    if (!memory.data() && !memory.empty()) {
        throw Error("the memory is a null pointer", kImportHost);
    }
    if (memory.empty() || reinterpret_cast<std::uintptr_t>(memory.data()) % alignment != 0 ||
        memory.size() % alignment != 0) {
        throw Error(
            std::to_string(memory.size()) + " bytes: place and size must be multiples of " + std::to_string(alignment),
            kImportHost);
    }
    auto shared = std::make_shared<SharedBuffer::Core>();
    shared->device = core_;
    shared->bytes = memory.size();
    constexpr auto kType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT;
    const VkMemoryRequirements needs = make_buffer(*core_, memory.size(), kType, shared->buffer, kImportHost);
    if (needs.size > memory.size()) {
        throw Error(std::to_string(memory.size()) + " bytes were given, the device wants " + std::to_string(needs.size),
                    kImportHost);
    }
    VkMemoryHostPointerPropertiesEXT pointer{};
    pointer.sType = VK_STRUCTURE_TYPE_MEMORY_HOST_POINTER_PROPERTIES_EXT;
    core_->check_result(core_->api.vkGetMemoryHostPointerPropertiesEXT(core_->handle, kType, memory.data(), &pointer),
                        "vkGetMemoryHostPointerPropertiesEXT");
    const VkImportMemoryHostPointerInfoEXT how{VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT, nullptr, kType,
                                               memory.data()};
    const std::uint32_t type = type_for(*core_, needs.memoryTypeBits & pointer.memoryTypeBits, kImportHost);
    require_heap(*core_, memory.size(), type, kImportHost);
    const VkMemoryAllocateInfo info{VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, &how, memory.size(), type};
    core_->check_result(core_->api.vkAllocateMemory(core_->handle, &info, nullptr, &shared->memory),
                        "vkAllocateMemory");
    core_->check_result(core_->api.vkBindBufferMemory(core_->handle, shared->buffer, shared->memory, 0),
                        "vkBindBufferMemory");
    return SharedBuffer(std::move(shared));
}

SharedBuffer Device::import_hardware_buffer(AHardwareBuffer* buffer) const {
    core_->check_alive();
    const auto properties_of = reinterpret_cast<PFN_vkGetAndroidHardwareBufferPropertiesANDROID>(
        core_->instance->api.vkGetDeviceProcAddr(core_->handle, "vkGetAndroidHardwareBufferPropertiesANDROID"));
    need(core_->capabilities.external_memory_android && properties_of,
         "VK_ANDROID_external_memory_android_hardware_buffer", kImportAndroid);
    if (!buffer) {
        throw Error("no AHardwareBuffer was given", kImportAndroid);
    }
    VkAndroidHardwareBufferPropertiesANDROID properties{};
    properties.sType = VK_STRUCTURE_TYPE_ANDROID_HARDWARE_BUFFER_PROPERTIES_ANDROID;
    core_->check_result(properties_of(core_->handle, buffer, &properties),
                        "vkGetAndroidHardwareBufferPropertiesANDROID");
    auto shared = std::make_shared<SharedBuffer::Core>();
    shared->device = core_;
    shared->bytes = properties.allocationSize;
    const VkMemoryRequirements needs =
        make_buffer(*core_, shared->bytes, VK_EXTERNAL_MEMORY_HANDLE_TYPE_ANDROID_HARDWARE_BUFFER_BIT_ANDROID,
                    shared->buffer, kImportAndroid);
    const VkImportAndroidHardwareBufferInfoANDROID how{VK_STRUCTURE_TYPE_IMPORT_ANDROID_HARDWARE_BUFFER_INFO_ANDROID,
                                                       nullptr, buffer};
    put_on_memory(*core_, &how, properties.allocationSize,
                  type_for(*core_, needs.memoryTypeBits & properties.memoryTypeBits, kImportAndroid), shared->buffer,
                  shared->memory, kImportAndroid);
    return SharedBuffer(std::move(shared));
}

}  // namespace vkf
