// SPDX-License-Identifier: Apache-2.0
#include "layers/composed_attention.h"

#include <cmath>

namespace vkf {

AttentionResult composed_attention(Value q, Value k, Value v, const SoftmaxOptions& softmax_options,
                                   const AttentionOptions& o) {
    const Shape scores_shape{q.size(0), q.size(1), q.size(2), k.size(2)};
    const std::int64_t heads = q.size(1).constant();
    const std::int64_t group = heads / k.size(1).constant();
    if (group > 1) {  // heads as (Hk, group): the group is a batch dimension over which k and v repeat
        const auto grouped = [&](Value x, Dim hk, Dim g) {
            return reshape(x, {x.size(0), hk, g, x.size(2), x.size(3)});
        };
        q = grouped(q, k.size(1), group);
        k = grouped(k, k.size(1), 1);
        v = grouped(v, v.size(1), 1);
    }
    Value scores = reshape(matmul(q, k, {.transpose_b = true}), scores_shape);
    SoftmaxOptions options = softmax_options;
    if (o.score_mod) {  // comes between bias and mask
        scores = score_mod(biased_scores(scores, options), o.score_mod);
        options.scale = 1.0f;
        options.softcap = 0.0f;
        options.mask.bias = options.mask.alibi_slopes = {};
    }
    const Value lse = o.log_sum_exp ? log_sum_exp(scores, options) : Value();
    const Value weights = softmax(scores, options);
    Value shared = o.dropout != 0.0f ? dropout(weights, o.dropout, o.dropout_seed) : weights;
    if (group > 1) {
        shared = reshape(shared, {q.size(0), q.size(1), q.size(2), q.size(3), k.size(3)});
    }
    const Value y = matmul(shared, v, {.masked_weights = std::isinf(o.mask.fill), .heads_last = true});
    return {group > 1 ? reshape(y, {y.size(0), heads, y.size(3), y.size(4)}) : y, weights, lse};
}

}  // namespace vkf
