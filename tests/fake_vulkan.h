// SPDX-License-Identifier: Apache-2.0
// A layer of our own between the library and the loader: counts calls, makes them fail, and puts
// other functions in their place. DeviceOptions::get_instance_proc_addr takes its entry().
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <type_traits>

#include "runtime/device/device.h"
#include "runtime/device/vulkan.h"
#include "tests/allocations.h"

namespace fake {

/// The real vkGetInstanceProcAddr; null on a machine without a Vulkan loader.
PFN_vkGetInstanceProcAddr loader();

template <class Function>
class Hook;

/// One Vulkan function.
template <class R, class... A>
class Hook<R(VKAPI_PTR*)(A...)> {
public:
    using Function = R(VKAPI_PTR*)(A...);
    static constexpr bool kGivesResult = std::is_same_v<R, VkResult>;

    Function real = nullptr;
    /// Called in place of the real one, when set.
    std::function<R(A...)> instead;
    std::atomic<std::uint64_t> calls = 0;
    /// A failing call reaches the real function first, without which nothing could go on: a command
    /// buffer that could not be ended is none that is being recorded.
    bool fails_after = false;

    /// The nth call from now, and as many in all as `times` says, give `result` and reach nobody.
    void fail(VkResult result, std::uint64_t nth = 1, std::uint64_t times = 1) {
        static_assert(std::is_same_v<R, VkResult>);
        result_ = result;
        first_failing_ = calls + nth;
        failing_ = times;
    }

    R operator()(A... arguments) {
        const allocations::Pause pause;
        const std::uint64_t call = ++calls;
        if constexpr (std::is_same_v<R, VkResult>) {
            if (failing_ != 0 && call >= first_failing_ && call - first_failing_ < failing_) {
                if (fails_after) {
                    real(arguments...);
                }
                return result_;
            }
        }
        return instead ? instead(arguments...) : real(arguments...);
    }

private:
    VkResult result_ = VK_SUCCESS;
    std::uint64_t first_failing_ = 0, failing_ = 0;
};

#define FAKE_GLOBAL_FUNCTIONS(X)              \
    X(vkCreateInstance)                       \
    X(vkEnumerateInstanceExtensionProperties) \
    X(vkEnumerateInstanceLayerProperties)     \
    X(vkEnumerateInstanceVersion)

#define FAKE_FUNCTIONS(X)              \
    FAKE_GLOBAL_FUNCTIONS(X)           \
    VKF_INSTANCE_FUNCTIONS(X)          \
    VKF_INSTANCE_FUNCTIONS_OPTIONAL(X) \
    VKF_DEVICE_FUNCTIONS(X)            \
    VKF_DEVICE_FUNCTIONS_OPTIONAL(X)

/// One lives at a time, and longer than what is made through it.
class Vulkan {
public:
    Vulkan();
    ~Vulkan();
    Vulkan(const Vulkan&) = delete;
    Vulkan& operator=(const Vulkan&) = delete;

    vkf::GetInstanceProcAddr entry() const;

#define FAKE_MEMBER(name) Hook<PFN_##name> name;
    FAKE_FUNCTIONS(FAKE_MEMBER)
#undef FAKE_MEMBER

    /// Objects made and not yet destroyed: 0 when nothing leaked.
    std::int64_t live_objects() const { return live_objects_; }
    /// Bytes of the buffers that exist, and of the largest and of all allocations.
    std::uint64_t buffer_bytes() const;
    std::uint64_t allocated_bytes() const;

    /// Changes what the device says of its limits.
    void change_limits(std::function<void(VkPhysicalDeviceLimits&)> change);

    // for the layer itself
    void count_object(int change) { live_objects_ += change; }
    void note_buffer(VkBuffer buffer, std::uint64_t bytes);
    void note_memory(VkDeviceMemory memory, std::uint64_t bytes);

private:
    std::atomic<std::int64_t> live_objects_ = 0;
    mutable std::mutex mutex_;
    std::map<VkBuffer, std::uint64_t> buffers_;
    std::map<VkDeviceMemory, std::uint64_t> memory_;
};

}  // namespace fake
