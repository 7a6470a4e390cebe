// SPDX-License-Identifier: Apache-2.0
#define VOLK_IMPLEMENTATION
#include "gpu.h"

#include <vkformer/vkformer.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

namespace {

VKAPI_ATTR VkBool32 VKAPI_CALL on_message(VkDebugUtilsMessageSeverityFlagBitsEXT, VkDebugUtilsMessageTypeFlagsEXT,
                                          const VkDebugUtilsMessengerCallbackDataEXT* data, void* user) {
    static_cast<std::vector<std::string>*>(user)->push_back(data->pMessage);
    return VK_FALSE;
}

}  // namespace

void check(VkResult result, const char* call) {
    if (result != VK_SUCCESS) {
        throw std::runtime_error(std::string(call) + " gave " + std::to_string(result));
    }
}

Gpu::Gpu(PFN_vkGetInstanceProcAddr entry) {
    make_instance(entry);
    std::uint32_t count = 1;
    if (vkEnumeratePhysicalDevices(instance, &count, &physical) < 0 || count == 0) {
        throw std::runtime_error("there is no Vulkan device");
    }
    find_families();
    make_device();
    for (Queue* queue : {&graphics, &compute}) {
        const VkCommandPoolCreateInfo pool{VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO, nullptr,
                                           VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT, queue->family};
        check(vkCreateCommandPool(device, &pool, nullptr, &queue->pool), "vkCreateCommandPool");
        later([this, made = queue->pool] { vkDestroyCommandPool(device, made, nullptr); });
    }
}

Gpu::~Gpu() {
    if (device != nullptr) {
        vkDeviceWaitIdle(device);
    }
    for (; !undo_.empty(); undo_.pop_back()) {
        undo_.back()();
    }
}

void Gpu::make_instance(PFN_vkGetInstanceProcAddr entry) {
    if (entry != nullptr) {
        volkInitializeCustom(entry);
    } else if (volkInitialize() != VK_SUCCESS) {
        throw std::runtime_error("no Vulkan on this machine: the loader (libvulkan) could not be opened");
    }
    const char* variable = std::getenv("VKFORMER_VALIDATION");
    const bool validation = variable != nullptr && std::strcmp(variable, "1") == 0;
    const char* layer = "VK_LAYER_KHRONOS_validation";
    const char* extensions[] = {VK_EXT_DEBUG_UTILS_EXTENSION_NAME, VK_EXT_VALIDATION_FEATURES_EXTENSION_NAME};
    const VkValidationFeatureEnableEXT enables[] = {VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT};
    const VkValidationFeaturesEXT features{VK_STRUCTURE_TYPE_VALIDATION_FEATURES_EXT, nullptr, 1, enables, 0, nullptr};
    const VkApplicationInfo app{
        VK_STRUCTURE_TYPE_APPLICATION_INFO, nullptr, "async", 1, nullptr, 0, VK_API_VERSION_1_1};
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
    const VkResult made = vkCreateInstance(&info, nullptr, &instance);
    if (made == VK_ERROR_INCOMPATIBLE_DRIVER) {
        throw std::runtime_error("vkCreateInstance: no Vulkan driver on this machine (the loader found none)");
    }
    check(made, "vkCreateInstance");
    later([this] { vkDestroyInstance(instance, nullptr); });
    volkLoadInstance(instance);
    if (validation) {
        VkDebugUtilsMessengerCreateInfoEXT listen{};
        listen.sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT;
        listen.messageSeverity =
            VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT;
        listen.messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT;
        listen.pfnUserCallback = on_message;
        listen.pUserData = &messages_;
        VkDebugUtilsMessengerEXT messenger = VK_NULL_HANDLE;
        check(vkCreateDebugUtilsMessengerEXT(instance, &listen, nullptr, &messenger), "vkCreateDebugUtilsMessengerEXT");
        later([this, messenger] { vkDestroyDebugUtilsMessengerEXT(instance, messenger, nullptr); });
    }
}

/// Drawing: the first family that does. Computing: a family that does not draw, else a second queue
/// of the same, else the same queue.
void Gpu::find_families() {
    std::uint32_t count = 0;
    vkGetPhysicalDeviceQueueFamilyProperties(physical, &count, nullptr);
    std::vector<VkQueueFamilyProperties> families(count);
    vkGetPhysicalDeviceQueueFamilyProperties(physical, &count, families.data());
    const auto find = [&](VkQueueFlags with, VkQueueFlags without) {
        return static_cast<std::uint32_t>(std::find_if(families.begin(), families.end(),
                                                       [&](const auto& f) {
                                                           return (f.queueFlags & with) == with &&
                                                                  (f.queueFlags & without) == 0;
                                                       }) -
                                          families.begin());
    };
    graphics.family = find(VK_QUEUE_GRAPHICS_BIT | VK_QUEUE_COMPUTE_BIT, 0);
    if (graphics.family == count) {
        throw std::runtime_error("the Vulkan device cannot draw");
    }
    compute.family = std::min(find(VK_QUEUE_COMPUTE_BIT, VK_QUEUE_GRAPHICS_BIT), count);
    if (compute.family == count) {
        compute.family = graphics.family;
    }
}

void Gpu::make_device() {
    std::uint32_t count = 0;
    vkGetPhysicalDeviceQueueFamilyProperties(physical, &count, nullptr);
    std::vector<VkQueueFamilyProperties> families(count);
    vkGetPhysicalDeviceQueueFamilyProperties(physical, &count, families.data());
    const bool second = !two_families() && families[graphics.family].queueCount > 1;

    vkf::DeviceRequirements needs = vkf::Device::requirements(instance, physical);
    VkPhysicalDeviceTimelineSemaphoreFeatures timeline{};
    timeline.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_TIMELINE_SEMAPHORE_FEATURES;
    timeline.timelineSemaphore = VK_TRUE;
    std::vector<const char*> extensions = needs.extensions(false);
    extensions.push_back(VK_KHR_TIMELINE_SEMAPHORE_EXTENSION_NAME);
    const float priorities[] = {1, 1};
    const VkDeviceQueueCreateInfo queues[] = {
        {VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO, nullptr, 0, graphics.family, second ? 2u : 1u, priorities},
        {VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO, nullptr, 0, compute.family, 1, priorities}};
    VkDeviceCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO;
    info.pNext = &timeline;
    info.queueCreateInfoCount = two_families() ? 2 : 1;
    info.pQueueCreateInfos = queues;
    info.enabledExtensionCount = static_cast<std::uint32_t>(extensions.size());
    info.ppEnabledExtensionNames = extensions.data();
    check(vkCreateDevice(physical, &info, nullptr, &device), "vkCreateDevice (with timeline semaphores)");
    later([this] { vkDestroyDevice(device, nullptr); });
    volkLoadDevice(device);
    vkGetDeviceQueue(device, graphics.family, 0, &graphics.handle);
    vkGetDeviceQueue(device, compute.family, second ? 1 : 0, &compute.handle);
}

VkDeviceMemory Gpu::allocate(const VkMemoryRequirements& needs, VkMemoryPropertyFlags properties) {
    VkPhysicalDeviceMemoryProperties types;
    vkGetPhysicalDeviceMemoryProperties(physical, &types);
    std::uint32_t type = 0;  // Vulkan promises one for what is asked here
    while ((needs.memoryTypeBits >> type & 1) == 0 ||
           (types.memoryTypes[type].propertyFlags & properties) != properties) {
        ++type;
    }
    const VkMemoryAllocateInfo info{VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, nullptr, needs.size, type};
    VkDeviceMemory memory = VK_NULL_HANDLE;
    check(vkAllocateMemory(device, &info, nullptr, &memory), "vkAllocateMemory");
    later([this, memory] { vkFreeMemory(device, memory, nullptr); });
    return memory;
}

Buffer Gpu::make_buffer(std::uint64_t bytes, VkBufferUsageFlags usage) {
    VkBufferCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO;
    info.size = bytes;
    info.usage = usage;
    info.sharingMode = VK_SHARING_MODE_EXCLUSIVE;  // one family owns it at a time
    Buffer out{{}, {}, bytes};
    check(vkCreateBuffer(device, &info, nullptr, &out.handle), "vkCreateBuffer");
    VkMemoryRequirements needs;
    vkGetBufferMemoryRequirements(device, out.handle, &needs);
    const VkDeviceMemory memory =
        allocate(needs, VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT);
    later([this, buffer = out.handle] { vkDestroyBuffer(device, buffer, nullptr); });
    check(vkBindBufferMemory(device, out.handle, memory, 0), "vkBindBufferMemory");
    void* mapped = nullptr;
    check(vkMapMemory(device, memory, 0, VK_WHOLE_SIZE, 0, &mapped), "vkMapMemory");
    out.mapped = static_cast<float*>(mapped);
    return out;
}

Timeline Gpu::make_timeline() {
    const VkSemaphoreTypeCreateInfo type{VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO, nullptr,
                                         VK_SEMAPHORE_TYPE_TIMELINE, 0};
    const VkSemaphoreCreateInfo info{VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, &type, 0};
    Timeline out;
    check(vkCreateSemaphore(device, &info, nullptr, &out.handle), "vkCreateSemaphore");
    later([this, made = out.handle] { vkDestroySemaphore(device, made, nullptr); });
    return out;
}

VkCommandBuffer Gpu::make_commands(const Queue& queue) {
    const VkCommandBufferAllocateInfo info{VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO, nullptr, queue.pool,
                                           VK_COMMAND_BUFFER_LEVEL_PRIMARY, 1};
    VkCommandBuffer out = VK_NULL_HANDLE;
    check(vkAllocateCommandBuffers(device, &info, &out), "vkAllocateCommandBuffers");
    return out;
}

VkShaderModule Gpu::make_shader(std::span<const std::uint32_t> spirv) {
    const VkShaderModuleCreateInfo info{VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO, nullptr, 0, spirv.size_bytes(),
                                        spirv.data()};
    VkShaderModule out = VK_NULL_HANDLE;
    check(vkCreateShaderModule(device, &info, nullptr, &out), "vkCreateShaderModule");
    later([this, out] { vkDestroyShaderModule(device, out, nullptr); });
    return out;
}

void Gpu::begin(VkCommandBuffer commands) const {
    const VkCommandBufferBeginInfo info{VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO, nullptr,
                                        VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT, nullptr};
    check(vkBeginCommandBuffer(commands, &info), "vkBeginCommandBuffer");
}

void Gpu::submit(const Queue& queue, VkCommandBuffer commands, const std::vector<Wait>& waits, const Timeline& signal,
                 std::uint64_t value) const {
    check(vkEndCommandBuffer(commands), "vkEndCommandBuffer");
    std::vector<VkSemaphore> semaphores;
    std::vector<std::uint64_t> values;
    std::vector<VkPipelineStageFlags> stages;
    for (const Wait& w : waits) {
        semaphores.push_back(w.timeline->handle);
        values.push_back(w.value);
        stages.push_back(w.stage);
    }
    const auto count = static_cast<std::uint32_t>(waits.size());
    const VkTimelineSemaphoreSubmitInfo timeline{
        VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO, nullptr, count, values.data(), 1, &value};
    const VkSubmitInfo info{VK_STRUCTURE_TYPE_SUBMIT_INFO,
                            &timeline,
                            count,
                            semaphores.data(),
                            stages.data(),
                            1,
                            &commands,
                            1,
                            &signal.handle};
    check(vkQueueSubmit(queue.handle, 1, &info, VK_NULL_HANDLE), "vkQueueSubmit");
}

void Gpu::wait(const Timeline& timeline, std::uint64_t value) const {
    const VkSemaphoreWaitInfo info{VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO, nullptr, 0, 1, &timeline.handle, &value};
    check(vkWaitSemaphoresKHR(device, &info, ~std::uint64_t{0}), "vkWaitSemaphores");
}
