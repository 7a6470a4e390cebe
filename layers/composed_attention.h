// SPDX-License-Identifier: Apache-2.0
// Attention with the matrix of scores, of ops that run on every device: the definition, and the other way where a device cannot run
// fused_attention(), or does not gain by it.
#pragma once

#include "layers/attention.h"

namespace vkf {

/// As scaled_dot_product_attention(), whose mask, scale, softcap and sinks are those of `softmax_options`.
AttentionResult composed_attention(Value q, Value k, Value v, const SoftmaxOptions& softmax_options,
                                   const AttentionOptions& o);

}  // namespace vkf
