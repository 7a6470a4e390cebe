// SPDX-License-Identifier: Apache-2.0
// How many bytes of a row a lane loads at a time.
#pragma once

#include <string>

#include "runtime/compile/kernel.h"
#include "runtime/compile/lowering.h"

namespace vkf::support {

struct RowLoad {
    bool wide = false;
    std::string note;  ///< text for explain()
};

/// 8 bytes on processors with 64-bit integers, where rows are read by fours and the kernel that
/// does so is not left out. A processor's lanes load one after the other, so half as many loads are
/// less work; where they are not, vkformer-tune chooses 4 ("row_load" in ops/tuning.h). Throws
/// Error where that is asked for and does not fit.
RowLoad row_load(const Lowering& l, bool fours, const Shader& wide);

}  // namespace vkf::support
