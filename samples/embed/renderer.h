// SPDX-License-Identifier: Apache-2.0
// Frames: simulate, attend, draw, in one command buffer and one submission each, two of them in
// flight.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>

#include "lessons.h"
#include "window.h"

/// What came of a frame.
struct Frame {
    std::uint64_t number;
    std::span<const std::byte> pixels;  // rows of RGBA from the top
    std::span<const Boid> boids;
    const Lessons* lessons;  // as far as they came with it; null where none are given
};

struct RendererOptions {
    Flock flock;
    std::uint32_t watched = 0;  // the boid whose attention lines show
    VkExtent2D size{};
    bool checked = false;  // wrong use of programs is looked for
    /// The flock flies by what it learns, not by the layer of rules.
    std::optional<LessonOptions> learn = {};
};

class Renderer {
public:
    /// `finished` is told of each frame, in order, once the device is done with it.
    Renderer(Gpu& gpu, const RendererOptions& options, std::function<void(const Frame&)> finished);
    ~Renderer();
    Renderer(const Renderer&) = delete;
    Renderer& operator=(const Renderer&) = delete;

    /// Submits the next frame; shows it too, where there is a window. Waits only for the frame
    /// before the last.
    void draw(Window* window);
    /// Waits for all frames.
    void finish();

    const vkf::Device& device() const { return device_; }
    /// The tokens that the layer read, and what it gave, in the last frame; valid after finish().
    std::span<const float> tokens() const { return slots_[last_].x.floats(); }
    std::span<const float> said() const { return slots_[last_].y.floats(); }
    /// Null where none are given.
    const Lessons* lessons() const { return lessons_.get(); }
    double record_microseconds() const { return record_microseconds_; }

private:
    static constexpr std::uint32_t kSlots = 2;
    struct Slot {
        Buffer boids, x, y, weights, pixels;
        Image image;
        VkFramebuffer framebuffer{};
        VkDescriptorSet simulate_set{}, draw_set{};
        VkCommandBuffer commands{};
        VkFence done{};
        std::optional<std::uint64_t> frame;  // that is in flight
    };

    void make_render_pass();
    void make_simulation();
    void make_drawing();
    void make_slot(Slot& slot);
    void wait(Slot& slot);
    void record(Slot& slot, Window* window);
    void simulate(const Slot& slot);
    void attend(const Slot& slot);
    void strokes(const Slot& slot);
    void copy_out(const Slot& slot);

    Gpu& gpu_;
    Flock flock_;
    std::uint32_t watched_;
    VkExtent2D size_;
    std::function<void(const Frame&)> finished_;
    vkf::Device device_;
    vkf::State student_;
    vkf::Program layer_;
    std::unique_ptr<Lessons> lessons_;
    VkRenderPass render_pass_{};
    VkDescriptorSetLayout simulate_sets_{}, draw_sets_{};
    VkPipelineLayout simulate_layout_{}, draw_layout_{};
    VkPipeline simulate_pipeline_{}, draw_pipeline_{};
    std::array<Slot, kSlots> slots_;
    std::uint64_t frames_ = 0;
    std::uint32_t last_ = 0;
    double record_microseconds_ = 0;
};
