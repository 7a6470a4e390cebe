// SPDX-License-Identifier: Apache-2.0
// What weights are once they were packed: docs/numerics.md's formulas, number by number.
#pragma once

#include "runtime/graph/packed.h"
#include "tests/tensor.h"

namespace vkf::reference {

using test::Tensor;

/// (out, in) of fp32 numbers -> what `type` keeps of them.
Tensor packed(const Tensor& weights, WeightType type);
/// Rounds each number to f16, to the nearest, ties to even; infinite from 65520 on.
Tensor as_f16(const Tensor& numbers);
/// The farthest that packed() may move each number: half a step of its scale, or half a unit in the
/// last place.
Tensor packing_error(const Tensor& weights, WeightType type);

}  // namespace vkf::reference
