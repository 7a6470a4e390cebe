// SPDX-License-Identifier: Apache-2.0
#define VOLK_IMPLEMENTATION
#include "gpu.h"

#include <cstdlib>
#include <stdexcept>
#include <string_view>

namespace {

vkf::GetInstanceProcAddr entry() { return reinterpret_cast<vkf::GetInstanceProcAddr>(vkGetInstanceProcAddr); }

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

void barrier(VkCommandBuffer commands, VkPipelineStageFlags from_stage, VkAccessFlags from,
             VkPipelineStageFlags to_stage, VkAccessFlags to) {
    const VkMemoryBarrier memory{VK_STRUCTURE_TYPE_MEMORY_BARRIER, nullptr, from, to};
    vkCmdPipelineBarrier(commands, from_stage, to_stage, 0, 1, &memory, 0, nullptr, 0, nullptr);
}

vkf::BufferRange range(const char* name, const Buffer& buffer, std::uint64_t offset, std::uint64_t bytes) {
    vkf::BufferRange out{.name = name, .buffer = buffer.handle, .offset = offset, .bytes = bytes};
    out.bytes = bytes == 0 ? buffer.bytes - offset : bytes;
    out.buffer_bytes = buffer.bytes;
    out.buffer_usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT;
    return out;
}

Gpu::Gpu(const std::vector<const char*>& instance_extensions, bool swapchain) {
    const char* variable = std::getenv("VKFORMER_VALIDATION");
    make_instance(instance_extensions, variable != nullptr && std::string_view(variable) == "1");
    choose_device();
    make_device(swapchain);

    const VkDescriptorPoolSize size{VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 64};
    const VkDescriptorPoolCreateInfo sets{VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO, nullptr, 0, 16, 1, &size};
    check(vkCreateDescriptorPool(device, &sets, nullptr, &sets_), "vkCreateDescriptorPool");
    later([this] { vkDestroyDescriptorPool(device, sets_, nullptr); });
    const VkCommandPoolCreateInfo pool{VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO, nullptr,
                                       VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT, family};
    check(vkCreateCommandPool(device, &pool, nullptr, &commands_), "vkCreateCommandPool");
    later([this] { vkDestroyCommandPool(device, commands_, nullptr); });
}

Gpu::~Gpu() {
    if (device != nullptr) {
        vkDeviceWaitIdle(device);
    }
    for (; !undo_.empty(); undo_.pop_back()) {
        undo_.back()();
    }
}

void Gpu::make_instance(std::vector<const char*> extensions, bool validation) {
    if (volkInitialize() != VK_SUCCESS) {
        throw std::runtime_error("no Vulkan on this machine: the loader (libvulkan) could not be opened");
    }
    const char* layer = "VK_LAYER_KHRONOS_validation";
    const VkValidationFeatureEnableEXT enables[] = {VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT};
    const VkValidationFeaturesEXT features{VK_STRUCTURE_TYPE_VALIDATION_FEATURES_EXT, nullptr, 1, enables, 0, nullptr};
    const VkApplicationInfo app{
        VK_STRUCTURE_TYPE_APPLICATION_INFO, nullptr, "embed", 1, nullptr, 0, VK_API_VERSION_1_1};
    VkInstanceCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO;
    info.pApplicationInfo = &app;
    if (validation) {
        extensions.insert(extensions.end(),
                          {VK_EXT_DEBUG_UTILS_EXTENSION_NAME, VK_EXT_VALIDATION_FEATURES_EXTENSION_NAME});
        info.pNext = &features;
        info.enabledLayerCount = 1;
        info.ppEnabledLayerNames = &layer;
    }
    info.enabledExtensionCount = static_cast<std::uint32_t>(extensions.size());
    info.ppEnabledExtensionNames = extensions.data();
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

void Gpu::choose_device() {
    std::uint32_t count = 1;
    if (vkEnumeratePhysicalDevices(instance, &count, &physical) < 0 || count == 0) {
        throw std::runtime_error("there is no Vulkan device");
    }
    std::uint32_t families = 0;
    vkGetPhysicalDeviceQueueFamilyProperties(physical, &families, nullptr);
    std::vector<VkQueueFamilyProperties> list(families);
    vkGetPhysicalDeviceQueueFamilyProperties(physical, &families, list.data());
    constexpr VkQueueFlags kBoth = VK_QUEUE_GRAPHICS_BIT | VK_QUEUE_COMPUTE_BIT;
    while (family < families && (list[family].queueFlags & kBoth) != kBoth) {
        ++family;
    }
    if (family == families) {
        throw std::runtime_error("the Vulkan device cannot draw");
    }
}

void Gpu::make_device(bool swapchain) {
    const float priority = 1;
    const VkDeviceQueueCreateInfo queues{VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO, nullptr, 0, family, 1, &priority};
    // The extensions and features that vkformer needs or can use come before the renderer's own.
    needs_ = vkf::Device::requirements(instance, physical, entry());
    extensions_ = needs_->extensions();
    if (swapchain) {
        extensions_.push_back(VK_KHR_SWAPCHAIN_EXTENSION_NAME);
    }
    created_with_.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO;
    created_with_.pNext = needs_->features();
    created_with_.queueCreateInfoCount = 1;
    created_with_.pQueueCreateInfos = &queues;
    created_with_.enabledExtensionCount = static_cast<std::uint32_t>(extensions_.size());
    created_with_.ppEnabledExtensionNames = extensions_.data();
    check(vkCreateDevice(physical, &created_with_, nullptr, &device), "vkCreateDevice");
    created_with_.pQueueCreateInfos = nullptr;
    created_with_.queueCreateInfoCount = 0;
    later([this] { vkDestroyDevice(device, nullptr); });
    volkLoadDevice(device);
    vkGetDeviceQueue(device, family, 0, &queue);
}

vkf::BorrowedDevice Gpu::lend() const {
    return {.instance = instance,
            .physical = physical,
            .device = device,
            .queue_family = family,
            .queue = queue,
            .created_with = &created_with_,
            .get_instance_proc_addr = entry()};
}

VkDeviceMemory Gpu::allocate(const VkMemoryRequirements& needs, VkMemoryPropertyFlags properties) {
    VkPhysicalDeviceMemoryProperties types;
    vkGetPhysicalDeviceMemoryProperties(physical, &types);
    std::uint32_t type = 0;
    while (type < types.memoryTypeCount && ((needs.memoryTypeBits >> type & 1) == 0 ||
                                            (types.memoryTypes[type].propertyFlags & properties) != properties)) {
        ++type;
    }
    const VkMemoryAllocateInfo info{VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, nullptr, needs.size, type};
    VkDeviceMemory memory = VK_NULL_HANDLE;
    check(vkAllocateMemory(device, &info, nullptr, &memory), "vkAllocateMemory");
    later([this, memory] { vkFreeMemory(device, memory, nullptr); });
    return memory;
}

Buffer Gpu::make_buffer(std::uint64_t bytes, VkBufferUsageFlags usage, Seen seen) {
    VkBufferCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO;
    info.size = bytes;
    info.usage = usage;
    Buffer out{{}, {}, bytes};
    check(vkCreateBuffer(device, &info, nullptr, &out.handle), "vkCreateBuffer");
    VkMemoryRequirements needs;
    vkGetBufferMemoryRequirements(device, out.handle, &needs);
    const bool by_host = seen == Seen::by_host;
    const VkDeviceMemory memory =
        allocate(needs, by_host ? VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT
                                : VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT);
    later([this, buffer = out.handle] { vkDestroyBuffer(device, buffer, nullptr); });
    check(vkBindBufferMemory(device, out.handle, memory, 0), "vkBindBufferMemory");
    if (by_host) {
        void* mapped = nullptr;
        check(vkMapMemory(device, memory, 0, VK_WHOLE_SIZE, 0, &mapped), "vkMapMemory");
        out.mapped = static_cast<std::byte*>(mapped);
    }
    return out;
}

Image Gpu::make_image(VkFormat format, VkExtent2D size, VkImageUsageFlags usage) {
    VkImageCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_IMAGE_CREATE_INFO;
    info.imageType = VK_IMAGE_TYPE_2D;
    info.format = format;
    info.extent = {size.width, size.height, 1};
    info.mipLevels = info.arrayLayers = 1;
    info.samples = VK_SAMPLE_COUNT_1_BIT;
    info.tiling = VK_IMAGE_TILING_OPTIMAL;
    info.usage = usage;
    Image out;
    check(vkCreateImage(device, &info, nullptr, &out.handle), "vkCreateImage");
    VkMemoryRequirements needs;
    vkGetImageMemoryRequirements(device, out.handle, &needs);
    const VkDeviceMemory memory = allocate(needs, VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT);
    later([this, image = out.handle] { vkDestroyImage(device, image, nullptr); });
    check(vkBindImageMemory(device, out.handle, memory, 0), "vkBindImageMemory");
    VkImageViewCreateInfo view{};
    view.sType = VK_STRUCTURE_TYPE_IMAGE_VIEW_CREATE_INFO;
    view.image = out.handle;
    view.viewType = VK_IMAGE_VIEW_TYPE_2D;
    view.format = format;
    view.subresourceRange = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 1, 0, 1};
    check(vkCreateImageView(device, &view, nullptr, &out.view), "vkCreateImageView");
    later([this, view = out.view] { vkDestroyImageView(device, view, nullptr); });
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

VkDescriptorSetLayout Gpu::make_set_layout(std::uint32_t bindings, VkShaderStageFlags stages) {
    std::vector<VkDescriptorSetLayoutBinding> list;
    for (std::uint32_t binding = 0; binding < bindings; ++binding) {
        list.push_back({binding, VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 1, stages, nullptr});
    }
    const VkDescriptorSetLayoutCreateInfo info{VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO, nullptr, 0,
                                               bindings, list.data()};
    VkDescriptorSetLayout out = VK_NULL_HANDLE;
    check(vkCreateDescriptorSetLayout(device, &info, nullptr, &out), "vkCreateDescriptorSetLayout");
    later([this, out] { vkDestroyDescriptorSetLayout(device, out, nullptr); });
    return out;
}

VkPipelineLayout Gpu::make_pipeline_layout(VkDescriptorSetLayout sets, VkShaderStageFlags stages, std::uint32_t bytes) {
    const VkPushConstantRange push{stages, 0, bytes};
    const VkPipelineLayoutCreateInfo info{
        VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO, nullptr, 0, 1, &sets, 1, &push};
    VkPipelineLayout out = VK_NULL_HANDLE;
    check(vkCreatePipelineLayout(device, &info, nullptr, &out), "vkCreatePipelineLayout");
    later([this, out] { vkDestroyPipelineLayout(device, out, nullptr); });
    return out;
}

VkDescriptorSet Gpu::make_set(VkDescriptorSetLayout layout, const std::vector<VkBuffer>& buffers) {
    const VkDescriptorSetAllocateInfo info{VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO, nullptr, sets_, 1, &layout};
    VkDescriptorSet out = VK_NULL_HANDLE;
    check(vkAllocateDescriptorSets(device, &info, &out), "vkAllocateDescriptorSets");
    for (std::uint32_t binding = 0; binding < buffers.size(); ++binding) {
        const VkDescriptorBufferInfo whole{buffers[binding], 0, VK_WHOLE_SIZE};
        VkWriteDescriptorSet write{};
        write.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET;
        write.dstSet = out;
        write.dstBinding = binding;
        write.descriptorCount = 1;
        write.descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER;
        write.pBufferInfo = &whole;
        vkUpdateDescriptorSets(device, 1, &write, 0, nullptr);
    }
    return out;
}

VkCommandBuffer Gpu::make_commands() {
    const VkCommandBufferAllocateInfo info{VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO, nullptr, commands_,
                                           VK_COMMAND_BUFFER_LEVEL_PRIMARY, 1};
    VkCommandBuffer out = VK_NULL_HANDLE;
    check(vkAllocateCommandBuffers(device, &info, &out), "vkAllocateCommandBuffers");
    return out;
}

VkFence Gpu::make_signaled_fence() {
    const VkFenceCreateInfo info{VK_STRUCTURE_TYPE_FENCE_CREATE_INFO, nullptr, VK_FENCE_CREATE_SIGNALED_BIT};
    VkFence out = VK_NULL_HANDLE;
    check(vkCreateFence(device, &info, nullptr, &out), "vkCreateFence");
    later([this, out] { vkDestroyFence(device, out, nullptr); });
    return out;
}

VkSemaphore Gpu::make_semaphore() {
    const VkSemaphoreCreateInfo info{VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, nullptr, 0};
    VkSemaphore out = VK_NULL_HANDLE;
    check(vkCreateSemaphore(device, &info, nullptr, &out), "vkCreateSemaphore");
    later([this, out] { vkDestroySemaphore(device, out, nullptr); });
    return out;
}
