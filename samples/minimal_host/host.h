// SPDX-License-Identifier: Apache-2.0
// What every Vulkan program has in some form: an instance, a device with a queue, a buffer that the
// host sees, a compute pipeline that works on it, and a command buffer. vkformer has no part in it.
#pragma once

#include <volk.h>

#include <cstdint>
#include <stdexcept>
#include <string>

struct Host {
    VkInstance instance{};
    VkPhysicalDevice physical{};
    VkDevice device{};
    VkQueue queue{};  // of family 0, which computes on every device known to us
    VkBuffer buffer{};
    VkDeviceMemory memory{};
    float* mapped{};
    VkDescriptorSetLayout set_layout{};
    VkDescriptorPool set_pool{};
    VkDescriptorSet set{};
    VkPipelineLayout layout{};
    VkPipeline pipeline{};
    VkCommandPool pool{};
    VkCommandBuffer commands{};

    static void check(VkResult result, const char* call) {
        if (result < 0) {
            throw std::runtime_error(std::string(call) + " gave " + std::to_string(result));
        }
    }

    Host(std::uint64_t buffer_bytes, const std::uint32_t* spirv, std::size_t spirv_bytes) {
        make_device();
        make_buffer(buffer_bytes);
        make_pipeline(spirv, spirv_bytes);
        const VkCommandPoolCreateInfo pool_info{VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO, nullptr, 0, 0};
        check(vkCreateCommandPool(device, &pool_info, nullptr, &pool), "vkCreateCommandPool");
        const VkCommandBufferAllocateInfo commands_info{VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO, nullptr, pool,
                                                        VK_COMMAND_BUFFER_LEVEL_PRIMARY, 1};
        check(vkAllocateCommandBuffers(device, &commands_info, &commands), "vkAllocateCommandBuffers");
    }

    Host(const Host&) = delete;
    Host& operator=(const Host&) = delete;

    ~Host() {
        vkDestroyCommandPool(device, pool, nullptr);
        vkDestroyPipeline(device, pipeline, nullptr);
        vkDestroyPipelineLayout(device, layout, nullptr);
        vkDestroyDescriptorPool(device, set_pool, nullptr);
        vkDestroyDescriptorSetLayout(device, set_layout, nullptr);
        vkDestroyBuffer(device, buffer, nullptr);
        vkFreeMemory(device, memory, nullptr);
        vkDestroyDevice(device, nullptr);
        vkDestroyInstance(instance, nullptr);
    }

    void begin() const {
        const VkCommandBufferBeginInfo info{VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO, nullptr, 0, nullptr};
        check(vkBeginCommandBuffer(commands, &info), "vkBeginCommandBuffer");
    }

    /// `groups` groups of the pipeline, with `pass` as its push constant.
    void dispatch(std::uint32_t pass, std::uint32_t groups) const {
        vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
        vkCmdBindDescriptorSets(commands, VK_PIPELINE_BIND_POINT_COMPUTE, layout, 0, 1, &set, 0, nullptr);
        vkCmdPushConstants(commands, layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof(pass), &pass);
        vkCmdDispatch(commands, groups, 1, 1);
    }

    /// Makes what compute shaders have written visible to what comes next.
    void barrier(VkPipelineStageFlags next, VkAccessFlags access) const {
        const VkMemoryBarrier all{VK_STRUCTURE_TYPE_MEMORY_BARRIER, nullptr, VK_ACCESS_SHADER_WRITE_BIT, access};
        vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, next, 0, 1, &all, 0, nullptr, 0, nullptr);
    }

    /// Ends the commands, and waits until they are done.
    void submit() const {
        check(vkEndCommandBuffer(commands), "vkEndCommandBuffer");
        VkSubmitInfo info{};
        info.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO;
        info.commandBufferCount = 1;
        info.pCommandBuffers = &commands;
        check(vkQueueSubmit(queue, 1, &info, nullptr), "vkQueueSubmit");
        check(vkQueueWaitIdle(queue), "vkQueueWaitIdle");
    }

    void make_device() {
        if (volkInitialize() != VK_SUCCESS) {
            throw std::runtime_error("no Vulkan on this machine: the loader (libvulkan) could not be opened");
        }
        const VkApplicationInfo app{
            VK_STRUCTURE_TYPE_APPLICATION_INFO, nullptr, "minimal_host", 1, nullptr, 0, VK_API_VERSION_1_1};
        const VkInstanceCreateInfo instance_info{
            VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO, nullptr, 0, &app, 0, nullptr, 0, nullptr};
        const VkResult made = vkCreateInstance(&instance_info, nullptr, &instance);
        if (made == VK_ERROR_INCOMPATIBLE_DRIVER) {
            throw std::runtime_error("vkCreateInstance: no Vulkan driver on this machine (the loader found none)");
        }
        check(made, "vkCreateInstance");
        volkLoadInstance(instance);
        std::uint32_t count = 1;
        check(vkEnumeratePhysicalDevices(instance, &count, &physical), "vkEnumeratePhysicalDevices");
        if (count == 0) {
            throw std::runtime_error("there is no Vulkan device");
        }
        const float priority = 1;
        const VkDeviceQueueCreateInfo queue_info{
            VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO, nullptr, 0, 0, 1, &priority};
        const VkDeviceCreateInfo device_info{
            VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO, nullptr, 0, 1, &queue_info, 0, nullptr, 0, nullptr, nullptr};
        check(vkCreateDevice(physical, &device_info, nullptr, &device), "vkCreateDevice");
        volkLoadDevice(device);
        vkGetDeviceQueue(device, 0, 0, &queue);
    }

    void make_buffer(std::uint64_t bytes) {
        VkBufferCreateInfo buffer_info{};
        buffer_info.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO;
        buffer_info.size = bytes;
        buffer_info.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT;
        check(vkCreateBuffer(device, &buffer_info, nullptr, &buffer), "vkCreateBuffer");
        VkMemoryRequirements needs;
        vkGetBufferMemoryRequirements(device, buffer, &needs);
        VkPhysicalDeviceMemoryProperties types;
        vkGetPhysicalDeviceMemoryProperties(physical, &types);
        const VkMemoryPropertyFlags seen = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
        std::uint32_t type = 0;  // Vulkan promises that there is one
        while ((needs.memoryTypeBits >> type & 1) == 0 || (types.memoryTypes[type].propertyFlags & seen) != seen) {
            ++type;
        }
        const VkMemoryAllocateInfo memory_info{VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, nullptr, needs.size, type};
        check(vkAllocateMemory(device, &memory_info, nullptr, &memory), "vkAllocateMemory");
        check(vkBindBufferMemory(device, buffer, memory, 0), "vkBindBufferMemory");
        check(vkMapMemory(device, memory, 0, VK_WHOLE_SIZE, 0, reinterpret_cast<void**>(&mapped)), "vkMapMemory");
    }

    /// Makes a pipeline with the buffer at binding 0, and a push constant of 4 bytes.
    void make_pipeline(const std::uint32_t* spirv, std::size_t spirv_bytes) {
        const VkDescriptorSetLayoutBinding binding{0, VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 1, VK_SHADER_STAGE_COMPUTE_BIT,
                                                   nullptr};
        const VkDescriptorSetLayoutCreateInfo set_layout_info{VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO,
                                                              nullptr, 0, 1, &binding};
        check(vkCreateDescriptorSetLayout(device, &set_layout_info, nullptr, &set_layout),
              "vkCreateDescriptorSetLayout");
        const VkDescriptorPoolSize pool_size{VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 1};
        const VkDescriptorPoolCreateInfo pool_info{
            VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO, nullptr, 0, 1, 1, &pool_size};
        check(vkCreateDescriptorPool(device, &pool_info, nullptr, &set_pool), "vkCreateDescriptorPool");
        const VkDescriptorSetAllocateInfo set_info{VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO, nullptr, set_pool, 1,
                                                   &set_layout};
        check(vkAllocateDescriptorSets(device, &set_info, &set), "vkAllocateDescriptorSets");
        const VkDescriptorBufferInfo whole{buffer, 0, VK_WHOLE_SIZE};
        VkWriteDescriptorSet write{};
        write.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET;
        write.dstSet = set;
        write.descriptorCount = 1;
        write.descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER;
        write.pBufferInfo = &whole;
        vkUpdateDescriptorSets(device, 1, &write, 0, nullptr);

        const VkPushConstantRange push{VK_SHADER_STAGE_COMPUTE_BIT, 0, 4};
        const VkPipelineLayoutCreateInfo layout_info{
            VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO, nullptr, 0, 1, &set_layout, 1, &push};
        check(vkCreatePipelineLayout(device, &layout_info, nullptr, &layout), "vkCreatePipelineLayout");
        const VkShaderModuleCreateInfo shader_info{VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO, nullptr, 0, spirv_bytes,
                                                   spirv};
        VkShaderModule shader;
        check(vkCreateShaderModule(device, &shader_info, nullptr, &shader), "vkCreateShaderModule");
        VkComputePipelineCreateInfo pipeline_info{};
        pipeline_info.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO;
        pipeline_info.stage.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO;
        pipeline_info.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT;
        pipeline_info.stage.module = shader;
        pipeline_info.stage.pName = "main";
        pipeline_info.layout = layout;
        check(vkCreateComputePipelines(device, nullptr, 1, &pipeline_info, nullptr, &pipeline),
              "vkCreateComputePipelines");
        vkDestroyShaderModule(device, shader, nullptr);
    }
};
