// SPDX-License-Identifier: Apache-2.0
// The scope of atomics on shared memory. Under validation the layer looks at every such module that
// a pipeline is made of.
#include "runtime/compile/atomic_scopes.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "attention_shared.spv.h"
#include "attention_shared_full.spv.h"
#include "matmul_shared.spv.h"
#include "ops/ops.h"
#include "runtime/compile/spirv_code.h"
#include "runtime/compile/spirv_module.h"
#include "tests/device.h"
#include "tests/fake_vulkan.h"
#include "tests/fixtures.h"
#include "tests/spirv_build.h"
#include "top_k.spv.h"
#include "top_k_parts.spv.h"

namespace vkf::test {

namespace {

constexpr std::uint32_t kLoad = 227, kStore = 228, kCompareExchange = 230, kAdd = 234, kAddFloat = 6035;

/// uint is 3; its constants 10 and 11 are 1, which is Device as a scope, and 0. 14 is shared by a
/// work group, 15 is in a buffer. Where it is not 0, the constant `two` is 2.
Words module_with(const std::vector<Words>& atomics, std::uint32_t two) {
    std::vector<Words> all = {{op(4, 15), 5, 20, 'm'}, {op(2, 19), 2},       {op(4, 21), 3, 32, 0},
                              {op(3, 33), 4, 2},       {op(4, 32), 5, 4, 3}, {op(4, 32), 6, 12, 3},
                              {op(4, 43), 3, 10, 1},   {op(4, 43), 3, 11, 0}};
    if (two != 0 && two < 200) {
        all.push_back({op(4, 43), 3, two, 2});
    }
    all.insert(all.end(), {{op(4, 59), 5, 14, 4}, {op(4, 59), 6, 15, 12}});
    if (two == 200) {
        all.push_back({op(4, 43), 3, two, 2});
    }
    all.insert(all.end(), {{op(5, 54), 2, 20, 0, 4}, {op(2, 248), 21}, {op(5, 65), 5, 30, 14, 11}});
    all.insert(all.end(), atomics.begin(), atomics.end());
    all.insert(all.end(), {{op(1, 253)}, {op(1, 56)}});
    Words out = module_of(all);
    out[3] = std::max(out[3], two + 1);
    return out;
}

std::vector<Words> atomics_of_scope(std::uint32_t scope) {
    return {{op(7, kAdd), 3, 31, 30, scope, 11, 10},
            {op(5, kStore), 14, scope, 11, 10},
            {op(6, kLoad), 3, 32, 14, scope, 11},
            {op(9, kCompareExchange), 3, 33, 30, scope, 11, 11, 10, 10},
            {op(7, kAddFloat), 3, 34, 30, scope, 11, 10}};
}

/// How many atomics of a module have scope Device.
int of_device(std::span<const std::uint32_t> code) {
    std::map<std::uint32_t, std::uint32_t> constants;
    int count = 0;
    spv::each_instruction(code.subspan(spv::kHeaderWords), [&](spv::Words i) {
        if (spv::op_of(i) == spv::kOpConstant) {
            constants[i[2]] = i[3];
        } else if (spv::op_of(i) >= kLoad && spv::op_of(i) <= spv::kOpAtomicXor) {
            count += constants.at(i[spv::op_of(i) == kStore ? 2 : 4]) == 1 ? 1 : 0;
        }
    });
    return count;
}

}  // namespace

TEST_SUITE("atomic scopes") {
    TEST_CASE("atomic scopes: on what a work group shares they become Workgroup") {
        CHECK(narrow_atomics(module_with(atomics_of_scope(10), 12)) == module_with(atomics_of_scope(12), 12));
        CHECK(narrow_atomics(module_with(atomics_of_scope(10), 0)) == module_with(atomics_of_scope(200), 200));
    }

    TEST_CASE("atomic scopes: all others stay, and so does what is no module") {
        const Words others = module_with({{op(7, kAdd), 3, 31, 15, 10, 11, 10},   // on a buffer
                                          {op(7, kAdd), 3, 32, 30, 12, 11, 10},   // of a work group
                                          {op(7, kAdd), 3, 33, 30, 11, 11, 10},   // of all devices
                                          {op(7, kAdd), 3, 34, 30, 31, 11, 10}},  // of no constant
                                         12);
        CHECK(narrow_atomics(others) == others);
        Words cut = module_with(atomics_of_scope(10), 12);
        cut.pop_back();
        CHECK(narrow_atomics(cut) == cut);
        CHECK(narrow_atomics({}).empty());
        Words full = module_with(atomics_of_scope(10), 0);
        full[3] = 4194303;  // as many ids as a module may have
        CHECK(narrow_atomics(full) == full);
    }

    TEST_CASE("atomic scopes: no kernel has one of the device") {
        const std::pair<const char*, PackedSpirv> kernels[] = {
            {"attention_shared", spirv::kAttentionSharedSpirv},
            {"attention_shared_full", spirv::kAttentionSharedFullSpirv},
            {"matmul_shared", spirv::kMatmulSharedSpirv},
            {"top_k", spirv::kTopKSpirv},
            {"top_k_parts", spirv::kTopKPartsSpirv}};
        for (const auto& kernel : kernels) {
            CAPTURE(kernel.first);
            const Words whole = SpirvCode(kernel.second).words();
            CHECK(of_device(whole) > 0);
            CHECK(of_device(narrow_atomics(whole)) == 0);
        }
    }

    TEST_CASE("atomic scopes: a device with Vulkan's memory model and without its device scope") {
        fake::Vulkan vulkan;
        bool model = false;
        vulkan.vkCreateDevice.instead = [&](VkPhysicalDevice physical, const VkDeviceCreateInfo* info,
                                            const VkAllocationCallbacks* allocator, VkDevice* out) {
            VkPhysicalDeviceVulkanMemoryModelFeatures features{};
            features.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_MEMORY_MODEL_FEATURES;
            VkPhysicalDeviceFeatures2 all{};
            all.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
            all.pNext = &features;
            vulkan.vkGetPhysicalDeviceFeatures2.real(physical, &all);
            model = features.vulkanMemoryModel == VK_TRUE;
            VkDeviceCreateInfo with_model = *info;
            std::vector<const char*> extensions(info->ppEnabledExtensionNames,
                                                info->ppEnabledExtensionNames + info->enabledExtensionCount);
            if (model) {
                features = {};
                features.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_MEMORY_MODEL_FEATURES;
                features.pNext = const_cast<void*>(info->pNext);
                features.vulkanMemoryModel = VK_TRUE;
                extensions.push_back(VK_KHR_VULKAN_MEMORY_MODEL_EXTENSION_NAME);
                with_model.pNext = &features;
                with_model.enabledExtensionCount = static_cast<std::uint32_t>(extensions.size());
                with_model.ppEnabledExtensionNames = extensions.data();
            }
            return vulkan.vkCreateDevice.real(physical, &with_model, allocator, out);
        };
        int modules = 0;
        vulkan.vkCreateShaderModule.instead = [&](VkDevice d, const VkShaderModuleCreateInfo* info,
                                                  const VkAllocationCallbacks* allocator, VkShaderModule* out) {
            ++modules;
            CHECK(of_device({info->pCode, info->codeSize / sizeof(std::uint32_t)}) == 0);
            return vulkan.vkCreateShaderModule.real(d, info, allocator, out);
        };
        Device device = Device::create({.minimum_profile = true, .get_instance_proc_addr = vulkan.entry()});
        if (!model) {
            cannot_run("Vulkan's memory model");
        }
        {
            Graph g;
            g.output("y", top_k(g.input("x", {2, 300}), 5).values);
            Program program = device.compile(g);
            std::vector<float> x(600);
            for (std::size_t i = 0; i < x.size(); ++i) {
                x[i] = static_cast<float>(i * 7 % 300);
            }
            program.upload("x", x);
            program.run();
            CHECK(program.download("y") == std::vector<float>{299, 298, 297, 296, 295, 299, 298, 297, 296, 295});
        }
        CHECK(modules > 0);
        CHECK(last_words(std::move(device)) == "");
    }
}

}  // namespace vkf::test
