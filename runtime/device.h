// SPDX-License-Identifier: Apache-2.0
// A Vulkan device: our own, or the host's, borrowed.
#pragma once

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
#include "vulkan_handles.h"
#include "weights.h"

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
    /// The loader's entry point; null: libvulkan is opened.
    GetInstanceProcAddr get_instance_proc_addr = nullptr;
};

/// A host's device. Nothing here is destroyed by us; it must outlive everything made from the Device.
struct BorrowedDevice {
    VkInstance instance = nullptr;
    VkPhysicalDevice physical = nullptr;
    VkDevice device = nullptr;
    std::uint32_t queue_family = 0;
    /// Our uploads and run() use this queue; null: queue 0 of the family. Give `lock` when the host submits to it as well.
    VkQueue queue = nullptr;
    /// Called around each of our submissions to the borrowed queue, when set.
    void (*lock)(void* user) = nullptr;
    void (*unlock)(void* user) = nullptr;
    void* user = nullptr;
    /// What the host enabled at vkCreateDevice; told, not guessed.
    bool storage_16bit = false;
    GetInstanceProcAddr get_instance_proc_addr = nullptr;
};

/// May be used by several threads at once. Copies share the device; it is destroyed after the last object made from it.
class VKF_API Device {
public:
    /// Every usable device (Vulkan 1.1, a compute queue), in the loader's order. Throws when there is no Vulkan at all.
    static std::vector<Capabilities> list(GetInstanceProcAddr get = nullptr);
    static Device create(const DeviceOptions& options = {});
    static Device borrow(const BorrowedDevice& host, const DeviceOptions& options = {});

    const Capabilities& capabilities() const noexcept;

    /// Uploads tensors under their names. Throws when memory does not suffice, saying what was asked and what there was.
    Weights load(std::span<const HostTensor> tensors) const;
    /// Memory for every state the graphs name, zeroed; programs compiled with it share it.
    State make_state(std::initializer_list<const Graph*> graphs) const;

    /// Lowers, schedules, plans memory and builds pipelines. Throws vkf::Error naming the weight that is missing or has
    /// another shape. No tensor memory is allocated until Program::allocate(), upload() or run().
    Program compile(const Graph& graph, const Weights& weights, const CompileOptions& options) const;
    Program compile(const Graph& graph, const Weights& weights = {}) const;

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
