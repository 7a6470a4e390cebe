// SPDX-License-Identifier: Apache-2.0
// Compute pipelines, made on demand and kept for the life of a device, with a cache on disk.
#pragma once

#include <atomic>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <tuple>
#include <vector>

#include "runtime/compile/capabilities.h"
#include "runtime/compile/dispatch.h"
#include "runtime/compile/spirv.h"
#include "runtime/compile/texel_fetches.h"
#include "runtime/device/vulkan_device.h"

namespace vkf {

struct Pipeline {
    VkPipeline handle = VK_NULL_HANDLE;
    VkPipelineLayout layout = VK_NULL_HANDLE;
    VkDescriptorSetLayout set = VK_NULL_HANDLE;
    std::uint32_t bindings = 0;
    /// the image that binding 0 is instead of a storage buffer
    ImageAccess image = ImageAccess::none;
    TexelBytes texel_bytes{};  ///< of the bindings that are texel buffers
    /// the kernel's: no other shader comes to lie where this one does
    std::shared_ptr<const Shader> owner = {};

    VkDescriptorType descriptor_type(std::size_t binding) const noexcept;
};

/// A driver makes no pipeline of a kernel, and the device is not lost. Want of memory counts: some
/// compilers say so where they cannot do a kernel, and another may need less.
class RefusedKernel : public Error {
public:
    RefusedKernel(const std::string& call, const Kernel& kernel, VkResult result);

    const std::string& kernel() const noexcept { return kernel_; }
    /// The kernel to do without: the one that a source of the caller's went into, or this.
    const std::string& without() const noexcept { return without_; }
    /// Whether later programs do without it from the start: memory may be there then, and without a
    /// source of the caller's the driver may take it.
    bool lasts() const noexcept;
    /// The rest of a sentence, for LeftOut::why.
    std::string why() const { return "its pipeline failed with " + result_name(static_cast<VkResult>(result())); }

private:
    std::string kernel_, without_;
};

/// A kernel, and the bindings that may be texel buffers (fetch_texels()), a bit each.
struct KernelUse {
    const Kernel* kernel = nullptr;
    std::uint32_t texels = 0;
};

/// The pipelines of a device; safe to use from several threads.
class PipelineStore {
public:
    /// `cache_file` empty: nothing is read or written.
    PipelineStore(VulkanDevice& core, std::filesystem::path cache_file);
    ~PipelineStore();  // saves, as far as that can be done
    PipelineStore(const PipelineStore&) = delete;
    PipelineStore& operator=(const PipelineStore&) = delete;

    /// The pipelines of these kernels, in order; missing ones are built, several at a time. Throws
    /// naming shader and why, RefusedKernel where nothing else went wrong.
    std::vector<const Pipeline*> get(std::span<const KernelUse> kernels);
    std::size_t size() const;
    /// How often a driver made no pipeline of a kernel.
    std::uint64_t refusals() const noexcept { return refusals_; }
    /// Writes the cache file atomically when there is something new, together with what others
    /// wrote there meanwhile; false when there is nowhere to write. Throws Error saying why it
    /// could not.
    bool save();

private:
    struct Layout {
        VkDescriptorSetLayout set = VK_NULL_HANDLE;
        VkPipelineLayout pipeline = VK_NULL_HANDLE;
    };
    using Key = std::tuple<const Shader*, std::vector<std::uint32_t>, std::uint32_t, Loops, std::uint32_t>;

    /// The layout for that many buffers, the first of which may be an image instead, and some texel
    /// buffers, a bit each. The mutex is held.
    Layout& layout(std::uint32_t bindings, ImageAccess image, std::uint32_t texels);
    struct Built {
        Pipeline pipeline;
        bool is_new = false;  ///< not kept yet
    };
    /// A pipeline, perhaps one that is there already.
    Built build(const KernelUse& use);
    /// The bytes there; none where it cannot be read.
    std::vector<std::byte> read_cache_file() const;
    std::vector<std::byte> data_of(VkPipelineCache cache) const;
    /// Ours and another cache's data, as far as the driver takes that.
    std::vector<std::byte> data_with(std::span<const std::byte> more) const;
    /// Asks a processor's driver, once, whether it keeps anything of a pipeline that it has built.
    void ask_cache();

    VulkanDevice& core_;
    std::filesystem::path cache_file_;
    VkPipelineCache cache_ = VK_NULL_HANDLE;
    bool own_cache_ = true;  ///< not the host's
    std::atomic<bool> asked_cache_ = true, cache_keeps_nothing_ = false;
    mutable std::mutex mutex_;
    std::map<std::tuple<std::uint32_t, ImageAccess, std::uint32_t>, Layout> layouts_;
    static Key key_of(const Kernel& k, std::uint32_t texels) {
        return {k.shader, k.constants.values(), k.subgroup_size, k.loops, texels};
    }

    std::map<Key, Pipeline> pipelines_;     // node-based: addresses stay
    std::map<Key, const Pipeline*> asked_;  ///< by the texel buffers that were allowed
    bool dirty_ = false;
    std::uint64_t known_ = 0;  ///< hash of the data on disk that cache_ has too
    std::atomic<std::uint64_t> refusals_ = 0;
};

}  // namespace vkf
