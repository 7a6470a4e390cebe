// SPDX-License-Identifier: Apache-2.0
// Kernels that are left out: where the list comes from, and what is added while a device lives.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <span>
#include <vector>

#include "runtime/compile/capabilities.h"
#include "runtime/device/device_options.h"

namespace vkf {

/// VulkanDevice::uuid
using DeviceUuid = std::array<std::uint8_t, 16>;

/// Puts into `capabilities` what is left out: VKFORMER_LEAVE_OUT, else DeviceOptions::leave_out
/// ("0": nothing), else the file. Throws Error for an empty name between commas. Of a file that is
/// damaged those lines are used that can be, and Capabilities::left_out_damage says so; it says
/// that a file is not used because of "0", too.
void find_left_out(Capabilities& capabilities, const DeviceOptions& options, const std::filesystem::path& folder,
                   const DeviceUuid& uuid);

/// The file in that folder for this device and its driver; empty where the folder is. One of
/// several devices of the same model may be broken: each has its own.
std::filesystem::path left_out_path(const std::filesystem::path& folder, const Capabilities& device,
                                    const DeviceUuid& uuid);

/// Throws Error naming the file, or the kernel that no line can hold, and for more than is read
/// again.
void write_left_out(const std::filesystem::path& path, std::span<const LeftOut> kernels);

/// What was found since a device was made; safe to use from several threads.
class LeftOutSince {
public:
    void add(const LeftOut& kernel);
    /// `before`, and what was added.
    std::vector<LeftOut> behind(std::vector<LeftOut> before) const;

private:
    mutable std::mutex mutex_;
    std::vector<LeftOut> kernels_;
};

}  // namespace vkf
