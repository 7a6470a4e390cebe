// SPDX-License-Identifier: Apache-2.0
// What stands around attention and feed-forward in a decoder: its layers.
#pragma once

#include <cstdint>
#include <functional>

#include "ops/ops.h"

namespace vkf {

/// Adds the layer model.layers.INDEX, attention(norm(h)), then feed_forward(norm(h)): Llama's, with
/// RMSNorms input_layernorm and post_attention_layernorm.
Value pre_norm_layer(Value h, std::int64_t index, float eps, const std::function<Value(Value x)>& attention,
                     const std::function<Value(Value x)>& feed_forward);

/// Adds the layer model.layers.INDEX, whose halves are normed before and after: Gemma 2's and 3's,
/// with RMSNorms input_layernorm and post_attention_layernorm around attention, and
/// pre_feedforward_layernorm and post_feedforward_layernorm around feed_forward.
Value pre_and_post_norm_layer(Value h, std::int64_t index, float eps, const std::function<Value(Value x)>& attention,
                              const std::function<Value(Value x)>& feed_forward);

}  // namespace vkf
