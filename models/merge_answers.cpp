// SPDX-License-Identifier: Apache-2.0
#include "models/merge_answers.h"

#include <algorithm>
#include <cmath>

namespace vkf {

void merge_answers(FoundByRanks& found, std::size_t candidates, DecoderAnswers& answers) {
    const std::size_t ranks = found.first_tokens.size(), each = std::max<std::size_t>(candidates, 1),
                      all = each * ranks;
    const std::size_t batch = found.tokens.size() / all;
    answers.next.resize(batch);
    answers.candidate_tokens.resize(batch * candidates);
    answers.candidate_logits.resize(batch * candidates);
    std::vector<std::size_t>& taken = found.taken;  // of each rank
    taken.resize(ranks);
    for (std::size_t row = 0; row < batch; ++row) {
        const std::span<std::int32_t> tokens = std::span(found.tokens).subspan(row * all, all);
        const std::span<float> logits = std::span(found.logits).subspan(row * all, all);
        for (std::size_t i = 0; i < all; ++i) {
            tokens[i] += found.first_tokens[i / each];
        }
        // Each rank's are in order: the best that is left is the first of one of them. Of equals
        // the first rank's has the lower number.
        std::fill(taken.begin(), taken.end(), std::size_t{0});
        for (std::size_t k = 0; k < each; ++k) {
            std::size_t best = all;
            for (std::size_t r = 0; r < ranks; ++r) {
                const std::size_t at = r * each + taken[r];
                if (taken[r] == each) {
                    continue;
                }
                const bool better =
                    best == all || (std::isnan(logits[at]) && !std::isnan(logits[best])) || logits[at] > logits[best];
                best = better ? at : best;
            }
            ++taken[best / each];
            if (k == 0) {
                answers.next[row] = std::isfinite(logits[best]) ? tokens[best] : ~tokens[best];
            }
            if (candidates > 0) {
                answers.candidate_tokens[row * candidates + k] = tokens[best];
                answers.candidate_logits[row * candidates + k] = logits[best];
            }
        }
    }
}

}  // namespace vkf
