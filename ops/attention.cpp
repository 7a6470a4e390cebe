// SPDX-License-Identifier: Apache-2.0
// scaled_dot_product_attention(): its checks and its shape rule.
#include "shaders/attention.h"

#include <limits>

#include "ops/add_op.h"
#include "ops/attention_params.h"
#include "ops/checks.h"
#include "ops/packed_rows.h"
#include "runtime/graph/edit.h"

namespace vkf {

namespace {

using namespace shader;
using namespace support;

constexpr const char* kName = kAttentionName;
/// Places of keys are counted by signed numbers in shaders.
constexpr std::int64_t kMostKeys = std::numeric_limits<std::int32_t>::max();
constexpr const char *kMaskName = "mask", *kBiasName = "bias", *kSlopesName = "alibi_slopes", *kSinksName = "sinks";

/// Tells which of (batch, heads, queries, keys) a tensor has that broadcasts to them.
uint present_dims(Value x, const char* what, const Shape& scores, bool a_head_each) {
    const std::size_t leading = a_head_each && x.rank() == 1 ? 2 : 0;  // (H) is (H, 1, 1)
    require(x.rank() + leading <= 4, kName, std::string(what) + " " + x.str() + " has more than 4 dimensions");
    uint present = kAttentionPresent;
    for (std::size_t i = 0; i < x.rank(); ++i) {
        const Dim& size = x.shape()[x.rank() - 1 - i];
        if (size == Dim(1)) {
            continue;
        }
        const Dim& wanted = scores[3 - i - leading];
        require(size == wanted, kName,
                std::string(what) + " " + x.str() + " does not broadcast to the scores " + x.graph().str(scores) +
                    ": " + x.graph().str(size) + " against " + x.graph().str(wanted));
        present |= 1u << (i + leading);
    }
    return present;
}

/// A tensor of scores that kernels can address: with more of them there are no weights, and only
/// the fused way.
bool fits_composed(Graph& g, const Shape& scores) {
    double count = 1;
    for (const Dim& d : scores) {
        count *= static_cast<double>(g.max_of(d));
    }
    return count < 4294967296.0;
}

/// (B, Hk, S, d) -> (B, H, S, d) by copying.
Value repeat_heads(Value x, std::int64_t n) { return transpose(repeat_kv(transpose(x, 1, 2), n), 1, 2); }

/// dv; 0: it is not fixed.
std::int64_t value_dim(const Value& q, const Value& v, const AttentionOptions& o) {
    if (o.kv_type == WeightType::f32) {
        return v.size(3).is_constant() ? v.size(3).constant() : 0;
    }
    return o.value_dim != 0 ? o.value_dim : q.size(3).constant();
}

void check_shapes(const Value& q, const Value& k, const Value& v, const AttentionOptions& o) {
    const auto fits = [&](bool good, const char* what) {
        require(good, kName,
                std::string(what) + " of query " + q.str() + ", key " + k.str() + ", value " + v.str() + " do not fit");
    };
    const bool packed = o.kv_type != WeightType::f32;
    require(o.value_dim >= 0, kName, "value_dim = " + std::to_string(o.value_dim) + " is negative");
    require_dtype(kName, q, DType::f32);
    for (const Value* x : {&k, &v}) {
        require_dtype(kName, *x, packed ? DType::i32 : DType::f32);
    }
    fits(q.rank() == 4 && k.rank() == 4 && v.rank() == 4, "ranks (all must be 4)");
    fits(k.size(0) == v.size(0) && (o.pages || q.size(0) == k.size(0)), "batches");
    fits(q.size(3).is_constant(), "head sizes (must be fixed)");
    fits(packed || q.size(3) == k.size(3), "head sizes");
    fits(k.size(1) == v.size(1) && k.size(2) == v.size(2), "keys and values");
    fits(q.size(1).is_constant() && k.size(1).is_constant() && q.size(1).constant() % k.size(1).constant() == 0,
         "head counts (queries' must be a multiple of keys')");
    if (packed) {
        require(!o.pages, kName, "pages are kept as f32, not as " + std::string(name_of(o.kv_type)));
        check_packed(kName, k, o.kv_type, q.size(3).constant());
        check_packed(kName, v, o.kv_type, value_dim(q, v, o));
    }
}

void check_numbers(const AttentionOptions& o) {
    if (o.scale) {
        require_finite(kName, "scale", *o.scale);
    }
    check_softcap(kName, o.softcap);
    check_mask(kName, o.mask);
    check_probability(kName, "dropout", o.dropout);
    if (o.sinks) {
        require_dtype(kName, o.sinks, DType::f32);
        require(o.sinks.rank() < 2 || o.sinks.shape().back() == Dim(1), kName,
                "sinks " + o.sinks.str() + " have a number a key, not one a row");
    }
}

void check_sequences(const Value& q, const Value& k, const AttentionOptions& o) {
    require(!o.ring || !(o.cumulative_queries || o.key_lengths || o.pages), kName,
            "keys in a ring go with neither sequences of different lengths nor pages");
    if (o.ring) {
        check_ring(kName, *o.ring, k, k.size(2));
    }
    require(
        std::isinf(o.mask.fill) || !(o.cumulative_queries || o.key_lengths), kName,
        "sequences of different lengths go with a mask fill of -inf only: what lies beyond a sequence has no score");
    if (o.cumulative_queries) {
        check_cumulative_queries(kName, q, o.cumulative_queries);
        require(bool(o.cumulative_keys) != bool(o.key_lengths), kName,
                "packed queries need either cumulative_keys or key_lengths");
        require(!o.mask.keys && !o.mask.bias, kName,
                "packed sequences take no mask and no bias: which query and key would it be of?");
    }
    if (o.cumulative_keys) {
        require(bool(o.cumulative_queries), kName, "cumulative_keys need cumulative_queries");
        check_cumulative_keys(kName, o.cumulative_keys, o.cumulative_queries);
        require(!o.pages && k.size(0) == Dim(1), kName, "packed keys " + k.str() + " must be a batch of 1, not pages");
    }
    if (o.key_lengths) {
        if (o.cumulative_queries) {
            check_lengths(kName, "key_lengths", o.key_lengths, o.cumulative_queries,
                          o.cumulative_queries.size(0) - Dim(1));
        } else {
            check_lengths(kName, "key_lengths", o.key_lengths, q, q.size(0));
        }
        require(!o.cumulative_queries || o.pages, kName, "packed queries with key_lengths need pages");
    }
    if (o.pages) {
        require_dtype(kName, o.pages, DType::i32);
        require(bool(o.key_lengths), kName, "pages need key_lengths");
        require(o.pages.rank() == 2 && o.pages.size(0) == o.key_lengths.size(0), kName,
                o.pages.str() + " must be (sequences, pages of a sequence)");
        require(k.size(2).is_constant(), kName, k.str() + " must have pages of a fixed size");
    }
}

std::string not_cumulative(std::span<const std::int32_t> numbers, std::int64_t limit) {
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        const std::int32_t before = i == 0 ? 0 : numbers[i - 1];
        if (numbers[i] < before || numbers[i] > limit || (i == 0 && numbers[i] != 0)) {
            return "number " + std::to_string(i) + " is " + std::to_string(numbers[i]) +
                   ": they must grow from 0 to at most " + std::to_string(limit) + ", and the one before is " +
                   std::to_string(before);
        }
    }
    return {};
}

std::string not_lengths(std::span<const std::int32_t> numbers, std::int64_t limit) {
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        if (numbers[i] < 0 || numbers[i] > limit) {
            return "length " + std::to_string(i) + " is " + std::to_string(numbers[i]) + ", not in 0.." +
                   std::to_string(limit);
        }
    }
    return {};
}

std::string not_pages(std::span<const std::int32_t> numbers, std::int64_t limit) {
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        if (numbers[i] < -1 || numbers[i] >= limit) {
            return "entry " + std::to_string(i) + " is " + std::to_string(numbers[i]) + ", not in -1.." +
                   std::to_string(limit - 1);
        }
    }
    return {};
}

/// Has the numbers that the host gives checked: beyond their limits there is nothing.
void check_numbers_of_sequences(const Value& q, const Value& k, const AttentionOptions& o) {
    Graph& g = q.graph();
    if (o.cumulative_queries) {
        g.check_content(o.cumulative_queries, "cumulative_queries", q.size(2), not_cumulative);
    }
    if (o.cumulative_keys) {
        g.check_content(o.cumulative_keys, "cumulative_keys", k.size(2), not_cumulative);
    }
    if (o.key_lengths) {
        g.check_content(o.key_lengths, "key_lengths", o.pages ? o.pages.size(1) * k.size(2) : k.size(2), not_lengths);
    }
    if (o.pages) {
        g.check_content(o.pages, "pages", k.size(0), not_pages);
    }
}

/// Makes it a condition of every run that the ring has `count` rows, and that `first` is one of
/// them: slice() refuses what lies outside.
void constrain_ring(const Value& key, const RingRows& ring) {
    slice(key, 2, 0, ring.count);
    slice(key, 2, ring.first, 1);
}

/// The heads of keys and values copied, where that is asked for; a ring or packed rows are plain
/// ones then.
void copy_heads(Value& k, Value& v, const Value& q, AttentionOptions& o) {
    const std::int64_t group = q.size(1).constant() / k.size(1).constant();
    if (!o.repeat_kv || group == 1) {
        return;
    }
    require(!o.pages, kName, "repeat_kv does not go with pages");
    const auto plain = [&](Value x, std::int64_t columns) {
        x = o.ring ? ring_in_order(x, *o.ring) : x;
        return o.kv_type == WeightType::f32 ? x : unpack_rows(x, o.kv_type, columns);
    };
    const std::int64_t dv = value_dim(q, v, o);
    k = repeat_heads(plain(k, q.size(3).constant()), group);
    v = repeat_heads(plain(v, dv), group);
    o.ring.reset();
    o.kv_type = WeightType::f32;
}

}  // namespace

void support::check_attention(const Graph& graph, const AttentionOptions& o, const Shape& scores) {
    check_numbers(o);
    if (o.dropout != 0.0f) {
        require_symbols(kName, graph, o.dropout_seed);
    }
    const auto check = [&](const Value& x, const char* what, bool a_head_each) {
        if (x) {
            require(&x.graph() == &graph, kName, std::string(what) + " " + x.str() + " belongs to another graph");
            present_dims(x, what, scores, a_head_each);
        }
    };
    check(o.mask.keys, kMaskName, false);
    check(o.mask.bias, kBiasName, false);
    check(o.mask.alibi_slopes, kSlopesName, true);
    check(o.sinks, kSinksName, true);
}

AttentionResult scaled_dot_product_attention(Value query, Value key, Value value, const AttentionOptions& options) {
    AttentionOptions o = options;
    check_shapes(query, key, value, o);
    const GraphEdit::Addition addition(query.graph());
    check_sequences(query, key, o);
    Graph& g = query.graph();
    const Shape scores{query.size(0), query.size(1), query.size(2),
                       o.pages  ? o.pages.size(1) * key.size(2)
                       : o.ring ? o.ring->count
                                : key.size(2)};
    check_attention(g, o, scores);
    copy_heads(key, value, query, o);
    const Mask& mask = o.mask;

    AttentionParams p{.softcap = o.softcap,
                      .fill = mask.fill,
                      .causal = mask.causal,
                      .window = mask.window,
                      .polarity = mask.polarity,
                      .dropout = o.dropout,
                      .dropout_seed = o.dropout != 0.0f ? o.dropout_seed : Dim(0),
                      .score_mod = o.score_mod,
                      .kv_type = o.kv_type,
                      .value_dim = value_dim(query, value, o),
                      .ring = o.ring,
                      .packed_keys = bool(o.cumulative_keys),
                      .group = static_cast<uint>(query.size(1).constant() / key.size(1).constant()),
                      .head_dim = query.size(3).constant()};
    p.scale = o.scale.value_or(static_cast<float>(1.0 / std::sqrt(static_cast<double>(p.head_dim))));
    std::vector<Value> inputs{query, key, value};
    const auto add = [&](const Value& x) {
        inputs.push_back(x);
        return static_cast<int>(inputs.size() - 1);
    };
    const auto add_broadcast = [&](const Value& x, const char* what, bool a_head_each, int& at, uint& present) {
        if (x) {
            present = present_dims(x, what, scores, a_head_each);
            at = add(x);
        }
    };
    add_broadcast(mask.keys, kMaskName, false, p.mask, p.mask_present);
    add_broadcast(mask.bias, kBiasName, false, p.bias, p.bias_present);
    add_broadcast(mask.alibi_slopes, kSlopesName, true, p.slopes, p.slopes_present);
    add_broadcast(o.sinks, kSinksName, true, p.sinks, p.sinks_present);
    if (o.cumulative_queries) {
        p.cumulative_queries = add(o.cumulative_queries);
        constrain_cumulative(o.cumulative_queries);
    }
    if (o.cumulative_keys || o.key_lengths) {
        p.key_numbers = add(o.cumulative_keys ? o.cumulative_keys : o.key_lengths);
    }
    if (o.pages) {
        p.pages = add(o.pages);
    }
    p.most_heads = g.max_of(scores[0]) * g.max_of(scores[1]);
    p.most_queries = g.max_of(scores[2]);
    p.most_keys = g.max_of(scores[3]);
    require(p.most_keys <= kMostKeys, kName,
            "a sequence could have " + std::to_string(p.most_keys) + " keys, more than " + std::to_string(kMostKeys));
    p.full = inputs.size() > 3 || o.log_sum_exp;
    if (o.ring) {
        constrain_ring(key, *o.ring);
    }

    constexpr uint kQueryOrKey = kAttentionPresentQuery | kAttentionPresentKey;
    const bool sequences = p.key_numbers >= 0;
    if (((p.slopes_present | p.sinks_present) & kQueryOrKey) != 0) {
        p.not_fused = "alibi_slopes and sinks must be one number a head";
    } else if (p.value_dim == 0) {
        p.not_fused = "the value's head size must be fixed";
    }
    // the positions of sequences would have to be counted anew for each by the ops that it is made
    // of, and the pages of each be read by its own queries alone
    const bool counts_anew = sequences && (p.slopes >= 0 || (p.cumulative_queries >= 0 && p.score_mod));
    const bool pages_a_sequence = p.cumulative_queries >= 0 && p.pages >= 0;
    p.composable = !counts_anew && !pages_a_sequence && fits_composed(g, scores);
    require(p.composable || p.not_fused.empty(), kName, p.not_fused);

    std::vector<OutputSpec> outputs{
        {DType::f32, {query.size(0), query.size(1), query.size(2), value.size(3)}, {0, 2, 1, 3}, {}}};
    if (p.value_dim != 0) {
        outputs[0].shape[3] = p.value_dim;
    }
    if (p.composable && !sequences) {
        p.weights = static_cast<int>(outputs.size());
        outputs.push_back({DType::f32, scores, {}, {}});
    }
    if (o.log_sum_exp) {
        p.log_sum_exp = static_cast<int>(outputs.size());
        outputs.push_back({DType::f32, {scores[0], scores[1], scores[2]}, {}, {}});
    }
    const int weights = p.weights, log_sum_exp = p.log_sum_exp;
    check_numbers_of_sequences(query, key, o);
    const std::vector<Value> results = g.add_node(kAttention, inputs, params(std::move(p)), outputs);
    const auto result = [&](int at) { return at < 0 ? Value() : results[static_cast<std::size_t>(at)]; };
    return {results[0], result(weights), result(log_sum_exp)};
}

}  // namespace vkf
