// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/instance.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "runtime/base/library.h"
#include "runtime/device/enumerate.h"

namespace vkf {

namespace {

constexpr const char* kValidationLayer = "VK_LAYER_KHRONOS_validation";
// Older layers (Debian 12 has 1.3.239) forget a command buffer's labels without a lock: two threads
// that free theirs at one time crash. Where nothing was labelled, there is nothing to forget.
constexpr std::uint32_t kLabelsLocked = VK_MAKE_API_VERSION(0, 1, 3, 246);

VKAPI_ATTR VkBool32 VKAPI_CALL on_message(VkDebugUtilsMessageSeverityFlagBitsEXT severity,
                                          VkDebugUtilsMessageTypeFlagsEXT,
                                          const VkDebugUtilsMessengerCallbackDataEXT* data, void* user) noexcept {
    try {
        auto* log = static_cast<MessageLog*>(user);
        const char* level = severity >= VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT ? "error: " : "warning: ";
        std::string message = data->pMessage ? data->pMessage : "";
        if (data->pMessageIdName && message.find(data->pMessageIdName) == std::string::npos) {
            // newer layers leave the name out of the text
            message = data->pMessageIdName + (": " + message);
        }
        log->add(level + message);
    } catch (const std::exception&) {  // no memory for it, and nothing may leave through the layer
    }
    return VK_FALSE;
}

VkDebugUtilsMessengerCreateInfoEXT messenger_info(MessageLog& log) {
    VkDebugUtilsMessengerCreateInfoEXT info{};
    info.sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT;
    info.messageSeverity =
        VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT;
    info.messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_TYPE_PERFORMANCE_BIT_EXT;
    info.pfnUserCallback = on_message;
    info.pUserData = &log;
    return info;
}

/// The version of the validation layer; nothing where it is not installed.
std::optional<std::uint32_t> validation_layer(PFN_vkEnumerateInstanceLayerProperties layers) {
    for (const auto& l :
         enumerate<VkLayerProperties>("vkEnumerateInstanceLayerProperties",
                                      [&](std::uint32_t*n, VkLayerProperties*p) { return layers(n, p); })) {
        if (std::strcmp(l.layerName, kValidationLayer) == 0) {
            return l.specVersion;
        }
    }
    return std::nullopt;
}

}  // namespace

void MessageLog::add(std::string message) {
    const std::scoped_lock lock(mutex);
    if (messages_.size() < kMost) {
        messages_.push_back(std::move(message));
    } else {
        ++dropped_;
    }
}

std::vector<std::string> MessageLog::take() {
    const std::scoped_lock lock(mutex);
    if (dropped_ != 0) {
        messages_.push_back("warning: " + std::to_string(dropped_) + " further messages were not kept");
    }
    dropped_ = 0;
    return std::exchange(messages_, {});
}

void MessageLog::tell() noexcept {
    if (!tells) {
        return;
    }
    try {
        for (const std::string& message : take()) {
            std::fprintf(stderr, "vkformer: validation %s\n", message.c_str());
        }
    } catch (const std::exception&) {  // no memory for it
    }
}

PFN_vkGetInstanceProcAddr entry_point(GetInstanceProcAddr given) {
    if (given) {
        return reinterpret_cast<PFN_vkGetInstanceProcAddr>(given);
    }
    static const SharedLibrary loader {
#if defined(_WIN32)
        "vulkan-1.dll"
#elif defined(__APPLE__)
        "libvulkan.dylib", "libvulkan.1.dylib", "libMoltenVK.dylib"
#else
        "libvulkan.so.1", "libvulkan.so"
#endif
    };
    void* symbol = loader ? loader.symbol("vkGetInstanceProcAddr") : nullptr;
    if (!symbol) {
        throw Error(
            "no Vulkan on this machine: the loader (libvulkan) could not be opened; it comes with the GPU's driver, "
            "and in Debian's and Ubuntu's package libvulkan1");
    }
    return reinterpret_cast<PFN_vkGetInstanceProcAddr>(symbol);
}

InstanceCore::~InstanceCore() {
    if (owned) {
        if (messenger) {
            api.vkDestroyDebugUtilsMessengerEXT(handle, messenger, nullptr);
        }
        api.vkDestroyInstance(handle, nullptr);
    }
    log.tell();
}

bool survives_labels(PFN_vkGetInstanceProcAddr get) {
    const auto layers =
        reinterpret_cast<PFN_vkEnumerateInstanceLayerProperties>(get(nullptr, "vkEnumerateInstanceLayerProperties"));
    return !layers || validation_layer(layers).value_or(kLabelsLocked) >= kLabelsLocked;
}

void keep_for_ever(std::shared_ptr<InstanceCore> instance) noexcept {
    static std::atomic<InstanceCore*> last;  // leads to all, which are no leaks then
    InstanceCore& core = *instance;
    core.itself = std::move(instance);
    core.kept_before = last.exchange(&core);
}

std::shared_ptr<InstanceCore> make_instance(GetInstanceProcAddr given, bool validation) {
    const PFN_vkGetInstanceProcAddr get = entry_point(given);
    const auto global = [&]<class F>(F& function, const char* name) {
        function = reinterpret_cast<F>(get(nullptr, name));
    };
    PFN_vkCreateInstance create = nullptr;
    PFN_vkEnumerateInstanceExtensionProperties extensions = nullptr;
    PFN_vkEnumerateInstanceLayerProperties layers = nullptr;
    PFN_vkEnumerateInstanceVersion version = nullptr;
    global(create, "vkCreateInstance");
    global(extensions, "vkEnumerateInstanceExtensionProperties");
    global(layers, "vkEnumerateInstanceLayerProperties");
    global(version, "vkEnumerateInstanceVersion");
    std::uint32_t api_version = VK_API_VERSION_1_0;
    if (create && version) {
        check(version(&api_version), "vkEnumerateInstanceVersion");
    }
    if (!create || !extensions || !layers || !version || api_version < VK_API_VERSION_1_1) {
        throw Error("the Vulkan loader is older than 1.1");
    }

    auto instance = std::make_shared<InstanceCore>();
    std::vector<const char*> wanted_layers;
    std::vector<const char*> wanted;
    const auto has_extension = [&](const char* layer, const char* name) {
        for (const auto& e : enumerate<VkExtensionProperties>(
                 "vkEnumerateInstanceExtensionProperties",
                 [&](std::uint32_t*n, VkExtensionProperties*p) { return extensions(layer, n, p); })) {
            if (std::strcmp(e.extensionName, name) == 0) {
                return true;
            }
        }
        return false;
    };
    VkInstanceCreateFlags flags = 0;
    if (has_extension(nullptr,
                      // layered drivers (MoltenVK) show up too
                      VK_KHR_PORTABILITY_ENUMERATION_EXTENSION_NAME)) {
        wanted.push_back(VK_KHR_PORTABILITY_ENUMERATION_EXTENSION_NAME);
        flags |= VK_INSTANCE_CREATE_ENUMERATE_PORTABILITY_BIT_KHR;
    }
    const VkValidationFeatureEnableEXT enables[] = {VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT};
    VkValidationFeaturesEXT features{VK_STRUCTURE_TYPE_VALIDATION_FEATURES_EXT, nullptr, 1, enables, 0, nullptr};
    VkDebugUtilsMessengerCreateInfoEXT messenger = messenger_info(instance->log);
    bool labels = true;
    if (validation) {
        const std::optional<std::uint32_t> layer = validation_layer(layers);
        if (!layer) {
            throw Error(std::string("validation was asked for, but the layer ") + kValidationLayer +
                        " is not installed");
        }
        labels = *layer >= kLabelsLocked;
        wanted_layers.push_back(kValidationLayer);
        if (has_extension(kValidationLayer, VK_EXT_VALIDATION_FEATURES_EXTENSION_NAME)) {
            wanted.push_back(VK_EXT_VALIDATION_FEATURES_EXTENSION_NAME);
        }
        features.pNext = &messenger;
    }
    if (has_extension(nullptr, VK_EXT_DEBUG_UTILS_EXTENSION_NAME) ||
        (validation && has_extension(kValidationLayer, VK_EXT_DEBUG_UTILS_EXTENSION_NAME))) {
        wanted.push_back(VK_EXT_DEBUG_UTILS_EXTENSION_NAME);
        instance->debug_utils = true;
        instance->labels = labels;
    }
    instance->api_version = std::min<std::uint32_t>(api_version, VK_API_VERSION_1_3);
    const VkApplicationInfo app{
        VK_STRUCTURE_TYPE_APPLICATION_INFO, nullptr, "vkformer", 1, "vkformer", 1, instance->api_version};
    const VkInstanceCreateInfo info{VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                                    validation ? &features : nullptr,
                                    flags,
                                    &app,
                                    static_cast<std::uint32_t>(wanted_layers.size()),
                                    wanted_layers.data(),
                                    static_cast<std::uint32_t>(wanted.size()),
                                    wanted.data()};
    const VkResult result = create(&info, nullptr, &instance->handle);
    if (result == VK_ERROR_INCOMPATIBLE_DRIVER) {
        throw Error(
            "no Vulkan driver on this machine (the loader found none): install the GPU's, or Debian's and Ubuntu's "
            "package mesa-vulkan-drivers, which has one for processors too",
            {}, result);
    }
    check(result, "vkCreateInstance");
    try {
        instance->api = load_instance_table(get, instance->handle);
    } catch (...) {
        const auto destroy = reinterpret_cast<PFN_vkDestroyInstance>(get(instance->handle, "vkDestroyInstance"));
        if (destroy) {
            destroy(instance->handle, nullptr);
        }
        throw;
    }
    instance->owned = true;
    if (validation && instance->api.vkCreateDebugUtilsMessengerEXT) {
        check(instance->api.vkCreateDebugUtilsMessengerEXT(instance->handle, &messenger, nullptr, &instance->messenger),
              "vkCreateDebugUtilsMessengerEXT");
    }
    return instance;
}

}  // namespace vkf
