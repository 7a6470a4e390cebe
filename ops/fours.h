// SPDX-License-Identifier: Apache-2.0
// What can be read and written four elements at a time.
#pragma once

#include <cstddef>

#include "runtime/compile/kernel.h"
#include "runtime/graph/graph.h"
#include "shaders/common/wide.h"

namespace vkf::support {

/// True for a multiple of four, whatever the sizes of a run.
inline bool by_four(const Dim& d) {
    Dim quotient;
    return d.divided_by(Dim(4), quotient);
}

/// True when every row of the value can be read and written four elements at a time, whatever the
/// sizes of a run: dense along the last dimension, rows of a multiple of four, each beginning at
/// one. (What a descriptor leaves of an offset is always one: descriptors are aligned to 16 bytes
/// at least.)
inline bool in_fours(const ValueInfo& value) {
    if (value.shape.empty() || !(value.strides.back() == Dim(1)) || !by_four(value.shape.back()) ||
        !by_four(value.offset)) {
        return false;
    }
    for (std::size_t i = 0; i + 1 < value.shape.size(); ++i) {
        if (!(value.shape[i] == Dim(1)) && !by_four(value.strides[i])) {
            return false;
        }
    }
    return true;
}

/// What makes of a module the kernel that loads and stores fours 8 bytes at a time, for devices
/// with 64-bit integers (Capabilities::int64).
inline constexpr Constants::Named kWideLoads{shader::kSpecWide, 1};

}  // namespace vkf::support
