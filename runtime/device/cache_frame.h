// SPDX-License-Identifier: Apache-2.0
// How files of caches tell the device and driver that they are of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/compile/capabilities.h"

namespace vkf {

/// 64-bit FNV-1a of Fowler, Noll and Vo; `hash` is that of what stands before the data.
std::uint64_t fnv1a(std::span<const std::byte> data, std::uint64_t hash = 0xcbf29ce484222325u);

/// The cache file's frame around the driver's data: identifies device, driver and length, and
/// carries a checksum.
std::vector<std::byte> frame_cache(const Capabilities& device, std::span<const std::byte> data);
/// The driver's data; empty when the file is damaged, cut short, or of another device or driver.
std::span<const std::byte> unframe_cache(const Capabilities& device, std::span<const std::byte> file);
/// A name that tells models of devices and drivers apart, and with `more` of a device, devices.
std::string cache_file_name(const Capabilities& device, std::span<const std::uint8_t> more = {});

}  // namespace vkf
