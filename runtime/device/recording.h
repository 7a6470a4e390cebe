// SPDX-License-Identifier: Apache-2.0
// What a host says when it records a program, and what it is told of the work.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "vulkan_handles.h"

namespace vkf {

/// VK_QUEUE_FAMILY_IGNORED: the owner does not change.
inline constexpr std::uint32_t kSameQueueFamily = ~0u;

/// A host's buffer range for an input or output. `offset` is a multiple of
/// Capabilities::storage_alignment; `bytes` covers the tensor at its largest; the buffer has
/// VK_BUFFER_USAGE_STORAGE_BUFFER_BIT.
struct BufferRange {
    std::string_view name;
    VkBuffer buffer{};
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;

    /// acquire_from: the queue family that released the range, with exactly this offset and size,
    /// to the device's family. The host recorded the release; the matching acquire is recorded
    /// first. release_to: the family to which the range is released after the last access; the host
    /// records the acquire there, with the same offset and size.
    std::uint32_t acquire_from = kSameQueueFamily;
    std::uint32_t release_to = kSameQueueFamily;

    // A checked program compares these; 0 or null: not told.
    std::uint64_t buffer_bytes = 0;  ///< VkBufferCreateInfo::size
    std::uint32_t buffer_usage = 0;  ///< VkBufferCreateInfo::usage
    VkDevice buffer_device{};        ///< the device that made the buffer
};

/// A host's image for an image_input() or image_output(): two-dimensional, one level and layer of a
/// view of the color aspect.
struct ImageView {
    std::string_view name;
    VkImageView view{};
    /// VkImageLayout of the image, before and after: GENERAL; for an input of ImageAccess::sampled
    /// also SHADER_READ_ONLY_OPTIMAL.
    std::uint32_t layout = 1;
    /// size in texels; at least the tensor's size at the sizes given
    std::uint32_t width = 0, height = 0;
};

/// The value of a symbol.
struct SizeSetting {
    std::string_view name;
    std::int64_t value = 0;
};

/// The buffers, images and sizes that a recording works on. Every input and output is named in
/// `buffers` or `images`.
struct Recording {
    std::span<const BufferRange> buffers = {};
    std::span<const ImageView> images = {};
    /// values of symbols; symbols that are not named have the value that set() gave
    std::span<const SizeSetting> sizes = {};
    std::uint32_t slot = 0;
};

/// An amount of work, in arithmetic operations and bytes moved. To divide work among frames,
/// measure how long a segment takes, and set the budget of the next by that.
struct Cost {
    double flops = 0, bytes = 0;
    double total() const noexcept { return flops + bytes; }
};

/// One piece of a recording.
struct Segment {
    Cost cost;          ///< cost of this piece
    double done = 0;    ///< share of the whole recording's cost that is recorded by now, 0 to 1
    bool last = false;  ///< nothing is left
};

/// One dispatch of a profiled run.
struct DispatchTime {
    std::string label, kernel;
    double start_ms = 0, ms = 0;
    double flops = 0, bytes = 0;
};

}  // namespace vkf
