// SPDX-License-Identifier: Apache-2.0
// What attention is made of: products around a softmax, with the matrix of scores, of ops that run
// on every device.
#include <cmath>

#include "ops/attention_params.h"
#include "ops/checks.h"
#include "ops/softmax.h"
#include "runtime/graph/node.h"

namespace vkf {

namespace {

struct Composed {
    Value y, weights, log_sum_exp, log_sum_exp_parts;
};

/// softmax(q k^T) v, and what comes on the way.
Composed compose(Value q, Value k, Value v, SoftmaxOptions options, const AttentionParams& p) {
    const Shape scores_shape{q.size(0), q.size(1), q.size(2), k.size(2)};
    const Dim heads = q.size(1);
    const std::int64_t group = p.group;
    // heads as (Hk, group): the group is a batch dimension over which k and v repeat
    if (group > 1) {
        const auto grouped = [&](Value x, Dim hk, Dim g) {
            return reshape(x, {x.size(0), hk, g, x.size(2), x.size(3)});
        };
        q = grouped(q, k.size(1), group);
        k = grouped(k, k.size(1), 1);
        v = grouped(v, v.size(1), 1);
    }
    Value scores = reshape(matmul(q, k, {.transpose_b = true, .masked_gradient = true}), scores_shape);
    if (p.score_mod) {  // comes between bias and mask
        scores = score_mod(biased_scores(scores, options), p.score_mod);
        options.scale = 1.0f;
        options.softcap = 0.0f;
        options.mask.bias = options.mask.alibi_slopes = {};
    }
    Composed out;
    out.log_sum_exp = p.log_sum_exp >= 0 ? log_sum_exp(scores, options) : Value();
    out.log_sum_exp_parts = p.log_sum_exp_parts >= 0 ? support::log_sum_exp_parts(scores, options) : Value();
    out.weights = softmax(scores, options);
    Value shared = dropout(out.weights, p.dropout, p.dropout_seed);
    if (group > 1) {
        shared = reshape(shared, {q.size(0), q.size(1), q.size(2), q.size(3), k.size(3)});
    }
    const Value y = matmul(shared, v, {.masked_weights = true, .heads_last = true});
    out.y = group > 1 ? reshape(y, {y.size(0), heads, y.size(3), y.size(4)}) : y;
    return out;
}

}  // namespace

void support::check_ring(const char* op, const RingRows& ring, const Value& x, const Dim& rows) {
    Graph& g = x.graph();
    const Dim of_count = ring.count - ring.before_end, of_rows = rows - ring.first - ring.before_end;
    const std::string what = "before_end = " + g.str(ring.before_end) + " of the ring " + x.str() +
                             " must be the smaller of count = " + g.str(ring.count) +
                             " and of its rows from first on, " + g.str(rows) + " - " + g.str(ring.first);
    const auto at_least_0 = [&](const Dim& left, const char* why) {
        if (left.is_constant()) {
            support::require(left.constant() >= 0, op, what);
        } else {
            g.constrain(Dim(0) - left, 0, std::string(op) + ": " + what + why);
        }
    };
    at_least_0(of_count, ": beyond count");
    at_least_0(of_rows, ": beyond these rows");
    at_least_0(Dim(0) - of_count * of_rows, ": smaller than both, their differences multiplied");
}

Value support::ring_in_order(Value x, const RingRows& ring) {
    const Value older = slice(x, 2, ring.first, ring.before_end);
    const Dim rest = ring.count - ring.before_end;
    return rest == Dim(0) ? older : concat({older, slice(x, 2, 0, rest)}, 2);
}

std::vector<Value> decompose_attention(Graph& graph, const NodeInfo& node, WantedOutputs) {
    const auto& p = *static_cast<const AttentionParams*>(node.params.get());
    const auto input = [&](int at) {
        return at < 0 ? Value() : Value(graph, node.inputs[static_cast<std::size_t>(at)]);
    };
    const Value q = input(0);
    Value k = input(1), v = input(2);
    if (p.ring) {
        k = support::ring_in_order(k, *p.ring);
        v = support::ring_in_order(v, *p.ring);
    }
    if (p.kv_type != WeightType::f32) {
        k = unpack_rows(k, p.kv_type, p.head_dim);
        v = unpack_rows(v, p.kv_type, p.value_dim);
    }
    if (p.pages >= 0) {
        const auto gathered = [&](Value x) {
            return transpose(gather_pages(transpose(x, 1, 2), input(p.pages)), 1, 2);
        };
        k = gathered(k);
        v = gathered(v);
    }
    Mask mask{.keys = input(p.mask),
              .polarity = p.polarity,
              .bias = input(p.bias),
              .alibi_slopes = input(p.slopes),
              .causal = p.causal,
              .window = p.window,
              .fill = p.fill};
    if (p.key_numbers >= 0) {  // a mask that says all that lengths, causal and window do
        Value own = sequence_mask(q, k, input(p.cumulative_queries), input(p.key_numbers), p.causal, p.window);
        own = reshape(own, {own.size(0), 1, own.size(1), own.size(2)});
        mask.keys = mask.keys ? combine_masks(own, Polarity::attend, mask.keys, p.polarity) : own;
        mask.polarity = Polarity::attend;
        mask.causal = Causal::none;
        mask.window = 0;
    }
    const Composed made = compose(q, k, v, {mask, p.scale, p.softcap, input(p.sinks)}, p);
    std::vector<Value> out{made.y};
    if (p.weights >= 0) {
        out.push_back(made.weights);
    }
    if (p.log_sum_exp >= 0) {
        out.push_back(made.log_sum_exp);
    }
    if (p.log_sum_exp_parts >= 0) {  // always the last: the gradient adds it
        out.push_back(made.log_sum_exp_parts);
    }
    return out;
}

}  // namespace vkf
