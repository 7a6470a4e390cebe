// SPDX-License-Identifier: Apache-2.0
#include "tests/host.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "tests/fake_vulkan.h"

namespace vkf::test {

namespace {

VKAPI_ATTR VkBool32 VKAPI_CALL on_message(VkDebugUtilsMessageSeverityFlagBitsEXT, VkDebugUtilsMessageTypeFlagsEXT,
                                          const VkDebugUtilsMessengerCallbackDataEXT* data, void* user) {
    static_cast<std::vector<std::string>*>(user)->push_back(data->pMessage);
    return VK_FALSE;
}

}  // namespace

Host::Host(bool enable) {
    const PFN_vkGetInstanceProcAddr get = fake::loader();
    const auto create = reinterpret_cast<PFN_vkCreateInstance>(get(nullptr, "vkCreateInstance"));
    const char* variable = std::getenv("VKFORMER_VALIDATION");
    const bool validation = variable && std::string_view(variable) == "1";
    const char* layer = "VK_LAYER_KHRONOS_validation";
    const char* extensions[] = {VK_EXT_DEBUG_UTILS_EXTENSION_NAME, VK_EXT_VALIDATION_FEATURES_EXTENSION_NAME};
    const VkValidationFeatureEnableEXT enables[] = {VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT};
    const VkValidationFeaturesEXT features{VK_STRUCTURE_TYPE_VALIDATION_FEATURES_EXT, nullptr, 1, enables, 0, nullptr};
    const VkApplicationInfo app{VK_STRUCTURE_TYPE_APPLICATION_INFO, nullptr, "host", 1, "host", 1, VK_API_VERSION_1_1};
    VkInstanceCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO;
    info.pApplicationInfo = &app;
    if (validation) {
        info.pNext = &features;
        info.enabledLayerCount = 1;
        info.ppEnabledLayerNames = &layer;
        info.enabledExtensionCount = 2;
        info.ppEnabledExtensionNames = extensions;
    }
    check(create(&info, nullptr, &instance_), "vkCreateInstance");
    instance_api_ = load_instance_table(get, instance_);
    if (validation) {
        VkDebugUtilsMessengerCreateInfoEXT messenger{};
        messenger.sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT;
        messenger.messageSeverity =
            VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT;
        messenger.messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT;
        messenger.pfnUserCallback = on_message;
        messenger.pUserData = &messages_;
        check(instance_api_.vkCreateDebugUtilsMessengerEXT(instance_, &messenger, nullptr, &messenger_), "messenger");
    }

    std::uint32_t count = 1;
    instance_api_.vkEnumeratePhysicalDevices(instance_, &count, &physical_);
    std::uint32_t families = 0;
    instance_api_.vkGetPhysicalDeviceQueueFamilyProperties(physical_, &families, nullptr);
    std::vector<VkQueueFamilyProperties> list(families);
    instance_api_.vkGetPhysicalDeviceQueueFamilyProperties(physical_, &families, list.data());
    family_ = static_cast<std::uint32_t>(
        std::find_if(list.begin(), list.end(),
                     [](const auto& f) { return (f.queueFlags & VK_QUEUE_COMPUTE_BIT) != 0; }) -
        list.begin());
    const float priority = 1;
    const VkDeviceQueueCreateInfo queue{VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO, nullptr, 0, family_, 1, &priority};
    VkDeviceCreateInfo device{};
    device.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO;
    device.queueCreateInfoCount = 1;
    device.pQueueCreateInfos = &queue;
    if (enable) {
        requirements_ = Device::requirements(instance_, physical_);
        extensions_ = requirements_->extensions();
        device.pNext = requirements_->features();
        device.enabledExtensionCount = static_cast<std::uint32_t>(extensions_.size());
        device.ppEnabledExtensionNames = extensions_.data();
        created_with_ = device;
    }
    check(instance_api_.vkCreateDevice(physical_, &device, nullptr, &device_), "vkCreateDevice");
    api_ = load_device_table(instance_api_, device_);
    api_.vkGetDeviceQueue(device_, family_, 0, &queue_);
    const VkCommandPoolCreateInfo pool{VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO, nullptr,
                                       VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT, family_};
    check(api_.vkCreateCommandPool(device_, &pool, nullptr, &pool_), "vkCreateCommandPool");
}

Host::~Host() {
    api_.vkQueueWaitIdle(queue_);
    while (!buffers_.empty()) {
        destroy(Buffer(buffers_.back()));
    }
    for (const Image& i : images_) {
        function<PFN_vkDestroyImageView>("vkDestroyImageView")(device_, i.view, nullptr);
        function<PFN_vkDestroyImage>("vkDestroyImage")(device_, i.image, nullptr);
        api_.vkFreeMemory(device_, i.memory, nullptr);
    }
    api_.vkDestroyCommandPool(device_, pool_, nullptr);
    api_.vkDestroyDevice(device_, nullptr);
    if (messenger_) {
        instance_api_.vkDestroyDebugUtilsMessengerEXT(instance_, messenger_, nullptr);
    }
    instance_api_.vkDestroyInstance(instance_, nullptr);
}

BorrowedDevice Host::handles() const {
    BorrowedDevice out;
    out.instance = instance_;
    out.physical = physical_;
    out.device = device_;
    out.queue_family = family_;
    out.created_with = requirements_ ? &created_with_ : nullptr;
    return out;
}

VkDeviceMemory Host::memory_for(const VkMemoryRequirements& needs, VkMemoryPropertyFlags flags) {
    VkPhysicalDeviceMemoryProperties memory{};
    instance_api_.vkGetPhysicalDeviceMemoryProperties(physical_, &memory);
    std::uint32_t type = 0;
    while ((needs.memoryTypeBits & (1u << type)) == 0 || (memory.memoryTypes[type].propertyFlags & flags) != flags) {
        ++type;
    }
    const VkMemoryAllocateInfo allocate{VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, nullptr, needs.size, type};
    VkDeviceMemory out = VK_NULL_HANDLE;
    check(api_.vkAllocateMemory(device_, &allocate, nullptr, &out), "vkAllocateMemory");
    return out;
}

Host::Buffer Host::make_buffer(std::uint64_t bytes, VkBufferUsageFlags more_usage) {
    VkBufferCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO;
    info.size = bytes;
    info.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | more_usage;
    Buffer out;
    check(api_.vkCreateBuffer(device_, &info, nullptr, &out.buffer), "vkCreateBuffer");
    VkMemoryRequirements needs{};
    api_.vkGetBufferMemoryRequirements(device_, out.buffer, &needs);
    out.memory = memory_for(needs, VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT);
    check(api_.vkBindBufferMemory(device_, out.buffer, out.memory, 0), "vkBindBufferMemory");
    void* mapped = nullptr;
    check(api_.vkMapMemory(device_, out.memory, 0, VK_WHOLE_SIZE, 0, &mapped), "vkMapMemory");
    out.mapped = static_cast<std::byte*>(mapped);
    buffers_.push_back(out);
    return out;
}

template <class F>
void Host::once(F f) {
    const VkCommandBuffer commands = begin();
    const VkMemoryBarrier all{VK_STRUCTURE_TYPE_MEMORY_BARRIER, nullptr, VK_ACCESS_MEMORY_WRITE_BIT,
                              VK_ACCESS_MEMORY_READ_BIT | VK_ACCESS_MEMORY_WRITE_BIT};
    const auto barrier = [&] {
        api_.vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, 0,
                                  1, &all, 0, nullptr, 0, nullptr);
    };
    barrier();
    f(commands);
    barrier();
    submit(commands);
    wait_idle();
}

Host::Image Host::make_image(VkFormat format, std::uint32_t width, std::uint32_t height) {
    VkImageCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_IMAGE_CREATE_INFO;
    info.imageType = VK_IMAGE_TYPE_2D;
    info.format = format;
    info.extent = {width, height, 1};
    info.mipLevels = 1;
    info.arrayLayers = 1;
    info.samples = VK_SAMPLE_COUNT_1_BIT;
    info.usage = VK_IMAGE_USAGE_SAMPLED_BIT | VK_IMAGE_USAGE_STORAGE_BIT | VK_IMAGE_USAGE_TRANSFER_SRC_BIT |
                 VK_IMAGE_USAGE_TRANSFER_DST_BIT;
    Image out;
    out.width = width;
    out.height = height;
    check(function<PFN_vkCreateImage>("vkCreateImage")(device_, &info, nullptr, &out.image), "vkCreateImage");
    VkMemoryRequirements needs{};
    function<PFN_vkGetImageMemoryRequirements>("vkGetImageMemoryRequirements")(device_, out.image, &needs);
    out.memory = memory_for(needs, 0);
    check(function<PFN_vkBindImageMemory>("vkBindImageMemory")(device_, out.image, out.memory, 0), "vkBindImageMemory");
    const VkImageSubresourceRange range{VK_IMAGE_ASPECT_COLOR_BIT, 0, 1, 0, 1};
    const VkImageViewCreateInfo view{
        VK_STRUCTURE_TYPE_IMAGE_VIEW_CREATE_INFO, nullptr, 0, out.image, VK_IMAGE_VIEW_TYPE_2D, format, {}, range};
    check(function<PFN_vkCreateImageView>("vkCreateImageView")(device_, &view, nullptr, &out.view),
          "vkCreateImageView");
    images_.push_back(out);
    once([&](VkCommandBuffer commands) {
        const VkImageMemoryBarrier to_general{VK_STRUCTURE_TYPE_IMAGE_MEMORY_BARRIER,
                                              nullptr,
                                              0,
                                              VK_ACCESS_MEMORY_READ_BIT | VK_ACCESS_MEMORY_WRITE_BIT,
                                              VK_IMAGE_LAYOUT_UNDEFINED,
                                              VK_IMAGE_LAYOUT_GENERAL,
                                              VK_QUEUE_FAMILY_IGNORED,
                                              VK_QUEUE_FAMILY_IGNORED,
                                              out.image,
                                              range};
        api_.vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_TOP_OF_PIPE_BIT, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, 0, 0,
                                  nullptr, 0, nullptr, 1, &to_general);
    });
    return out;
}

void Host::write_image(const Image& image, std::span<const std::byte> texels) {
    const Buffer staging = make_buffer(texels.size(), VK_BUFFER_USAGE_TRANSFER_SRC_BIT);
    std::copy(texels.begin(), texels.end(), staging.mapped);
    once([&](VkCommandBuffer commands) {
        const VkBufferImageCopy all{0, 0, 0, {VK_IMAGE_ASPECT_COLOR_BIT, 0, 0, 1}, {}, {image.width, image.height, 1}};
        function<PFN_vkCmdCopyBufferToImage>("vkCmdCopyBufferToImage")(commands, staging.buffer, image.image,
                                                                       VK_IMAGE_LAYOUT_GENERAL, 1, &all);
    });
    destroy(staging);
}

std::vector<std::byte> Host::read_image(const Image& image, std::size_t bytes) {
    const Buffer staging = make_buffer(bytes, VK_BUFFER_USAGE_TRANSFER_DST_BIT);
    once([&](VkCommandBuffer commands) {
        const VkBufferImageCopy all{0, 0, 0, {VK_IMAGE_ASPECT_COLOR_BIT, 0, 0, 1}, {}, {image.width, image.height, 1}};
        function<PFN_vkCmdCopyImageToBuffer>("vkCmdCopyImageToBuffer")(commands, image.image, VK_IMAGE_LAYOUT_GENERAL,
                                                                       staging.buffer, 1, &all);
        const VkMemoryBarrier to_host{VK_STRUCTURE_TYPE_MEMORY_BARRIER, nullptr, VK_ACCESS_TRANSFER_WRITE_BIT,
                                      VK_ACCESS_HOST_READ_BIT};
        api_.vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_TRANSFER_BIT, VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &to_host,
                                  0, nullptr, 0, nullptr);
    });
    const std::vector<std::byte> out(staging.mapped, staging.mapped + bytes);
    destroy(staging);
    return out;
}

void Host::destroy(const Buffer& buffer) {
    api_.vkDestroyBuffer(device_, buffer.buffer, nullptr);
    api_.vkFreeMemory(device_, buffer.memory, nullptr);
    std::erase_if(buffers_, [&](const Buffer& b) { return b.memory == buffer.memory; });
}

VkCommandBuffer Host::begin() {
    const VkCommandBufferAllocateInfo allocate{VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO, nullptr, pool_,
                                               VK_COMMAND_BUFFER_LEVEL_PRIMARY, 1};
    VkCommandBuffer commands = VK_NULL_HANDLE;
    check(api_.vkAllocateCommandBuffers(device_, &allocate, &commands), "vkAllocateCommandBuffers");
    return begin_again(commands);
}

VkCommandBuffer Host::begin_again(VkCommandBuffer commands) {
    const VkCommandBufferBeginInfo info{VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO, nullptr,
                                        VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT, nullptr};
    check(api_.vkBeginCommandBuffer(commands, &info), "vkBeginCommandBuffer");
    return commands;
}

void Host::submit(VkCommandBuffer commands) {
    const VkMemoryBarrier memory{VK_STRUCTURE_TYPE_MEMORY_BARRIER, nullptr, VK_ACCESS_SHADER_WRITE_BIT,
                                 VK_ACCESS_HOST_READ_BIT};
    api_.vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &memory,
                              0, nullptr, 0, nullptr);
    check(api_.vkEndCommandBuffer(commands), "vkEndCommandBuffer");
    VkSubmitInfo info{};
    info.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO;
    info.commandBufferCount = 1;
    info.pCommandBuffers = &commands;
    check(api_.vkQueueSubmit(queue_, 1, &info, VK_NULL_HANDLE), "vkQueueSubmit");
}

void Host::wait_idle() { check(api_.vkQueueWaitIdle(queue_), "vkQueueWaitIdle"); }

}  // namespace vkf::test
