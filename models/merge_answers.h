// SPDX-License-Identifier: Apache-2.0
// What the ranks of a decoder found, each in its part of the vocabulary, becomes one answer.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/decoder_batch.h"

namespace vkf {

/// What came back of a run: (batch, ranks * k), of each rank its k best, as top_k() orders them.
struct FoundByRanks {
    std::vector<std::int32_t> tokens;  ///< counted from the first of the rank
    std::vector<float> logits;
    /// scratch of merge_answers(), which allocates nothing the second time
    std::vector<std::size_t> taken;
    /// the first token of each rank: of shares_of_vocabulary()
    std::vector<std::int32_t> first_tokens;
};

/// Fills in `answers`: of each sequence the best `candidates`, in top_k()'s order, and the best of
/// all as argmax_of_finite() gives it.
void merge_answers(FoundByRanks& found, std::size_t candidates, DecoderAnswers& answers);

}  // namespace vkf
