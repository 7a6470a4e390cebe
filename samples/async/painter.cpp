// SPDX-License-Identifier: Apache-2.0
#include "painter.h"

#include "picture.frag.h"
#include "picture.vert.h"

namespace {

constexpr VkFormat kFormat = VK_FORMAT_R8G8B8A8_UNORM;
constexpr std::uint32_t kMostSlots = 4;

struct Push {
    std::uint32_t width, work;
};

VkPipelineShaderStageCreateInfo stage(VkShaderStageFlagBits which, VkShaderModule module) {
    return {VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO, nullptr, 0, which, module, "main", nullptr};
}

}  // namespace

Painter::Painter(Gpu& gpu, std::uint32_t width, std::uint32_t height) : gpu_(gpu), width_(width), height_(height) {
    make_render_pass();
    make_pipeline();
}

void Painter::make_render_pass() {
    VkAttachmentDescription color{};
    color.format = kFormat;
    color.samples = VK_SAMPLE_COUNT_1_BIT;
    color.loadOp = VK_ATTACHMENT_LOAD_OP_CLEAR;
    color.storeOp = VK_ATTACHMENT_STORE_OP_STORE;
    color.stencilLoadOp = VK_ATTACHMENT_LOAD_OP_DONT_CARE;
    color.stencilStoreOp = VK_ATTACHMENT_STORE_OP_DONT_CARE;
    color.initialLayout = VK_IMAGE_LAYOUT_UNDEFINED;
    color.finalLayout = VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL;
    const VkAttachmentReference reference{0, VK_IMAGE_LAYOUT_COLOR_ATTACHMENT_OPTIMAL};
    VkSubpassDescription subpass{};
    subpass.colorAttachmentCount = 1;
    subpass.pColorAttachments = &reference;
    constexpr VkPipelineStageFlags kOutput = VK_PIPELINE_STAGE_COLOR_ATTACHMENT_OUTPUT_BIT;
    constexpr VkPipelineStageFlags kTransfer = VK_PIPELINE_STAGE_TRANSFER_BIT;
    const VkSubpassDependency dependencies[] = {
        {VK_SUBPASS_EXTERNAL, 0, kOutput | kTransfer, kOutput, 0, VK_ACCESS_COLOR_ATTACHMENT_WRITE_BIT, 0},
        {0, VK_SUBPASS_EXTERNAL, kOutput, kTransfer, VK_ACCESS_COLOR_ATTACHMENT_WRITE_BIT, VK_ACCESS_TRANSFER_READ_BIT,
         0}};
    const VkRenderPassCreateInfo info{
        VK_STRUCTURE_TYPE_RENDER_PASS_CREATE_INFO, nullptr, 0, 1, &color, 1, &subpass, 2, dependencies};
    check(vkCreateRenderPass(gpu_.device, &info, nullptr, &render_pass_), "vkCreateRenderPass");
    gpu_.later([&gpu = gpu_, made = render_pass_] { vkDestroyRenderPass(gpu.device, made, nullptr); });
}

void Painter::make_pipeline() {
    const VkDescriptorSetLayoutBinding binding{0, VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 1, VK_SHADER_STAGE_FRAGMENT_BIT,
                                               nullptr};
    const VkDescriptorSetLayoutCreateInfo sets{VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO, nullptr, 0, 1,
                                               &binding};
    check(vkCreateDescriptorSetLayout(gpu_.device, &sets, nullptr, &set_layout_), "vkCreateDescriptorSetLayout");
    gpu_.later([&gpu = gpu_, made = set_layout_] { vkDestroyDescriptorSetLayout(gpu.device, made, nullptr); });
    const VkDescriptorPoolSize size{VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, kMostSlots};
    const VkDescriptorPoolCreateInfo pool{
        VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO, nullptr, 0, kMostSlots, 1, &size};
    check(vkCreateDescriptorPool(gpu_.device, &pool, nullptr, &pool_), "vkCreateDescriptorPool");
    gpu_.later([&gpu = gpu_, made = pool_] { vkDestroyDescriptorPool(gpu.device, made, nullptr); });
    const VkPushConstantRange push{VK_SHADER_STAGE_FRAGMENT_BIT, 0, sizeof(Push)};
    const VkPipelineLayoutCreateInfo layout{
        VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO, nullptr, 0, 1, &set_layout_, 1, &push};
    check(vkCreatePipelineLayout(gpu_.device, &layout, nullptr, &layout_), "vkCreatePipelineLayout");
    gpu_.later([&gpu = gpu_, made = layout_] { vkDestroyPipelineLayout(gpu.device, made, nullptr); });

    const VkPipelineShaderStageCreateInfo stages[] = {
        stage(VK_SHADER_STAGE_VERTEX_BIT, gpu_.make_shader(picture_vert)),
        stage(VK_SHADER_STAGE_FRAGMENT_BIT, gpu_.make_shader(picture_frag))};
    VkPipelineVertexInputStateCreateInfo no_vertices{};
    no_vertices.sType = VK_STRUCTURE_TYPE_PIPELINE_VERTEX_INPUT_STATE_CREATE_INFO;
    const VkPipelineInputAssemblyStateCreateInfo assembly{VK_STRUCTURE_TYPE_PIPELINE_INPUT_ASSEMBLY_STATE_CREATE_INFO,
                                                          nullptr, 0, VK_PRIMITIVE_TOPOLOGY_TRIANGLE_LIST, VK_FALSE};
    const VkViewport viewport{0, 0, static_cast<float>(width_), static_cast<float>(height_), 0, 1};
    const VkRect2D scissor{{0, 0}, {width_, height_}};
    const VkPipelineViewportStateCreateInfo view{
        VK_STRUCTURE_TYPE_PIPELINE_VIEWPORT_STATE_CREATE_INFO, nullptr, 0, 1, &viewport, 1, &scissor};
    VkPipelineRasterizationStateCreateInfo raster{};
    raster.sType = VK_STRUCTURE_TYPE_PIPELINE_RASTERIZATION_STATE_CREATE_INFO;
    raster.lineWidth = 1;
    VkPipelineMultisampleStateCreateInfo samples{};
    samples.sType = VK_STRUCTURE_TYPE_PIPELINE_MULTISAMPLE_STATE_CREATE_INFO;
    samples.rasterizationSamples = VK_SAMPLE_COUNT_1_BIT;
    VkPipelineColorBlendAttachmentState opaque{};
    opaque.colorWriteMask = 0xf;
    VkPipelineColorBlendStateCreateInfo blend{};
    blend.sType = VK_STRUCTURE_TYPE_PIPELINE_COLOR_BLEND_STATE_CREATE_INFO;
    blend.attachmentCount = 1;
    blend.pAttachments = &opaque;
    VkGraphicsPipelineCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_GRAPHICS_PIPELINE_CREATE_INFO;
    info.stageCount = 2;
    info.pStages = stages;
    info.pVertexInputState = &no_vertices;
    info.pInputAssemblyState = &assembly;
    info.pViewportState = &view;
    info.pRasterizationState = &raster;
    info.pMultisampleState = &samples;
    info.pColorBlendState = &blend;
    info.layout = layout_;
    info.renderPass = render_pass_;
    check(vkCreateGraphicsPipelines(gpu_.device, nullptr, 1, &info, nullptr, &pipeline_), "vkCreateGraphicsPipelines");
    gpu_.later([&gpu = gpu_, made = pipeline_] { vkDestroyPipeline(gpu.device, made, nullptr); });
}

std::uint32_t Painter::add_slot(const Buffer& numbers) {
    Slot slot;
    const VkDescriptorSetAllocateInfo sets{VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO, nullptr, pool_, 1,
                                           &set_layout_};
    check(vkAllocateDescriptorSets(gpu_.device, &sets, &slot.set), "vkAllocateDescriptorSets");
    const VkDescriptorBufferInfo whole{numbers.handle, 0, VK_WHOLE_SIZE};
    VkWriteDescriptorSet write{};
    write.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET;
    write.dstSet = slot.set;
    write.descriptorCount = 1;
    write.descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER;
    write.pBufferInfo = &whole;
    vkUpdateDescriptorSets(gpu_.device, 1, &write, 0, nullptr);

    VkImageCreateInfo image{};
    image.sType = VK_STRUCTURE_TYPE_IMAGE_CREATE_INFO;
    image.imageType = VK_IMAGE_TYPE_2D;
    image.format = kFormat;
    image.extent = {width_, height_, 1};
    image.mipLevels = image.arrayLayers = 1;
    image.samples = VK_SAMPLE_COUNT_1_BIT;
    image.usage = VK_IMAGE_USAGE_COLOR_ATTACHMENT_BIT | VK_IMAGE_USAGE_TRANSFER_SRC_BIT;
    check(vkCreateImage(gpu_.device, &image, nullptr, &slot.image), "vkCreateImage");
    VkMemoryRequirements needs;
    vkGetImageMemoryRequirements(gpu_.device, slot.image, &needs);
    const VkDeviceMemory memory = gpu_.allocate(needs, 0);
    gpu_.later([&gpu = gpu_, made = slot.image] { vkDestroyImage(gpu.device, made, nullptr); });
    check(vkBindImageMemory(gpu_.device, slot.image, memory, 0), "vkBindImageMemory");
    VkImageViewCreateInfo view{};
    view.sType = VK_STRUCTURE_TYPE_IMAGE_VIEW_CREATE_INFO;
    view.image = slot.image;
    view.viewType = VK_IMAGE_VIEW_TYPE_2D;
    view.format = kFormat;
    view.subresourceRange = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 1, 0, 1};
    VkImageView image_view = VK_NULL_HANDLE;
    check(vkCreateImageView(gpu_.device, &view, nullptr, &image_view), "vkCreateImageView");
    gpu_.later([&gpu = gpu_, image_view] { vkDestroyImageView(gpu.device, image_view, nullptr); });
    const VkFramebufferCreateInfo framebuffer{
        VK_STRUCTURE_TYPE_FRAMEBUFFER_CREATE_INFO, nullptr, 0, render_pass_, 1, &image_view, width_, height_, 1};
    check(vkCreateFramebuffer(gpu_.device, &framebuffer, nullptr, &slot.framebuffer), "vkCreateFramebuffer");
    gpu_.later([&gpu = gpu_, made = slot.framebuffer] { vkDestroyFramebuffer(gpu.device, made, nullptr); });
    slot.pixels = gpu_.make_buffer(std::uint64_t{4} * width_ * height_, VK_BUFFER_USAGE_TRANSFER_DST_BIT);
    slots_.push_back(slot);
    return static_cast<std::uint32_t>(slots_.size() - 1);
}

void Painter::record(VkCommandBuffer commands, std::uint32_t slot, std::uint32_t work) const {
    const Slot& s = slots_[slot];
    const VkClearValue clear{};
    const VkRenderPassBeginInfo begin{VK_STRUCTURE_TYPE_RENDER_PASS_BEGIN_INFO,
                                      nullptr,
                                      render_pass_,
                                      s.framebuffer,
                                      {{0, 0}, {width_, height_}},
                                      1,
                                      &clear};
    vkCmdBeginRenderPass(commands, &begin, VK_SUBPASS_CONTENTS_INLINE);
    vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_GRAPHICS, pipeline_);
    vkCmdBindDescriptorSets(commands, VK_PIPELINE_BIND_POINT_GRAPHICS, layout_, 0, 1, &s.set, 0, nullptr);
    const Push push{width_, work};
    vkCmdPushConstants(commands, layout_, VK_SHADER_STAGE_FRAGMENT_BIT, 0, sizeof(push), &push);
    vkCmdDraw(commands, 3, 1, 0, 0);
    vkCmdEndRenderPass(commands);
    const VkBufferImageCopy all{0, 0, 0, {VK_IMAGE_ASPECT_COLOR_BIT, 0, 0, 1}, {}, {width_, height_, 1}};
    vkCmdCopyImageToBuffer(commands, s.image, VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL, s.pixels.handle, 1, &all);
    const VkMemoryBarrier to_host{VK_STRUCTURE_TYPE_MEMORY_BARRIER, nullptr, VK_ACCESS_TRANSFER_WRITE_BIT,
                                  VK_ACCESS_HOST_READ_BIT};
    vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_TRANSFER_BIT, VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &to_host, 0,
                         nullptr, 0, nullptr);
}

const unsigned char* Painter::pixels(std::uint32_t slot) const {
    return reinterpret_cast<const unsigned char*>(slots_[slot].pixels.mapped);
}
