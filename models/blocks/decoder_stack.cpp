// SPDX-License-Identifier: Apache-2.0
#include "models/blocks/decoder_stack.h"

#include <string>

#include "layers/linear.h"
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

Value output_head(Value h, Value words, bool tied) {
    if (!tied) {
        return linear_layer(h, "lm_head", words.size(0).constant(), false);
    }
    Graph& g = h.graph();
    const Scope scope(g, "lm_head");  // by which an adapter is asked for
    const Value y = linear(h, words);
    return g.linear_hook() ? g.linear_hook()(h, y) : y;
}

}  // namespace vkf
