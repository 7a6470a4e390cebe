// SPDX-License-Identifier: Apache-2.0
// Asking a driver to keep what numbers the numerical contract rests on (SPV_KHR_float_controls).
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/compile/capabilities.h"

namespace vkf {

/// Adds to a module of one entry point the execution modes that the device offers: NaN, infinities
/// and the sign of 0 are kept in fp32 (SignedZeroInfNanPreserve) and, where the module computes in
/// f16, there too; subnormal numbers of f16 are kept (DenormPreserve). Without them compilers may
/// take it that there are none. Where all floats must be rounded alike, a module that rounds f16 to
/// the nearest (RoundingModeRTE) rounds fp32 so too.
void ask_for_float_modes(std::vector<std::uint32_t>& code, const Capabilities& device);

}  // namespace vkf
