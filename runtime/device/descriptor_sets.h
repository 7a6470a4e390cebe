// SPDX-License-Identifier: Apache-2.0
// What the dispatches of a program are bound to.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "runtime/device/build_pipelines.h"
#include "runtime/device/recording.h"

namespace vkf {

/// The place where a storage lies once memory is there. For inputs and outputs it is what they are
/// bound to.
struct Place {
    VkBuffer buffer = VK_NULL_HANDLE;
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;  ///< size of the range that a host bound
    VkImageView view = VK_NULL_HANDLE;
    VkImageLayout layout = VK_IMAGE_LAYOUT_UNDEFINED;
    std::uint32_t acquire_from = kSameQueueFamily, release_to = kSameQueueFamily;
    /// the bytes of the buffer, where they may be fewer than the largest sizes need; else 0
    std::uint64_t limit = 0;
};

/// The pipelines of a plan's kernels, and descriptor sets of their layouts, by storage.
class DescriptorSets {
public:
    DescriptorSets() = default;
    /// `places` are those of all storages but inputs and outputs. What binds these has a copy of
    /// its sets for each slot. The plan, which must outlive this, stays where it is.
    DescriptorSets(std::shared_ptr<DeviceCore> device, const Plan& plan, PipelineTable pipelines,
                   std::vector<Place> places, std::uint32_t slots);
    ~DescriptorSets() { release(); }
    DescriptorSets(DescriptorSets&& other) noexcept { *this = std::move(other); }
    DescriptorSets& operator=(DescriptorSets&& other) noexcept;

    explicit operator bool() const noexcept { return device_ != nullptr; }
    const Pipeline* pipeline(std::size_t dispatch, std::size_t kernel) const noexcept {
        return pipelines_[dispatch][kernel];
    }
    VkDescriptorSet set(std::uint32_t slot, std::size_t dispatch, std::size_t kernel) const noexcept {
        return sets_[slot][dispatch][kernel];
    }

    /// Points the slot's sets at these places of inputs and outputs. For those of texel buffers
    /// make_views() must have come before.
    void bind(std::uint32_t slot, const std::vector<Place>& externals) noexcept;
    /// Makes the views through which these places are texel buffers; those that are there stay.
    void make_views(const std::vector<Place>& externals);
    /// Destroys them: their buffers may be gone. What was bound is in use no more.
    void forget_views() noexcept { destroy(external_views_); }

private:
    /// A range of a buffer as a descriptor has it, and the bytes of a texel.
    using Range = std::tuple<VkBuffer, std::uint64_t, std::uint64_t, std::uint8_t>;
    using Views = std::map<Range, VkBufferView>;

    bool external(const Window& window) const noexcept { return is_external(plan_->storages[window.storage].kind); }
    const Place& place_of(const Window& window, const std::vector<Place>& externals) const noexcept {
        return external(window) ? externals[window.storage] : places_[window.storage];
    }
    VkDescriptorBufferInfo buffer_of(const Window& window, const std::vector<Place>& externals) const noexcept;
    void make_pool(std::uint32_t slots);
    /// The sets of one dispatch.
    std::vector<VkDescriptorSet> make(std::size_t dispatch);
    /// The views of what a dispatch has of inputs and outputs, or of all else.
    void make_views(Views& views, std::size_t dispatch, bool of_externals, const std::vector<Place>& externals);
    void write(const std::vector<VkDescriptorSet>& sets, std::size_t dispatch,
               const std::vector<Place>& externals) noexcept;
    void write(VkDescriptorSet set, const Pipeline& pipeline, std::size_t dispatch,
               const std::vector<Place>& externals) noexcept;
    void destroy(Views& views) noexcept;
    void release() noexcept;

    std::shared_ptr<DeviceCore> device_;
    const Plan* plan_ = nullptr;
    PipelineTable pipelines_;
    std::vector<Place> places_;
    std::vector<bool> touches_external_;  ///< by dispatch
    VkDescriptorPool pool_ = VK_NULL_HANDLE;
    /// [slot][dispatch][kernel]; one set for kernels of one layout, and for all slots where nothing
    /// external is bound
    std::vector<std::vector<std::vector<VkDescriptorSet>>> sets_;
    Views views_, external_views_;
};

}  // namespace vkf
