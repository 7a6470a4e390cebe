// SPDX-License-Identifier: Apache-2.0
// Numbers by which ops choose kernels and that are worth measuring on a device. An op takes what
// the device's capabilities suggest, unless VKFORMER_TUNING, DeviceOptions::tuning or what
// save_tuning() kept says otherwise. Sums may be taken in another order then, and differ in their
// last bits.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "../runtime/compile/capabilities.h"

namespace vkf {

struct Tunable {
    std::string_view name;  ///< name, as in "name=number"
    /// the meaning of the number, for people
    std::string_view what;
    /// Gives the values that the device can take, ascending; empty where it has no kernel that
    /// asks.
    std::vector<std::uint32_t> (*values)(const Capabilities&);
};

VKF_API std::span<const Tunable> tunables();

}  // namespace vkf
