// SPDX-License-Identifier: Apache-2.0
#include "models/blocks/decoder_stack.h"

#include <string>

#include "layers/norm.h"

namespace vkf {

Value pre_norm_layer(Value h, std::int64_t index, float eps, const std::function<Value(Value x)>& attention,
                     const std::function<Value(Value x)>& feed_forward) {
    const Scope layer(h.graph(), "model.layers." + std::to_string(index));
    h = h + attention(rms_norm(h, "input_layernorm", eps));
    return h + feed_forward(rms_norm(h, "post_attention_layernorm", eps));
}

Value pre_and_post_norm_layer(Value h, std::int64_t index, float eps, const std::function<Value(Value x)>& attention,
                              const std::function<Value(Value x)>& feed_forward) {
    const Scope layer(h.graph(), "model.layers." + std::to_string(index));
    const Value attended = attention(rms_norm(h, "input_layernorm", eps));
    h = h + rms_norm(attended, "post_attention_layernorm", eps);
    const Value fed = feed_forward(rms_norm(h, "pre_feedforward_layernorm", eps));
    return h + rms_norm(fed, "post_feedforward_layernorm", eps);
}

}  // namespace vkf
