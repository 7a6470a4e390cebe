// SPDX-License-Identifier: Apache-2.0
#include "layers/attention.h"

#include <cmath>
#include <vector>

#include "layers/checks.h"
#include "layers/layer_scope.h"
#include "layers/projections.h"
#include "layers/sharing.h"
#include "ops/attention_params.h"
#include "ops/collectives.h"

namespace vkf {

AttentionResult self_attention(Value x, const SelfAttentionOptions& options) {
    const std::int64_t width = fixed_width("self_attention", x);
    const LayerScope scope(x.graph(), options.name);
    const HeadSizes sizes{.head_dim = width};
    const auto [q, k, v] =
        options.fused_qkv ? project_fused(x, "qkv_proj", sizes, options.bias) : project(x, sizes, options.bias);
    const float scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(width)));
    const Value weights = softmax(matmul(q, k, {.transpose_b = true}), {.mask = options.mask, .scale = scale});
    const Value y = matmul(weights, v, {.masked_weights = std::isinf(options.mask.fill)});
    return {options.out_proj ? linear_layer(y, "out_proj", width, options.bias) : y, weights, {}};
}

AttentionResult multi_head_attention(Value query, Value key, Value value, const MultiHeadAttentionOptions& options) {
    constexpr const char* kName = "multi_head_attention";
    check_one_graph(kName, query, {key, value});
    const HeadSizes sizes = heads_over_width(kName, query, options.heads);
    fixed_width(kName, key);
    fixed_width(kName, value);
    Graph& g = query.graph();
    const Part own = share_of_heads(sizes, g.rank()).query;
    const AttentionOptions attention{.mask = some_heads(options.mask, sizes.heads, own)};
    support::check_attention(g, attention, {query.size(0), own.count, query.size(1), key.size(1)});
    const LayerScope scope(g, options.name);
    const auto [q, k, v] = split_heads(project(QueryKeyValue{query, key, value}, sizes, options.bias), sizes);
    const AttentionResult a = scaled_dot_product_attention(q, k, v, attention);
    return {output_projection(merge_heads(a.y), "out_proj", sizes, sizes.heads * sizes.head_dim, options.bias),
            a.weights,
            {}};
}

Value multi_head_attention_by_heads(Value query, Value key, Value value, const MultiHeadAttentionOptions& options) {
    constexpr const char* kName = "multi_head_attention_by_heads";
    check_one_graph(kName, query, {key, value});
    const HeadSizes sizes = heads_over_width(kName, query, options.heads);
    fixed_width(kName, key);
    fixed_width(kName, value);
    Graph& g = query.graph();
    const Part own = share_of_heads(sizes, g.rank()).query;
    const auto attention = [&](const Part& of) {
        return AttentionOptions{.mask = some_heads(options.mask, sizes.heads, of)};
    };
    support::check_attention(g, attention(own), {query.size(0), own.count, query.size(1), key.size(1)});
    const LayerScope scope(g, options.name);
    std::vector<Value> heads;
    for (std::int64_t h = own.first; h < own.first + own.count; ++h) {
        const Scope head(g, "heads." + std::to_string(h));
        const auto project = [&](Value x, const char* name) {
            return split_heads(linear_layer(x, name, sizes.head_dim, options.bias), 1);
        };
        const AttentionResult a = scaled_dot_product_attention(project(query, "q_proj"), project(key, "k_proj"),
                                                               project(value, "v_proj"), attention({h, 1}));
        heads.push_back(merge_heads(a.y));
    }
    return output_projection(concat(heads, -1), "out_proj", sizes, sizes.heads * sizes.head_dim, options.bias);
}

AttentionResult grouped_query_attention(Value x, const GroupedQueryAttentionOptions& options) {
    constexpr const char* kName = "grouped_query_attention";
    const std::int64_t width = fixed_width(kName, x);
    check_heads(kName, options.heads, options.kv_heads, x);
    if (options.head_dim < 0 || (options.head_dim == 0 && width % options.heads != 0)) {
        throw Error("heads " + std::to_string(options.heads) + ", head_dim " + std::to_string(options.head_dim) +
                        " over " + x.str() + ", width " + std::to_string(width) +
                        ": the width does not divide into heads; give head_dim",
                    kName);
    }
    const HeadSizes sizes{options.heads, options.kv_heads,
                          options.head_dim != 0 ? options.head_dim : width / options.heads};
    check_columns(sizes);
    if (options.cache) {
        check_one_graph(kName, x, {options.cache->key, options.cache->value});
    }
    Graph& g = x.graph();
    const Part own = is_whole(g) ? Part{0, sizes.heads} : share_of_heads(sizes, g.rank()).query;
    const AttentionOptions attention{.mask = some_heads(options.mask, sizes.heads, own),
                                     .scale = options.scale,
                                     .softcap = options.softcap,
                                     .sinks = some_heads(options.sinks, sizes.heads, own),
                                     .repeat_kv = options.repeat_kv,
                                     .kv_type = options.cache ? options.cache->type : WeightType::f32,
                                     .ring = options.cache ? options.cache->seen : std::nullopt};
    const Dim start = options.cache ? options.cache->start : Dim(0);
    support::check_attention(
        g, attention, {x.size(0), own.count, x.size(1), attention.ring ? attention.ring->count : start + x.size(1)});
    const LayerScope scope(g, options.name);
    const bool bias = options.bias || options.qkv_bias;
    const auto& names = options.names;
    const QueryKeyValue projected = options.fused_qkv ? project_fused(x, names[0], sizes, bias)
                                                      : project(x, sizes, bias, {names[0], names[1], names[2]});
    auto [q, k, v] = options.qk_norm_eps ? split_and_norm_heads(projected, sizes, *options.qk_norm_eps)
                                         : split_heads(projected, sizes);
    if (options.cache && !options.cache->written && options.cache->key.rank() == 4) {
        // a full cache is told of before a table of its length
        slice(options.cache->key, 1, start, x.size(1));
    }
    if (options.rope) {
        Rope turn = *options.rope;
        if (turn.max_positions == 0) {
            // a ring has fewer rows than there are positions
            const bool kept_whole = options.cache && !options.cache->written;
            turn.max_positions = g.max_of(kept_whole ? options.cache->key.size(1) : start + x.size(1));
        }
        q = rope(q, turn, start);
        k = rope(k, turn, start);
    }
    if (options.cache) {
        const CachedKv all = append(*options.cache, transpose(k, 1, 2), transpose(v, 1, 2));
        k = all.key;
        v = all.value;
    }
    const AttentionResult a = scaled_dot_product_attention(q, k, v, attention);
    return {output_projection(merge_heads(a.y), names[3], sizes, width, options.bias), a.weights, {}};
}

IncrementalAttentionResult incremental_attention(Value x, Value context, Value cache_key, Value cache_value,
                                                 const IncrementalAttentionOptions& options) {
    constexpr const char* kName = "incremental_attention";
    if (x.rank() != 2 || context.rank() != 2 || cache_key.rank() != 4 || cache_value.rank() != 4) {
        throw Error(x.str() + ", " + context.str() + ", " + cache_key.str() + ", " + cache_value.str() +
                        " must be (batch, width) twice and (batch, kv_heads, tokens, head_dim) twice",
                    kName);
    }
    check_one_graph(kName, x, {context, cache_key, cache_value});
    check_heads(kName, options.heads, options.kv_heads, x);
    Graph& g = x.graph();
    const HeadSizes whole{options.heads, options.kv_heads, options.head_dim};
    check_columns(whole);
    const HeadShare own = share_of_heads(whole, g.rank());
    for (const Value& cache : {cache_key, cache_value}) {
        if (!(cache.size(1) == Dim(own.sizes.kv_heads) && cache.size(3) == Dim(options.head_dim))) {
            throw Error("kv_heads " + std::to_string(own.sizes.kv_heads) + ", head_dim " +
                            std::to_string(options.head_dim) + " do not fit " + cache.str(),
                        kName);
        }
    }
    const AttentionOptions attention{.mask = some_heads(options.mask, whole.heads, own.query), .scale = options.scale};
    support::check_attention(g, attention, {x.size(0), own.sizes.heads, 1, cache_key.size(2) + 1});
    const LayerScope scope(g, options.name);
    const Dim e = x.size(1);
    const auto weight = [&](const char* name, bool kv) {
        const Shape shape{kv ? own.sizes.kv_heads : own.sizes.heads, e, options.head_dim};
        if (is_whole(g)) {
            return g.weight(name, shape);
        }
        return g.weight(name, shape,
                        kv ? rows_of_heads(own.kv, 1, 0, whole.kv_heads) : Shard{0, whole.heads, {own.query}});
    };
    // (1, B, E) x (H, E, d) -> (H, B, d) -> (B, H, 1, d)
    const auto project = [&](Value v, Value w) {
        const Value heads_first = matmul(reshape(v, {1, v.size(0), v.size(1)}), w);
        const Value batch_first = transpose(heads_first, 0, 1);
        return reshape(batch_first, {batch_first.size(0), batch_first.size(1), 1, batch_first.size(2)});
    };
    const Value q = project(x, weight("q", false));
    const Value k = concat({cache_key, project(context, weight("k", true))}, 2);
    const Value v = concat({cache_value, project(context, weight("v", true))}, 2);
    const AttentionResult a = scaled_dot_product_attention(q, k, v, attention);
    const std::int64_t columns = own.sizes.heads * options.head_dim;
    const Value merged = reshape(a.y, {x.size(0), columns});
    const Value out = reshape(contiguous(transpose(weight("o", false), 0, 1)), {e, columns});
    const Value y = linear(merged, out);
    return {is_whole(g) ? y : all_reduce(y), k, v};
}

}  // namespace vkf
