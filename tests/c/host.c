// SPDX-License-Identifier: Apache-2.0
#define VOLK_IMPLEMENTATION
#include "host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void require(bool good, const char* what, const char* file, int line) {
    if (!good) {
        fprintf(stderr, "%s:%d: %s does not hold\n", file, line, what);
        exit(1);
    }
}

void require_ok(vkf_result result, const char* what, const char* file, int line) {
    if (result != VKF_OK) {
        fprintf(stderr, "%s:%d: %s gave %d: %s\n", file, line, what, (int)result, vkf_last_error());
        exit(1);
    }
}

void require_failure(vkf_result result, const char* part, const char* what, const char* file, int line) {
    if (result == VKF_OK) {
        fprintf(stderr, "%s:%d: %s did not fail\n", file, line, what);
        exit(1);
    }
    if (!strstr(vkf_last_error(), part)) {
        fprintf(stderr, "%s:%d: %s failed with \"%s\", where \"%s\" was expected\n", file, line, what, vkf_last_error(),
                part);
        exit(1);
    }
}

static void check(VkResult result) {
    if (result < 0) {
        fprintf(stderr, "the host: Vulkan gave %d\n", (int)result);
        exit(1);
    }
}

static uint32_t memory_type(const host* h, uint32_t allowed, VkMemoryPropertyFlags flags) {
    uint32_t i = 0;
    while (i < h->memory.memoryTypeCount &&
           !((allowed >> i & 1) != 0 && (h->memory.memoryTypes[i].propertyFlags & flags) == flags)) {
        ++i;
    }
    REQUIRE(i < h->memory.memoryTypeCount);
    return i;
}

void host_create(host* h) {
    memset(h, 0, sizeof(*h));
    check(volkInitialize());
    const VkApplicationInfo application = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                                           .apiVersion = VK_API_VERSION_1_1};
    const VkInstanceCreateInfo instance = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                                           .pApplicationInfo = &application};
    check(vkCreateInstance(&instance, NULL, &h->instance));
    volkLoadInstance(h->instance);
    uint32_t count = 1;
    check(vkEnumeratePhysicalDevices(h->instance, &count, &h->physical));
    REQUIRE(count == 1);
    vkGetPhysicalDeviceMemoryProperties(h->physical, &h->memory);

    OK(vkf_requirements_create(h->instance, h->physical, NULL, &h->requirements));
    const char* const* extensions = NULL;
    uint32_t extension_count = 0;
    OK(vkf_requirements_extensions(h->requirements, true, &extensions, &extension_count));
    const void* chain = NULL;
    OK(vkf_requirements_features(h->requirements, NULL, &chain));
    const float priority = 1;
    const VkDeviceQueueCreateInfo queue = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                           .queueFamilyIndex = h->family,
                                           .queueCount = 1,
                                           .pQueuePriorities = &priority};
    h->created_with = (VkDeviceCreateInfo){.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                                           .pNext = chain,
                                           .queueCreateInfoCount = 1,
                                           .pQueueCreateInfos = &queue,
                                           .enabledExtensionCount = extension_count,
                                           .ppEnabledExtensionNames = extensions};
    check(vkCreateDevice(h->physical, &h->created_with, NULL, &h->device));
    h->created_with.pQueueCreateInfos = NULL;  // was of this function
    h->created_with.queueCreateInfoCount = 0;
    volkLoadDevice(h->device);
    vkGetDeviceQueue(h->device, h->family, 0, &h->queue);
    const VkPipelineCacheCreateInfo cache = {.sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO};
    check(vkCreatePipelineCache(h->device, &cache, NULL, &h->cache));
    const VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                          .queueFamilyIndex = h->family};
    check(vkCreateCommandPool(h->device, &pool, NULL, &h->pool));
}

void host_destroy(host* h) {
    vkDestroyCommandPool(h->device, h->pool, NULL);
    vkDestroyPipelineCache(h->device, h->cache, NULL);
    vkDestroyDevice(h->device, NULL);
    vkDestroyInstance(h->instance, NULL);
    vkf_requirements_destroy(h->requirements);
}

static int32_t allocate(void* user, const vkf_memory_request* request, vkf_memory_piece* piece) {
    host* h = user;
    REQUIRE(request->bytes > 0 && request->purpose != NULL);
    const VkMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                       .allocationSize = request->bytes,
                                       .memoryTypeIndex = memory_type(h, request->type_bits, request->need)};
    const VkResult result = vkAllocateMemory(h->device, &info, NULL, &piece->memory);
    if (result == VK_SUCCESS) {
        ++h->pieces;
        piece->tag = h;
        if ((request->need & VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT) != 0) {
            check(vkMapMemory(h->device, piece->memory, 0, VK_WHOLE_SIZE, 0, &piece->mapped));
        }
    }
    return result;
}

static void release(void* user, const vkf_memory_piece* piece) {
    host* h = user;
    REQUIRE(piece->tag == h);
    vkFreeMemory(h->device, piece->memory, NULL);
    --h->pieces;
}

static void lock(void* user) {
    host* h = user;
    ++h->locked;
    ++h->locks;
    REQUIRE(h->locked == 1);
}

static void unlock(void* user) {
    host* h = user;
    --h->locked;
    REQUIRE(h->locked == 0);
}

vkf_borrowed_device host_handles(host* h) {
    const vkf_borrowed_device lent = {.struct_size = sizeof(lent),
                                      .queue_family = h->family,
                                      .instance = h->instance,
                                      .physical = h->physical,
                                      .device = h->device,
                                      .queue = h->queue,
                                      .lock = lock,
                                      .unlock = unlock,
                                      .user = h,
                                      .created_with = &h->created_with,
                                      .get_instance_proc_addr = (vkf_get_instance_proc_addr)vkGetInstanceProcAddr,
                                      .pipeline_cache = h->cache,
                                      .allocate = allocate,
                                      .release = release,
                                      .memory_user = h};
    return lent;
}

static VkDeviceMemory memory_for(host* h, VkMemoryRequirements needs, VkMemoryPropertyFlags flags) {
    const VkMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                       .allocationSize = needs.size,
                                       .memoryTypeIndex = memory_type(h, needs.memoryTypeBits, flags)};
    VkDeviceMemory memory = VK_NULL_HANDLE;
    check(vkAllocateMemory(h->device, &info, NULL, &memory));
    return memory;
}

host_buffer host_make_buffer(host* h, VkDeviceSize bytes, VkBufferUsageFlags usage) {
    host_buffer b = {.bytes = bytes};
    const VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO, .size = bytes, .usage = usage};
    check(vkCreateBuffer(h->device, &info, NULL, &b.buffer));
    VkMemoryRequirements needs;
    vkGetBufferMemoryRequirements(h->device, b.buffer, &needs);
    b.memory = memory_for(h, needs, VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT);
    check(vkBindBufferMemory(h->device, b.buffer, b.memory, 0));
    check(vkMapMemory(h->device, b.memory, 0, VK_WHOLE_SIZE, 0, &b.mapped));
    memset(b.mapped, 0, bytes);
    return b;
}

void host_destroy_buffer(host* h, host_buffer* buffer) {
    vkDestroyBuffer(h->device, buffer->buffer, NULL);
    vkFreeMemory(h->device, buffer->memory, NULL);
}

host_image host_make_image(host* h, uint32_t width, uint32_t height) {
    host_image i = {0};
    const VkImageCreateInfo info = {.sType = VK_STRUCTURE_TYPE_IMAGE_CREATE_INFO,
                                    .imageType = VK_IMAGE_TYPE_2D,
                                    .format = VK_FORMAT_R32_SFLOAT,
                                    .extent = {width, height, 1},
                                    .mipLevels = 1,
                                    .arrayLayers = 1,
                                    .samples = VK_SAMPLE_COUNT_1_BIT,
                                    .usage = VK_IMAGE_USAGE_STORAGE_BIT | VK_IMAGE_USAGE_SAMPLED_BIT};
    check(vkCreateImage(h->device, &info, NULL, &i.image));
    VkMemoryRequirements needs;
    vkGetImageMemoryRequirements(h->device, i.image, &needs);
    i.memory = memory_for(h, needs, 0);
    check(vkBindImageMemory(h->device, i.image, i.memory, 0));
    const VkImageViewCreateInfo view = {.sType = VK_STRUCTURE_TYPE_IMAGE_VIEW_CREATE_INFO,
                                        .image = i.image,
                                        .viewType = VK_IMAGE_VIEW_TYPE_2D,
                                        .format = VK_FORMAT_R32_SFLOAT,
                                        .subresourceRange = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 1, 0, 1}};
    check(vkCreateImageView(h->device, &view, NULL, &i.view));
    return i;
}

void host_prepare_image(const host_image* image, VkCommandBuffer commands) {
    const VkImageMemoryBarrier barrier = {.sType = VK_STRUCTURE_TYPE_IMAGE_MEMORY_BARRIER,
                                          .dstAccessMask = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT,
                                          .newLayout = VK_IMAGE_LAYOUT_GENERAL,
                                          .srcQueueFamilyIndex = VK_QUEUE_FAMILY_IGNORED,
                                          .dstQueueFamilyIndex = VK_QUEUE_FAMILY_IGNORED,
                                          .image = image->image,
                                          .subresourceRange = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 1, 0, 1}};
    vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_TOP_OF_PIPE_BIT, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, 0, 0, NULL,
                         0, NULL, 1, &barrier);
}

void host_destroy_image(host* h, host_image* image) {
    vkDestroyImageView(h->device, image->view, NULL);
    vkDestroyImage(h->device, image->image, NULL);
    vkFreeMemory(h->device, image->memory, NULL);
}

VkCommandBuffer host_begin(host* h) {
    const VkCommandBufferAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                              .commandPool = h->pool,
                                              .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                              .commandBufferCount = 1};
    VkCommandBuffer commands = VK_NULL_HANDLE;
    check(vkAllocateCommandBuffers(h->device, &info, &commands));
    const VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
    check(vkBeginCommandBuffer(commands, &begin));
    return commands;
}

void host_finish(host* h, VkCommandBuffer commands) {
    const VkMemoryBarrier barrier = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                                     .srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT,
                                     .dstAccessMask = VK_ACCESS_HOST_READ_BIT};
    vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &barrier, 0,
                         NULL, 0, NULL);
    check(vkEndCommandBuffer(commands));
    const VkSubmitInfo submit = {
        .sType = VK_STRUCTURE_TYPE_SUBMIT_INFO, .commandBufferCount = 1, .pCommandBuffers = &commands};
    check(vkQueueSubmit(h->queue, 1, &submit, VK_NULL_HANDLE));
    check(vkQueueWaitIdle(h->queue));
}
