// SPDX-License-Identifier: Apache-2.0
// A program's Vulkan side.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "runtime/device_core.h"
#include "runtime/memory.h"
#include "runtime/plan.h"
#include "runtime/program.h"

namespace vkf {

/// Where a storage lies once memory is there.
struct Place {
    VkBuffer buffer = VK_NULL_HANDLE;
    std::uint64_t offset = 0;
};

/// Where recording goes on: run() changes the command buffer when a submission is full.
struct Sink {
    VkCommandBuffer commands = VK_NULL_HANDLE;
    /// Called between dispatches once `budget` is used up; gives the command buffer to go on with. Null: never.
    VkCommandBuffer (*next)(void* user, VkCommandBuffer full) = nullptr;
    void* user = nullptr;
    double budget = 0;                     ///< operations plus bytes in one submission; 0: no bound
    VkQueryPool queries = VK_NULL_HANDLE;  ///< two timestamps a dispatch, when set
};

struct InputState {
    StorageId storage = 0;
    std::uint64_t uploaded_elements = 0;
    std::array<std::int64_t, kMaxRank> uploaded_shape{};
    bool uploaded = false;
    bool dirty = false;  ///< the mirror is newer than the device
};

/// What record() works with, one a slot, so that slots can be recorded side by side without allocating.
struct RecordScratch {
    std::vector<std::int64_t> sizes;
    std::vector<Place> places;
};

struct ProgramCore {
    std::shared_ptr<DeviceCore> device;
    Plan plan;
    CompileOptions options;
    Weights weights;
    State state;

    std::vector<std::vector<const Pipeline*>> pipelines;  ///< [dispatch][kernel]
    std::vector<std::int64_t> sizes;                      ///< current value of each symbol

    // memory, made by allocate()
    bool allocated = false;
    Block arena, constants, io, upload_mirror, readback_mirror;
    std::vector<Place> places;             ///< of every storage but inputs and outputs
    std::vector<std::uint64_t> io_offset;  ///< of inputs and outputs in `io`; the mirrors hold one part each
    std::uint64_t outputs_at = 0;          ///< in `io`: the outputs lie after the inputs
    VkDescriptorPool pool = VK_NULL_HANDLE;
    std::vector<std::vector<VkDescriptorSet>> sets;  ///< [slot][dispatch]; the same set where nothing external is bound
    std::vector<bool> external;                      ///< dispatch touches an input or output

    std::vector<RecordScratch> record_scratch;  ///< [slot]

    // running
    std::vector<InputState> inputs;
    VkCommandPool command_pool = VK_NULL_HANDLE;
    std::vector<VkCommandBuffer> commands;  ///< grows to the most submissions a run needed
    VkFence fence = VK_NULL_HANDLE;
    VkQueryPool queries = VK_NULL_HANDLE;
    std::size_t submissions = 0;
    std::vector<std::int64_t> run_sizes;  ///< of the last run
    bool ran = false;
    std::vector<DispatchTime> times;

    ~ProgramCore();

    /// What record() needs.
    void allocate();
    /// allocate(), and what run() needs besides.
    void allocate_io();
    /// Points the slot's sets at these places of inputs and outputs.
    void bind(std::uint32_t slot, const std::vector<Place>& external_places) noexcept;
    /// Checks sizes and records every dispatch.
    Status encode(Sink& sink, std::uint32_t slot, std::span<const std::int64_t> sizes) noexcept;
    void run();
    void upload(std::string_view name, DType dtype, std::span<const std::byte> data);
    std::span<const std::byte> output(std::string_view name, DType dtype) const;
    std::uint64_t elements_of(StorageId storage, std::span<const std::int64_t> sizes) const noexcept;

private:
    void place_storages();
    void make_sets();
    void write_set(VkDescriptorSet set, const PlannedDispatch& dispatch,
                   const std::vector<Place>& external_places) noexcept;
    void read_times();
};

}  // namespace vkf
