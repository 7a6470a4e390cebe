// SPDX-License-Identifier: Apache-2.0
// Draws a buffer of numbers as a picture, and leaves the pixels in memory that the host sees.
#pragma once

#include "gpu.h"

class Painter {
public:
    Painter(Gpu& gpu, std::uint32_t width, std::uint32_t height);

    /// The numbers are visible to the fragment shader; one slot for each buffer that is drawn.
    std::uint32_t add_slot(const Buffer& numbers);
    void record(VkCommandBuffer commands, std::uint32_t slot, std::uint32_t work) const;
    /// RGBA bytes of the last picture that was drawn there.
    const unsigned char* pixels(std::uint32_t slot) const;

private:
    void make_render_pass();
    void make_pipeline();

    struct Slot {
        VkDescriptorSet set{};
        VkImage image{};
        VkFramebuffer framebuffer{};
        Buffer pixels;
    };

    Gpu& gpu_;
    std::uint32_t width_, height_;
    VkRenderPass render_pass_{};
    VkDescriptorSetLayout set_layout_{};
    VkDescriptorPool pool_{};
    VkPipelineLayout layout_{};
    VkPipeline pipeline_{};
    std::vector<Slot> slots_;
};
