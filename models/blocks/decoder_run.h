// SPDX-License-Identifier: Apache-2.0
// One run of a decoder as a family describes it: what it reads, where its tokens stand, and the
// caches that it fills and sees.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "layers/projections.h"
#include "models/blocks/cache_ring.h"
#include "models/blocks/decoder_facts.h"

namespace vkf {

/// The sizes for which a run is described.
struct DecoderRunSizes {
    std::int64_t max_batch = 1;
    std::int64_t max_tokens = 1;  ///< most tokens of a sequence: what the caches hold
    std::int64_t chunk = 1;       ///< tokens of a sequence that one run reads
    WeightType kv = WeightType::f32;
};

/// The cosines and sines for every position of a sequence, and how they turn a head.
struct RopeTable {
    Value angles;  ///< (positions, pairs, 2)
    Required<RopeLayout> layout;
};

/// The numbers that shape softmax(q k^T scale). A softcap c makes a score s into c tanh(s / c).
struct AttentionScores {
    std::optional<float> scale = {};  ///< unset: 1/sqrt(head_dim)
    float softcap = 0.0f;             ///< 0: none
};

class DecoderRun {
public:
    /// Inputs: tokens (batch, tokens) i32 and, where sequences of a batch are padded in front, keys
    /// (batch, max_tokens) i32, 1 where the caches hold a token of the sequence. Sizes: batch,
    /// tokens (but for a step), start, which is how many tokens the caches hold already, and those
    /// of CacheRing.
    DecoderRun(Graph& graph, DecoderTask task, const DecoderRunSizes& sizes, const std::vector<LayerCache>& layers);

    Graph& graph() const noexcept { return graph_; }
    /// (batch, tokens) i32.
    Value tokens() const { return token_ids_; }

    /// Makes the table for every position of a sequence, as a constant `name`.
    RopeTable rope_table(const Rope& rope, std::int64_t head_dim, const std::string& name = "rope_table");
    /// Queries and keys turned by the angles of their tokens' positions. Attention looks at
    /// distances alone, so padding in front of a sequence changes nothing.
    QueryKeyValue rotated(QueryKeyValue heads, const RopeTable& table) const;
    /// The rows of a table (positions, width) that are the tokens' positions: broadcasts to (batch,
    /// tokens, width). Where sequences are padded they come from an input positions (batch, tokens)
    /// i32.
    Value learned_positions(Value table);

    /// Attention of the run's tokens over themselves and what the layer's cache holds: (batch,
    /// tokens, heads * head_dim). The cache takes in their keys and values.
    Value attend(std::int64_t layer, const QueryKeyValue& heads, const AttentionScores& scores = {});

    /// The tokens of h (batch, tokens, width) after which the run answers: the last, or all where
    /// it scores.
    Value answered(Value h) const;

private:
    const CacheRing::Rows& ring(std::int64_t window, std::int64_t rows);
    /// (batch, 1, 1, count) of the input `keys`; empty where nothing is padded.
    Value seen_keys(Dim first, const Dim& count) const;

    Graph& graph_;
    DecoderTask task_;
    DecoderRunSizes sizes_;
    std::vector<LayerCache> layers_;
    Dim batch_, token_count_, start_;
    Value token_ids_, keys_;
    std::map<std::int64_t, CacheRing::Rows> rings_;  ///< rings, by their windows
};

}  // namespace vkf
