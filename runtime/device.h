// SPDX-License-Identifier: Apache-2.0
// A Vulkan device: our own, or the host's, borrowed.
#pragma once

#include <array>
#include <cstddef>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "capabilities.h"
#include "graph.h"
#include "host_tensor.h"
#include "shared_buffer.h"
#include "vulkan_handles.h"
#include "weights.h"

struct AHardwareBuffer;

namespace vkf {

class Program;
struct CompileOptions;
struct DeviceCore;

struct DeviceOptions {
    /// Which device: an index into Device::list(), or part of its name (any case). Empty: the environment's
    /// VKFORMER_DEVICE, else the first of discrete, integrated, virtual, CPU.
    std::string select = {};
    /// Run under the Khronos validation layer with synchronization validation; messages are kept, see Device::messages().
    /// Throws when the layer is not installed. VKFORMER_VALIDATION=1 asks for it too.
    bool validation = false;
    /// Believe only what Vulkan 1.1 guarantees. VKFORMER_PROFILE=minimum asks for it too.
    bool minimum_profile = false;
    /// Where compiled pipelines are kept between runs; empty: the user's cache folder. VKFORMER_PIPELINE_CACHE=0 turns it off.
    std::filesystem::path cache_folder = {};
    /// Largest staging memory; larger uploads are streamed through it. Bytes.
    std::uint64_t staging_bytes = 16u << 20;
    /// Most work in one submission, in operations plus bytes; longer runs are split. 0: no bound. Not given: none on
    /// processors, which have no watchdog; elsewhere what suits a GPU of 1 TFLOP/s under a 2 s watchdog with room.
    std::optional<double> submit_budget = {};
    /// Wrong use of Program::record() is looked for as far as its arguments tell, see CompileOptions::checked; every program of the
    /// device. VKFORMER_CHECKED=1 asks for it too.
    bool checked = false;
    /// "name=number" with commas between: kernels as measured, not as capabilities suggest (tunables()). Empty: what save_tuning() kept
    /// in the cache folder; "0": as capabilities suggest. VKFORMER_TUNING is stronger.
    std::string tuning = {};
    /// The loader's entry point; null: libvulkan is opened.
    GetInstanceProcAddr get_instance_proc_addr = nullptr;
};

/// What one piece of device memory is for.
struct MemoryRequest {
    std::uint64_t bytes = 0;
    std::uint64_t alignment = 1;
    std::uint32_t type_bits = 0;  ///< VkMemoryRequirements::memoryTypeBits
    std::uint32_t need = 0;       ///< VkMemoryPropertyFlags it must have; HOST_VISIBLE: `mapped` is to be set
    std::uint32_t wish = 0;       ///< and those that are of use
    const char* purpose = "";     ///< "weights", "layer scratch", ...
};

struct MemoryPiece {
    VkDeviceMemory memory{};
    std::uint64_t offset = 0;
    void* mapped = nullptr;  ///< where the host sees the piece's first byte
    void* tag = nullptr;     ///< the host's own
};

/// Where a host wants device memory to come from, for example an allocator it has already.
struct MemoryHooks {
    /// Returns a VkResult. May be called by several threads at once, never by record().
    int (*allocate)(void* user, const MemoryRequest& request, MemoryPiece* piece) = nullptr;
    void (*release)(void* user, const MemoryPiece& piece) = nullptr;  ///< does not throw
    void* user = nullptr;
};

/// A host's device. Nothing here is destroyed by us; it must outlive everything made from the Device.
struct BorrowedDevice {
    VkInstance instance = nullptr;
    VkPhysicalDevice physical = nullptr;
    VkDevice device = nullptr;
    std::uint32_t queue_family = 0;
    /// Our uploads and run() use this queue; null: queue 0 of the family. Give `lock` when the host submits to it as well.
    VkQueue queue = nullptr;
    /// No queue is ours: load(), make_state(), State::clear() and Program::allocate() note what is to be copied, and
    /// Device::record_upload() records it; run() throws.
    bool without_queue = false;
    /// Called around each of our submissions to the borrowed queue, and while we wait for it to be idle, when set: both or none.
    void (*lock)(void* user) = nullptr;
    void (*unlock)(void* user) = nullptr;
    void* user = nullptr;
    /// What the host gave vkCreateDevice: the extensions and features in it are used, no others. Read by borrow() alone.
    const VkDeviceCreateInfo* created_with = nullptr;
    GetInstanceProcAddr get_instance_proc_addr = nullptr;
    /// VK_EXT_debug_utils is enabled on the instance: what is recorded and made is labelled.
    bool debug_utils = false;
    /// The host's, not externally synchronized: pipelines are made with it, and none is read from or written to disk.
    VkPipelineCache pipeline_cache{};
    MemoryHooks memory = {};
    /// Held until the last call of a hook or lock: what they work on, where nothing else keeps it.
    std::shared_ptr<const void> keep = {};
};

/// One thing a device can do that a host must, or may, turn on before vkformer borrows it.
struct DeviceRequirement {
    std::string name;       ///< an extension, or "Struct::member" of a feature
    bool required = false;  ///< without it borrow() or what was asked of the device fails; else it is of use
    std::string buys;
    bool extension = false;  ///< else a feature
};

/// What to put into VkDeviceCreateInfo: only what the device has.
class VKF_API DeviceRequirements {
public:
    const std::vector<DeviceRequirement>& list() const noexcept { return list_; }
    /// Names for ppEnabledExtensionNames, as long as this object lives; without the wished for ones when `wished` is false.
    std::vector<const char*> extensions(bool wished = true) const;
    /// Feature structs to chain in VkDeviceCreateInfo::pNext, ending in `next`; they live in this object. The first is a
    /// VkPhysicalDeviceFeatures2, so pEnabledFeatures stays null. A host with a chain of its own sets the members list() names.
    const void* features(const void* next = nullptr);
    /// A line for each, for people.
    std::string str() const;

    explicit DeviceRequirements(const Capabilities& supported);
    DeviceRequirements(DeviceRequirements&&) noexcept;
    DeviceRequirements& operator=(DeviceRequirements&&) noexcept;
    ~DeviceRequirements();

private:
    struct Features;
    std::vector<DeviceRequirement> list_;
    std::unique_ptr<Features> features_;
};

/// Mapped, or otherwise written, memory of a host from which uploads are copied.
struct StagingRange {
    VkBuffer buffer{};         ///< with VK_BUFFER_USAGE_TRANSFER_SRC_BIT
    std::uint64_t offset = 0;  ///< a multiple of 4
    std::uint64_t bytes = 0;
    void* mapped =
        nullptr;  ///< where the host sees the range's first byte; coherent, or flushed by the host before it submits
};

/// What a call that neither throws nor allocates says.
struct Status {
    int result = 0;  ///< 0: done; otherwise a VkResult, or -1 for wrong use
    std::array<char, 240> message{};
    explicit operator bool() const noexcept { return result == 0; }
    /// As Error::result() has it: 0 where it was not Vulkan.
    int error_result() const noexcept { return result == -1 ? 0 : result; }
};

/// May be used by several threads at once. Copies share the device; it is destroyed after the last object made from it.
class VKF_API Device {
public:
    /// Every usable device (Vulkan 1.1, a compute queue), in the loader's order. Throws when there is no Vulkan at all.
    static std::vector<Capabilities> list(GetInstanceProcAddr get = nullptr);
    static Device create(const DeviceOptions& options = {});
    static Device borrow(const BorrowedDevice& host, const DeviceOptions& options = {});
    /// What a host that will lend this device should enable at vkCreateDevice. Throws when the device is not usable at all:
    /// no Vulkan 1.1, no compute queue.
    static DeviceRequirements requirements(VkInstance instance, VkPhysicalDevice physical,
                                           GetInstanceProcAddr get = nullptr);

    const Capabilities& capabilities() const noexcept;

    /// Uploads tensors under their names. Throws when memory does not suffice, saying what was asked and what there was.
    /// Tensors of F16 and BF16 stand for fp32 numbers: graphs declare them F32. Matrices of them stay as they are, or become what the
    /// options say; anything else of them is widened to fp32. A packed matrix may be linear()'s weight and embedding()'s table.
    Weights load(std::span<const HostTensor> tensors, const LoadOptions& options = {}) const;
    /// Memory for every state the graphs name, zeroed; programs compiled with it share it.
    State make_state(std::span<const Graph* const> graphs) const;
    State make_state(std::initializer_list<const Graph*> graphs) const;

    /// Lowers, schedules, plans memory and builds pipelines. Throws vkf::Error naming the weight that is missing or has
    /// another shape. No tensor memory is allocated until Program::allocate(), upload() or run().
    Program compile(const Graph& graph, const Weights& weights, const CompileOptions& options) const;
    Program compile(const Graph& graph, const Weights& weights = {}) const;

    /// For a device borrowed without a queue. Copies as much of what waits for upload as fits into `staging` there and records
    /// the copies; `commands` is begun, outside a render pass, of the device's queue family, and submitted before the
    /// recordings that need them. Until they have been executed the staging range must not be written again, and Weights and
    /// States live. Repeat until pending_uploads() is 0; record() of what still waits is refused. Zeros need no staging.
    Status record_upload(VkCommandBuffer commands, const StagingRange& staging) const noexcept;
    /// Bytes that wait for record_upload().
    std::uint64_t pending_uploads() const noexcept;

    /// A buffer of its own allocation that other devices and processes can be given: export_fd(). Needs
    /// VK_KHR_external_memory_fd.
    SharedBuffer make_shared_buffer(std::uint64_t bytes) const;
    /// A shared buffer of the same driver and size, by the descriptor its owner exported; the descriptor is taken over when no
    /// error is thrown.
    SharedBuffer import_fd(int descriptor, std::uint64_t bytes) const;
    /// Host memory that the device is to see, aligned in place and size to shared_host_alignment(); it must outlive the buffer.
    /// Needs VK_EXT_external_memory_host.
    SharedBuffer import_host(std::span<std::byte> memory) const;
    std::uint64_t shared_host_alignment() const;
    /// Android's buffers of format BLOB. Needs VK_ANDROID_external_memory_android_hardware_buffer.
    SharedBuffer import_hardware_buffer(AHardwareBuffer* buffer) const;

    /// Validation messages of warning or worse since the last call, and forgets them. Empty without validation.
    std::vector<std::string> messages() const;
    /// Pipelines made so far.
    std::size_t pipelines() const;
    /// Writes the pipeline cache now (it is also written when the device is destroyed). False when there is nowhere to write.
    bool save_pipeline_cache() const;

    DeviceCore& core() const noexcept { return *core_; }

private:
    explicit Device(std::shared_ptr<DeviceCore> core) : core_(std::move(core)) {}
    std::shared_ptr<DeviceCore> core_;
};

}  // namespace vkf
