// SPDX-License-Identifier: Apache-2.0
// What a Device, and everything made from it, stands on.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/device.h"
#include "runtime/pipeline.h"
#include "runtime/vulkan.h"

namespace vkf {

class Deferred;

/// Validation messages, collected by the messenger of an instance.
struct MessageLog {
    std::mutex mutex;
    std::vector<std::string> messages;
};

/// An instance of our own, or a host's.
struct InstanceCore {
    InstanceTable api;
    VkInstance handle = VK_NULL_HANDLE;
    std::uint32_t api_version = VK_API_VERSION_1_1;  ///< it was made for; a host's does not tell
    bool owned = false;
    bool debug_utils = false;
    VkDebugUtilsMessengerEXT messenger = VK_NULL_HANDLE;
    MessageLog log;

    ~InstanceCore();
};

/// The host's entry point, or that of the loader, which is opened. Throws when there is none.
PFN_vkGetInstanceProcAddr entry_point(GetInstanceProcAddr given);
/// Makes an instance. Throws when there is no loader, no driver, or no validation layer where it is asked for.
std::shared_ptr<InstanceCore> make_instance(GetInstanceProcAddr get, bool validation);

struct DeviceCore {
    std::shared_ptr<InstanceCore> instance;
    DeviceTable api;
    VkPhysicalDevice physical = VK_NULL_HANDLE;
    VkDevice handle = VK_NULL_HANDLE;
    bool owned = false;
    std::uint32_t queue_family = 0;
    VkQueue queue = VK_NULL_HANDLE;
    std::mutex queue_mutex;
    BorrowedDevice host;  ///< lock functions of a borrowed queue
    Capabilities capabilities;
    VkPhysicalDeviceMemoryProperties memory{};
    DeviceOptions options;
    double submit_budget = 0;        ///< as DeviceOptions says, decided for this device
    std::atomic<bool> lost = false;  ///< sticky: every later call throws
    std::unique_ptr<PipelineStore> pipelines;
    std::unique_ptr<Deferred> deferred;  ///< of a device without a queue of ours; else null

    DeviceCore();
    ~DeviceCore();

    /// Submits and remembers a lost device. `fence` may be null.
    void submit(VkCommandBuffer commands, VkFence fence);
    /// Submits and waits until done.
    void submit_and_wait(VkCommandBuffer commands);
    /// Throws when it fails; then nothing is pending any more.
    void wait(VkFence fence);
    /// Waits for everything submitted, whatever became of it.
    void wait_idle() noexcept;
    /// Throws when the device was lost before.
    void check_alive() const;
    /// Like check(), and remembers VK_ERROR_DEVICE_LOST.
    void check_result(VkResult result, const char* call);
    VkFence make_fence();
    /// Names a Vulkan object for debuggers and validation messages; does nothing where debug utils are absent.
    void name(VkObjectType type, std::uint64_t handle, const std::string& name) const;
};

constexpr std::uint32_t kAnyFamily = ~0u;

/// Reads properties and features, with queues of that family; kAnyFamily becomes the one to use. nullopt when the device or the
/// family is unusable here.
std::optional<Capabilities> query_capabilities(const InstanceTable& api, VkPhysicalDevice physical,
                                               std::uint32_t& queue_family, std::uint32_t instance_version);

/// True where the device offers the extension.
bool has_extension(const InstanceTable& api, VkPhysicalDevice physical, const char* name);

/// One structure of what VkPhysicalDeviceFeatures2 chains, as the device fills it.
template <class Features>
Features features_of(const InstanceTable& api, VkPhysicalDevice physical, VkStructureType type) {
    Features out{};
    out.sType = type;
    VkPhysicalDeviceFeatures2 all{};
    all.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
    all.pNext = &out;
    api.vkGetPhysicalDeviceFeatures2(physical, &all);
    return out;
}

/// The same of VkPhysicalDeviceProperties2.
template <class Properties>
Properties properties_of(const InstanceTable& api, VkPhysicalDevice physical, VkStructureType type) {
    Properties out{};
    out.sType = type;
    VkPhysicalDeviceProperties2 all{};
    all.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2;
    all.pNext = &out;
    api.vkGetPhysicalDeviceProperties2(physical, &all);
    return out;
}

/// Sets what Capabilities says of cooperative matrices; `c` has its subgroup_size already.
void query_matrices(const InstanceTable& api, VkPhysicalDevice physical, Capabilities& c);

template <class Handle>
std::uint64_t handle_bits(Handle h) {
    if constexpr (std::is_pointer_v<Handle>) {
        return reinterpret_cast<std::uint64_t>(h);
    } else {
        return h;
    }
}

}  // namespace vkf
