// SPDX-License-Identifier: Apache-2.0
#include "renderer.h"

#include <chrono>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "simulate.comp.h"
#include "stroke.frag.h"
#include "stroke.vert.h"

namespace {

constexpr VkFormat kFormat = VK_FORMAT_R8G8B8A8_UNORM;
constexpr VkPipelineStageFlags kCompute = VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT;

struct SimulatePush {
    float half_size[2], seconds;
    std::uint32_t boids, hunters;
};

struct DrawPush {
    float half_size[2];
    std::uint32_t boids, hunters, watched, heads;
    float pixel;
};

float half_width(VkExtent2D size) { return static_cast<float>(size.width) / static_cast<float>(size.height); }

VkPipelineShaderStageCreateInfo stage(VkShaderStageFlagBits kind, VkShaderModule shader) {
    return {VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO, nullptr, 0, kind, shader, "main", nullptr};
}

}  // namespace

Renderer::Renderer(Gpu& gpu, const RendererOptions& options, std::function<void(const Frame&)> finished)
    : gpu_(gpu),
      flock_(options.flock),
      watched_(options.watched),
      size_(options.size),
      finished_(std::move(finished)),
      device_(vkf::Device::borrow(gpu.lend())),
      student_(options.learn ? make_student(device_, flock_) : vkf::State()),
      layer_((options.learn ? compile_student : compile_rules)(
          device_, flock_, {.name = "boids", .state = student_, .slots = kSlots, .checked = options.checked})),
      lessons_(options.learn
                   ? std::make_unique<Lessons>(gpu, device_, flock_, student_, kSlots, options.checked, *options.learn)
                   : nullptr) {
    const std::uint64_t scratch = layer_.memory().scratch;
    const Buffer memory = gpu_.make_buffer(scratch, VK_BUFFER_USAGE_STORAGE_BUFFER_BIT, Gpu::Seen::by_device);
    layer_.allocate({"scratch", memory.handle, 0, scratch});  // nothing is allocated after this
    make_render_pass();
    make_simulation();
    make_drawing();
    for (Slot& slot : slots_) {
        make_slot(slot);
    }
    for (std::uint32_t i = 0; i < kSlots; ++i) {
        Slot& slot = slots_[i];
        const Slot& before = slots_[(i + kSlots - 1) % kSlots];
        slot.simulate_set =
            gpu_.make_set(simulate_sets_, {before.boids.handle, before.y.handle, slot.boids.handle, slot.x.handle});
        slot.draw_set = gpu_.make_set(draw_sets_, {slot.boids.handle, slot.y.handle, slot.weights.handle});
    }
    const std::vector<Boid> boids = start(flock_, half_width(size_));
    std::memcpy(slots_.back().boids.mapped, boids.data(), boids.size() * sizeof(Boid));
}

// the layer must not go while a frame uses it
Renderer::~Renderer() { vkDeviceWaitIdle(gpu_.device); }

void Renderer::make_render_pass() {
    VkAttachmentDescription colour{};
    colour.format = kFormat;
    colour.samples = VK_SAMPLE_COUNT_1_BIT;
    colour.loadOp = VK_ATTACHMENT_LOAD_OP_CLEAR;
    colour.stencilLoadOp = VK_ATTACHMENT_LOAD_OP_DONT_CARE;
    colour.stencilStoreOp = VK_ATTACHMENT_STORE_OP_DONT_CARE;
    colour.finalLayout = VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL;
    const VkAttachmentReference reference{0, VK_IMAGE_LAYOUT_COLOR_ATTACHMENT_OPTIMAL};
    VkSubpassDescription subpass{};
    subpass.colorAttachmentCount = 1;
    subpass.pColorAttachments = &reference;
    constexpr VkPipelineStageFlags kOutput = VK_PIPELINE_STAGE_COLOR_ATTACHMENT_OUTPUT_BIT;
    const VkSubpassDependency dependencies[] = {
        {VK_SUBPASS_EXTERNAL, 0, kOutput, kOutput, 0, VK_ACCESS_COLOR_ATTACHMENT_WRITE_BIT, 0},
        {0, VK_SUBPASS_EXTERNAL, kOutput, VK_PIPELINE_STAGE_TRANSFER_BIT, VK_ACCESS_COLOR_ATTACHMENT_WRITE_BIT,
         VK_ACCESS_TRANSFER_READ_BIT, 0}};
    const VkRenderPassCreateInfo info{
        VK_STRUCTURE_TYPE_RENDER_PASS_CREATE_INFO, nullptr, 0, 1, &colour, 1, &subpass, 2, dependencies};
    check(vkCreateRenderPass(gpu_.device, &info, nullptr, &render_pass_), "vkCreateRenderPass");
    gpu_.later([&gpu = gpu_, made = render_pass_] { vkDestroyRenderPass(gpu.device, made, nullptr); });
}

void Renderer::make_simulation() {
    simulate_sets_ = gpu_.make_set_layout(4, VK_SHADER_STAGE_COMPUTE_BIT);
    simulate_layout_ = gpu_.make_pipeline_layout(simulate_sets_, VK_SHADER_STAGE_COMPUTE_BIT, sizeof(SimulatePush));
    VkComputePipelineCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO;
    info.stage = stage(VK_SHADER_STAGE_COMPUTE_BIT, gpu_.make_shader(simulate_comp));
    info.layout = simulate_layout_;
    check(vkCreateComputePipelines(gpu_.device, nullptr, 1, &info, nullptr, &simulate_pipeline_), "the simulation");
    gpu_.later([&gpu = gpu_, made = simulate_pipeline_] { vkDestroyPipeline(gpu.device, made, nullptr); });
}

void Renderer::make_drawing() {
    draw_sets_ = gpu_.make_set_layout(3, VK_SHADER_STAGE_VERTEX_BIT);
    draw_layout_ = gpu_.make_pipeline_layout(draw_sets_, VK_SHADER_STAGE_VERTEX_BIT, sizeof(DrawPush));
    const VkPipelineShaderStageCreateInfo stages[] = {
        stage(VK_SHADER_STAGE_VERTEX_BIT, gpu_.make_shader(stroke_vert)),
        stage(VK_SHADER_STAGE_FRAGMENT_BIT, gpu_.make_shader(stroke_frag))};
    VkPipelineVertexInputStateCreateInfo no_vertices{};
    no_vertices.sType = VK_STRUCTURE_TYPE_PIPELINE_VERTEX_INPUT_STATE_CREATE_INFO;
    const VkPipelineInputAssemblyStateCreateInfo assembly{VK_STRUCTURE_TYPE_PIPELINE_INPUT_ASSEMBLY_STATE_CREATE_INFO,
                                                          nullptr, 0, VK_PRIMITIVE_TOPOLOGY_TRIANGLE_LIST, VK_FALSE};
    const VkViewport viewport{0, 0, static_cast<float>(size_.width), static_cast<float>(size_.height), 0, 1};
    const VkRect2D scissor{{0, 0}, size_};
    const VkPipelineViewportStateCreateInfo view{
        VK_STRUCTURE_TYPE_PIPELINE_VIEWPORT_STATE_CREATE_INFO, nullptr, 0, 1, &viewport, 1, &scissor};
    VkPipelineRasterizationStateCreateInfo raster{};
    raster.sType = VK_STRUCTURE_TYPE_PIPELINE_RASTERIZATION_STATE_CREATE_INFO;
    raster.lineWidth = 1;
    VkPipelineMultisampleStateCreateInfo samples{};
    samples.sType = VK_STRUCTURE_TYPE_PIPELINE_MULTISAMPLE_STATE_CREATE_INFO;
    samples.rasterizationSamples = VK_SAMPLE_COUNT_1_BIT;
    const VkPipelineColorBlendAttachmentState over{VK_TRUE,
                                                   VK_BLEND_FACTOR_SRC_ALPHA,
                                                   VK_BLEND_FACTOR_ONE_MINUS_SRC_ALPHA,
                                                   VK_BLEND_OP_ADD,
                                                   VK_BLEND_FACTOR_ZERO,
                                                   VK_BLEND_FACTOR_ONE,
                                                   VK_BLEND_OP_ADD,
                                                   0xf};
    VkPipelineColorBlendStateCreateInfo blend{};
    blend.sType = VK_STRUCTURE_TYPE_PIPELINE_COLOR_BLEND_STATE_CREATE_INFO;
    blend.attachmentCount = 1;
    blend.pAttachments = &over;
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
    info.layout = draw_layout_;
    info.renderPass = render_pass_;
    check(vkCreateGraphicsPipelines(gpu_.device, nullptr, 1, &info, nullptr, &draw_pipeline_), "the strokes");
    gpu_.later([&gpu = gpu_, made = draw_pipeline_] { vkDestroyPipeline(gpu.device, made, nullptr); });
}

void Renderer::make_slot(Slot& slot) {
    constexpr VkBufferUsageFlags kStorage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT;
    const std::uint64_t n = flock_.boids;
    slot.boids = gpu_.make_buffer(n * sizeof(Boid), kStorage);
    slot.x = gpu_.make_buffer(n * kWidth * sizeof(float), kStorage);
    slot.y = gpu_.make_buffer(n * kWidth * sizeof(float), kStorage);
    std::memset(slot.y.mapped, 0, slot.y.bytes);
    slot.weights = gpu_.make_buffer(kRules * n * n * sizeof(float), kStorage);
    slot.pixels = gpu_.make_buffer(std::uint64_t{4} * size_.width * size_.height, VK_BUFFER_USAGE_TRANSFER_DST_BIT);
    slot.image = gpu_.make_image(kFormat, size_, VK_IMAGE_USAGE_COLOR_ATTACHMENT_BIT | VK_IMAGE_USAGE_TRANSFER_SRC_BIT);
    const VkFramebufferCreateInfo info{VK_STRUCTURE_TYPE_FRAMEBUFFER_CREATE_INFO,
                                       nullptr,
                                       0,
                                       render_pass_,
                                       1,
                                       &slot.image.view,
                                       size_.width,
                                       size_.height,
                                       1};
    check(vkCreateFramebuffer(gpu_.device, &info, nullptr, &slot.framebuffer), "vkCreateFramebuffer");
    gpu_.later([&gpu = gpu_, made = slot.framebuffer] { vkDestroyFramebuffer(gpu.device, made, nullptr); });
    slot.commands = gpu_.make_commands();
    slot.done = gpu_.make_signaled_fence();
}

void Renderer::draw(Window* window) {
    last_ = static_cast<std::uint32_t>(frames_ % kSlots);
    Slot& slot = slots_[last_];
    wait(slot);
    const bool shown = window != nullptr && window->acquire();
    record(slot, shown ? window : nullptr);
    VkSubmitInfo submit{};
    submit.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO;
    submit.commandBufferCount = 1;
    submit.pCommandBuffers = &slot.commands;
    const VkPipelineStageFlags blit = VK_PIPELINE_STAGE_TRANSFER_BIT;
    VkSemaphore acquired{}, drawn{};
    if (shown) {
        acquired = window->acquired();
        drawn = window->drawn();
        submit.waitSemaphoreCount = submit.signalSemaphoreCount = 1;
        submit.pWaitSemaphores = &acquired;
        submit.pWaitDstStageMask = &blit;
        submit.pSignalSemaphores = &drawn;
    }
    check(vkResetFences(gpu_.device, 1, &slot.done), "vkResetFences");
    check(vkQueueSubmit(gpu_.queue, 1, &submit, slot.done), "vkQueueSubmit");
    slot.frame = frames_++;
    if (shown) {
        window->present();
    }
}

void Renderer::wait(Slot& slot) {
    check(vkWaitForFences(gpu_.device, 1, &slot.done, VK_TRUE, UINT64_MAX), "vkWaitForFences");
    if (slot.frame) {
        layer_.finished(static_cast<std::uint32_t>(&slot - slots_.data()));
        if (lessons_ != nullptr) {
            lessons_->finished(static_cast<std::uint32_t>(&slot - slots_.data()));
        }
        finished_({*slot.frame,
                   {slot.pixels.mapped, slot.pixels.bytes},
                   {reinterpret_cast<const Boid*>(slot.boids.mapped), flock_.boids},
                   lessons_.get()});
        slot.frame.reset();
    }
}

void Renderer::finish() {
    for (std::uint32_t i = 1; i <= kSlots; ++i) {
        wait(slots_[(last_ + i) % kSlots]);  // the older one first
    }
}

void Renderer::record(Slot& slot, Window* window) {
    const VkCommandBufferBeginInfo begin{VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO, nullptr,
                                         VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT, nullptr};
    check(vkBeginCommandBuffer(slot.commands, &begin), "vkBeginCommandBuffer");
    // The frame before may still run: what it wrote is read here, and what its simulation reads is
    // written here.
    barrier(slot.commands, kCompute, VK_ACCESS_SHADER_WRITE_BIT, kCompute, VK_ACCESS_SHADER_READ_BIT);
    simulate(slot);
    barrier(slot.commands, kCompute, VK_ACCESS_SHADER_WRITE_BIT, kCompute, VK_ACCESS_SHADER_READ_BIT);
    attend(slot);
    if (lessons_ != nullptr) {
        lessons_->record(slot.commands, last_, slot.x);
    }
    barrier(slot.commands, kCompute, VK_ACCESS_SHADER_WRITE_BIT,
            VK_PIPELINE_STAGE_VERTEX_SHADER_BIT | VK_PIPELINE_STAGE_HOST_BIT,
            VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_HOST_READ_BIT);
    strokes(slot);
    copy_out(slot);
    if (window != nullptr) {
        window->blit(slot.commands, slot.image.handle, size_);
    }
    check(vkEndCommandBuffer(slot.commands), "vkEndCommandBuffer");
}

void Renderer::simulate(const Slot& slot) {
    const SimulatePush push{{half_width(size_), 1}, 1.0f / 60, flock_.boids, flock_.hunters};
    vkCmdBindPipeline(slot.commands, VK_PIPELINE_BIND_POINT_COMPUTE, simulate_pipeline_);
    vkCmdBindDescriptorSets(slot.commands, VK_PIPELINE_BIND_POINT_COMPUTE, simulate_layout_, 0, 1, &slot.simulate_set,
                            0, nullptr);
    vkCmdPushConstants(slot.commands, simulate_layout_, VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof(push), &push);
    vkCmdDispatch(slot.commands, (flock_.boids + 63) / 64, 1, 1);
}

/// The Transformer layer: from this frame's tokens to this frame's accelerations and weights.
void Renderer::attend(const Slot& slot) {
    const vkf::BufferRange ranges[] = {range("x", slot.x), range("y", slot.y), range("weights", slot.weights)};
    const auto start = std::chrono::steady_clock::now();
    const vkf::Status status = layer_.record(slot.commands, {.buffers = ranges, .slot = last_});
    record_microseconds_ = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
    if (!status) {
        throw std::runtime_error(status.message.data());
    }
}

void Renderer::strokes(const Slot& slot) {
    const DrawPush push{{half_width(size_), 1},
                        flock_.boids,
                        flock_.hunters,
                        watched_,
                        kRules,
                        2.0f / static_cast<float>(size_.height)};
    const VkClearValue background{{{0.025f, 0.03f, 0.06f, 1.0f}}};
    const VkRenderPassBeginInfo pass{VK_STRUCTURE_TYPE_RENDER_PASS_BEGIN_INFO,
                                     nullptr,
                                     render_pass_,
                                     slot.framebuffer,
                                     {{0, 0}, size_},
                                     1,
                                     &background};
    vkCmdBeginRenderPass(slot.commands, &pass, VK_SUBPASS_CONTENTS_INLINE);
    vkCmdBindPipeline(slot.commands, VK_PIPELINE_BIND_POINT_GRAPHICS, draw_pipeline_);
    vkCmdBindDescriptorSets(slot.commands, VK_PIPELINE_BIND_POINT_GRAPHICS, draw_layout_, 0, 1, &slot.draw_set, 0,
                            nullptr);
    vkCmdPushConstants(slot.commands, draw_layout_, VK_SHADER_STAGE_VERTEX_BIT, 0, sizeof(push), &push);
    vkCmdDraw(slot.commands, 6, (kRules + 1) * flock_.boids, 0, 0);
    vkCmdEndRenderPass(slot.commands);
}

void Renderer::copy_out(const Slot& slot) {
    const VkBufferImageCopy whole{
        0, 0, 0, {VK_IMAGE_ASPECT_COLOR_BIT, 0, 0, 1}, {0, 0, 0}, {size_.width, size_.height, 1}};
    vkCmdCopyImageToBuffer(slot.commands, slot.image.handle, VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL, slot.pixels.handle,
                           1, &whole);
    barrier(slot.commands, VK_PIPELINE_STAGE_TRANSFER_BIT, VK_ACCESS_TRANSFER_WRITE_BIT, VK_PIPELINE_STAGE_HOST_BIT,
            VK_ACCESS_HOST_READ_BIT);
}
