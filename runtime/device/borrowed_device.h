// SPDX-License-Identifier: Apache-2.0
// What a host lends: its device, its queue, its memory.
#pragma once

#include <cstdint>
#include <memory>

#include "vulkan_handles.h"

namespace vkf {

/// A request for one piece of device memory: its size and what it is for.
struct MemoryRequest {
    std::uint64_t bytes = 0;
    std::uint64_t alignment = 1;
    std::uint32_t type_bits = 0;  ///< VkMemoryRequirements::memoryTypeBits
    /// VkMemoryPropertyFlags that the memory must have; with HOST_VISIBLE, `mapped` must be set
    std::uint32_t need = 0;
    std::uint32_t wish = 0;    ///< VkMemoryPropertyFlags that are of use
    const char* purpose = "";  ///< "weights", "layer scratch", ...
};

struct MemoryPiece {
    VkDeviceMemory memory{};
    std::uint64_t offset = 0;
    void* mapped = nullptr;  ///< address of the piece's first byte, for the host
    void* tag = nullptr;     ///< for the host's own use
};

/// The functions by which a host gives device memory, for example from an allocator it has already.
struct MemoryHooks {
    /// Returns a VkResult. May be called by several threads at once, never by record().
    int (*allocate)(void* user, const MemoryRequest& request, MemoryPiece* piece) = nullptr;
    void (*release)(void* user, const MemoryPiece& piece) = nullptr;  ///< does not throw
    void* user = nullptr;
};

/// A host's device. Nothing here is destroyed by us; it must outlive everything made from the
/// Device.
struct BorrowedDevice {
    VkInstance instance = nullptr;  ///< VkApplicationInfo::apiVersion was 1.1 or higher
    VkPhysicalDevice physical = nullptr;
    VkDevice device = nullptr;
    std::uint32_t queue_family = 0;
    /// Our uploads and run() use this queue; null: queue 0 of the family. Give `lock` when the host
    /// submits to it as well, or another Device borrowed from it: each has a mutex of its own.
    VkQueue queue = nullptr;
    /// True: all work reaches a queue through the host, and vkformer uses none. load(),
    /// make_state(), State::clear() and Program::allocate() note what is to be copied, and
    /// Device::record_upload() records the copies; run() throws.
    bool host_submits = false;
    /// With host_submits, for hosts that may drop a command buffer: what Device::record_upload()
    /// recorded is kept in host memory until Device::uploads_finished(), so that
    /// Device::uploads_dropped() can make it wait again.
    bool keep_uploads = false;
    /// Functions that, when set, are called around each of our submissions to the borrowed queue,
    /// and around waits for it to be idle. Set both or none. They do not throw.
    void (*lock)(void* user) = nullptr;
    void (*unlock)(void* user) = nullptr;
    void* user = nullptr;
    /// The structure that the host gave vkCreateDevice. Only the extensions and features in it are
    /// used; null: nothing beyond Vulkan 1.1. Only borrow() reads it.
    const VkDeviceCreateInfo* created_with = nullptr;
    /// The host's vkGetInstanceProcAddr; null: libvulkan is opened.
    GetInstanceProcAddr get_instance_proc_addr = nullptr;
    /// True where VK_EXT_debug_utils is enabled on the instance: objects then get names, and
    /// commands labels, but not where the installed Khronos validation layer is older than 1.3.246:
    /// it crashes when two threads free labelled command buffers.
    bool debug_utils = false;
    /// A cache of the host's, which is not externally synchronized. Pipelines are made with it, and
    /// no cache on disk is read or written.
    VkPipelineCache pipeline_cache{};
    MemoryHooks memory = {};
    /// Keeps what the hooks and locks work on alive until the last of their calls.
    std::shared_ptr<const void> keep = {};
};

/// Memory of a host from which uploads are copied.
struct StagingRange {
    VkBuffer buffer{};         ///< a buffer with VK_BUFFER_USAGE_TRANSFER_SRC_BIT
    std::uint64_t offset = 0;  ///< a multiple of 4
    std::uint64_t bytes = 0;
    /// address of the range's first byte, for the host; coherent, or flushed by the host before it
    /// submits
    void* mapped = nullptr;
};

}  // namespace vkf
