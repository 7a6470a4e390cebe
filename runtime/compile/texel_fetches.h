// SPDX-License-Identifier: Apache-2.0
// Storage buffers of a SPIR-V module that become texel buffers, ahead of the driver.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "runtime/compile/capabilities.h"
#include "runtime/compile/dispatch.h"

namespace vkf {

/// The bytes of the smallest and the largest texel.
inline constexpr std::uint64_t kLeastTexel = 4, kMostTexel = 16;

/// What a texel of each binding has, in bytes: 4, 8 or 16 (R32, R32G32 or R32G32B32A32_UINT). 0:
/// the binding is a storage buffer.
using TexelBytes = std::array<std::uint8_t, kMaxOperands>;

/// Whether a device's kernels fetch what they only read. GPUs' kernels, which a variant may force
/// on a processor, are taken as GPUs take them.
bool takes_texels(const Capabilities& device);

struct TexelFetches {
    std::vector<std::uint32_t> code;
    TexelBytes texel_bytes{};
};

/// A valid module that fetches from uniform texel buffers what it loaded from storage buffers, with
/// the same bits. `bindings` has a bit for each binding of set 0 that may be one: nothing else
/// writes there while the kernel runs. It becomes one where it is an array of numbers of 4, 8 or 16
/// bytes each, of which whole ones are loaded, and nothing else is done with it. Where a binding is
/// several such arrays, texels are as large as the largest number, and a smaller one is chosen from
/// its texel. What is not known stays as it is.
///
/// lavapipe before 26 loads from a storage buffer lane by lane, but gathers from a texel buffer.
TexelFetches fetch_texels(std::vector<std::uint32_t> code, std::uint32_t bindings);

}  // namespace vkf
