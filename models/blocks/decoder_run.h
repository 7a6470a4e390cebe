// SPDX-License-Identifier: Apache-2.0
// What a decoder runs over, as a family describes it: tokens, where they stand, and what they
// attend to.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "layers/projections.h"
#include "models/blocks/decoder_facts.h"

namespace vkf {

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
    virtual ~DecoderRun() = default;

    Graph& graph() const { return input_.graph(); }
    /// What the first layer's rank gets: (batch, tokens) i32.
    Value tokens() const { return input_; }
    /// What a rank with later layers gets instead: hidden states (batch, tokens, width).
    Value hidden() const { return input_; }

    /// Makes the table for every position of a sequence, as a constant `name`; gives the one there
    /// is from the second time on.
    RopeTable rope_table(const Rope& rope, std::int64_t head_dim, const std::string& name = "rope_table");
    /// Queries and keys turned by the angles of their tokens' positions. Attention looks at
    /// distances alone, so padding in front of a sequence changes nothing.
    QueryKeyValue rotated(QueryKeyValue heads, const RopeTable& table) const;
    /// The rows of a table (positions, width) that are the tokens' positions: broadcasts to (batch,
    /// tokens, width).
    virtual Value learned_positions(Value table) = 0;

    /// Attention of the run's tokens over themselves and what came before: (batch, tokens, heads *
    /// head_dim).
    virtual Value attend(std::int64_t layer, const QueryKeyValue& heads, const AttentionScores& scores = {}) = 0;

    /// The positions of h (batch, tokens, width) that get logits: the last of a sequence, or all
    /// where a text is scored.
    virtual Value logit_positions(Value h) const = 0;

protected:
    /// `input` are tokens or hidden states; `start` is the position of the first token, of up to
    /// `max_tokens`.
    DecoderRun(Value input, Dim start, std::int64_t max_tokens, const std::vector<LayerCache>& layers)
        : input_(input), start_(std::move(start)), max_tokens_(max_tokens), layers_(layers) {}

    const Dim& batch() const { return input_.shape()[0]; }
    const Dim& count() const { return input_.shape()[1]; }
    const Dim& start() const { return start_; }
    const LayerCache& layer(std::int64_t i) const { return layers_[static_cast<std::size_t>(i)]; }
    /// What attention is told of the scores and of a layer's window.
    AttentionOptions attention(const LayerCache& layer, const AttentionScores& scores) const;

private:
    Value input_;
    Dim start_;
    std::int64_t max_tokens_;
    std::vector<LayerCache> layers_;
    std::map<std::string, RopeTable> rope_tables_;
};

}  // namespace vkf
