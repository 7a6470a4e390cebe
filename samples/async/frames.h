// SPDX-License-Identifier: Apache-2.0
// Attention on a compute queue while the graphics queue draws the frame before: timeline semaphores
// order them, and the buffers change hands between the queues' families.
//
//     graphics   upload 0 | upload 1, draw 0 | upload 2, draw 1 | ...        "uploaded" counts to
//                n+1 after upload n,
//     compute             | attention 0      | attention 1      | ...        "attended" after
//                         attention n, "drawn" after draw n
#pragma once

#include <vkformer/vkformer.h>

#include <array>
#include <cstdint>
#include <memory>

#include "gpu.h"
#include "painter.h"

class Frames {
public:
    static constexpr std::size_t kSlots = 2;  // frames in flight

    /// `work`: how much else the graphics queue does for each pixel.
    Frames(Gpu& gpu, std::uint32_t work);

    /// Frames `first` to `first + count - 1`; milliseconds of each. `overlap` false: one queue
    /// waits for the other.
    double run(std::uint64_t first, std::uint64_t count, bool overlap);
    /// Largest difference of frame n's numbers, and of its pixels in steps of 1/255, from double
    /// precision. The frame is drawn.
    double difference(std::uint64_t n, double& pixel_steps) const;

    const vkf::Device& device() const { return device_; }

private:
    struct Slot {
        Buffer staging, x, y;
        std::uint32_t picture = 0;
        VkCommandBuffer upload{}, attend{}, draw{};
    };

    /// The tokens of frame n, on the graphics queue, as a renderer's own passes would make them.
    void upload(std::uint64_t n);
    void attend(std::uint64_t n);
    void draw(std::uint64_t n);

    Gpu& gpu_;
    std::uint32_t work_;
    Painter painter_;
    Timeline uploaded_, attended_, drawn_;
    vkf::Device device_;
    std::unique_ptr<vkf::Program> program_;
    std::array<Slot, kSlots> slots_;
};
