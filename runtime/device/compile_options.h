// SPDX-License-Identifier: Apache-2.0
// How a graph is compiled.
#pragma once

#include <cstdint>
#include <string>

#include "../../parallel/communicator.h"
#include "../graph/dtype.h"
#include "state.h"

namespace vkf {

struct CompileOptions {
    std::string name = "program";  ///< name in debug labels and messages
    /// The state the program works on, shared with other programs; empty: one of its own.
    State state = {};
    /// The number of recordings that may be in flight at once (record()), 1 to 4096; run() uses
    /// slot 0.
    std::uint32_t slots = 1;
    /// The arithmetic that matrix products may use. With f16, products of more than four rows
    /// without masked weights use f16 on devices where that is faster: those with cooperative
    /// matrices (tensor cores), where fused attention uses f16 too, and, with fewer digits, those
    /// with f16 arithmetic. With int8, products of weights kept as int8 use int8 on devices with
    /// cooperative matrices of int8 or fast integer dot products. Program::arithmetic() says
    /// whether, and why some stay in fp32; explain() says where. docs/numerics.md, 12.
    Arithmetic arithmetic = Arithmetic::f32;
    /// True: compilation turns what is described into what is fast. A bias, an activation, a gate
    /// or a residual becomes part of a product's epilogue, and a residual before a norm part of the
    /// norm, and products of one x become one. The numbers stay the same, bit for bit; only where a
    /// GPU divides long sums of few rows, it divides those of joined products otherwise. explain()
    /// names each match and near miss.
    /// False: each op runs by itself, for comparing.
    bool rewrite = true;
    /// Timestamps around every dispatch.
    bool profile = false;
    /// The ranks with which the program's collectives are done; each runs its program as often. A
    /// program with collectives is not compiled without, and cannot be recorded by a host.
    std::shared_ptr<Communicator> communicator = {};
    /// True: record() refuses wrong use that its arguments show: ranges beyond their buffer, usage
    /// flags that lack STORAGE_BUFFER, another device's buffers, names that are unknown or come
    /// twice, an output that overlaps another range or image, a range in the scratch that
    /// allocate() was given, a slot recorded again before
    /// finished(slot), or while segments of another are left. Costs a comparison when off.
    bool checked = false;
};

}  // namespace vkf
