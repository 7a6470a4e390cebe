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

Host::Host() {
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
    check(instance_api_.vkCreateDevice(physical_, &device, nullptr, &device_), "vkCreateDevice");
    api_ = load_device_table(instance_api_, device_);
    api_.vkGetDeviceQueue(device_, family_, 0, &queue_);
    const VkCommandPoolCreateInfo pool{VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO, nullptr, 0, family_};
    check(api_.vkCreateCommandPool(device_, &pool, nullptr, &pool_), "vkCreateCommandPool");
}

Host::~Host() {
    api_.vkQueueWaitIdle(queue_);
    while (!buffers_.empty()) {
        destroy(Buffer(buffers_.back()));
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
    return out;
}

Host::Buffer Host::make_buffer(std::uint64_t bytes) {
    VkBufferCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO;
    info.size = bytes;
    info.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT;
    Buffer out;
    check(api_.vkCreateBuffer(device_, &info, nullptr, &out.buffer), "vkCreateBuffer");
    VkMemoryRequirements needs{};
    api_.vkGetBufferMemoryRequirements(device_, out.buffer, &needs);
    VkPhysicalDeviceMemoryProperties memory{};
    instance_api_.vkGetPhysicalDeviceMemoryProperties(physical_, &memory);
    constexpr VkMemoryPropertyFlags kHost = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    std::uint32_t type = 0;
    while ((needs.memoryTypeBits & (1u << type)) == 0 || (memory.memoryTypes[type].propertyFlags & kHost) != kHost) {
        ++type;
    }
    const VkMemoryAllocateInfo allocate{VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, nullptr, needs.size, type};
    check(api_.vkAllocateMemory(device_, &allocate, nullptr, &out.memory), "vkAllocateMemory");
    check(api_.vkBindBufferMemory(device_, out.buffer, out.memory, 0), "vkBindBufferMemory");
    void* mapped = nullptr;
    check(api_.vkMapMemory(device_, out.memory, 0, VK_WHOLE_SIZE, 0, &mapped), "vkMapMemory");
    out.mapped = static_cast<std::byte*>(mapped);
    buffers_.push_back(out);
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
