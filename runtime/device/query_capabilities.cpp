// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/query_capabilities.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "runtime/compile/texel_fetches.h"
#include "runtime/device/enumerate.h"

namespace vkf {

namespace {

std::string version_text(std::uint32_t v) {
    return std::to_string(VK_API_VERSION_MAJOR(v)) + "." + std::to_string(VK_API_VERSION_MINOR(v)) + "." +
           std::to_string(VK_API_VERSION_PATCH(v));
}

DeviceType device_type(VkPhysicalDeviceType type) {
    switch (type) {
        case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU: return DeviceType::integrated;
        case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU: return DeviceType::discrete;
        case VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU: return DeviceType::virtual_gpu;
        case VK_PHYSICAL_DEVICE_TYPE_CPU: return DeviceType::cpu;
        default: return DeviceType::other;
    }
}

/// A driver's text, of which nothing is promised. What is no printable ASCII becomes '?': names
/// stand in JSON, HTML, SVG and terminals.
std::string ascii_text(std::string text) {
    std::replace_if(
        text.begin(), text.end(), [](char ch) { return ch < ' ' || ch > '~'; }, '?');
    return text;
}

std::uint64_t largest_device_heap(const InstanceTable& api, VkPhysicalDevice physical) {
    VkPhysicalDeviceMemoryProperties memory{};
    api.vkGetPhysicalDeviceMemoryProperties(physical, &memory);
    std::uint64_t largest = 0;
    for (std::uint32_t i = 0; i < memory.memoryHeapCount; ++i) {
        const bool local = (memory.memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) != 0;
        largest = std::max<std::uint64_t>(largest, local ? memory.memoryHeaps[i].size : 0);
    }
    return largest;
}

/// True where storage buffers can be made on such memory of others, and with `exported` be given to
/// others.
bool shares(const InstanceTable& api, VkPhysicalDevice physical, VkExternalMemoryHandleTypeFlagBits type,
            bool exported) {
    const VkPhysicalDeviceExternalBufferInfo info{
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_BUFFER_INFO, nullptr, 0,
        VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT, type};
    VkExternalBufferProperties properties{};
    properties.sType = VK_STRUCTURE_TYPE_EXTERNAL_BUFFER_PROPERTIES;
    api.vkGetPhysicalDeviceExternalBufferProperties(physical, &info, &properties);
    const VkExternalMemoryFeatureFlags wanted =
        VK_EXTERNAL_MEMORY_FEATURE_IMPORTABLE_BIT | (exported ? VK_EXTERNAL_MEMORY_FEATURE_EXPORTABLE_BIT : 0);
    return (properties.externalMemoryProperties.externalMemoryFeatures & wanted) == wanted;
}

/// The driver's own name and version where it tells them.
std::string driver_text(const InstanceTable& api, VkPhysicalDevice physical, std::uint32_t version) {
    if (!has_extension(api, physical, VK_KHR_DRIVER_PROPERTIES_EXTENSION_NAME)) {
        return "driver " + version_text(version);
    }
    const auto driver = properties_of<VkPhysicalDeviceDriverProperties>(
        api, physical, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES);
    return ascii_text(std::string(driver.driverName) + (driver.driverInfo[0] ? " " : "") + driver.driverInfo);
}

/// True of lavapipe before 26, where an invocation's load from a storage buffer is a loop over the
/// lanes. It is faster from a texel buffer; with 26 only products are.
bool loads_lane_by_lane(const InstanceTable& api, VkPhysicalDevice physical, std::uint32_t version) {
    if (!has_extension(api, physical, VK_KHR_DRIVER_PROPERTIES_EXTENSION_NAME)) {
        return false;
    }
    const auto driver = properties_of<VkPhysicalDeviceDriverProperties>(
        api, physical, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES);
    return driver.driverID == VK_DRIVER_ID_MESA_LLVMPIPE && VK_API_VERSION_MAJOR(version) < 26;
}

/// Most bytes of one buffer, where the device tells.
std::uint64_t most_of_a_buffer(const InstanceTable& api, VkPhysicalDevice physical, std::uint32_t version) {
    if (version < VK_API_VERSION_1_3 && !has_extension(api, physical, VK_KHR_MAINTENANCE_4_EXTENSION_NAME)) {
        return std::numeric_limits<std::uint64_t>::max();
    }
    const auto maintenance = properties_of<VkPhysicalDeviceMaintenance4Properties>(
        api, physical, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_PROPERTIES);
    return maintenance.maxBufferSize != 0 ? maintenance.maxBufferSize : std::numeric_limits<std::uint64_t>::max();
}

/// The only size that subgroups have; 0 where there are several, or none is promised.
std::uint32_t exact_subgroup_size(const InstanceTable& api, VkPhysicalDevice physical) {
    if (!has_extension(api, physical, VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME)) {
        return 0;
    }
    const auto sizes = properties_of<VkPhysicalDeviceSubgroupSizeControlProperties>(
        api, physical, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES);
    return sizes.minSubgroupSize == sizes.maxSubgroupSize ? sizes.minSubgroupSize : 0;
}

void query_integer_dot(const InstanceTable& api, VkPhysicalDevice physical, Capabilities& c) {
    if (!has_extension(api, physical, VK_KHR_SHADER_INTEGER_DOT_PRODUCT_EXTENSION_NAME)) {
        return;
    }
    const auto dot = features_of<VkPhysicalDeviceShaderIntegerDotProductFeatures>(
        api, physical, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES);
    const auto speed = properties_of<VkPhysicalDeviceShaderIntegerDotProductProperties>(
        api, physical, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_PROPERTIES);
    c.integer_dot = dot.shaderIntegerDotProduct == VK_TRUE;
    c.fast_integer_dot = c.integer_dot && speed.integerDotProduct4x8BitPackedSignedAccelerated == VK_TRUE;
}

void query_floats(const InstanceTable& api, VkPhysicalDevice physical, Capabilities& c) {
    if (!has_extension(api, physical, VK_KHR_SHADER_FLOAT_CONTROLS_EXTENSION_NAME)) {
        return;
    }
    const auto floats = properties_of<VkPhysicalDeviceFloatControlsProperties>(
        api, physical, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FLOAT_CONTROLS_PROPERTIES);
    c.float_controls = true;
    c.keeps_special_f32 = floats.shaderSignedZeroInfNanPreserveFloat32 == VK_TRUE;
    c.keeps_special_f16 = floats.shaderSignedZeroInfNanPreserveFloat16 == VK_TRUE;
    // asked for in f16 alone: fp32 needs to be independent of it, and 64 bits are in no kernel
    constexpr auto kNone = VK_SHADER_FLOAT_CONTROLS_INDEPENDENCE_NONE;
    c.keeps_subnormal_f16 = floats.shaderDenormPreserveFloat16 == VK_TRUE && floats.denormBehaviorIndependence != kNone;
    if (has_extension(api, physical, VK_KHR_SHADER_FLOAT16_INT8_EXTENSION_NAME)) {
        const auto small = features_of<VkPhysicalDeviceShaderFloat16Int8Features>(
            api, physical, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_FLOAT16_INT8_FEATURES);
        c.rounds_alike = floats.roundingModeIndependence == kNone;
        c.float16 = small.shaderFloat16 == VK_TRUE && floats.shaderRoundingModeRTEFloat16 == VK_TRUE &&
                    (!c.rounds_alike || floats.shaderRoundingModeRTEFloat32 == VK_TRUE);
    }
}

}  // namespace

bool has_extension(const InstanceTable& api, VkPhysicalDevice physical, const char* name) {
    const auto list = enumerate<VkExtensionProperties>(
        "vkEnumerateDeviceExtensionProperties", [&](std::uint32_t* count, VkExtensionProperties* properties) {
            return api.vkEnumerateDeviceExtensionProperties(physical, nullptr, count, properties);
        });
    return std::any_of(list.begin(), list.end(),
                       [&](const auto& e) { return std::strcmp(e.extensionName, name) == 0; });
}

std::optional<Capabilities> query_capabilities(const InstanceTable& api, VkPhysicalDevice physical,
                                               std::uint32_t& queue_family, std::uint32_t instance_version) {
    VkPhysicalDeviceProperties2 properties{};
    properties.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2;
    api.vkGetPhysicalDeviceProperties2(physical, &properties);
    const VkPhysicalDeviceProperties& p = properties.properties;
    if (p.apiVersion < VK_API_VERSION_1_1) {
        return std::nullopt;
    }

    std::uint32_t count = 0;
    api.vkGetPhysicalDeviceQueueFamilyProperties(physical, &count, nullptr);
    std::vector<VkQueueFamilyProperties> families(count);
    api.vkGetPhysicalDeviceQueueFamilyProperties(physical, &count, families.data());
    const auto computes = [](const auto& f) { return f.queueCount > 0 && (f.queueFlags & VK_QUEUE_COMPUTE_BIT) != 0; };
    if (queue_family == kAnyFamily) {
        queue_family =
            static_cast<std::uint32_t>(std::find_if(families.begin(), families.end(), computes) - families.begin());
    }
    if (queue_family >= families.size() || !computes(families[queue_family])) {
        return std::nullopt;
    }

    const auto subgroup = properties_of<VkPhysicalDeviceSubgroupProperties>(
        api, physical, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES);
    const auto maintenance = properties_of<VkPhysicalDeviceMaintenance3Properties>(
        api, physical, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES);
    const auto storage16 = features_of<VkPhysicalDevice16BitStorageFeatures>(
        api, physical, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_16BIT_STORAGE_FEATURES);
    VkPhysicalDeviceFeatures2 features{};
    features.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
    api.vkGetPhysicalDeviceFeatures2(physical, &features);
    if (maintenance.maxMemoryAllocationSize == 0) {  // what 1.1 added was not filled in
        throw Error("its instance was made for Vulkan 1.0: VkApplicationInfo::apiVersion must be 1.1 or higher",
                    p.deviceName);
    }

    Capabilities c;
    c.name = ascii_text(p.deviceName);
    c.type = device_type(p.deviceType);
    c.api_version = p.apiVersion;
    c.vendor_id = p.vendorID;
    c.device_id = p.deviceID;
    c.driver_version = p.driverVersion;
    c.driver = driver_text(api, physical, p.driverVersion);
    std::copy(std::begin(p.pipelineCacheUUID), std::end(p.pipelineCacheUUID), c.cache_uuid.begin());
    c.max_invocations = p.limits.maxComputeWorkGroupInvocations;
    for (std::size_t i = 0; i < 3; ++i) {
        c.max_group_size[i] = p.limits.maxComputeWorkGroupSize[i];
        c.max_groups[i] = p.limits.maxComputeWorkGroupCount[i];
    }
    c.shared_memory = p.limits.maxComputeSharedMemorySize;
    c.push_constants = p.limits.maxPushConstantsSize;
    c.storage_buffers = p.limits.maxPerStageDescriptorStorageBuffers;
    c.storage_alignment = std::max<std::uint64_t>(p.limits.minStorageBufferOffsetAlignment, 16);
    c.storage_range = p.limits.maxStorageBufferRange;
    c.max_allocation = std::min<std::uint64_t>(
        maintenance.maxMemoryAllocationSize, most_of_a_buffer(api, physical, std::min(instance_version, p.apiVersion)));
    c.device_memory = largest_device_heap(api, physical);
    c.subgroup_size = subgroup.subgroupSize;
    const auto offers = [&](VkSubgroupFeatureFlagBits operations) {
        return (subgroup.supportedStages & VK_SHADER_STAGE_COMPUTE_BIT) != 0 &&
               (subgroup.supportedOperations & operations) != 0;
    };
    c.subgroup_arithmetic = offers(VK_SUBGROUP_FEATURE_ARITHMETIC_BIT);
    c.subgroup_shuffle = offers(VK_SUBGROUP_FEATURE_SHUFFLE_BIT);
    c.subgroup_quad = offers(VK_SUBGROUP_FEATURE_QUAD_BIT);
    c.exact_subgroup_size = exact_subgroup_size(api, physical);
    c.int64 = c.cpu() && features.features.shaderInt64 == VK_TRUE;
    c.texel_buffers = loads_lane_by_lane(api, physical, p.driverVersion) &&
                      c.storage_alignment % p.limits.minTexelBufferOffsetAlignment == 0 &&
                      p.limits.maxTexelBufferElements >= c.storage_range / kLeastTexel;
    c.storage_image_any_format = features.features.shaderStorageImageWriteWithoutFormat == VK_TRUE;
    c.external_memory_fd = has_extension(api, physical, "VK_KHR_external_memory_fd") &&
                           shares(api, physical, VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT, true);
    c.external_memory_host = has_extension(api, physical, "VK_EXT_external_memory_host") &&
                             shares(api, physical, VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT, false);
    c.external_memory_android = has_extension(api, physical, "VK_ANDROID_external_memory_android_hardware_buffer") &&
                                has_extension(api, physical, "VK_EXT_queue_family_foreign");
    c.portability_subset = has_extension(api, physical, "VK_KHR_portability_subset");
    c.storage_16bit = storage16.storageBuffer16BitAccess == VK_TRUE;
    query_floats(api, physical, c);
    query_matrices(api, physical, c);
    c.matrix_elements = c.matrix_elements && instance_version >= VK_API_VERSION_1_3;  // SPIR-V 1.6
    c.matrix_elements_ext = c.matrix_elements_ext && c.matrix_elements;
    query_integer_dot(api, physical, c);
    c.timeline_semaphore = has_extension(api, physical, "VK_KHR_timeline_semaphore") &&
                           features_of<VkPhysicalDeviceTimelineSemaphoreFeatures>(
                               api, physical, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_TIMELINE_SEMAPHORE_FEATURES)
                                   .timelineSemaphore == VK_TRUE;
    c.unified_memory = c.type == DeviceType::integrated || c.type == DeviceType::cpu;
    c.timestamp_bits = families[queue_family].timestampValidBits;
    c.timestamp_period = c.timestamp_bits > 0 ? p.limits.timestampPeriod : 0.0f;
    return c;
}

}  // namespace vkf
