// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/descriptor_sets.h"

#include <algorithm>
#include <array>
#include <utility>

#include "runtime/base/numbers.h"

namespace vkf {

namespace {

VkFormat format_of(std::uint8_t texel) {
    return texel == 4 ? VK_FORMAT_R32_UINT : texel == 8 ? VK_FORMAT_R32G32_UINT : VK_FORMAT_R32G32B32A32_UINT;
}

}  // namespace

DescriptorSets::DescriptorSets(std::shared_ptr<DeviceCore> device, const Plan& plan, PipelineTable pipelines,
                               std::vector<Place> places, std::uint32_t slots)
    : device_(std::move(device)), plan_(&plan), pipelines_(std::move(pipelines)), places_(std::move(places)) {
    for (const PlannedDispatch& d : plan.dispatches) {
        touches_external_.push_back(
            std::any_of(d.windows.begin(), d.windows.end(), [&](const Window& w) { return external(w); }));
    }
    try {
        make_pool(slots);
        sets_.assign(slots, std::vector<std::vector<VkDescriptorSet>>(plan.dispatches.size()));
        for (std::size_t d = 0; d < plan.dispatches.size(); ++d) {
            for (std::uint32_t slot = 0; slot < slots; ++slot) {
                sets_[slot][d] = touches_external_[d] || slot == 0 ? make(d) : sets_[0][d];
            }
            make_views(views_, d, false, {});
            if (!touches_external_[d]) {
                write(sets_[0][d], d, {});
            }
        }
    } catch (...) {
        release();
        throw;
    }
}

DescriptorSets& DescriptorSets::operator=(DescriptorSets&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(plan_, other.plan_);
    pipelines_.swap(other.pipelines_);
    places_.swap(other.places_);
    std::swap(pool_, other.pool_);
    touches_external_.swap(other.touches_external_);
    sets_.swap(other.sets_);
    views_.swap(other.views_);
    external_views_.swap(other.external_views_);
    return *this;
}

void DescriptorSets::make_pool(std::uint32_t slots) {
    std::uint32_t sets = 0;
    std::map<VkDescriptorType, std::uint32_t> descriptors;
    for (std::size_t d = 0; d < plan_->dispatches.size(); ++d) {
        const PlannedDispatch& dispatch = plan_->dispatches[d];
        const std::uint32_t copies = touches_external_[d] ? slots : 1;
        for (const Pipeline* pipeline : pipelines_[d]) {
            sets += pipeline ? copies : 0;
            for (std::size_t i = 0; pipeline && i < dispatch.windows.size(); ++i) {
                descriptors[pipeline->descriptor_type(i)] += copies;
            }
        }
    }
    if (sets == 0) {
        return;
    }
    std::vector<VkDescriptorPoolSize> sizes;
    for (const auto& [type, count] : descriptors) {
        sizes.push_back({type, count});
    }
    const VkDescriptorPoolCreateInfo info{VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO, nullptr,     0, sets,
                                          static_cast<std::uint32_t>(sizes.size()),      sizes.data()};
    device_->check_result(device_->api.vkCreateDescriptorPool(device_->handle, &info, nullptr, &pool_),
                          "vkCreateDescriptorPool");
}

std::vector<VkDescriptorSet> DescriptorSets::make(std::size_t dispatch) {
    const std::vector<const Pipeline*>& pipelines = pipelines_[dispatch];
    std::vector<VkDescriptorSet> out;
    for (std::size_t k = 0; k < pipelines.size(); ++k) {
        VkDescriptorSet set = VK_NULL_HANDLE;
        for (std::size_t before = 0; pipelines[k] && before < k; ++before) {
            if (pipelines[before] && pipelines[before]->set == pipelines[k]->set &&
                pipelines[before]->texel_bytes == pipelines[k]->texel_bytes) {
                set = out[before];
            }
        }
        if (pipelines[k] && !set) {
            const VkDescriptorSetAllocateInfo info{VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO, nullptr, pool_, 1,
                                                   &pipelines[k]->set};
            device_->check_result(device_->api.vkAllocateDescriptorSets(device_->handle, &info, &set),
                                  "vkAllocateDescriptorSets");
        }
        out.push_back(set);
    }
    return out;
}

VkDescriptorBufferInfo DescriptorSets::buffer_of(const Window& window,
                                                 const std::vector<Place>& externals) const noexcept {
    const Place& at = place_of(window, externals);
    if (at.limit == 0) {
        return {at.buffer, at.offset + window.base, window.bytes};
    }
    // what lies behind the limit is not touched at the sizes of this run
    const std::uint64_t base = window.base < at.limit ? window.base : 0;
    return {at.buffer, base, std::min(window.bytes, at.limit - base)};
}

void DescriptorSets::make_views(Views& views, std::size_t dispatch, bool of_externals,
                                const std::vector<Place>& externals) {
    const std::vector<Window>& windows = plan_->dispatches[dispatch].windows;
    for (const Pipeline* pipeline : pipelines_[dispatch]) {
        for (std::size_t i = 0; pipeline && i < windows.size(); ++i) {
            const std::uint8_t texel = pipeline->texel_bytes[i];
            if (texel == 0 || external(windows[i]) != of_externals) {
                continue;
            }
            const VkDescriptorBufferInfo at = buffer_of(windows[i], externals);
            VkBufferView& view = views[{at.buffer, at.offset, at.range, texel}];
            if (!view) {  // a Block has whole texels
                const VkBufferViewCreateInfo info{VK_STRUCTURE_TYPE_BUFFER_VIEW_CREATE_INFO,
                                                  nullptr,
                                                  0,
                                                  at.buffer,
                                                  format_of(texel),
                                                  at.offset,
                                                  align_up(at.range, texel)};
                device_->check_result(device_->api.vkCreateBufferView(device_->handle, &info, nullptr, &view),
                                      "vkCreateBufferView");
            }
        }
    }
}

void DescriptorSets::make_views(const std::vector<Place>& externals) {
    for (std::size_t d = 0; d < plan_->dispatches.size(); ++d) {
        if (touches_external_[d]) {
            make_views(external_views_, d, true, externals);
        }
    }
}

void DescriptorSets::bind(std::uint32_t slot, const std::vector<Place>& externals) noexcept {
    for (std::size_t d = 0; d < plan_->dispatches.size(); ++d) {
        if (touches_external_[d]) {
            write(sets_[slot][d], d, externals);
        }
    }
}

void DescriptorSets::write(const std::vector<VkDescriptorSet>& sets, std::size_t dispatch,
                           const std::vector<Place>& externals) noexcept {
    for (std::size_t k = 0; k < sets.size(); ++k) {
        const auto here = sets.begin() + static_cast<std::ptrdiff_t>(k);
        if (sets[k] && std::find(sets.begin(), here, sets[k]) == here) {
            write(sets[k], *pipelines_[dispatch][k], dispatch, externals);
        }
    }
}

void DescriptorSets::write(VkDescriptorSet set, const Pipeline& pipeline, std::size_t dispatch,
                           const std::vector<Place>& externals) noexcept {
    std::array<VkDescriptorBufferInfo, kMaxOperands> buffers;
    std::array<VkDescriptorImageInfo, kMaxOperands> images;
    std::array<VkBufferView, kMaxOperands> views{};
    std::array<VkWriteDescriptorSet, kMaxOperands> writes;
    const std::vector<Window>& windows = plan_->dispatches[dispatch].windows;
    for (std::size_t i = 0; i < windows.size(); ++i) {
        const Place& at = place_of(windows[i], externals);
        buffers[i] = buffer_of(windows[i], externals);
        images[i] = {VK_NULL_HANDLE, at.view, at.layout};
        if (const std::uint8_t texel = pipeline.texel_bytes[i]; texel != 0) {
            const Views& made = external(windows[i]) ? external_views_ : views_;
            views[i] = made.find({buffers[i].buffer, buffers[i].offset, buffers[i].range, texel})->second;
        }
        writes[i] = {VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
                     nullptr,
                     set,
                     static_cast<std::uint32_t>(i),
                     0,
                     1,
                     pipeline.descriptor_type(i),
                     &images[i],
                     &buffers[i],
                     &views[i]};
    }
    device_->api.vkUpdateDescriptorSets(device_->handle, static_cast<std::uint32_t>(windows.size()), writes.data(), 0,
                                        nullptr);
}

void DescriptorSets::destroy(Views& views) noexcept {
    for (const auto& [range, view] : views) {
        if (!device_->given_up) {
            device_->api.vkDestroyBufferView(device_->handle, view, nullptr);
        }
    }
    views.clear();
}

void DescriptorSets::release() noexcept {
    if (!device_) {
        return;
    }
    destroy(views_);
    destroy(external_views_);
    if (!device_->given_up) {
        device_->api.vkDestroyDescriptorPool(device_->handle, pool_, nullptr);
    }
    device_.reset();
}

}  // namespace vkf
