// SPDX-License-Identifier: Apache-2.0
// How a graph is compiled.
#pragma once

#include <cstdint>
#include <string>

#include "../graph/dtype.h"
#include "state.h"

namespace vkf {

struct CompileOptions {
    std::string name = "program";  ///< for debug labels and messages
    /// The state the program works on, shared with other programs; empty: one of its own.
    State state = {};
    /// How many recordings may be in flight at once (record()); run() uses slot 0.
    std::uint32_t slots = 1;
    /// What matrix products compute with. f16 is taken where it is faster, on devices with
    /// cooperative matrices (tensor cores) or, with fewer digits, f16 arithmetic, by products of
    /// more than four rows that have no masked weights, and on the former by fused attention; int8
    /// by those of weights kept as int8, on devices with cooperative matrices of int8 or fast
    /// integer dot products. explain() says where, and why not. docs/numerics.md, 12.
    Arithmetic arithmetic = Arithmetic::f32;
    /// What is described is turned into what is fast: a bias, an activation, a gate or a residual
    /// into the epilogue of a product, a residual before a norm into the norm. The numbers stay the
    /// same, bit for bit. explain() names each match and near miss. False: each op by itself, for
    /// comparing.
    bool rewrite = true;
    /// Timestamps around every dispatch.
    bool profile = false;
    /// Wrong use of record() that its arguments give away is refused: ranges beyond their buffer,
    /// usage flags that lack STORAGE_BUFFER, another device's buffers, names that are unknown or
    /// come twice, an output that overlaps another range or image, a slot recorded again before
    /// finished(slot), or while segments of another are left. Costs a comparison when off.
    bool checked = false;
};

}  // namespace vkf
