// SPDX-License-Identifier: Apache-2.0
// Scores of queries against keys by themselves. B batch, L queries, S keys, D width.
#pragma once

#include <cstdint>
#include <string>

#include "../ops/ops.h"

namespace vkf {

/// The ways to score a query against a key.
enum class ScoreKind : std::uint8_t {
    dot,         ///< q k (Luong et al. 2015)
    scaled_dot,  ///< q k / sqrt(D) (Vaswani et al. 2017)
    general,     ///< q w k, w (D, D) (Luong et al. 2015)
    additive,    ///< v tanh(w q + u k), w and u (A, D), v (A) (Bahdanau et al. 2015)
};

struct ScoreOptions {
    std::string name = {};
    ScoreKind kind = ScoreKind::dot;
    std::int64_t hidden = 0;  ///< A of the additive kind
};

/// query (B, L, D), key (B, S, D) -> scores (B, L, S), for softmax() (soft attention) or hard_max()
/// (hard attention).
VKF_API Value attention_scores(Value query, Value key, const ScoreOptions& options = {});

}  // namespace vkf
