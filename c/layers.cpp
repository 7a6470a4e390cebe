// SPDX-License-Identifier: Apache-2.0
#include "c/device.h"
#include "layers/feed_forward.h"
#include "layers/sequences.h"
#include "layers/torch.h"

struct vkf_lora {
    vkf::Lora lora;
};

namespace {

using namespace vkf;
using namespace vkf::c;

std::optional<RingRows> ring_of(const vkf_ring_rows* rows, const Graph& graph) {
    if (!rows) {
        return std::nullopt;
    }
    const vkf_ring_rows r = read(rows, "ring");
    return RingRows{dim_of(r.first, graph), dim_of(r.before_end, graph), dim_of(r.count, graph)};
}

std::optional<KvCache> cache_of(const vkf_kv_cache* cache) {
    if (!cache) {
        return std::nullopt;
    }
    const vkf_kv_cache c = read(cache, "cache");
    const Value key = value_of(c.key, "the cache's key");
    const Graph& graph = key.graph();
    return KvCache{key,
                   value_of(c.value, "the cache's value"),
                   dim_of(c.start, graph),
                   weight_type_of(c.type).value_or(WeightType::f32),
                   ring_of(c.written, graph),
                   ring_of(c.seen, graph)};
}

std::optional<CachedKv> projected_of(const vkf_cached_kv* memory) {
    if (!memory) {
        return std::nullopt;
    }
    const vkf_cached_kv m = read(memory, "memory");
    return CachedKv{value_of(m.key, "the memory's key"), value_of(m.value, "the memory's value")};
}

template <class Body>
vkf_result give_attention(const char* function, vkf_attention* out, Body&& body) noexcept {
    return guard(function, [&] {
        vkf_attention& result = need_struct(out, "the result");
        const AttentionResult a = body();
        fill(result, {0, to_c(a.y), to_c(a.weights), to_c(a.log_sum_exp)});
    });
}

template <class Body>
vkf_result give_keys_values(const char* function, vkf_cached_kv* out, Body&& body) noexcept {
    return guard(function, [&] {
        vkf_cached_kv& result = need_struct(out, "the output");
        const CachedKv kv = body();
        fill(result, {0, to_c(kv.key), to_c(kv.value)});
    });
}

/// Turns a scale of C into one of C++: 0 stands for 1 / sqrt(d).
std::optional<float> scale_of(float scale) { return scale != 0.0f ? std::optional(scale) : std::nullopt; }

AttentionOptions attention_of(const vkf_attention_options* options, const Graph& graph) {
    const vkf_attention_options o = read(options);
    AttentionOptions out;
    out.mask = mask_of(o.mask);
    out.scale = scale_of(o.scale);
    out.softcap = o.softcap;
    out.sinks = value_or_none(o.sinks);
    out.dropout = o.dropout;
    out.dropout_seed = dim_of(o.dropout_seed, graph);
    out.log_sum_exp = o.log_sum_exp;
    out.repeat_kv = o.repeat_kv;
    out.kv_type = weight_type_of(o.kv_type).value_or(WeightType::f32);
    out.value_dim = o.value_dim;
    out.ring = ring_of(o.ring, graph);
    out.key_lengths = value_or_none(o.key_lengths);
    if (o.score_mod) {
        out.score_mod = score_mod_of(o.score_mod, o.score_mod_parameters, o.score_mod_parameter_count);
    }
    return out;
}

torch::DecoderInputs decoder_inputs_of(const vkf_decoder_inputs& i) {
    torch::DecoderInputs in;
    in.projected_memory = projected_of(i.projected_memory);
    in.memory = in.projected_memory ? value_or_none(i.memory) : value_of(i.memory, "inputs.memory");
    in.tgt_mask = value_or_none(i.tgt_mask);
    in.tgt_key_padding_mask = value_or_none(i.tgt_key_padding_mask);
    in.memory_mask = value_or_none(i.memory_mask);
    in.memory_key_padding_mask = value_or_none(i.memory_key_padding_mask);
    in.tgt_is_causal = i.tgt_is_causal;
    in.cache = cache_of(i.cache);
    return in;
}

MultiHeadAttentionOptions multi_head_of(const vkf_multi_head_attention_options* options) {
    const vkf_multi_head_attention_options o = read(options);
    return {text_or(o.name), or_default<std::int64_t>(o.heads, 1), on_or_default(o.bias, true), mask_of(o.mask)};
}

PagedKvCache paged_of(const vkf_paged_kv_cache* cache) {
    const vkf_paged_kv_cache c = read_needed(cache, "cache");
    return {value_of(c.key, "the cache's key"), value_of(c.value, "the cache's value"),
            value_of(c.table, "the cache's table"), value_of(c.lengths, "the cache's lengths")};
}

constexpr std::array kScoreKinds = {ScoreKind::dot, ScoreKind::scaled_dot, ScoreKind::general, ScoreKind::additive};

torch::TransformerLayerOptions layer_of(const vkf_transformer_layer_options* options, const Graph& graph) {
    const vkf_transformer_layer_options o = read(options, "layer");
    torch::TransformerLayerOptions out;
    out.name = text_or(o.name);
    out.nhead = or_default(o.nhead, out.nhead);
    out.dim_feedforward = or_default(o.dim_feedforward, out.dim_feedforward);
    out.activation = or_default(activation_of(o.activation), out.activation);
    out.norm_first = o.norm_first;
    out.layer_norm_eps = or_default(o.layer_norm_eps, out.layer_norm_eps);
    out.bias = on_or_default(o.bias, out.bias);
    out.dropout = o.dropout;
    out.dropout_seed = dim_of(o.dropout_seed, graph);
    return out;
}

}  // namespace

vkf_result vkf_linear_layer(vkf_value x, const char* name, int64_t out, bool bias, vkf_activation activation,
                            vkf_value* y) {
    return give_value(__func__, y, [&] {
        return linear_layer(value_of(x, "x"), text_or(name), out, bias, activation_of(activation));
    });
}

vkf_result vkf_layer_norm_layer(vkf_value x, const char* name, float eps, bool bias, vkf_value* y) {
    return give_value(__func__, y, [&] { return torch::layer_norm_layer(value_of(x, "x"), text_or(name), eps, bias); });
}

vkf_result vkf_scaled_dot_product_attention(vkf_value query, vkf_value key, vkf_value value,
                                            const vkf_attention_options* options, vkf_attention* result) {
    return give_attention(__func__, result, [&] {
        const Value q = value_of(query, "query");
        return scaled_dot_product_attention(q, value_of(key, "key"), value_of(value, "value"),
                                            attention_of(options, q.graph()));
    });
}

vkf_result vkf_multi_head_attention(vkf_value query, vkf_value key, vkf_value value,
                                    const vkf_multi_head_attention_options* options, vkf_attention* result) {
    return give_attention(__func__, result, [&] {
        return multi_head_attention(value_of(query, "query"), value_of(key, "key"), value_of(value, "value"),
                                    multi_head_of(options));
    });
}

vkf_result vkf_multi_head_attention_by_heads(vkf_value query, vkf_value key, vkf_value value,
                                             const vkf_multi_head_attention_options* options, vkf_value* y) {
    return give_value(__func__, y, [&] {
        return multi_head_attention_by_heads(value_of(query, "query"), value_of(key, "key"), value_of(value, "value"),
                                             multi_head_of(options));
    });
}

vkf_result vkf_self_attention(vkf_value x, const vkf_self_attention_options* options, vkf_attention* result) {
    return give_attention(__func__, result, [&] {
        const vkf_self_attention_options o = read(options);
        SelfAttentionOptions out;
        out.name = text_or(o.name);
        out.fused_qkv = o.fused_qkv;
        out.out_proj = on_or_default(o.out_proj, out.out_proj);
        out.bias = on_or_default(o.bias, out.bias);
        out.mask = mask_of(o.mask);
        return self_attention(value_of(x, "x"), out);
    });
}

vkf_result vkf_incremental_attention(vkf_value x, vkf_value context, vkf_value cache_key, vkf_value cache_value,
                                     const vkf_incremental_attention_options* options, vkf_value* y,
                                     vkf_value* new_cache_key, vkf_value* new_cache_value) {
    return guard(__func__, [&] {
        vkf_value& first = need(y, "y");
        vkf_value& keys = need(new_cache_key, "new_cache_key");
        vkf_value& values = need(new_cache_value, "new_cache_value");
        const vkf_incremental_attention_options o = read(options);
        IncrementalAttentionOptions out;
        out.name = text_or(o.name);
        out.heads = or_default(o.heads, out.heads);
        out.kv_heads = or_default(o.kv_heads, out.kv_heads);
        out.head_dim = or_default(o.head_dim, out.head_dim);
        out.scale = scale_of(o.scale);
        out.mask = mask_of(o.mask);
        const IncrementalAttentionResult r =
            incremental_attention(value_of(x, "x"), value_of(context, "context"), value_of(cache_key, "cache_key"),
                                  value_of(cache_value, "cache_value"), out);
        first = to_c(r.y);
        keys = to_c(r.cache_key);
        values = to_c(r.cache_value);
    });
}

vkf_result vkf_attention_scores(vkf_value query, vkf_value key, const vkf_score_options* options, vkf_value* scores) {
    return give_value(__func__, scores, [&] {
        const vkf_score_options o = read(options);
        return attention_scores(value_of(query, "query"), value_of(key, "key"),
                                {text_or(o.name), pick(kScoreKinds, o.kind, "score kind"), o.hidden});
    });
}

vkf_result vkf_packed_attention(vkf_value query, vkf_value key, vkf_value value, vkf_value cumulative_queries,
                                vkf_value cumulative_keys, const vkf_attention_options* options,
                                vkf_attention* result) {
    return give_attention(__func__, result, [&] {
        const Value q = value_of(query, "query");
        return packed_attention(q, value_of(key, "key"), value_of(value, "value"),
                                value_of(cumulative_queries, "cumulative_queries"),
                                value_of(cumulative_keys, "cumulative_keys"), attention_of(options, q.graph()));
    });
}

vkf_result vkf_append_pages(const vkf_paged_kv_cache* cache, vkf_value key, vkf_value value, vkf_paged_kv_cache* all) {
    return guard(__func__, [&] {
        vkf_paged_kv_cache& result = need_struct(all, "all");
        const PagedKvCache after = append(paged_of(cache), value_of(key, "key"), value_of(value, "value"));
        fill(result, {0, to_c(after.key), to_c(after.value), to_c(after.table), to_c(after.lengths)});
    });
}

vkf_result vkf_paged_attention(vkf_value query, const vkf_paged_kv_cache* cache, const vkf_attention_options* options,
                               vkf_attention* result) {
    return give_attention(__func__, result, [&] {
        const Value q = value_of(query, "query");
        return paged_attention(q, paged_of(cache), attention_of(options, q.graph()));
    });
}

vkf_result vkf_grouped_query_attention(vkf_value x, const vkf_grouped_query_attention_options* options,
                                       vkf_attention* result) {
    return give_attention(__func__, result, [&] {
        const vkf_grouped_query_attention_options o = read(options);
        GroupedQueryAttentionOptions out;
        out.name = text_or(o.name);
        out.heads = or_default(o.heads, out.heads);
        out.kv_heads = or_default(o.kv_heads, out.kv_heads);
        out.head_dim = o.head_dim;
        if (o.rope) {
            out.rope = rope_of(o.rope);
        }
        if (o.mask) {
            out.mask = mask_of(o.mask);
        }
        out.bias = o.bias;
        out.qkv_bias = o.qkv_bias;
        out.scale = scale_of(o.scale);
        out.softcap = o.softcap;
        out.sinks = value_or_none(o.sinks);
        out.repeat_kv = o.repeat_kv;
        out.cache = cache_of(o.cache);
        if (o.qk_norm_eps != 0.0f) {
            out.qk_norm_eps = o.qk_norm_eps;
        }
        out.fused_qkv = o.fused_qkv;
        for (std::size_t i = 0; i < std::size(o.names); ++i) {
            out.names[i] = o.names[i] ? o.names[i] : out.names[i];
        }
        return grouped_query_attention(value_of(x, "x"), out);
    });
}

vkf_result vkf_graph_kv_cache(vkf_graph* graph, const char* name, int64_t batch, int64_t capacity, int64_t kv_heads,
                              int64_t head_dim, vkf_dim start, vkf_weight_type type, vkf_kv_cache* cache) {
    return guard(__func__, [&] {
        vkf_kv_cache& result = need_struct(cache, "cache");
        vkf_graph& g = need(graph, "graph");
        const KvCache made = kv_cache(g, text(name, "name"), batch, capacity, kv_heads, head_dim, dim_of(start, g),
                                      weight_type_of(type).value_or(WeightType::f32));
        fill(result, {0, to_c(made.key), to_c(made.value), start, type, 0, nullptr, nullptr});
    });
}

vkf_result vkf_append(const vkf_kv_cache* cache, vkf_value key, vkf_value value, vkf_cached_kv* all) {
    return give_keys_values(__func__, all, [&] {
        return append(*cache_of(&need(cache, "cache")), value_of(key, "key"), value_of(value, "value"));
    });
}

vkf_result vkf_feed_forward(vkf_value x, int64_t hidden, vkf_activation activation, const char* name, bool bias,
                            vkf_value* y) {
    return give_value(__func__, y, [&] {
        return feed_forward(value_of(x, "x"), hidden, activation_of(activation), text_or(name), bias);
    });
}

vkf_result vkf_gated_feed_forward(vkf_value x, int64_t hidden, vkf_activation activation, const char* name, bool bias,
                                  vkf_value* y) {
    return give_value(__func__, y, [&] {
        return gated_feed_forward(value_of(x, "x"), hidden, activation_of(activation), text_or(name), bias);
    });
}

vkf_result vkf_torch_multihead_attention(vkf_value query, vkf_value key, vkf_value value,
                                         const vkf_torch_attention_options* options, vkf_attention* result) {
    return give_attention(__func__, result, [&] {
        const vkf_torch_attention_options o = read(options);
        torch::MultiheadAttentionOptions out;
        out.name = text_or(o.name);
        out.num_heads = or_default(o.num_heads, out.num_heads);
        out.bias = on_or_default(o.bias, out.bias);
        out.add_bias_kv = o.add_bias_kv;
        out.add_zero_attn = o.add_zero_attn;
        out.batch_first = on_or_default(o.batch_first, out.batch_first);
        out.average_attn_weights = o.average_attn_weights;
        out.attn_mask = value_or_none(o.attn_mask);
        out.key_padding_mask = value_or_none(o.key_padding_mask);
        out.is_causal = o.is_causal;
        out.dropout = o.dropout;
        out.dropout_seed = dim_of(o.dropout_seed, value_of(query, "query").graph());
        out.cache = cache_of(o.cache);
        out.memory = projected_of(o.memory);
        const bool own = !out.memory;
        return torch::multihead_attention(value_of(query, "query"), own ? value_of(key, "key") : value_or_none(key),
                                          own ? value_of(value, "value") : value_or_none(value), out);
    });
}

vkf_result vkf_torch_project_memory(vkf_value memory, const char* name, int64_t num_heads, bool bias,
                                    vkf_cached_kv* projected) {
    return give_keys_values(__func__, projected, [&] {
        return torch::project_memory(value_of(memory, "memory"), text_or(name), num_heads, bias);
    });
}

vkf_result vkf_transformer_encoder_layer(vkf_value src, const vkf_transformer_layer_options* options,
                                         vkf_value src_mask, vkf_value src_key_padding_mask, vkf_value* y) {
    return give_value(__func__, y, [&] {
        const Value x = value_of(src, "src");
        return torch::transformer_encoder_layer(x, layer_of(options, x.graph()), value_or_none(src_mask),
                                                value_or_none(src_key_padding_mask));
    });
}

vkf_result vkf_transformer_decoder_layer(vkf_value tgt, const vkf_transformer_layer_options* options,
                                         const vkf_decoder_inputs* inputs, vkf_value* y, vkf_value* cross_weights) {
    return give_value(__func__, y, [&] {
        const Value x = value_of(tgt, "tgt");
        const torch::DecoderResult result = torch::transformer_decoder_layer(
            x, layer_of(options, x.graph()), decoder_inputs_of(read_needed(inputs, "inputs")));
        if (cross_weights) {
            *cross_weights = to_c(result.cross_weights);
        }
        return result.y;
    });
}

vkf_result vkf_transformer_encoder(vkf_value src, const vkf_transformer_layer_options* layer, int64_t num_layers,
                                   const char* name, vkf_value src_mask, vkf_value src_key_padding_mask, vkf_value* y) {
    return give_value(__func__, y, [&] {
        const Value x = value_of(src, "src");
        return torch::transformer_encoder(x, layer_of(layer, x.graph()), num_layers, text_or(name),
                                          value_or_none(src_mask), value_or_none(src_key_padding_mask));
    });
}

vkf_result vkf_transformer_decoder(vkf_value tgt, const vkf_transformer_layer_options* layer, uint32_t num_layers,
                                   const vkf_decoder_inputs* inputs, const char* name, vkf_value* y,
                                   vkf_value* cross_weights) {
    return give_value(__func__, y, [&] {
        std::vector<torch::DecoderInputs> all;
        for (std::uint32_t i = 0; i < num_layers; ++i) {
            vkf_decoder_inputs one{};
            if (const char* wrong = copy_element(&need(inputs, "inputs"), i, one)) {
                throw Error(wrong, "inputs[" + std::to_string(i) + "]");
            }
            all.push_back(decoder_inputs_of(one));
        }
        const Value x = value_of(tgt, "tgt");
        const torch::DecoderResult result =
            torch::transformer_decoder(x, layer_of(layer, x.graph()), all, text_or(name));
        if (cross_weights) {
            *cross_weights = to_c(result.cross_weights);
        }
        return result.y;
    });
}

vkf_result vkf_transformer(vkf_value src, vkf_value tgt, const vkf_transformer_options* options,
                           const vkf_transformer_masks* masks, vkf_value* y) {
    return give_value(__func__, y, [&] {
        const vkf_transformer_options o = read(options);
        torch::TransformerOptions out;
        out.layer = layer_of(o.layer, value_of(src, "src").graph());
        out.name = text_or(o.name);
        out.num_encoder_layers = or_default(o.num_encoder_layers, out.num_encoder_layers);
        out.num_decoder_layers = or_default(o.num_decoder_layers, out.num_decoder_layers);
        const vkf_transformer_masks m = read(masks, "masks");
        return torch::transformer(value_of(src, "src"), value_of(tgt, "tgt"), out,
                                  {.src_mask = value_or_none(m.src_mask),
                                   .tgt_mask = value_or_none(m.tgt_mask),
                                   .memory_mask = value_or_none(m.memory_mask),
                                   .src_key_padding_mask = value_or_none(m.src_key_padding_mask),
                                   .tgt_key_padding_mask = value_or_none(m.tgt_key_padding_mask),
                                   .memory_key_padding_mask = value_or_none(m.memory_key_padding_mask),
                                   .tgt_is_causal = m.tgt_is_causal});
    });
}

vkf_result vkf_lora_create(vkf_graph* graph, const vkf_lora_options* options, vkf_lora** lora) {
    return make(__func__, lora, [&] {
        Graph& described = need(graph, "graph");
        return new vkf_lora{Lora(described, lora_of(&need(options, "options")))};
    });
}

void vkf_lora_destroy(vkf_lora* lora) { delete lora; }

vkf_result vkf_lora_parameters(const vkf_lora* lora, uint32_t count, vkf_value* parameters, uint32_t* needed) {
    return guard(__func__, [&] {
        const std::vector<Value> found = need(lora, "lora").lora.parameters();
        std::uint32_t& all = need(needed, "needed");
        if (found.size() <= count) {
            for (std::size_t i = 0; i < found.size(); ++i) {
                (&need(parameters, "parameters"))[i] = to_c(found[i]);
            }
        }
        all = static_cast<std::uint32_t>(found.size());
    });
}
