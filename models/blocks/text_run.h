// SPDX-License-Identifier: Apache-2.0
// A run of a decoder over whole texts, without caches: what is trained.
#pragma once

#include "models/blocks/decoder_run.h"

namespace vkf {

class TextRun final : public DecoderRun {
public:
    /// Runs over tokens (batch, tokens) i32, each text from its beginning; `max_tokens` is the most
    /// that a text has.
    TextRun(Value tokens, std::int64_t max_tokens, const std::vector<LayerCache>& layers)
        : DecoderRun(tokens, 0, max_tokens, layers) {}

    Value learned_positions(Value table) override { return slice(table, 0, 0, tokens().shape()[1]); }
    Value attend(std::int64_t index, const QueryKeyValue& heads, const AttentionScores& scores = {}) override {
        const AttentionOptions o = attention(layer(index), scores);
        return merge_heads(scaled_dot_product_attention(heads.query, heads.key, heads.value, o).y);
    }
    /// After every token.
    Value logit_positions(Value h) const override { return h; }
};

}  // namespace vkf
