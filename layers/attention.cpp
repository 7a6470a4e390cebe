// SPDX-License-Identifier: Apache-2.0
#include "layers/attention.h"

#include <cmath>

#include "layers/composed_attention.h"

namespace vkf {

namespace {

std::int64_t fixed_width(const char* op, const Value& x) {
    if (x.rank() != 3 || !x.size(-1).is_constant()) {
        throw Error(x.str() + " must be (batch, tokens, width) with a fixed width", op);
    }
    return x.size(-1).constant();
}

/// The scores' scale, after checking that the three fit together.
float checked_scale(const Value& q, const Value& k, const Value& v, const AttentionOptions& o) {
    constexpr const char* kName = "scaled_dot_product_attention";
    const auto together = [&](bool good, const char* what) {
        if (!good) {
            throw Error(
                std::string(what) + " of query " + q.str() + ", key " + k.str() + ", value " + v.str() + " do not fit",
                kName);
        }
    };
    together(q.rank() == 4 && k.rank() == 4 && v.rank() == 4, "ranks (all must be 4)");
    together(q.size(0) == k.size(0) && k.size(0) == v.size(0), "batches");
    together(q.size(3) == k.size(3), "head sizes");
    together(k.size(2) == v.size(2) && k.size(1) == v.size(1), "keys and values");
    together(q.size(1).is_constant() && k.size(1).is_constant() && q.size(1).constant() % k.size(1).constant() == 0,
             "head counts (queries' must be a multiple of keys')");
    together(q.size(3).is_constant(), "head sizes (must be fixed)");
    if (!std::isfinite(o.scale)) {
        throw Error("scale = " + std::to_string(o.scale) + " is not finite", kName);
    }
    return o.scale != 0.0f ? o.scale : static_cast<float>(1.0 / std::sqrt(static_cast<double>(q.size(3).constant())));
}

/// (B, Hk, S, d) -> (B, H, S, d) by copying.
Value repeat_heads(Value x, std::int64_t n) { return transpose(repeat_kv(transpose(x, 1, 2), n), 1, 2); }

/// A tensor of scores that kernels can address: with more of them there are no weights, and only the fused way.
bool fits_composed(const Value& q, const Value& k) {
    double scores = 1;
    for (const Dim& d : {q.size(0), q.size(1), q.size(2), k.size(2)}) {
        scores *= static_cast<double>(q.graph().max_of(d));
    }
    return scores < 4294967296.0;
}

/// ALiBi slopes and sinks that differ from query to query or key to key are beyond the fused kernels.
bool fits_fused(const SoftmaxOptions& o) {
    const auto a_number_a_head = [](const Value& x) {
        return !x || x.rank() <= 1 || (x.size(-1) == Dim(1) && x.size(-2) == Dim(1));
    };
    return a_number_a_head(o.mask.alibi_slopes) && a_number_a_head(o.sinks);
}

}  // namespace

Value linear_layer(Value x, const std::string& name, std::int64_t out, bool bias, Activation activation) {
    Graph& g = x.graph();
    const Scope scope(g, name);
    return linear(x, g.weight("weight", {out, x.size(-1)}), bias ? g.weight("bias", {out}) : Value(), activation);
}

AttentionResult scaled_dot_product_attention(Value q, Value k, Value v, const AttentionOptions& o) {
    const SoftmaxOptions softmax_options{o.mask, checked_scale(q, k, v, o), o.softcap, o.sinks};
    const std::int64_t heads = q.size(1).constant();
    const std::int64_t group = heads / k.size(1).constant();
    if (group > 1 && o.repeat_kv) {
        k = repeat_heads(k, group);
        v = repeat_heads(v, group);
    }
    AttentionResult composed;
    const bool composable = fits_composed(q, k);
    if (composable) {
        composed = composed_attention(q, k, v, softmax_options, o);
    }
    if (composable && (!fits_fused(softmax_options) || !v.size(3).is_constant())) {
        return composed;
    }
    const FusedAttention fused = fused_attention(q, k, v,
                                                 {.scores = softmax_options,
                                                  .dropout = o.dropout,
                                                  .dropout_seed = o.dropout_seed,
                                                  .log_sum_exp = o.log_sum_exp,
                                                  .score_mod = o.score_mod});
    if (!composable) {
        return {fused.y, {}, fused.log_sum_exp};
    }
    Graph& g = q.graph();
    return {g.prefer(fused.y, composed.y), composed.weights,
            o.log_sum_exp ? g.prefer(fused.log_sum_exp, composed.log_sum_exp) : Value()};
}

CachedKv append(const KvCache& cache, Value key, Value value) {
    const auto into = [&](Value state, Value x) {
        if (state.rank() != 4 || x.rank() != 4) {
            throw Error("cache " + state.str() + " and " + x.str() + " must be (batch, tokens, heads, head_dim)",
                        "append");
        }
        const Value rows = slice(state, 0, 0, x.size(0));
        copy_into(slice(rows, 1, cache.start, x.size(1)), x);
        return transpose(slice(rows, 1, 0, cache.start + x.size(1)), 1, 2);
    };
    return {into(cache.key, key), into(cache.value, value)};
}

AttentionResult self_attention(Value x, const SelfAttentionOptions& o) {
    const std::int64_t width = fixed_width("self_attention", x);
    const Scope scope(x.graph(), o.name);
    Value q, k, v;
    if (o.fused_qkv) {
        const Value qkv = linear_layer(x, "qkv_proj", 3 * width, o.bias);
        q = slice(qkv, -1, 0, width);
        k = slice(qkv, -1, width, width);
        v = slice(qkv, -1, 2 * width, width);
    } else {
        q = linear_layer(x, "q_proj", width, o.bias);
        k = linear_layer(x, "k_proj", width, o.bias);
        v = linear_layer(x, "v_proj", width, o.bias);
    }
    const float scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(width)));
    const Value weights = softmax(matmul(q, k, {.transpose_b = true}), {.mask = o.mask, .scale = scale});
    const Value y = matmul(weights, v, {.masked_weights = std::isinf(o.mask.fill)});
    return {o.out_proj ? linear_layer(y, "out_proj", width, o.bias) : y, weights, {}};
}

AttentionResult multi_head_attention(Value query, Value key, Value value, const MultiHeadAttentionOptions& o) {
    const std::int64_t width = fixed_width("multi_head_attention", query);
    const Scope scope(query.graph(), o.name);
    const Value q = split_heads(linear_layer(query, "q_proj", width, o.bias), o.heads);
    const Value k = split_heads(linear_layer(key, "k_proj", width, o.bias), o.heads);
    const Value v = split_heads(linear_layer(value, "v_proj", width, o.bias), o.heads);
    const AttentionResult a = scaled_dot_product_attention(q, k, v, {.mask = o.mask});
    return {linear_layer(merge_heads(a.y), "out_proj", width, o.bias), a.weights, {}};
}

Value multi_head_attention_by_heads(Value query, Value key, Value value, const MultiHeadAttentionOptions& o) {
    constexpr const char* kName = "multi_head_attention_by_heads";
    const std::int64_t width = fixed_width(kName, query);
    if (o.heads < 1 || width % o.heads != 0) {
        throw Error("width " + std::to_string(width) + " of " + query.str() + " does not divide into " +
                        std::to_string(o.heads) + " heads",
                    kName);
    }
    const std::int64_t d = width / o.heads;
    const Scope scope(query.graph(), o.name);
    std::vector<Value> heads;
    for (std::int64_t h = 0; h < o.heads; ++h) {
        const Scope head(query.graph(), "heads." + std::to_string(h));
        const auto project = [&](Value x, const char* name) {
            return split_heads(linear_layer(x, name, d, o.bias), 1);
        };
        const AttentionOptions options{.mask = o.mask};
        heads.push_back(merge_heads(scaled_dot_product_attention(project(query, "q_proj"), project(key, "k_proj"),
                                                                 project(value, "v_proj"), options)
                                        .y));
    }
    return linear_layer(concat(heads, -1), "out_proj", width, o.bias);
}

AttentionResult grouped_query_attention(Value x, const GroupedQueryAttentionOptions& o) {
    constexpr const char* kName = "grouped_query_attention";
    const std::int64_t width = fixed_width(kName, x);
    const auto numbers = [&] {
        return "heads " + std::to_string(o.heads) + ", kv_heads " + std::to_string(o.kv_heads) + ", head_dim " +
               std::to_string(o.head_dim) + " over width " + std::to_string(width);
    };
    if (o.heads < 1 || o.kv_heads < 1 || o.heads % o.kv_heads != 0) {
        throw Error(numbers() + ": the heads do not divide into groups", kName);
    }
    if (o.head_dim < 0 || (o.head_dim == 0 && width % o.heads != 0)) {
        throw Error(numbers() + ": the width does not divide into heads; give head_dim", kName);
    }
    const std::int64_t d = o.head_dim != 0 ? o.head_dim : width / o.heads;
    const Scope scope(x.graph(), o.name);
    Value q = split_heads(linear_layer(x, o.names[0], o.heads * d, o.bias || o.qkv_bias), o.heads);
    Value k = split_heads(linear_layer(x, o.names[1], o.kv_heads * d, o.bias || o.qkv_bias), o.kv_heads);
    Value v = split_heads(linear_layer(x, o.names[2], o.kv_heads * d, o.bias || o.qkv_bias), o.kv_heads);
    const Dim start = o.cache ? o.cache->start : Dim(0);
    if (o.rope) {
        Rope turn = *o.rope;
        if (turn.max_positions == 0) {
            turn.max_positions = o.cache ? x.graph().max_of(o.cache->key.size(1)) : x.graph().max_of(x.size(1));
        }
        q = rope(q, turn, start);
        k = rope(k, turn, start);
    }
    if (o.cache) {
        const CachedKv all = append(*o.cache, transpose(k, 1, 2), transpose(v, 1, 2));
        k = all.key;
        v = all.value;
    }
    AttentionOptions options{.scale = o.scale, .softcap = o.softcap, .sinks = o.sinks};
    options.repeat_kv = o.repeat_kv;
    options.mask.causal = o.causal ? Causal::bottom_right : Causal::none;
    options.mask.window = o.window;
    const AttentionResult a = scaled_dot_product_attention(q, k, v, options);
    return {linear_layer(merge_heads(a.y), o.names[3], width, o.bias), a.weights, {}};
}

IncrementalAttentionResult incremental_attention(Value x, Value context, Value cache_key, Value cache_value,
                                                 const IncrementalAttentionOptions& o) {
    constexpr const char* kName = "incremental_attention";
    if (x.rank() != 2 || context.rank() != 2 || cache_key.rank() != 4 || cache_value.rank() != 4) {
        throw Error(x.str() + ", " + context.str() + ", " + cache_key.str() + ", " + cache_value.str() +
                        " must be (batch, width) twice and (batch, kv_heads, tokens, head_dim) twice",
                    kName);
    }
    if (o.heads < 1 || o.kv_heads < 1 || o.heads % o.kv_heads != 0 || !(cache_key.size(1) == Dim(o.kv_heads))) {
        throw Error("heads " + std::to_string(o.heads) + " and kv_heads " + std::to_string(o.kv_heads) +
                        " do not fit " + cache_key.str(),
                    kName);
    }
    Graph& g = x.graph();
    const Scope scope(g, o.name);
    const Dim e = x.size(1);
    const auto weight = [&](const char* name, std::int64_t heads) { return g.weight(name, {heads, e, o.head_dim}); };
    // (1, B, E) x (H, E, d) -> (H, B, d) -> (B, H, 1, d)
    const auto project = [&](Value v, Value w) {
        const Value heads_first = matmul(reshape(v, {1, v.size(0), v.size(1)}), w);
        const Value batch_first = transpose(heads_first, 0, 1);
        return reshape(batch_first, {batch_first.size(0), batch_first.size(1), 1, batch_first.size(2)});
    };
    const Value q = project(x, weight("q", o.heads));
    const Value k = concat({cache_key, project(context, weight("k", o.kv_heads))}, 2);
    const Value v = concat({cache_value, project(context, weight("v", o.kv_heads))}, 2);
    const AttentionResult a = scaled_dot_product_attention(q, k, v, {.scale = o.scale});
    const Value merged = reshape(a.y, {x.size(0), o.heads * o.head_dim});
    const Value out = reshape(contiguous(transpose(weight("o", o.heads), 0, 1)), {e, o.heads * o.head_dim});
    return {linear(merged, out), k, v};
}

Value attention_scores(Value query, Value key, const ScoreOptions& o) {
    constexpr const char* kName = "attention_scores";
    const std::int64_t width = fixed_width(kName, query);
    if (!(fixed_width(kName, key) == width)) {
        throw Error(query.str() + " and " + key.str() + " differ in width", kName);
    }
    Graph& g = query.graph();
    const Scope scope(g, o.name);
    if (o.kind == ScoreKind::general) {
        query = matmul(query, g.weight("w", {width, width}));
    }
    if (o.kind != ScoreKind::additive) {
        const double scale = o.kind == ScoreKind::scaled_dot ? 1.0 / std::sqrt(static_cast<double>(width)) : 1.0;
        return matmul(query, key, {.scale = static_cast<float>(scale), .transpose_b = true});
    }
    if (o.hidden < 1) {
        throw Error("the additive kind needs `hidden`", kName);
    }
    const Value q = linear(query, g.weight("w", {o.hidden, width}));
    const Value k = linear(key, g.weight("u", {o.hidden, width}));
    const Value pairs =
        activate(reshape(q, {q.size(0), q.size(1), 1, o.hidden}) + reshape(k, {k.size(0), 1, k.size(1), o.hidden}),
                 Activation::tanh);  // (B, L, S, A)
    const Value scores = linear(pairs, reshape(g.weight("v", {o.hidden}), {1, o.hidden}));
    return reshape(scores, {q.size(0), q.size(1), k.size(1)});
}

}  // namespace vkf
