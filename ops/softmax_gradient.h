// SPDX-License-Identifier: Apache-2.0
// The gradients of softmax and its kin, by one kernel.
#pragma once

#include "runtime/graph/graph.h"
#include "shaders/softmax_gradient.h"

namespace vkf::support {

struct SoftmaxGradient {
    shader::uint of = shader::kSoftmaxGradientWeights;  ///< what comes in is the gradient of this
    float scale = 1.0f, softcap = 0.0f;
};

/// ds (..., L, S) of dense weights (..., L, S) and dy, which is (..., L, S), or (..., L) for
/// kSoftmaxGradientLogSumExp. `scores` is looked at where there is a softcap. For
/// kSoftmaxGradientSink: what each row adds to the gradient of its sink, (..., L), where `scores`
/// is that sink's weight, (..., L).
Value softmax_gradient(const SoftmaxGradient& what, Value weights, Value dy, Value scores);

}  // namespace vkf::support
