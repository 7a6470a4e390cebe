// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/pipeline.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>

#include "runtime/base/map_file.h"
#include "runtime/base/read_file.h"
#include "runtime/base/write_file.h"
#include "runtime/compile/aliases.h"
#include "runtime/compile/atomic_scopes.h"
#include "runtime/compile/divisions.h"
#include "runtime/compile/float_modes.h"
#include "runtime/compile/inline_calls.h"
#include "runtime/compile/matrix_extension.h"
#include "runtime/compile/promote_variables.h"
#include "runtime/compile/prune.h"
#include "runtime/compile/specialize.h"
#include "runtime/compile/spirv_words.h"
#include "runtime/device/cache_frame.h"

namespace vkf {

namespace {

constexpr std::uint64_t kMostCacheBytes = std::uint64_t{1} << 30;

/// What is known by name of the capabilities that the runtime does not enable.
std::string capability_name(std::uint32_t capability) {
    switch (capability) {
        case spv::kCapabilityFloat64: return "Float64";
        case spv::kCapabilityInt16: return "Int16";
        default: return std::to_string(capability);
    }
}

/// Throws naming what a kernel's shader says it uses and the device has not. What a host enabled on
/// a device of its own beyond what the runtime asks for is the host's to know.
void require_features(const ShaderInterface& face, const Kernel& kernel, const VulkanDevice& core) {
    const Capabilities& caps = core.capabilities;
    const bool matrices = caps.cooperative_matrix && kernel.subgroup_size != 0;
    const struct {
        bool used, offered;
        const char* what;
    } needs[] = {
        {face.uses_cooperative_matrices, matrices, "cooperative matrices"},
        {face.uses_matrix_elements, caps.matrix_elements, "operations on the elements of matrices"},
        {face.uses_subgroups && !face.uses_cooperative_matrices, caps.subgroup_shuffle, "subgroup shuffles"},
        {face.uses_subgroup_quad, caps.subgroup_quad, "exchanges within quads"},
        {face.uses_subgroup_arithmetic, caps.subgroup_arithmetic, "arithmetic of subgroups"},
        {face.uses_16bit_storage, caps.storage_16bit, "16-bit storage"},
        {face.uses_float16, caps.float16, "arithmetic in f16"},
        {face.uses_int8, caps.cooperative_matrix_int8, "8-bit integers"},
        {face.uses_int64, caps.int64, "64-bit integers"},
        {face.uses_integer_dot, caps.integer_dot, "integer dot products"},
        {face.uses_memory_model, caps.cooperative_matrix || !core.owned, "Vulkan's memory model"},
    };
    for (const auto& need : needs) {
        if (need.used && !need.offered) {
            throw Error(std::string("needs ") + need.what + ", which this device does not have or was not told of",
                        std::string("shader ") + kernel.shader->name);
        }
    }
    if (core.owned && !face.other_capabilities.empty()) {
        throw Error("needs SPIR-V's capability " + capability_name(face.other_capabilities.front()) +
                        ", which vkformer enables on no device that it makes",
                    std::string("shader ") + kernel.shader->name);
    }
}

/// Throws where a driver did not make of the kernel what `call` asks for: RefusedKernel unless the
/// device is lost.
void check_made(VulkanDevice& core, VkResult result, const char* call, const Kernel& kernel,
                std::atomic<std::uint64_t>& refusals) {
    if (result == VK_SUCCESS) {
        return;
    }
    core.heard(result);
    if (result == VK_ERROR_DEVICE_LOST) {
        throw Error(std::string(call) + " gave " + result_name(result), std::string("shader ") + kernel.shader->name,
                    result);
    }
    ++refusals;
    throw RefusedKernel(call, kernel, result);
}

/// The type of descriptor of a binding, of which the first may be an image.
VkDescriptorType type_of(std::size_t binding, ImageAccess image, bool has_texels) {
    if (has_texels) {
        return VK_DESCRIPTOR_TYPE_UNIFORM_TEXEL_BUFFER;
    }
    switch (binding == 0 ? image : ImageAccess::none) {
        case ImageAccess::none: break;
        case ImageAccess::sampled: return VK_DESCRIPTOR_TYPE_SAMPLED_IMAGE;
        case ImageAccess::storage: return VK_DESCRIPTOR_TYPE_STORAGE_IMAGE;
    }
    return VK_DESCRIPTOR_TYPE_STORAGE_BUFFER;
}

/// The bindings that have texels, a bit each.
std::uint32_t bits_of(const TexelBytes& texels) {
    std::uint32_t out = 0;
    for (std::size_t i = 0; i < texels.size(); ++i) {
        out |= texels[i] != 0 ? 1u << i : 0u;
    }
    return out;
}

/// Builds in parallel only when it pays for the threads.
constexpr std::size_t kSerialPipelines = 2;

}  // namespace

RefusedKernel::RefusedKernel(const std::string& call, const Kernel& kernel, VkResult result)
    : Error(call + " gave " + result_name(result), std::string("shader ") + kernel.shader->name, result),
      kernel_(kernel.shader->name),
      without_(kernel.made_of ? kernel.made_of : kernel.shader->name) {}

bool RefusedKernel::lasts() const noexcept {
    return result() != VK_ERROR_OUT_OF_HOST_MEMORY && result() != VK_ERROR_OUT_OF_DEVICE_MEMORY && kernel_ == without_;
}

VkDescriptorType Pipeline::descriptor_type(std::size_t binding) const noexcept {
    return type_of(binding, image, texel_bytes[binding] != 0);
}

PipelineStore::PipelineStore(VulkanDevice& core, std::filesystem::path cache_file)
    : core_(core), cache_file_(std::move(cache_file)) {
    if (core.host.pipeline_cache) {
        cache_ = core.host.pipeline_cache;
        own_cache_ = false;
        cache_file_.clear();
        return;
    }
    const std::vector<std::byte> file = read_cache_file();
    const auto data = unframe_cache(core_.capabilities, file);
    known_ = fnv1a(data);
    VkPipelineCacheCreateInfo info{VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO, nullptr, 0, data.size(), data.data()};
    VkResult result = core_.api.vkCreatePipelineCache(core_.handle, &info, nullptr, &cache_);
    if (result != VK_SUCCESS && !data.empty()) {
        info.initialDataSize = 0;  // the driver would not have its own data: start afresh
        info.pInitialData = nullptr;
        result = core_.api.vkCreatePipelineCache(core_.handle, &info, nullptr, &cache_);
    }
    if (result != VK_SUCCESS) {
        cache_ = VK_NULL_HANDLE;  // pipelines can be built without
    }
    const bool kept = data.size() > sizeof(VkPipelineCacheHeaderVersionOne);
    asked_cache_ = cache_ == VK_NULL_HANDLE || !core.capabilities.cpu() || kept;
}

std::vector<std::byte> PipelineStore::read_cache_file() const {
    return cache_file_.empty() ? std::vector<std::byte>()
                               : read_regular_file(cache_file_, kMostCacheBytes).value_or(std::vector<std::byte>());
}

PipelineStore::~PipelineStore() {
    if (core_.given_up.of_an_earlier_era()) {  // whoever forked saves it
        return;
    }
    try {
        save();
    } catch (...) {  // out of memory, say: the next process compiles again
    }
    if (core_.given_up) {
        return;
    }
    for (const auto& [key, p] : pipelines_) {
        core_.api.vkDestroyPipeline(core_.handle, p.handle, nullptr);
    }
    for (const auto& [count, l] : layouts_) {
        core_.api.vkDestroyPipelineLayout(core_.handle, l.pipeline, nullptr);
        core_.api.vkDestroyDescriptorSetLayout(core_.handle, l.set, nullptr);
    }
    if (own_cache_) {
        core_.api.vkDestroyPipelineCache(core_.handle, cache_, nullptr);
    }
}

PipelineStore::Layout& PipelineStore::layout(std::uint32_t bindings, ImageAccess image, std::uint32_t texels) {
    const auto found = layouts_.find({bindings, image, texels});
    if (found != layouts_.end()) {
        return found->second;
    }
    std::vector<VkDescriptorSetLayoutBinding> slots(bindings);
    for (std::uint32_t i = 0; i < bindings; ++i) {
        slots[i] = {i, type_of(i, image, (texels >> i & 1u) != 0), 1, VK_SHADER_STAGE_COMPUTE_BIT, nullptr};
    }
    const VkDescriptorSetLayoutCreateInfo set_info{VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO, nullptr, 0,
                                                   bindings, slots.data()};
    Layout l;
    core_.check_result(core_.api.vkCreateDescriptorSetLayout(core_.handle, &set_info, nullptr, &l.set),
                       "vkCreateDescriptorSetLayout");
    // every pipeline has the whole guaranteed push-constant range, so layouts differ by what is
    // bound alone
    const VkPushConstantRange range{VK_SHADER_STAGE_COMPUTE_BIT, 0, Command::kMaxPush};
    const VkPipelineLayoutCreateInfo info{
        VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO, nullptr, 0, 1, &l.set, 1, &range};
    const VkResult result = core_.api.vkCreatePipelineLayout(core_.handle, &info, nullptr, &l.pipeline);
    if (result != VK_SUCCESS) {
        core_.api.vkDestroyDescriptorSetLayout(core_.handle, l.set, nullptr);
        core_.check_result(result, "vkCreatePipelineLayout");
    }
    try {
        return layouts_.emplace(std::tuple{bindings, image, texels}, l).first->second;
    } catch (...) {
        core_.api.vkDestroyPipelineLayout(core_.handle, l.pipeline, nullptr);
        core_.api.vkDestroyDescriptorSetLayout(core_.handle, l.set, nullptr);
        throw;
    }
}

PipelineStore::Built PipelineStore::build(const KernelUse& use) {
    const Kernel& kernel = *use.kernel;
    const std::string name = kernel.shader->name;
    const std::vector<std::uint32_t> whole = kernel.shader->code.words();
    const ShaderInterface face = reflect(whole, name);
    if (!face.has_main) {
        throw Error("has no entry point for compute that is called main", "shader " + name);
    }
    const Capabilities& caps = core_.capabilities;
    std::uint32_t local = face.local_size[0];
    if (face.local_size_id >= 0 && static_cast<std::size_t>(face.local_size_id) < kernel.constants.values().size()) {
        local = kernel.constants.values()[static_cast<std::size_t>(face.local_size_id)];
    }
    if (local == 0 || local > caps.max_group_size[0] ||
        local * face.local_size[1] * face.local_size[2] > caps.max_invocations) {
        throw Error("a work group of " + std::to_string(local) + " is outside this device's limit of " +
                        std::to_string(caps.max_invocations),
                    "shader " + name);
    }
    // frozen here and not by the driver: some optimise before they look at specialization constants
    std::vector<std::uint32_t> code = narrow_atomics(shift_for_divisions(
        promote_variables(inline_calls(prune(specialize(whole, kernel.constants.values(), kernel.shader->constant))))));
    keep_loops(code, kernel.loops);
    ask_for_float_modes(code, caps);
    if (caps.matrix_elements) {
        name_matrix_extension(code, caps.matrix_elements_ext);
    }
    const std::uint32_t bindings = kernel.bindings == 0 ? face.bindings : kernel.bindings;
    const ShaderInterface left = reflect(code, name);
    if (bindings > face.bindings || bindings < left.reached) {
        throw Error("binds " + std::to_string(bindings) + " buffers, its shader has " +
                        std::to_string(bindings < left.reached ? left.reached : face.bindings),
                    "shader " + name);
    }
    const std::uint32_t buffers = bindings - (face.image == ImageAccess::none ? 0 : 1);
    if (face.push_constant_bytes > Command::kMaxPush || buffers > caps.storage_buffers) {
        throw Error("needs " + std::to_string(face.push_constant_bytes) + " bytes of push constants and " +
                        std::to_string(buffers) + " storage buffers; the device has " +
                        std::to_string(caps.push_constants) + " and " + std::to_string(caps.storage_buffers),
                    "shader " + name);
    }
    require_features(left, kernel, core_);
    TexelFetches fetching = fetch_texels(std::move(code), use.texels);
    code = mark_aliases(fetching.code);

    Pipeline p;
    p.texel_bytes = fetching.texel_bytes;
    p.owner = kernel.owner;
    p.bindings = bindings;
    p.image = face.image;
    {
        const std::uint32_t texels = bits_of(p.texel_bytes);
        const std::scoped_lock lock(mutex_);
        if (const auto found = pipelines_.find(key_of(kernel, texels)); found != pipelines_.end()) {
            return {found->second, false};
        }
        const Layout& l = layout(bindings, face.image, texels);
        p.layout = l.pipeline;
        p.set = l.set;
    }
    const VkShaderModuleCreateInfo module_info{VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO, nullptr, 0, code.size() * 4,
                                               code.data()};
    VkShaderModule module = VK_NULL_HANDLE;
    check_made(core_, core_.api.vkCreateShaderModule(core_.handle, &module_info, nullptr, &module),
               "vkCreateShaderModule", kernel, refusals_);
    const VkPipelineShaderStageRequiredSubgroupSizeCreateInfo size{
        VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO, nullptr, kernel.subgroup_size};
    // a device whose subgroups have one size need not offer to be told of it
    const bool sized = kernel.subgroup_size != 0 && kernel.subgroup_size != caps.exact_subgroup_size;
    const VkPipelineShaderStageCreateFlags full =
        kernel.subgroup_size != 0 ? VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT : 0;
    const VkComputePipelineCreateInfo info{
        VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
        nullptr,
        0,
        {VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO, sized ? &size : nullptr, full,
         VK_SHADER_STAGE_COMPUTE_BIT, module, "main", nullptr},
        p.layout,
        VK_NULL_HANDLE,
        -1};
    VkPipelineCache const cache = cache_keeps_nothing_ ? VK_NULL_HANDLE : cache_;
    const VkResult result = core_.api.vkCreateComputePipelines(core_.handle, cache, 1, &info, nullptr, &p.handle);
    core_.api.vkDestroyShaderModule(core_.handle, module, nullptr);
    check_made(core_, result, "vkCreateComputePipelines", kernel, refusals_);
    ask_cache();
    core_.name(VK_OBJECT_TYPE_PIPELINE, handle_bits(p.handle), name);
    return {p, true};
}

// SwiftShader locks a cache while it compiles, and keeps nothing in it: threads would wait for each
// other in vain.
void PipelineStore::ask_cache() {
    if (asked_cache_.exchange(true)) {
        return;
    }
    std::size_t bytes = 0;
    const VkResult result = core_.api.vkGetPipelineCacheData(core_.handle, cache_, &bytes, nullptr);
    cache_keeps_nothing_ = result == VK_SUCCESS && bytes <= sizeof(VkPipelineCacheHeaderVersionOne);
}

std::vector<const Pipeline*> PipelineStore::get(std::span<const KernelUse> kernels) {
    std::vector<KernelUse> missing;
    {
        const std::scoped_lock lock(mutex_);
        for (const KernelUse& k : kernels) {
            bool known = asked_.contains(key_of(*k.kernel, k.texels));
            for (const KernelUse& m : missing) {
                known = known || (*m.kernel == *k.kernel && m.texels == k.texels);
            }
            if (!known) {
                missing.push_back(k);
            }
        }
    }
    std::vector<Built> built(missing.size());
    std::vector<std::exception_ptr> errors(missing.size());
    std::atomic<std::size_t> next = 0;
    const auto build_one = [&] {
        const std::size_t i = next++;
        if (i >= missing.size()) {
            return false;
        }
        try {
            built[i] = build(missing[i]);
        } catch (...) {
            errors[i] = std::current_exception();
        }
        return true;
    };
    const auto work = [&] {
        while (build_one()) {
        }
    };
    std::vector<std::jthread> threads;  // they end before what they use
    if (missing.size() > kSerialPipelines) {
        if (!asked_cache_) {
            build_one();
        }
        const std::size_t count =
            std::min<std::size_t>(missing.size(), std::max(1u, std::thread::hardware_concurrency()));
        try {
            threads.reserve(count);
            for (std::size_t t = 1; t < count; ++t) {
                threads.emplace_back(work);
            }
        } catch (const std::exception&) {  // no more threads to be had: those there are do it
        }
    }
    work();
    threads.clear();

    const std::scoped_lock lock(mutex_);
    std::exception_ptr first_error, refused;
    for (std::size_t i = 0; i < missing.size(); ++i) {
        try {
            if (errors[i]) {
                std::rethrow_exception(errors[i]);
            }
            const Kernel& kernel = *missing[i].kernel;
            const Pipeline& pipeline = built[i].pipeline;
            const auto [at, kept] = pipelines_.emplace(key_of(kernel, bits_of(pipeline.texel_bytes)), pipeline);
            built[i].is_new = built[i].is_new && !kept;
            dirty_ = dirty_ || kept;
            asked_.emplace(key_of(kernel, missing[i].texels), &at->second);
        } catch (const RefusedKernel&) {
            refused = refused ? refused : std::current_exception();
        } catch (...) {
            first_error = first_error ? first_error : std::current_exception();
        }
        if (built[i].is_new) {  // built by another thread meanwhile, or no memory to keep it in
            core_.api.vkDestroyPipeline(core_.handle, built[i].pipeline.handle, nullptr);
        }
    }
    if (first_error || refused) {
        std::rethrow_exception(first_error ? first_error : refused);
    }
    std::vector<const Pipeline*> out;
    for (const KernelUse& k : kernels) {
        out.push_back(asked_.at(key_of(*k.kernel, k.texels)));
    }
    return out;
}

std::size_t PipelineStore::size() const {
    const std::scoped_lock lock(mutex_);
    return pipelines_.size();
}

std::vector<std::byte> PipelineStore::data_of(VkPipelineCache cache) const {
    std::vector<std::byte> data;
    VkResult result = VK_INCOMPLETE;  // where another thread's pipeline came in between
    for (int attempt = 0; attempt < 8 && result == VK_INCOMPLETE; ++attempt) {
        std::size_t bytes = 0;
        result = core_.api.vkGetPipelineCacheData(core_.handle, cache, &bytes, nullptr);
        if (result == VK_SUCCESS) {
            data.resize(bytes);
            result = core_.api.vkGetPipelineCacheData(core_.handle, cache, &bytes, data.data());
            data.resize(bytes);
        }
    }
    core_.check_result(result, "vkGetPipelineCacheData");
    return data;
}

// into a cache of its own: pipelines may be built with ours meanwhile
std::vector<std::byte> PipelineStore::data_with(std::span<const std::byte> more) const {
    const VkPipelineCacheCreateInfo info{VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO, nullptr, 0, more.size(),
                                         more.data()};
    VkPipelineCache both = VK_NULL_HANDLE;
    if (core_.api.vkCreatePipelineCache(core_.handle, &info, nullptr, &both) != VK_SUCCESS) {
        return data_of(cache_);  // the driver would not have them
    }
    try {
        const bool merged = core_.api.vkMergePipelineCaches(core_.handle, both, 1, &cache_) == VK_SUCCESS;
        std::vector<std::byte> data = data_of(merged ? both : cache_);
        core_.api.vkDestroyPipelineCache(core_.handle, both, nullptr);
        return data;
    } catch (...) {
        core_.api.vkDestroyPipelineCache(core_.handle, both, nullptr);
        throw;
    }
}

bool PipelineStore::save() {
    const std::scoped_lock lock(mutex_);
    if (cache_file_.empty()) {
        return false;
    }
    if (cache_ == VK_NULL_HANDLE) {
        throw Error("the driver made no pipeline cache", utf8_name(cache_file_));
    }
    if (!dirty_) {
        return true;
    }
    const std::vector<std::byte> before = read_cache_file();
    const auto others = unframe_cache(core_.capabilities, before);
    // another process saved meanwhile
    const bool merges = !others.empty() && fnv1a(others) != known_;
    const std::vector<std::byte> data = merges ? data_with(others) : data_of(cache_);
    const std::vector<std::byte> file = frame_cache(core_.capabilities, data);
    if (file != before) {
        write_whole_file(cache_file_, file);
    }
    known_ = merges ? known_ : fnv1a(data);
    dirty_ = false;
    return true;
}

}  // namespace vkf
