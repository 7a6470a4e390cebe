// SPDX-License-Identifier: Apache-2.0
// What a program computes with, and why not with fewer bits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "../graph/dtype.h"

namespace vkf {

/// One reason why products, or fused attention, of a program for fewer bits stay in fp32.
struct Fp32Reason {
    std::string reason = {};
    std::uint32_t dispatches = 0;  ///< number of dispatches that stay for it
};

/// The outcome of CompileOptions::arithmetic.
struct ArithmeticUse {
    Arithmetic asked = Arithmetic::f32;
    /// `asked` where at least one kernel computes with it; else f32.
    Arithmetic used = Arithmetic::f32;
    /// The reasons, in the order of their texts; empty where fp32 was asked for.
    std::vector<Fp32Reason> in_fp32 = {};
};

}  // namespace vkf
