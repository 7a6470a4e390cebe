// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/requirements.h"

#include <algorithm>
#include <cstring>

#include "runtime/device/keep_enabled.h"

namespace vkf {

namespace {

struct OptionalPart {
    const char* name;
    bool Capabilities::*supported;
    bool required;
    const char* buys;
};

constexpr const char* kMatricesBuy =
    "CompileOptions::arithmetic f16: products and fused attention on matrix units (tensor cores)";
constexpr const char* kHalvesBuy =
    "CompileOptions::arithmetic f16: matrix products in f16, also without matrix units; kernels with those need it";
constexpr const char* kDotBuys = "CompileOptions::arithmetic int8: products of codes, four at a time";
constexpr const char* kTimelineBuys = "Ticket::semaphore(): what a host can wait for on its own queues";
constexpr const char* kElementsBuy =
    "products and attention on matrix units that finish their sums without shared memory";
constexpr const char* kMatricesNeed = "kernels with cooperative matrices need it";

constexpr OptionalPart kExtensions[] = {
    {"VK_KHR_portability_subset", &Capabilities::portability_subset, true,
     "Vulkan asks for it wherever it is offered (devices on top of Metal)"},
    {"VK_KHR_external_memory_fd", &Capabilities::external_memory_fd, false,
     "Device::make_shared_buffer() and import_fd(): buffers shared with other devices and processes"},
    {"VK_EXT_external_memory_host", &Capabilities::external_memory_host, false,
     "Device::import_host(): the host's own memory as a buffer, without a copy"},
    {"VK_ANDROID_external_memory_android_hardware_buffer", &Capabilities::external_memory_android, false,
     "Device::import_hardware_buffer()"},
    {"VK_KHR_cooperative_matrix", &Capabilities::cooperative_matrix, false, kMatricesBuy},
    {"VK_EXT_subgroup_size_control", &Capabilities::cooperative_matrix, false, kMatricesNeed},
    {"VK_KHR_shader_float16_int8", &Capabilities::float16, false, kHalvesBuy},
    {"VK_KHR_shader_float_controls", &Capabilities::float_controls, false,
     "NaN, infinities and -0.0 are kept; CompileOptions::arithmetic f16: matrix products in f16"},
    {"VK_KHR_vulkan_memory_model", &Capabilities::cooperative_matrix, false, kMatricesNeed},
    {"VK_KHR_shader_integer_dot_product", &Capabilities::integer_dot, false, kDotBuys},
    {"VK_KHR_timeline_semaphore", &Capabilities::timeline_semaphore, false, kTimelineBuys},
    {"VK_EXT_queue_family_foreign", &Capabilities::external_memory_android, false,
     "VK_ANDROID_external_memory_android_hardware_buffer asks for it"},
};

constexpr OptionalPart kFeatures[] = {
    {"VkPhysicalDeviceFeatures::shaderStorageImageWriteWithoutFormat", &Capabilities::storage_image_any_format, false,
     "image_output() to images of any float format, not only rgba8, rgba16f, r32f and rgba32f"},
    {"VkPhysicalDeviceFeatures::shaderInt64", &Capabilities::int64, false,
     "kernels that load 8 bytes at a time, which processors are faster with"},
    {"VkPhysicalDevice16BitStorageFeatures::storageBuffer16BitAccess", &Capabilities::storage_16bit, false,
     "ops of your own whose kernels declare 16-bit storage; the library's own unpack words"},
    {"VkPhysicalDeviceCooperativeMatrixFeaturesKHR::cooperativeMatrix", &Capabilities::cooperative_matrix, false,
     kMatricesBuy},
    {"VkPhysicalDeviceSubgroupSizeControlFeatures::subgroupSizeControl", &Capabilities::cooperative_matrix, false,
     kMatricesNeed},
    {"VkPhysicalDeviceSubgroupSizeControlFeatures::computeFullSubgroups", &Capabilities::cooperative_matrix, false,
     kMatricesNeed},
    {"VkPhysicalDeviceShaderFloat16Int8Features::shaderFloat16", &Capabilities::float16, false, kHalvesBuy},
    {"VkPhysicalDeviceShaderFloat16Int8Features::shaderInt8", &Capabilities::cooperative_matrix_int8, false,
     "CompileOptions::arithmetic int8: products of codes on matrix units"},
    {"VkPhysicalDeviceVulkanMemoryModelFeatures::vulkanMemoryModel", &Capabilities::cooperative_matrix, false,
     kMatricesNeed},
    {"VkPhysicalDeviceVulkanMemoryModelFeatures::vulkanMemoryModelDeviceScope", &Capabilities::cooperative_matrix,
     false, "with vulkanMemoryModel, kernels of your own with atomics on buffers need it"},
    {"VkPhysicalDeviceShaderIntegerDotProductFeatures::shaderIntegerDotProduct", &Capabilities::integer_dot, false,
     kDotBuys},
    {"VkPhysicalDeviceTimelineSemaphoreFeatures::timelineSemaphore", &Capabilities::timeline_semaphore, false,
     kTimelineBuys},
};

/// The two extensions that matrix_elements can be of, and their features.
struct ElementsParts {
    const char* extension;
    const char* features[3];
};
constexpr ElementsParts kElementsNv{
    "VK_NV_cooperative_matrix2",
    {"VkPhysicalDeviceCooperativeMatrix2FeaturesNV::cooperativeMatrixReductions",
     "VkPhysicalDeviceCooperativeMatrix2FeaturesNV::cooperativeMatrixConversions",
     "VkPhysicalDeviceCooperativeMatrix2FeaturesNV::cooperativeMatrixPerElementOperations"}};
constexpr ElementsParts kElementsExt{
    "VK_EXT_cooperative_matrix_maintenance1",
    {"VkPhysicalDeviceCooperativeMatrixMaintenance1FeaturesEXT::cooperativeMatrixReductions",
     "VkPhysicalDeviceCooperativeMatrixMaintenance1FeaturesEXT::cooperativeMatrixConversions",
     "VkPhysicalDeviceCooperativeMatrixMaintenance1FeaturesEXT::cooperativeMatrixPerElementOperations"}};

const ElementsParts& elements_of(const Capabilities& c) { return c.matrix_elements_ext ? kElementsExt : kElementsNv; }

/// The features that a host's pNext chain turns on.
struct Enabled {
    bool any_format = false, int64 = false, storage_16bit = false;
    bool matrices = false, subgroup_size = false, full_subgroups = false, memory_model = false;
    bool float16 = false, int8 = false, elements_nv = false, elements_ext = false;
    bool integer_dot = false, timeline = false;

    void add(const VkPhysicalDeviceFeatures& core) {
        any_format |= core.shaderStorageImageWriteWithoutFormat == VK_TRUE;
        int64 |= core.shaderInt64 == VK_TRUE;
    }

    void add(const VkBaseInStructure* s) {
        switch (s->sType) {
            case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2: add(as<VkPhysicalDeviceFeatures2>(s).features); break;
            case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_16BIT_STORAGE_FEATURES:
                storage_16bit |= as<VkPhysicalDevice16BitStorageFeatures>(s).storageBuffer16BitAccess == VK_TRUE;
                break;
            case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES:
                storage_16bit |= as<VkPhysicalDeviceVulkan11Features>(s).storageBuffer16BitAccess == VK_TRUE;
                break;
            case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES:
                float16 |= as<VkPhysicalDeviceVulkan12Features>(s).shaderFloat16 == VK_TRUE;
                int8 |= as<VkPhysicalDeviceVulkan12Features>(s).shaderInt8 == VK_TRUE;
                memory_model |= whole(as<VkPhysicalDeviceVulkan12Features>(s));
                timeline |= as<VkPhysicalDeviceVulkan12Features>(s).timelineSemaphore == VK_TRUE;
                break;
            case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_TIMELINE_SEMAPHORE_FEATURES:
                timeline |= as<VkPhysicalDeviceTimelineSemaphoreFeatures>(s).timelineSemaphore == VK_TRUE;
                break;
            case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES:
                subgroup_size |= as<VkPhysicalDeviceVulkan13Features>(s).subgroupSizeControl == VK_TRUE;
                full_subgroups |= as<VkPhysicalDeviceVulkan13Features>(s).computeFullSubgroups == VK_TRUE;
                integer_dot |= as<VkPhysicalDeviceVulkan13Features>(s).shaderIntegerDotProduct == VK_TRUE;
                break;
            case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES:
                integer_dot |=
                    as<VkPhysicalDeviceShaderIntegerDotProductFeatures>(s).shaderIntegerDotProduct == VK_TRUE;
                break;
            case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_FLOAT16_INT8_FEATURES:
                float16 |= as<VkPhysicalDeviceShaderFloat16Int8Features>(s).shaderFloat16 == VK_TRUE;
                int8 |= as<VkPhysicalDeviceShaderFloat16Int8Features>(s).shaderInt8 == VK_TRUE;
                break;
            case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_MEMORY_MODEL_FEATURES:
                memory_model |= whole(as<VkPhysicalDeviceVulkanMemoryModelFeatures>(s));
                break;
            case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES:
                subgroup_size |= as<VkPhysicalDeviceSubgroupSizeControlFeatures>(s).subgroupSizeControl == VK_TRUE;
                full_subgroups |= as<VkPhysicalDeviceSubgroupSizeControlFeatures>(s).computeFullSubgroups == VK_TRUE;
                break;
#ifdef VK_KHR_cooperative_matrix
            case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR:
                matrices |= as<VkPhysicalDeviceCooperativeMatrixFeaturesKHR>(s).cooperativeMatrix == VK_TRUE;
                break;
#endif
#ifdef VK_NV_cooperative_matrix2
            case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_2_FEATURES_NV:
                elements_nv |= all(as<VkPhysicalDeviceCooperativeMatrix2FeaturesNV>(s));
                break;
#endif
#ifdef VK_EXT_cooperative_matrix_maintenance1
            case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_MAINTENANCE_1_FEATURES_EXT:
                elements_ext |= all(as<VkPhysicalDeviceCooperativeMatrixMaintenance1FeaturesEXT>(s));
                break;
#endif
            default: break;
        }
    }

private:
    template <class Elements>
    static bool all(const Elements& f) {
        return f.cooperativeMatrixReductions == VK_TRUE && f.cooperativeMatrixConversions == VK_TRUE &&
               f.cooperativeMatrixPerElementOperations == VK_TRUE;
    }
    template <class T>
    static bool whole(const T& model) {
        return model.vulkanMemoryModel == VK_TRUE && model.vulkanMemoryModelDeviceScope == VK_TRUE;
    }
    template <class T>
    static const T& as(const VkBaseInStructure* s) {
        return *reinterpret_cast<const T*>(s);
    }
};

}  // namespace

struct DeviceRequirements::Features {
    VkPhysicalDeviceFeatures2 core{};
    VkPhysicalDevice16BitStorageFeatures storage_16bit{};
    VkPhysicalDeviceVulkanMemoryModelFeatures memory_model{};
    VkPhysicalDeviceShaderFloat16Int8Features float16{};
    VkPhysicalDeviceSubgroupSizeControlFeatures subgroup_size{};
    VkPhysicalDeviceShaderIntegerDotProductFeatures integer_dot{};
    VkPhysicalDeviceTimelineSemaphoreFeatures timeline{};
#ifdef VK_KHR_cooperative_matrix
    VkPhysicalDeviceCooperativeMatrixFeaturesKHR matrices{};
#endif
#ifdef VK_NV_cooperative_matrix2
    VkPhysicalDeviceCooperativeMatrix2FeaturesNV elements_nv{};
#endif
#ifdef VK_EXT_cooperative_matrix_maintenance1
    VkPhysicalDeviceCooperativeMatrixMaintenance1FeaturesEXT elements_ext{};
#endif
    bool wants_16bit = false, wants_float16 = false, wants_matrices = false, wants_elements_nv = false,
         wants_elements_ext = false, wants_integer_dot = false, wants_timeline = false;

    template <class Elements>
    static void ask_for_elements(Elements& elements, VkStructureType type) {
        elements.sType = type;
        elements.cooperativeMatrixReductions = VK_TRUE;
        elements.cooperativeMatrixConversions = VK_TRUE;
        elements.cooperativeMatrixPerElementOperations = VK_TRUE;
    }

    /// The structs that are wanted, the first of them `core`, and then `next`.
    const void* chain(void* next) {
        const auto put = [&](auto& s) {
            s.pNext = next;
            next = &s;
        };
        if (wants_16bit) {
            put(storage_16bit);
        }
        if (wants_float16) {
            put(float16);
        }
        if (wants_integer_dot) {
            put(integer_dot);
        }
        if (wants_timeline) {
            put(timeline);
        }
#ifdef VK_KHR_cooperative_matrix
        if (wants_matrices) {
            put(memory_model);
            put(subgroup_size);
            put(matrices);
        }
#endif
#ifdef VK_NV_cooperative_matrix2
        if (wants_elements_nv) {
            put(elements_nv);
        }
#endif
#ifdef VK_EXT_cooperative_matrix_maintenance1
        if (wants_elements_ext) {
            put(elements_ext);
        }
#endif
        put(core);
        return next;
    }
};

DeviceRequirements::DeviceRequirements(const Capabilities& supported) : features_(std::make_unique<Features>()) {
    for (const OptionalPart& e : kExtensions) {
        if (supported.*e.supported) {
            list_.push_back({e.name, e.required, e.buys, true});
        }
    }
    for (const OptionalPart& f : kFeatures) {
        if (supported.*f.supported) {
            list_.push_back({f.name, f.required, f.buys, false});
        }
    }
    if (supported.matrix_elements) {
        const ElementsParts& elements = elements_of(supported);
        list_.push_back({elements.extension, false, kElementsBuy, true});
        for (const char* feature : elements.features) {
            list_.push_back({feature, false, kElementsBuy, false});
        }
    }
    features_->core.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
    features_->core.features.shaderStorageImageWriteWithoutFormat =
        supported.storage_image_any_format ? VK_TRUE : VK_FALSE;
    features_->core.features.shaderInt64 = supported.int64 ? VK_TRUE : VK_FALSE;
    features_->storage_16bit.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_16BIT_STORAGE_FEATURES;
    features_->storage_16bit.storageBuffer16BitAccess = VK_TRUE;
    features_->wants_16bit = supported.storage_16bit;
    features_->memory_model.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_MEMORY_MODEL_FEATURES;
    features_->memory_model.vulkanMemoryModel = VK_TRUE;
    features_->memory_model.vulkanMemoryModelDeviceScope = VK_TRUE;
    features_->float16.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_FLOAT16_INT8_FEATURES;
    features_->float16.shaderFloat16 = VK_TRUE;
    features_->float16.shaderInt8 = supported.cooperative_matrix_int8 ? VK_TRUE : VK_FALSE;
    features_->wants_float16 = supported.float16;
    features_->subgroup_size.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES;
    features_->subgroup_size.subgroupSizeControl = VK_TRUE;
    features_->subgroup_size.computeFullSubgroups = VK_TRUE;
#ifdef VK_KHR_cooperative_matrix
    features_->matrices.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR;
    features_->matrices.cooperativeMatrix = VK_TRUE;
#endif
    features_->wants_matrices = supported.cooperative_matrix;
#ifdef VK_NV_cooperative_matrix2
    Features::ask_for_elements(features_->elements_nv,
                               VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_2_FEATURES_NV);
#endif
#ifdef VK_EXT_cooperative_matrix_maintenance1
    Features::ask_for_elements(features_->elements_ext,
                               VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_MAINTENANCE_1_FEATURES_EXT);
#endif
    features_->wants_elements_nv = supported.matrix_elements && !supported.matrix_elements_ext;
    features_->wants_elements_ext = supported.matrix_elements_ext;
    features_->integer_dot.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES;
    features_->integer_dot.shaderIntegerDotProduct = VK_TRUE;
    features_->wants_integer_dot = supported.integer_dot;
    features_->timeline.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_TIMELINE_SEMAPHORE_FEATURES;
    features_->timeline.timelineSemaphore = VK_TRUE;
    features_->wants_timeline = supported.timeline_semaphore;
}

DeviceRequirements::DeviceRequirements(DeviceRequirements&&) noexcept = default;
DeviceRequirements& DeviceRequirements::operator=(DeviceRequirements&&) noexcept = default;
DeviceRequirements::~DeviceRequirements() = default;

std::vector<const char*> DeviceRequirements::extensions(bool wished) const {
    std::vector<const char*> out;
    for (const DeviceRequirement& r : list_) {
        if (r.extension && (r.required || wished)) {
            out.push_back(r.name.c_str());
        }
    }
    return out;
}

const void* DeviceRequirements::features(const void* next) { return features_->chain(const_cast<void*>(next)); }

std::string DeviceRequirements::str() const {
    std::string out;
    for (const DeviceRequirement& r : list_) {
        out += std::string(r.required ? "required " : "of use   ") + r.name + ": " + r.buys + "\n";
    }
    return out;
}

void keep_enabled(Capabilities& capabilities, const VkDeviceCreateInfo* created_with) {
    const auto extension = [&](const char* name) {
        return created_with && std::any_of(created_with->ppEnabledExtensionNames,
                                           created_with->ppEnabledExtensionNames + created_with->enabledExtensionCount,
                                           [&](const char* e) { return std::strcmp(e, name) == 0; });
    };
    for (const OptionalPart& e : kExtensions) {
        capabilities.*e.supported = capabilities.*e.supported && extension(e.name);
    }
    Enabled on;
    if (created_with && created_with->pEnabledFeatures) {
        on.add(*created_with->pEnabledFeatures);
    }
    for (auto* s = static_cast<const VkBaseInStructure*>(created_with ? created_with->pNext : nullptr); s;
         s = s->pNext) {
        on.add(s);
    }
    capabilities.storage_image_any_format = capabilities.storage_image_any_format && on.any_format;
    capabilities.int64 = capabilities.int64 && on.int64;
    capabilities.storage_16bit = capabilities.storage_16bit && on.storage_16bit;
    capabilities.integer_dot = capabilities.integer_dot && on.integer_dot;
    capabilities.timeline_semaphore = capabilities.timeline_semaphore && on.timeline;
    capabilities.fast_integer_dot = capabilities.fast_integer_dot && capabilities.integer_dot;
    capabilities.float16 = capabilities.float16 && capabilities.float_controls && on.float16;
    for (const auto keeps :
         {&Capabilities::keeps_special_f32, &Capabilities::keeps_special_f16, &Capabilities::keeps_subnormal_f16}) {
        capabilities.*keeps = capabilities.*keeps && capabilities.float_controls;
    }
    capabilities.cooperative_matrix = capabilities.cooperative_matrix && on.matrices && on.subgroup_size &&
                                      on.full_subgroups && capabilities.float16 && on.memory_model;
    capabilities.matrix_elements = capabilities.matrix_elements && capabilities.cooperative_matrix &&
                                   extension(elements_of(capabilities).extension) &&
                                   (capabilities.matrix_elements_ext ? on.elements_ext : on.elements_nv);
    capabilities.matrix_elements_ext = capabilities.matrix_elements_ext && capabilities.matrix_elements;
    capabilities.cooperative_matrix_int8 =
        capabilities.cooperative_matrix_int8 && capabilities.cooperative_matrix && on.int8;
}

}  // namespace vkf
