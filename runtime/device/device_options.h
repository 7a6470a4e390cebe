// SPDX-License-Identifier: Apache-2.0
// How a Device is made.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "vulkan_handles.h"

namespace vkf {

struct DeviceOptions {
    /// The device to take: an index into Device::list(), its name, or part of its name (any case).
    /// Empty: the environment's VKFORMER_DEVICE, else the first of discrete, integrated, virtual,
    /// CPU. For create() alone: borrow() throws where it is set.
    std::string select = {};
    /// True: runs under the Khronos validation layer with synchronization validation; messages are
    /// kept, see Device::messages(). Throws when the layer is not installed. VKFORMER_VALIDATION=1
    /// asks for it too. For create() alone: borrow() throws where it is true.
    bool validation = false;
    /// True: believes only what Vulkan 1.1 guarantees. VKFORMER_PROFILE=minimum asks for it too.
    bool minimum_profile = false;
    /// The folder where compiled pipelines are kept between runs; empty: the user's cache folder.
    /// VKFORMER_PIPELINE_CACHE=0 turns it off.
    std::filesystem::path cache_folder = {};
    /// Most bytes of staging memory; larger uploads are streamed through it. At least 4 are taken.
    /// DeviceTensor::write() takes as much as the tensor has while a program has that.
    std::uint64_t staging_bytes = 16u << 20;
    /// Most work in one submission, in operations plus bytes; longer runs are split. At least 0,
    /// which is no limit. Not given: no limit on processors, which have no watchdog; elsewhere what
    /// takes a quarter of a second, a part of a watchdog's 2 s: 2.5e9 at first, then by how long
    /// runs take.
    std::optional<double> submit_budget = {};
    /// Most seconds to wait for what was submitted, at least 0, which is no limit. Not given: 600,
    /// on processors 3600. When they are over, the call throws an Error that says so, and the
    /// device is given up: every later call throws, and what was made from it is not destroyed but
    /// left, because it may still be in use. Ticket::wait() with a time-out of its own gives
    /// nothing up.
    std::optional<double> wait_seconds = {};
    /// Asks every submission of the library's own whether it ran: there are drivers that cancel one
    /// and give VK_SUCCESS, and the outputs are then those of the run before. With it that is an
    /// Error. Costs a fill of 4 bytes a submission, and 4 KiB a program beyond
    /// Program::memory(). Checked devices and programs do it always.
    bool canary = false;
    /// Makes every program of the device a checked one, see CompileOptions::checked.
    /// VKFORMER_CHECKED=1 asks for it too.
    bool checked = false;
    /// "name=number" with commas between: numbers for choosing kernels, instead of what
    /// capabilities suggest (tunables()); an error where one is unknown, given twice or does not
    /// fit. Empty: what save_tuning() kept in the cache folder; "0": what capabilities suggest.
    /// VKFORMER_TUNING is stronger.
    std::string tuning = {};
    /// Kernels that ops shall not take, as explain() names them, with commas between. Empty: those
    /// that vkformer-doctor found wrong and kept in the cache folder; "0": none.
    /// VKFORMER_LEAVE_OUT is stronger.
    std::string leave_out = {};
    /// The loader's entry point; null: libvulkan is opened. For create() alone: borrow() reads the
    /// member of BorrowedDevice, and throws where this one is set.
    GetInstanceProcAddr get_instance_proc_addr = nullptr;
};

}  // namespace vkf
