// SPDX-License-Identifier: Apache-2.0
// A C program that has Vulkan of its own. Whatever fails ends it with a line that says where.
#ifndef VKFORMER_TESTS_C_HOST_H
#define VKFORMER_TESTS_C_HOST_H

#include <volk.h>

// after Vulkan's
#include <vkformer/vkformer.h>

/// Ends the program unless `good`.
#define REQUIRE(good) require((good), #good, __FILE__, __LINE__)
/// Ends the program, with what the library says, where the call fails.
#define OK(call) require_ok((call), #call, __FILE__, __LINE__)
/// Ends the program unless the call fails and its text has `part` in it.
#define FAILS(call, part) require_failure((call), (part), #call, __FILE__, __LINE__)

void require(bool good, const char* what, const char* file, int line);
void require_ok(vkf_result result, const char* what, const char* file, int line);
void require_failure(vkf_result result, const char* part, const char* what, const char* file, int line);

typedef struct host {
    VkInstance instance;
    VkPhysicalDevice physical;
    VkDevice device;
    uint32_t family;
    VkQueue queue;
    VkPipelineCache cache;
    VkCommandPool pool;
    VkPhysicalDeviceMemoryProperties memory;
    vkf_requirements* requirements;
    VkDeviceCreateInfo created_with;
    int pieces;  ///< that the memory hooks have given and not had back
    int locked;  ///< calls of lock() less those of unlock()
    int locks;
} host;

typedef struct host_buffer {
    VkBuffer buffer;
    VkDeviceMemory memory;
    void* mapped;
    VkDeviceSize bytes;
} host_buffer;

typedef struct host_image {
    VkImage image;
    VkDeviceMemory memory;
    VkImageView view;
} host_image;

/// Makes a device with what vkf_requirements_create() wishes for.
void host_create(host* h);
void host_destroy(host* h);
/// Gives what vkf_device_borrow() wants, with its memory, lock and pipeline cache.
vkf_borrowed_device host_handles(host* h);

/// Makes a buffer that is mapped and coherent.
host_buffer host_make_buffer(host* h, VkDeviceSize bytes, VkBufferUsageFlags usage);
void host_destroy_buffer(host* h, host_buffer* buffer);
/// Makes an image of R32_SFLOAT, in layout GENERAL once host_prepare_image() is recorded.
host_image host_make_image(host* h, uint32_t width, uint32_t height);
void host_prepare_image(const host_image* image, VkCommandBuffer commands);
void host_destroy_image(host* h, host_image* image);

VkCommandBuffer host_begin(host* h);
/// Makes what shaders wrote visible to the host, ends, submits and waits.
void host_finish(host* h, VkCommandBuffer commands);

#endif
