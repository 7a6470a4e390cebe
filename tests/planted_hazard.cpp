// SPDX-License-Identifier: Apache-2.0
#include "tests/planted_hazard.h"

#include <array>

#include "elementwise.spv.h"
#include "runtime/device/device.h"
#include "runtime/device/device_core.h"
#include "runtime/device/memory.h"
#include "shaders/elementwise.h"

namespace vkf::test {

namespace {

constexpr std::uint64_t kHazardBytes = 4096;
constexpr std::uint32_t kBindings = 3;  // of elementwise.comp

/// A command buffer and a buffer to do wrong with.
class Scene {
public:
    explicit Scene(DeviceCore& device)
        : device_(device), block_({&device, [](DeviceCore*) {}}, kHazardBytes, MemoryUse::device, "a planted hazard") {
        const VkCommandPoolCreateInfo pool{VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO, nullptr, 0, device.queue_family};
        check(device.api.vkCreateCommandPool(device.handle, &pool, nullptr, &pool_), "vkCreateCommandPool");
        const VkCommandBufferAllocateInfo info{VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO, nullptr, pool_,
                                               VK_COMMAND_BUFFER_LEVEL_PRIMARY, 1};
        check(device.api.vkAllocateCommandBuffers(device.handle, &info, &commands), "vkAllocateCommandBuffers");
        const VkDescriptorPoolSize size{VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 2 * kBindings};
        const VkDescriptorPoolCreateInfo sets{VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO, nullptr, 0, 2, 1, &size};
        check(device.api.vkCreateDescriptorPool(device.handle, &sets, nullptr, &descriptors_),
              "vkCreateDescriptorPool");
        const VkCommandBufferBeginInfo begin{VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO, nullptr, 0, nullptr};
        check(device.api.vkBeginCommandBuffer(commands, &begin), "vkBeginCommandBuffer");
    }
    Scene(const Scene&) = delete;
    Scene& operator=(const Scene&) = delete;
    ~Scene() {
        device_.api.vkEndCommandBuffer(commands);
        device_.api.vkDestroyCommandPool(device_.handle, pool_, nullptr);
        device_.api.vkDestroyDescriptorPool(device_.handle, descriptors_, nullptr);
    }

    VkBuffer buffer() const { return block_.buffer(); }

    /// A set of storage buffers: binding b covers quarter quarters[b] of the buffer.
    VkDescriptorSet quarters(const Pipeline& pipeline, const std::array<std::uint32_t, kBindings>& quarters) {
        const VkDescriptorSetAllocateInfo info{VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO, nullptr, descriptors_, 1,
                                               &pipeline.set};
        VkDescriptorSet set = VK_NULL_HANDLE;
        check(device_.api.vkAllocateDescriptorSets(device_.handle, &info, &set), "vkAllocateDescriptorSets");
        for (std::uint32_t b = 0; b < kBindings; ++b) {
            const VkDescriptorBufferInfo range{block_.buffer(), quarters[b] * kHazardBytes / 4, kHazardBytes / 4};
            const VkWriteDescriptorSet write{VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET, nullptr, set,    b,      0, 1,
                                             VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,      nullptr, &range, nullptr};
            device_.api.vkUpdateDescriptorSets(device_.handle, 1, &write, 0, nullptr);
        }
        return set;
    }

    VkCommandBuffer commands = VK_NULL_HANDLE;

private:
    DeviceCore& device_;
    Block block_;
    VkCommandPool pool_ = VK_NULL_HANDLE;
    VkDescriptorPool descriptors_ = VK_NULL_HANDLE;
};

}  // namespace

void plant_transfer_hazard(DeviceCore& device) {
    Scene scene(device);
    device.api.vkCmdFillBuffer(scene.commands, scene.buffer(), 0, kHazardBytes, 1);
    device.api.vkCmdFillBuffer(scene.commands, scene.buffer(), 0, kHazardBytes, 2);
}

void plant_dispatch_hazard(DeviceCore& device) {
    Scene scene(device);
    static const Shader elementwise{"elementwise", spirv::kElementwiseSpirv};
    const Kernel kernel{
        &elementwise,
        {64, {{shader::kElementwiseSpecCombine, shader::kCombineAdd}, {shader::kElementwiseSpecDense, 1}}},
        "a planted hazard"};
    const KernelUse kernels[] = {{&kernel}};
    const Pipeline& pipeline = *device.pipelines->get(kernels).front();
    const VkDescriptorSet write = scene.quarters(pipeline, {0, 1, 2});
    const VkDescriptorSet read = scene.quarters(pipeline, {2, 1, 3});
    const std::array<std::byte, 128> push{};  // a count of 0
    for (const VkDescriptorSet set : {write, read}) {
        device.api.vkCmdBindPipeline(scene.commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline.handle);
        device.api.vkCmdBindDescriptorSets(scene.commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline.layout, 0, 1, &set,
                                           0, nullptr);
        device.api.vkCmdPushConstants(scene.commands, pipeline.layout, VK_SHADER_STAGE_COMPUTE_BIT, 0,
                                      static_cast<std::uint32_t>(push.size()), push.data());
        device.api.vkCmdDispatch(scene.commands, 1, 1, 1);
    }
}

}  // namespace vkf::test
