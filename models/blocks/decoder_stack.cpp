// SPDX-License-Identifier: Apache-2.0
#include "models/blocks/decoder_stack.h"

#include <string>

#include "models/blocks/norm.h"

namespace vkf {

Value pre_norm_layers(Value h, std::int64_t layers, float eps,
                      const std::function<Value(std::int64_t layer, Value x)>& attention,
                      const std::function<Value(Value x)>& feed_forward) {
    for (std::int64_t i = 0; i < layers; ++i) {
        const Scope layer(h.graph(), "model.layers." + std::to_string(i));
        h = h + attention(i, rms_norm(h, "input_layernorm", eps));
        h = h + feed_forward(rms_norm(h, "post_attention_layernorm", eps));
    }
    return h;
}

Value pre_and_post_norm_layers(Value h, std::int64_t layers, float eps,
                               const std::function<Value(std::int64_t layer, Value x)>& attention,
                               const std::function<Value(Value x)>& feed_forward) {
    for (std::int64_t i = 0; i < layers; ++i) {
        const Scope layer(h.graph(), "model.layers." + std::to_string(i));
        const Value attended = attention(i, rms_norm(h, "input_layernorm", eps));
        h = h + rms_norm(attended, "post_attention_layernorm", eps);
        const Value fed = feed_forward(rms_norm(h, "pre_feedforward_layernorm", eps));
        h = h + rms_norm(fed, "post_feedforward_layernorm", eps);
    }
    return h;
}

}  // namespace vkf
