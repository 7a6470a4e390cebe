// SPDX-License-Identifier: Apache-2.0
#include "shaders/attention.h"
#include "ops/attention_params.h"

namespace vkf {

namespace {

using namespace shader;
using namespace support;

constexpr const char* kName = kFusedAttentionName;

/// A tensor that broadcasts to (batch, heads, queries, keys), dense from its first element on, and which of these it has.
struct Broadcast {
    Value tensor;
    uint present = 0;
};

bool whole(const Value& x) { return is_contiguous(x) && x.graph().values()[x.id()].offset == Dim(0); }

Broadcast broadcast(Value x, const char* what, const Shape& scores, bool a_head_each, bool must_be_dense) {
    if (a_head_each && x.rank() == 1) {
        x = reshape(x, {x.size(0), 1, 1});
    }
    require(x.rank() <= 4, kName, std::string(what) + " " + x.str() + " has more than 4 dimensions");
    Broadcast b{x, kAttentionPresent};
    for (std::size_t i = 0; i < x.rank(); ++i) {
        const Dim& size = x.shape()[x.rank() - 1 - i];
        if (size == Dim(1)) {
            continue;
        }
        require(size == scores[3 - i], kName,
                std::string(what) + " " + x.str() + " does not broadcast to the scores " + x.graph().str(scores));
        b.present |= 1u << i;
    }
    if (must_be_dense && !whole(x)) {
        b.tensor = contiguous(x);
    }
    return b;
}

/// Rows of unit stride.
Value rows_of(Value x) {
    const ValueInfo& info = x.graph().values()[x.id()];
    return info.strides.back() == Dim(1) ? x : contiguous(x);
}

std::int64_t value_dim(const Value& q, const Value& v, const FusedAttentionOptions& o) {
    if (o.kv_type == WeightType::f32) {
        return v.size(3).constant();
    }
    return o.value_dim != 0 ? o.value_dim : q.size(3).constant();
}

void check_shapes(const Value& q, const Value& k, const Value& v, const FusedAttentionOptions& o) {
    const auto fits = [&](bool good, const char* what) {
        require(good, kName,
                std::string(what) + " of query " + q.str() + ", key " + k.str() + ", value " + v.str() + " do not fit");
    };
    const bool packed = o.kv_type != WeightType::f32;
    require_dtype(kName, q, DType::f32);
    for (const Value* x : {&k, &v}) {
        require_dtype(kName, *x, packed ? DType::i32 : DType::f32);
    }
    fits(q.rank() == 4 && k.rank() == 4 && v.rank() == 4, "ranks (all must be 4)");
    fits(k.size(0) == v.size(0) && (o.pages || q.size(0) == k.size(0)), "batches");
    if (packed) {
        fits(q.size(3).is_constant(), "head sizes (fixed)");
        require(!o.pages, kName, "pages are kept as f32, not as " + std::string(name_of(o.kv_type)));
        check_packed(kName, k, o.kv_type, q.size(3).constant());
        check_packed(kName, v, o.kv_type, value_dim(q, v, o));
    } else {
        fits(q.size(3) == k.size(3) && q.size(3).is_constant() && v.size(3).is_constant(),
             "head sizes (fixed, equal for query and key)");
    }
    fits(q.size(3).constant() < 65536 && value_dim(q, v, o) < 65536, "head sizes (below 65536)");
    fits(k.size(1) == v.size(1) && k.size(2) == v.size(2), "keys and values");
    fits(q.size(1).is_constant() && k.size(1).is_constant() && q.size(1).constant() % k.size(1).constant() == 0,
         "head counts (queries' must be a multiple of keys')");
}

void check_sequences(const Value& q, const Value& k, const FusedAttentionOptions& o) {
    require(!o.ring || !(o.cumulative_queries || o.key_lengths || o.pages), kName,
            "keys in a ring go with neither sequences of different lengths nor pages");
    require(
        std::isinf(o.scores.mask.fill) || !(o.cumulative_queries || o.key_lengths), kName,
        "sequences of different lengths go with a mask fill of -inf only: what lies beyond a sequence has no score");
    const auto lengths = [&](const Value& x, const char* what) {
        require_dtype(kName, x, DType::i32);
        require(x.rank() == 1, kName, std::string(what) + " " + x.str() + " must have one dimension");
    };
    if (o.cumulative_queries) {
        lengths(o.cumulative_queries, "cumulative_queries");
        require(bool(o.cumulative_keys) != bool(o.key_lengths), kName,
                "packed queries need either cumulative_keys or key_lengths");
        require(q.size(0) == Dim(1), kName, "packed queries " + q.str() + " must be a batch of 1");
        require(!o.scores.mask.keys && !o.scores.mask.bias, kName,
                "packed sequences take no mask and no bias: which query and key would it be of?");
    }
    if (o.cumulative_keys) {
        lengths(o.cumulative_keys, "cumulative_keys");
        require(bool(o.cumulative_queries), kName, "cumulative_keys need cumulative_queries");
        require(!o.pages && k.size(0) == Dim(1), kName, "packed keys " + k.str() + " must be a batch of 1, not pages");
        require(
            o.cumulative_keys.shape() == o.cumulative_queries.shape(), kName,
            o.cumulative_queries.str() + " and " + o.cumulative_keys.str() + " differ in their number of sequences");
    }
    if (o.key_lengths) {
        lengths(o.key_lengths, "key_lengths");
        const Dim sequences = o.cumulative_queries ? o.cumulative_queries.size(0) - Dim(1) : q.size(0);
        require(o.key_lengths.size(0) == sequences, kName,
                o.key_lengths.str() + " must hold a length for each of " + q.graph().str(sequences) + " sequences");
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

}  // namespace

FusedAttention fused_attention(Value q, Value k, Value v, const FusedAttentionOptions& o) {
    check_shapes(q, k, v, o);
    check_sequences(q, k, o);
    require_finite(kName, "scale", o.scores.scale);
    require(std::isfinite(o.scores.softcap) && o.scores.softcap >= 0, kName,
            "softcap = " + std::to_string(o.scores.softcap) + " is not finite and >= 0");
    const Mask& mask = o.scores.mask;
    require(!std::isnan(mask.fill) && mask.fill < 0, kName,
            "mask fill = " + std::to_string(mask.fill) + " is neither -inf nor a finite negative number");
    require(mask.window >= 0 && (mask.window == 0 || mask.causal != Causal::none), kName,
            "window = " + std::to_string(mask.window) + " needs a causal mask and must not be negative");
    require(o.dropout >= 0.0f && o.dropout <= 1.0f, kName,
            "dropout = " + std::to_string(o.dropout) + " is not in 0..1");

    AttentionParams p{.options = o};
    p.group = static_cast<uint>(q.size(1).constant() / k.size(1).constant());
    std::vector<Value> inputs{rows_of(q), rows_of(k), rows_of(v)};
    const auto add = [&](const Value& x) {
        inputs.push_back(x);
        return static_cast<int>(inputs.size() - 1);
    };
    const Shape scores{q.size(0), q.size(1), q.size(2),
                       o.pages  ? o.pages.size(1) * k.size(2)
                       : o.ring ? o.ring->count
                                : k.size(2)};
    const auto add_broadcast = [&](const Value& x, const char* what, bool a_head_each, bool dense, int& at,
                                   uint& present) {
        if (x) {
            const Broadcast b = broadcast(x, what, scores, a_head_each, dense);
            at = add(b.tensor);
            present = b.present;
        }
    };
    add_broadcast(mask.keys, "mask", false, false, p.mask, p.mask_present);
    add_broadcast(mask.bias, "bias", false, true, p.bias, p.bias_present);
    add_broadcast(mask.alibi_slopes, "alibi_slopes", true, true, p.slopes, p.slopes_present);
    add_broadcast(o.scores.sinks, "sinks", true, true, p.sinks, p.sinks_present);
    constexpr uint kQueryOrKey = kAttentionPresentQuery | kAttentionPresentKey;
    require(((p.slopes_present | p.sinks_present) & kQueryOrKey) == 0, kName,
            "alibi_slopes and sinks must be one number a head");
    if (mask.keys) {
        require_dtype(kName, mask.keys, DType::i32);
    }
    for (const Value& x : {mask.bias, mask.alibi_slopes, o.scores.sinks}) {
        if (x) {
            require_dtype(kName, x, DType::f32);
        }
    }
    if (o.cumulative_queries) {
        p.queries = add(o.cumulative_queries);
        q.graph().constrain(1, o.cumulative_queries.size(0), "cumulative_queries begin with 0");
    }
    if (o.cumulative_keys || o.key_lengths) {
        p.keys = add(o.cumulative_keys ? o.cumulative_keys : o.key_lengths);
    }
    if (o.pages) {
        p.pages = add(whole(o.pages) ? o.pages : contiguous(o.pages));
    }
    p.most_queries = q.graph().max_of(scores[2]);
    p.most_keys = q.graph().max_of(scores[3]);
    p.head_dim = q.size(3).constant();
    p.full = inputs.size() > 3 || o.log_sum_exp;
    if (o.ring) {  // two views, only for their sizes: that is how a dispatch learns them
        p.ring = add(slice(k, 2, 0, o.ring->count));
        add(slice(k, 2, 0, o.ring->first + Dim(1)));
    }

    std::vector<OutputSpec> outputs{
        {DType::f32, {q.size(0), q.size(1), q.size(2), value_dim(q, v, o)}, {0, 2, 1, 3}, {}}};
    if (o.log_sum_exp) {
        outputs.push_back({DType::f32, {q.size(0), q.size(1), q.size(2)}, {}, {}});
    }
    const std::vector<Value> results = q.graph().add_node(kFusedAttention, inputs, params(std::move(p)), outputs);
    return {results[0], o.log_sum_exp ? results[1] : Value()};
}

}  // namespace vkf
