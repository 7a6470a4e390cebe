// SPDX-License-Identifier: Apache-2.0
// Cooperative matrices: whether the device has them, with all that our kernels need beside, and in
// which shapes.
#include <algorithm>

#include "runtime/device/enumerate.h"
#include "runtime/device/query_capabilities.h"

namespace vkf {

#if defined(VKFORMER_GL_KHR_COOPERATIVE_MATRIX) && defined(VK_KHR_cooperative_matrix)

namespace {

bool has_extensions(const InstanceTable& api, VkPhysicalDevice physical) {
    const char* const wanted[] = {
        VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME,
        VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME,
        VK_KHR_VULKAN_MEMORY_MODEL_EXTENSION_NAME,
    };
    return std::all_of(std::begin(wanted), std::end(wanted),
                       [&](const char* name) { return has_extension(api, physical, name); });
}

/// `int8` becomes whether there are integers of 8 bits beside.
bool has_features(const InstanceTable& api, VkPhysicalDevice physical, bool& int8) {
    const auto model = features_of<VkPhysicalDeviceVulkanMemoryModelFeatures>(
        api, physical, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_MEMORY_MODEL_FEATURES);
    const auto small = features_of<VkPhysicalDeviceShaderFloat16Int8Features>(
        api, physical, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_FLOAT16_INT8_FEATURES);
    const auto sizes = features_of<VkPhysicalDeviceSubgroupSizeControlFeatures>(
        api, physical, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES);
    const auto matrices = features_of<VkPhysicalDeviceCooperativeMatrixFeaturesKHR>(
        api, physical, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR);
    int8 = small.shaderInt8 == VK_TRUE;
    return matrices.cooperativeMatrix && sizes.subgroupSizeControl && sizes.computeFullSubgroups &&
           model.vulkanMemoryModel && model.vulkanMemoryModelDeviceScope;
}

/// Reads what the kernels rely on into `c`; false where it does not suffice.
bool has_properties(const InstanceTable& api, VkPhysicalDevice physical, Capabilities& c) {
    const auto sizes = properties_of<VkPhysicalDeviceSubgroupSizeControlProperties>(
        api, physical, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES);
    const auto matrices = properties_of<VkPhysicalDeviceCooperativeMatrixPropertiesKHR>(
        api, physical, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_PROPERTIES_KHR);
    c.matrix_subgroup_size = std::clamp(c.subgroup_size, sizes.minSubgroupSize, sizes.maxSubgroupSize);
    c.max_subgroups = sizes.maxComputeWorkgroupSubgroups;
    // where all subgroups have one size, none need be required
    const bool sized = sizes.minSubgroupSize == sizes.maxSubgroupSize ||
                       (sizes.requiredSubgroupSizeStages & VK_SHADER_STAGE_COMPUTE_BIT) != 0;
    return c.matrix_subgroup_size != 0 && sized &&
           (matrices.cooperativeMatrixSupportedStages & VK_SHADER_STAGE_COMPUTE_BIT) != 0;
}

/// Puts what is offered within a subgroup into `c`.
void find_shapes(const InstanceTable& api, VkPhysicalDevice physical, Capabilities& c) {
    if (!api.vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR) {
        return;
    }
    VkCooperativeMatrixPropertiesKHR blank{};
    blank.sType = VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR;
    const auto list = enumerate<VkCooperativeMatrixPropertiesKHR>(
        "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR",
        [&](std::uint32_t* count, VkCooperativeMatrixPropertiesKHR* properties) {
            return api.vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR(physical, count, properties);
        },
        blank);
    for (const VkCooperativeMatrixPropertiesKHR& p : list) {
        const auto is = [&](VkComponentTypeKHR operands, VkComponentTypeKHR sums) {
            return p.scope == VK_SCOPE_SUBGROUP_KHR && !p.saturatingAccumulation && p.AType == operands &&
                   p.BType == operands && p.CType == sums && p.ResultType == sums;
        };
        if (is(VK_COMPONENT_TYPE_FLOAT16_KHR, VK_COMPONENT_TYPE_FLOAT32_KHR)) {
            c.matrix_shapes.push_back({p.MSize, p.NSize, p.KSize});
        } else if (is(VK_COMPONENT_TYPE_SINT8_KHR, VK_COMPONENT_TYPE_SINT32_KHR)) {
            c.int8_matrix_shapes.push_back({p.MSize, p.NSize, p.KSize});
        }
    }
}

#if defined(VKFORMER_GL_NV_COOPERATIVE_MATRIX2) && defined(VK_NV_cooperative_matrix2)
template <class Features>
bool offers_elements(const InstanceTable& api, VkPhysicalDevice physical, const char* extension, VkStructureType type) {
    if (!has_extension(api, physical, extension)) {
        return false;
    }
    const auto offered = features_of<Features>(api, physical, type);
    return offered.cooperativeMatrixReductions == VK_TRUE && offered.cooperativeMatrixConversions == VK_TRUE &&
           offered.cooperativeMatrixPerElementOperations == VK_TRUE;
}

/// Looks for what kernels with GL_NV_cooperative_matrix2 need. They are SPIR-V 1.6, which is Vulkan
/// 1.3's; attention's subgroups vote, and find NaN by comparing.
void find_elements(const InstanceTable& api, VkPhysicalDevice physical, Capabilities& c) {
    const auto subgroup = properties_of<VkPhysicalDeviceSubgroupProperties>(
        api, physical, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES);
    if (c.api_version < VK_API_VERSION_1_3 || (subgroup.supportedStages & VK_SHADER_STAGE_COMPUTE_BIT) == 0 ||
        (subgroup.supportedOperations & VK_SUBGROUP_FEATURE_VOTE_BIT) == 0 || !c.keeps_special_f32) {
        return;
    }
    c.matrix_elements = offers_elements<VkPhysicalDeviceCooperativeMatrix2FeaturesNV>(
        api, physical, VK_NV_COOPERATIVE_MATRIX_2_EXTENSION_NAME,
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_2_FEATURES_NV);
#ifdef VK_EXT_cooperative_matrix_maintenance1
    if (!c.matrix_elements) {
        c.matrix_elements = c.matrix_elements_ext =
            offers_elements<VkPhysicalDeviceCooperativeMatrixMaintenance1FeaturesEXT>(
                api, physical, VK_EXT_COOPERATIVE_MATRIX_MAINTENANCE_1_EXTENSION_NAME,
                VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_MAINTENANCE_1_FEATURES_EXT);
    }
#endif
}
#else
void find_elements(const InstanceTable&, VkPhysicalDevice, Capabilities&) {}
#endif

}  // namespace

void query_matrices(const InstanceTable& api, VkPhysicalDevice physical, Capabilities& c) {
    c.matrix_kernels = true;
    bool int8 = false;
    if (!c.float16 || !has_extensions(api, physical) || !has_features(api, physical, int8) ||
        !has_properties(api, physical, c)) {
        return;
    }
    find_shapes(api, physical, c);
    c.cooperative_matrix = !c.matrix_shapes.empty();
    c.cooperative_matrix_int8 = c.cooperative_matrix && int8 && !c.int8_matrix_shapes.empty();
    if (c.cooperative_matrix) {
        find_elements(api, physical, c);
    }
}

#else

void query_matrices(const InstanceTable&, VkPhysicalDevice, Capabilities&) {}

#endif

}  // namespace vkf
