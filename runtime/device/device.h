// SPDX-License-Identifier: Apache-2.0
// A Vulkan device: our own, or the host's, borrowed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "../compile/capabilities.h"
#include "../graph/graph.h"
#include "../graph/host_tensor.h"
#include "borrowed_device.h"
#include "device_options.h"
#include "device_tensor.h"
#include "requirements.h"
#include "self_test.h"
#include "state.h"
#include "status.h"
#include "vulkan_handles.h"
#include "weights.h"

struct AHardwareBuffer;

namespace vkf {

class Program;
class SharedBuffer;
struct CompileOptions;
struct DeviceCore;
struct Plan;

/// Memory of a device, in bytes.
struct DeviceMemory {
    /// what was allocated for this device and not yet given back, by the library, not by a host's
    /// allocator; with buffers of make_shared_buffer(), and without memory that was imported
    std::uint64_t allocated = 0;
    /// of these, what kernels work on and yet lies in the host's memory, because the device's was
    /// full: it is slow there, explain() says so
    std::uint64_t outside = 0;
    std::uint64_t heap = 0;  ///< the largest heap of device-local memory
    /// What the process may have in that heap before it gets slow, and what it has
    /// (VK_EXT_memory_budget). 0: not told.
    std::uint64_t budget = 0, used = 0;
};

/// A device may be used by several threads at once. Copies share the device; it is destroyed after
/// the last object made from it.
class VKF_API Device {
public:
    Device(const Device&) = default;  // and no moves: there is always a device
    Device& operator=(const Device&) = default;

    /// Lists every usable device (Vulkan 1.1, a compute queue), in the loader's order. `broken`
    /// gets a text for each whose driver could not be asked what it can do. Throws when there is no
    /// Vulkan at all, or none is usable and at least one could not be asked; then `broken` is left
    /// as it was.
    static std::vector<Capabilities> list(GetInstanceProcAddr get = nullptr,
                                          std::vector<std::string>* broken = nullptr);
    /// Makes a device of our own. Throws Error where none is usable or none has the name asked for.
    static Device create(const DeviceOptions& options = {});
    /// Uses a host's device. Throws Error naming what it lacks.
    static Device borrow(const BorrowedDevice& host, const DeviceOptions& options = {});
    /// Says what a host that will lend this device should enable at vkCreateDevice. Throws when the
    /// device is not usable at all: no Vulkan 1.1, no compute queue.
    static DeviceRequirements requirements(VkInstance instance, VkPhysicalDevice physical,
                                           GetInstanceProcAddr get = nullptr);

    /// Gives up every device that this process has made so far: each is lost, and nothing of it is
    /// waited for or destroyed. For the child of a fork(), which does not have the threads of the
    /// drivers, nor those that held a lock. Devices made later are not concerned.
    static void give_up_all() noexcept;

    const Capabilities& capabilities() const noexcept;
    /// Asks how much memory there is and what is in use, as of now.
    DeviceMemory memory_use() const;

    /// Uploads tensors under their names. Throws when memory does not suffice, saying what was
    /// asked and what there was. Tensors of F16 and BF16 stand for fp32 numbers: graphs declare
    /// them F32. Such matrices stay as they are, or become what the options say; other F16 and BF16
    /// tensors are widened to fp32. A packed matrix may be linear()'s weight and embedding()'s
    /// table.
    Weights load(std::span<const HostTensor> tensors, const LoadOptions& options = {}) const;
    /// Uploads tensors for programs of this graph: weights that one launch reads together, such as
    /// those of queries, keys and values, lie behind each other in memory. The graph is not kept.
    Weights load(const Graph& graph, std::span<const HostTensor> tensors, const LoadOptions& options = {}) const;
    /// Uploads tensors as was planned: make_weight_layout() gave this layout for these tensors and
    /// this device. Throws Error naming a tensor that the layout lacks or has otherwise, or that it
    /// has and that is not given.
    Weights load(std::span<const HostTensor> tensors, const WeightLayout& layout, const LoadProgress& progress = {},
                 PackOn pack_on = PackOn::by_device) const;
    /// Makes zeroed memory for every state the graphs name; programs compiled with it share it.
    State make_state(std::span<const Graph* const> graphs) const;
    State make_state(std::initializer_list<const Graph*> graphs) const;
    /// Makes a tensor for Program::bind(), of F32, F16, BF16 or I32. Its elements are undefined
    /// until something writes them. Throws Error for other types and negative sizes, where memory
    /// does not suffice, and on a device for which the host submits.
    DeviceTensor make_tensor(std::vector<std::int64_t> shape, DType dtype = DType::f32) const;

    /// Lowers, schedules, plans memory and builds pipelines. A kernel that the driver refuses is
    /// left out, and the program planned again with the next, which explain() says; the last that
    /// there is, or one that VKFORMER_VARIANT asks for, is an error. Throws vkf::Error naming the
    /// weight that is missing or has another shape. No tensor memory is allocated until
    /// Program::allocate(), upload() or run().
    Program compile(const Graph& graph, const Weights& weights, const CompileOptions& options) const;
    Program compile(const Graph& graph, const Weights& weights = {}) const;
    /// Compiles before a byte of weights is read: Program::set_weights() gives them later.
    Program compile(const Graph& graph, const WeightLayout& weights, const CompileOptions& options) const;
    /// Compiles a plan that make_plan() made for this device's capabilities. The plan settles
    /// arithmetic and rewrites, so these members of `options` are ignored. Where the plan names
    /// weights, Program::set_weights() gives them.
    Program compile(Plan plan, const CompileOptions& options) const;

    /// Writes as much of what waits for upload as fits into `staging`, and records the copies from
    /// there, on a device borrowed with BorrowedDevice::host_submits. `commands` must be begun,
    /// outside a render pass, of the device's queue family, and submitted before the recordings
    /// that need the data. Until the copies have been executed, the host must not write the staging
    /// range again, and Weights and States must live. Repeat until pending_uploads() is 0: record()
    /// refuses a program whose data still waits. Zeros need no staging.
    Status record_upload(VkCommandBuffer commands, const StagingRange& staging) const noexcept;
    /// Bytes that wait for record_upload().
    std::uint64_t pending_uploads() const noexcept;
    /// Bytes that record_upload() has recorded in all, also those that were dropped: a position for
    /// uploads_finished().
    std::uint64_t recorded_uploads() const noexcept;
    /// Tells that everything recorded before recorded_uploads() was `recorded` has been executed,
    /// and need not be kept any longer (BorrowedDevice::keep_uploads). Positions of before the last
    /// uploads_dropped() say nothing any more, so frames that come to their end late do no harm.
    void uploads_finished(std::uint64_t recorded) const noexcept;
    /// Tells that what was recorded since the last position that uploads_finished() was told is not
    /// and will not be executed, as when its command buffer was dropped: it waits again, and
    /// record() refuses programs that need it. Frames that were submitted and have not come to
    /// their end must be waited for and told first, or they are copied once more. Fails where
    /// BorrowedDevice::keep_uploads was not set: nothing is kept then. Where the library submits
    /// uploads itself there is nothing to tell, and it does nothing.
    Status uploads_dropped() const noexcept;

    /// Makes a buffer with an allocation of its own, which SharedBuffer::export_fd() gives to other
    /// devices and processes. Needs VK_KHR_external_memory_fd.
    SharedBuffer make_shared_buffer(std::uint64_t bytes) const;
    /// Imports a shared buffer by the file descriptor that its owner exported, with the same driver
    /// and size. Takes ownership of the descriptor unless it throws, as for a pipe, a socket, a
    /// folder or a file that is too small. The buffer keeps one open.
    SharedBuffer import_fd(int descriptor, std::uint64_t bytes) const;
    /// Lets the device see host memory. Its address and size must be multiples of
    /// shared_host_alignment(), and it must outlive the buffer. Needs VK_EXT_external_memory_host.
    SharedBuffer import_host(std::span<std::byte> memory) const;
    std::uint64_t shared_host_alignment() const;
    /// Imports an Android hardware buffer of format BLOB. Needs
    /// VK_ANDROID_external_memory_android_hardware_buffer.
    SharedBuffer import_hardware_buffer(AHardwareBuffer* buffer) const;

    /// The kernels that no program is given: those of Capabilities::left_out, those of which the
    /// driver made no pipeline when a program was compiled, and those that self_test() found wrong.
    std::vector<LeftOut> left_out() const;
    /// Runs the kernels that the device would choose on small inputs, and compares with double
    /// precision on the processor; defined in doctor/self_test.h. Those that fail are left out of
    /// the programs that this device compiles from now on. Not for a device for which the host
    /// submits: throws Error.
    SelfTest self_test(const SelfTestOptions& options = {}) const;

    /// Returns the validation messages of warning or worse since the last call, and forgets them.
    /// Empty without validation. Of more than 1000 a last one says how many were not kept. Where
    /// VKFORMER_VALIDATION asked, what nobody took is printed to stderr when the device goes.
    std::vector<std::string> messages() const;
    /// Writes what is new in the pipeline cache now (it is also written when the device is
    /// destroyed). False when there is nowhere to write, or when it could not be written.
    bool save_pipeline_cache() const;

private:
    friend struct Insides;
    explicit Device(std::shared_ptr<DeviceCore> core) : core_(std::move(core)) {}
    std::shared_ptr<DeviceCore> core_;
};

}  // namespace vkf
