// SPDX-License-Identifier: Apache-2.0
// A VkDevice, our own or a host's, with its queue.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "runtime/compile/capabilities.h"
#include "runtime/device/borrowed_device.h"
#include "runtime/device/device_options.h"
#include "runtime/device/instance.h"
#include "runtime/device/status.h"
#include "runtime/device/vulkan.h"

namespace vkf {

/// A condition that stays once it is there, and that Device::give_up_all() brings about for every
/// device made before: without locks, for a fork may come while another thread holds one.
class Sticky {
public:
    Sticky& operator=(bool set) noexcept {
        set_ = set_ || set;
        return *this;
    }
    operator bool() const noexcept { return set_ || made_in_ != era; }

    /// True where Device::give_up_all() brought it about.
    bool of_an_earlier_era() const noexcept { return made_in_ != era; }

    static inline std::atomic<std::uint32_t> era = 0;

private:
    std::atomic<bool> set_ = false;
    std::uint32_t made_in_ = era;
};

struct VulkanDevice {
    std::shared_ptr<InstanceCore> instance;
    DeviceTable api;
    VkPhysicalDevice physical = VK_NULL_HANDLE;
    VkDevice handle = VK_NULL_HANDLE;
    bool owned = false;
    std::uint32_t queue_family = 0;
    VkQueue queue = VK_NULL_HANDLE;
    std::mutex queue_mutex;  ///< locked behind the host's own lock, which may be held already
    BorrowedDevice host;     ///< lock functions of a borrowed queue
    Capabilities capabilities;
    /// VkPhysicalDeviceIDProperties::deviceUUID, which tells two devices of one model apart; not
    /// among the capabilities, which reports show
    std::array<std::uint8_t, 16> uuid{};
    VkPhysicalDeviceMemoryProperties memory{};
    bool tells_budgets = false;                ///< VK_EXT_memory_budget
    std::atomic<std::uint64_t> allocated = 0;  ///< bytes of Block, without those of a host's hooks
    std::atomic<std::uint64_t> outside = 0;    ///< DeviceMemory::outside
    DeviceOptions options;
    /// the budget of DeviceOptions, or the one that fits this device so far; 0: no limit
    std::atomic<double> submit_budget = 0;
    bool learns_budget = false;   ///< the options left it to us
    std::uint64_t submitted = 0;  ///< the number of the last submission, guarded by queue_mutex
    /// Up to which submission all had ended when it was looked last.
    struct Ended {
        std::uint64_t number = 0;
        std::chrono::steady_clock::time_point at;
    } ended;
    std::mutex ended_mutex;  ///< guards `ended`; nothing else is waited for under it
    bool canary = false;     ///< submissions are asked whether they ran (memory.h)
    Sticky lost;             ///< every later call throws
    /// lost too: what was submitted may still be at work, so nothing is destroyed
    Sticky given_up;
    std::uint64_t wait_limit = ~std::uint64_t{0};  ///< in nanoseconds

    VulkanDevice() = default;
    VulkanDevice(const VulkanDevice&) = delete;
    VulkanDevice& operator=(const VulkanDevice&) = delete;
    ~VulkanDevice();  // destroys an own device, unless it was given up

    /// A submission's number, they begin with 1, and the times between which it was handed over.
    struct Submission {
        std::uint64_t number = 0;
        std::chrono::steady_clock::time_point before, behind;
    };
    /// Submits and remembers a lost device. `fence` may be null, and `timeline`, which is given the
    /// value when it is done.
    Submission submit(VkCommandBuffer commands, VkFence fence, VkSemaphore timeline = VK_NULL_HANDLE,
                      std::uint64_t value = 0);
    /// All submissions up to this one have ended by now. Gives what was known of that before.
    Ended end(std::uint64_t number) noexcept;
    /// Where submit_budget is ours to learn, learns it from work that took `least` to `most`
    /// seconds.
    void learn_budget(double work, double least, double most) noexcept;
    /// Submits and waits until done.
    void submit_and_wait(VkCommandBuffer commands);
    /// Throws when it fails; then nothing is pending any more, or the device is given up.
    void wait(VkFence fence);
    /// Waits for everything submitted, whatever became of it. Gives the device up where it cannot
    /// wait.
    void wait_idle() noexcept;
    /// Throws when the device was lost before.
    void check_alive() const;
    /// Says the same where nothing may throw.
    Status alive() const noexcept;
    /// Remembers VK_ERROR_DEVICE_LOST.
    void heard(VkResult result) noexcept;
    /// Does what check() does, and remembers VK_ERROR_DEVICE_LOST.
    void check_result(VkResult result, const char* call);
    /// 0: no limit.
    void set_wait_limit(double seconds) noexcept;
    VkFence make_fence();
    /// Names a Vulkan object for debuggers and validation messages; does nothing where debug utils
    /// are absent.
    void name(VkObjectType type, std::uint64_t object, const std::string& text) const;
};

}  // namespace vkf
