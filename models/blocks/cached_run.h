// SPDX-License-Identifier: Apache-2.0
// A run of a decoder that answers: some tokens of each sequence, behind what the caches hold.
#pragma once

#include <map>
#include <vector>

#include "models/blocks/cache_ring.h"
#include "models/blocks/decoder_run.h"

namespace vkf {

/// The sizes for which a run is described.
struct CachedRunSizes {
    std::int64_t max_batch = 1;
    std::int64_t max_tokens = 1;  ///< most tokens of a sequence: what the caches hold
    std::int64_t chunk = 1;       ///< tokens of a sequence that one run reads
    WeightType kv = WeightType::f32;
    std::int64_t hidden = 0;  ///< the width of hidden states that come in; 0: tokens do
};

class CachedRun final : public DecoderRun {
public:
    /// Inputs: tokens (batch, tokens) i32, or hidden (batch, tokens, width), and, where sequences
    /// of a batch are padded in front, keys (batch, max_tokens) i32, 1 where the caches hold a
    /// token of the sequence. Sizes: batch, tokens (but for a step), start, which is how many
    /// tokens the caches hold already, and those of CacheRing.
    CachedRun(Graph& graph, DecoderTask task, const CachedRunSizes& sizes, const std::vector<LayerCache>& layers);

    /// Where sequences are padded the positions come from an input positions (batch, tokens) i32.
    Value learned_positions(Value table) override;
    /// The layer's cache takes in the tokens' keys and values.
    Value attend(std::int64_t layer, const QueryKeyValue& heads, const AttentionScores& scores = {}) override;
    /// The last token, or all where the task is to score.
    Value logit_positions(Value h) const override;

private:
    const CacheRing::Rows& ring(std::int64_t window, std::int64_t rows);
    /// (batch, 1, 1, count) of the input `keys`; empty where nothing is padded.
    Value seen_keys(Dim first, const Dim& count) const;

    DecoderTask task_;
    CachedRunSizes sizes_;
    Value keys_;
    std::map<std::int64_t, CacheRing::Rows> rings_;  ///< rings, by their windows
};

}  // namespace vkf
