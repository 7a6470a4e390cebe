// SPDX-License-Identifier: Apache-2.0
#include "layers/torch.h"

#include "layers/checks.h"
#include "layers/inner_layers.h"
#include "layers/layer_scope.h"
#include "layers/norm.h"
#include "layers/projections.h"
#include "layers/sharing.h"
#include "ops/attention_params.h"
#include "ops/checks.h"
#include "ops/collectives.h"

namespace vkf::torch {

namespace {

constexpr const char* kName = "torch.nn.MultiheadAttention";

/// The columns of this rank's heads, of all columns.
struct OwnColumns {
    Part heads, part;
    std::int64_t all = 0;

    OwnColumns(const Graph& g, const HeadSizes& sizes)
        : heads(share_of_heads(sizes, g.rank()).query),
          part{heads.first * sizes.head_dim, heads.count * sizes.head_dim},
          all(sizes.heads * sizes.head_dim) {}

    /// A parameter that has them `times` in dimension `dim`: once in each of so many thirds.
    Value weight(Graph& g, const char* name, Shape shape, std::size_t dim, std::int64_t times = 1) const {
        if (is_whole(g)) {
            return g.weight(name, shape);
        }
        Shard shard{dim, times * all, {}};
        for (std::int64_t i = 0; i < times; ++i) {
            shard.parts.push_back({i * all + part.first, part.count});
        }
        shape[dim] = times * part.count;
        return g.weight(name, shape, shard);
    }
};

/// The three projections: rows q | k | v of one matrix, or three matrices where keys or values have
/// a width of their own. A rank has the rows of its heads.
class Projections {
public:
    Projections(Graph& g, const OwnColumns& own, std::int64_t kdim, std::int64_t vdim, bool bias)
        : width_(own.part.count) {
        const std::int64_t e = own.all;
        packed_ = kdim == e && vdim == e;
        if (packed_) {
            weights_[0] = own.weight(g, "in_proj_weight", {3 * e, e}, 0, 3);
        } else {
            weights_[0] = own.weight(g, "q_proj_weight", {e, e}, 0);
            weights_[1] = own.weight(g, "k_proj_weight", {e, kdim}, 0);
            weights_[2] = own.weight(g, "v_proj_weight", {e, vdim}, 0);
        }
        bias_ = bias ? own.weight(g, "in_proj_bias", {3 * e}, 0, 3) : Value();
    }

    bool packed() const { return packed_; }

    /// Parts first..last-1 (0 q, 1 k, 2 v) of x in one product: (B, L, (last-first) E). Several
    /// parts only when packed().
    Value operator()(Value x, std::int64_t first, std::int64_t last) const {
        const auto rows = [&](Value v) { return slice(v, 0, first * width_, (last - first) * width_); };
        return linear(x, packed_ ? rows(weights_[0]) : weights_[first], bias_ ? rows(bias_) : Value());
    }

private:
    std::int64_t width_;
    bool packed_ = true;
    Value weights_[3], bias_;
};

/// `extra` columns of zeros behind the last dimension, which is of `keys` or for all of them: keys
/// that no mask masks.
Value unmasked_columns(Value mask, const Dim& keys, std::int64_t extra) {
    if (!mask || extra == 0) {
        return mask;
    }
    if (mask.rank() == 0) {
        mask = reshape(mask, {1});
    }
    if (mask.size(-1) == Dim(1)) {
        Shape wide = mask.shape();
        wide.back() = keys;
        mask = broadcast_to(mask, wide);
    }
    Graph& g = mask.graph();
    const std::int32_t zero_int = 0;
    const float zero_float = 0.0f;
    const Value zero = mask.dtype() == DType::i32 ? g.constant("no_mask", {1}, std::span(&zero_int, 1))
                                                  : g.constant("no_bias", {1}, std::span(&zero_float, 1));
    Shape shape = mask.shape();
    shape.back() = extra;
    return concat({mask, broadcast_to(zero, shape)}, -1);
}

/// attn_mask as what broadcasts to (B, H, L, S), over a query (B, L, E).
Value over_heads(Value mask, const Value& query, std::int64_t heads) {
    if (!mask || mask.rank() != 3 || mask.size(0) == Dim(1)) {
        return mask;
    }
    const Dim all = query.size(0) * Dim(heads);
    const bool of_all = mask.size(0) == Dim(heads);  // the same for each sequence
    support::require(of_all || mask.size(0) == all, kName,
                     "attn_mask " + mask.str() + " over query " + query.str() + " has neither 1 in front, nor heads, " +
                         std::to_string(heads) + ", nor batch times heads, " + query.graph().str(all));
    return reshape(mask, {of_all ? Dim(1) : query.size(0), heads, mask.size(1), mask.size(2)});
}

/// key_padding_mask as what broadcasts to (B, H, L, S).
Value padding_over_heads(Value mask) { return mask ? reshape(mask, {mask.size(0), 1, 1, mask.size(1)}) : mask; }

/// One of PyTorch's masks as one of ours.
Mask mask_of(Value m) {
    const bool logical = m && m.dtype() == DType::i32;
    return {.keys = logical ? m : Value(), .polarity = Polarity::ignore, .bias = logical ? Value() : m};
}

/// PyTorch's two masks, over `extra` keys appended to `keys`, as one of ours.
Mask mask_of(const MultiheadAttentionOptions& o, Value attention, const Dim& keys, std::int64_t extra) {
    Mask mask;
    attention = unmasked_columns(attention, keys, extra);
    const Value padding = unmasked_columns(padding_over_heads(o.key_padding_mask), keys, extra);
    for (const Value& m : {attention, padding}) {
        if (!m) {
            continue;
        }
        if (m.dtype() == DType::i32) {
            mask.keys = mask.keys ? combine_masks(mask.keys, Polarity::ignore, m, Polarity::ignore) : m;
            mask.polarity = mask.keys.id() == m.id() ? Polarity::ignore : Polarity::attend;
        } else {
            mask.bias = mask.bias ? mask.bias + m : m;
        }
    }
    if (o.is_causal) {
        mask.causal = o.cache ? Causal::bottom_right : Causal::top_left;
    }
    return mask;
}

/// Row vectors (1, 1, E) behind the keys or values (B, S, E).
Value append_row(Value x, Value row) { return concat({x, broadcast_to(row, {x.size(0), 1, x.size(2)})}, 1); }

/// (B, this rank's heads of H, L, S) -> (B, L, S), over all H.
Value mean_over_heads(Value weights, std::int64_t heads) {
    const std::int64_t own = weights.size(1).constant();
    const std::vector<float> shares(static_cast<std::size_t>(own), 1.0f / static_cast<float>(heads));
    const Value average = weights.graph().constant("head_average", {1, own}, shares);
    const Value flat = reshape(weights, {weights.size(0), weights.size(1), weights.size(2) * weights.size(3)});
    const Value mean = reshape(matmul(average, flat), {weights.size(0), weights.size(2), weights.size(3)});
    return is_whole(weights.graph()) ? mean : all_reduce(mean);
}

/// Throws for options that exclude each other, before anything is described.
void check_options(const MultiheadAttentionOptions& o) {
    const bool appends = o.add_bias_kv || o.add_zero_attn;
    if (o.memory && appends) {
        throw Error("add_bias_kv or add_zero_attn together with memory, which is projected to its last row already",
                    kName);
    }
    if (o.memory && o.cache) {
        throw Error("a cache together with memory, whose keys are the same in every run", kName);
    }
    if (o.is_causal && appends) {
        throw Error("is_causal together with add_bias_kv or add_zero_attn; give attn_mask instead", kName);
    }
    if (o.key_padding_mask && o.key_padding_mask.rank() != 2) {
        throw Error("key_padding_mask " + o.key_padding_mask.str() + " must be (batch, keys)", kName);
    }
    if (o.cache && o.cache->type != WeightType::f32) {
        throw Error("a cache kept as " + std::string(name_of(o.cache->type)) +
                        " is for grouped_query_attention; here it is f32",
                    kName);
    }
    if (o.cache && o.cache->written) {
        throw Error("a cache that is a ring is for grouped_query_attention", kName);
    }
}

/// Ranks would draw numbers of their own for what they have of a layer.
void refuse_dropout(const Graph& g, float dropout) {
    if (dropout != 0.0f && !is_whole(g)) {
        throw Error("dropout " + std::to_string(dropout) + " cannot be shared out over " +
                        std::to_string(g.rank().ranks) + " ranks",
                    "parallel");
    }
}

}  // namespace

AttentionResult multihead_attention(Value query, Value key, Value value, const MultiheadAttentionOptions& options) {
    check_options(options);
    check_one_graph(kName, query, {key, value, options.attn_mask, options.key_padding_mask});
    if (options.memory) {
        check_one_graph(kName, query, {options.memory->key, options.memory->value});
    }
    if (options.cache) {
        check_one_graph(kName, query, {options.cache->key, options.cache->value});
    }
    Graph& g = query.graph();
    const LayerScope scope(g, options.name);
    const auto is_query = [&](const Value& v) { return v && &v.graph() == &g && v.id() == query.id(); };
    const bool same = is_query(key) && is_query(value);
    if (!options.batch_first) {
        query = transpose(query, 0, 1);
        if (!options.memory) {
            key = transpose(key, 0, 1);
            value = transpose(value, 0, 1);
        }
    }
    refuse_dropout(g, options.dropout);
    const HeadSizes sizes = heads_over_width(kName, query, options.num_heads);
    const Value attn_mask = over_heads(options.attn_mask, query, options.num_heads);
    const OwnColumns own(g, sizes);
    const std::int64_t e = own.all, heads = own.heads.count;
    const std::int64_t kdim = options.memory ? e : fixed_width(kName, key);
    const std::int64_t vdim = options.memory ? e : fixed_width(kName, value);
    const std::int64_t extra = std::int64_t{options.add_bias_kv} + std::int64_t{options.add_zero_attn};
    AttentionOptions attention{.dropout = options.dropout, .dropout_seed = options.dropout_seed};
    const Dim keys = options.memory  ? options.memory->key.size(2)
                     : options.cache ? options.cache->start + key.size(1)
                                     : key.size(1);
    for (const Value& m : {attn_mask, padding_over_heads(options.key_padding_mask)}) {
        attention.mask = some_heads(mask_of(m), sizes.heads, own.heads);
        support::check_attention(g, attention, {query.size(0), heads, query.size(1), keys});
    }
    const Projections in(g, own, kdim, vdim, options.bias);
    Value q, k, v;
    if (options.memory) {
        q = in(query, 0, 1);
        k = options.memory->key;
        v = options.memory->value;
    } else {
        if (same && in.packed()) {  // one product for all three
            const QueryKeyValue parts = split_columns(in(query, 0, 3), {.head_dim = own.part.count});
            q = parts.query;
            k = parts.key;
            v = parts.value;
        } else {
            q = in(query, 0, 1);
            k = in(key, 1, 2);
            v = in(value, 2, 3);
        }
        if (options.add_bias_kv) {
            k = append_row(k, own.weight(g, "bias_k", {1, 1, e}, 2));
            v = append_row(v, own.weight(g, "bias_v", {1, 1, e}, 2));
        }
        if (options.add_zero_attn) {
            const std::vector<float> zeros(static_cast<std::size_t>(own.part.count), 0.0f);
            const Value zero = g.constant("zero_row", {1, 1, own.part.count}, zeros);
            k = append_row(k, zero);
            v = append_row(v, zero);
        }
        k = split_heads(k, heads);
        v = split_heads(v, heads);
    }
    q = split_heads(q, heads);
    if (options.cache) {
        const CachedKv all = append(*options.cache, transpose(k, 1, 2), transpose(v, 1, 2));
        k = all.key;
        v = all.value;
    }
    attention.mask = some_heads(mask_of(options, attn_mask, keys, extra), sizes.heads, own.heads);
    const AttentionResult a = scaled_dot_product_attention(q, k, v, attention);
    const auto swapped = [&](Value x) { return options.batch_first || !x ? x : transpose(x, 0, 1); };
    const Value y = swapped(output_projection(merge_heads(a.y), "out_proj", sizes, e, options.bias));
    return {y, options.average_attn_weights ? mean_over_heads(a.weights, options.num_heads) : a.weights, {}};
}

CachedKv project_memory(Value memory, const std::string& name, std::int64_t num_heads, bool bias) {
    const LayerScope scope(memory.graph(), name);
    const HeadSizes sizes = heads_over_width(kName, memory, num_heads);
    const OwnColumns own(memory.graph(), sizes);
    const std::int64_t count = own.part.count, heads = own.heads.count;
    const Value kv = Projections(memory.graph(), own, own.all, own.all, bias)(memory, 1, 3);
    return {split_heads(slice(kv, -1, 0, count), heads), split_heads(slice(kv, -1, count, count), heads)};
}

Value layer_norm_layer(Value x, const std::string& name, float eps, bool bias) {
    return layer_norm(x, name, eps, bias);
}

namespace {

/// Where a layer drops something: each place draws numbers of its own.
enum class Place { self_weights, self_sum, cross_weights, cross_sum, feed_forward, feed_forward_sum, count };

/// The seed of the n-th place of a model. Multiples of this odd number, 2^32 over the golden ratio,
/// lie far apart modulo 2^32: step s at one place does not meet step t at another.
Dim seed_of_place(const Dim& seed, std::int64_t n) {
    constexpr std::int64_t kApart = 0x9e3779b1;
    return seed + n * kApart;
}
Dim seed_of(const TransformerLayerOptions& o, Place place) {
    return seed_of_place(o.dropout_seed, static_cast<std::int64_t>(place));
}

/// Throws for sizes and numbers that do not fit x, before the layer has a parameter.
void check_layer(const char* layer, const Value& x, const TransformerLayerOptions& o) {
    support::require_dtype(layer, x, DType::f32);
    heads_over_width(layer, x, o.nhead);
    support::require(o.dim_feedforward >= 1, layer,
                     "dim_feedforward " + std::to_string(o.dim_feedforward) + " over " + x.str() + " is below 1");
    support::check_epsilon(layer, o.layer_norm_eps);
    support::check_probability(layer, "dropout", o.dropout);
    refuse_dropout(x.graph(), o.dropout);
}

void require_layers(const char* stack, const char* what, std::int64_t count) {
    support::require(count >= 1, stack, std::string(what) + " is " + std::to_string(count) + "; it is at least 1");
}

/// x + f(norm(x)) or norm(x + f(x)), with dropout of what is added.
template <class F>
Value residual(Value x, const char* norm, const TransformerLayerOptions& o, Place sum, F f) {
    const auto dropped = [&](Value h) { return dropout(h, o.dropout, seed_of(o, sum)); };
    if (o.norm_first) {
        return x + dropped(f(layer_norm_layer(x, norm, o.layer_norm_eps, o.bias)));
    }
    return layer_norm_layer(x + dropped(f(x)), norm, o.layer_norm_eps, o.bias);
}

/// linear2(dropout(activation(linear1(x)))) and its residual.
Value feed_forward_part(Value x, const char* norm, const TransformerLayerOptions& o) {
    return residual(x, norm, o, Place::feed_forward_sum, [&](Value h) {
        const std::int64_t width = fixed_width("feed_forward", h);
        refuse_dropout(h.graph(), o.dropout);
        const Value inner = to_inner(h, "linear1", o.dim_feedforward, o.bias, o.activation);
        return from_inner(dropout(inner, o.dropout, seed_of(o, Place::feed_forward)), "linear2", o.dim_feedforward,
                          width, o.bias);
    });
}

}  // namespace

Value transformer_encoder_layer(Value src, const TransformerLayerOptions& options, Value src_mask,
                                Value src_key_padding_mask) {
    check_layer("torch.nn.TransformerEncoderLayer", src, options);
    const LayerScope scope(src.graph(), options.name);
    const Value x = residual(src, "norm1", options, Place::self_sum, [&](Value h) {
        return multihead_attention(h, h, h,
                                   {.name = "self_attn",
                                    .num_heads = options.nhead,
                                    .bias = options.bias,
                                    .attn_mask = src_mask,
                                    .key_padding_mask = src_key_padding_mask,
                                    .dropout = options.dropout,
                                    .dropout_seed = seed_of(options, Place::self_weights)})
            .y;
    });
    return feed_forward_part(x, "norm2", options);
}

DecoderResult transformer_decoder_layer(Value tgt, const TransformerLayerOptions& options,
                                        const DecoderInputs& inputs) {
    constexpr const char* kLayer = "torch.nn.TransformerDecoderLayer";
    check_layer(kLayer, tgt, options);
    if (!inputs.projected_memory) {
        support::require(static_cast<bool>(inputs.memory), kLayer, "memory is missing, over " + tgt.str());
        fixed_width(kLayer, inputs.memory);
        check_one_graph(kLayer, tgt, {inputs.memory});
    }
    const LayerScope scope(tgt.graph(), options.name);
    Value x = residual(tgt, "norm1", options, Place::self_sum, [&](Value h) {
        const MultiheadAttentionOptions self{.name = "self_attn",
                                             .num_heads = options.nhead,
                                             .bias = options.bias,
                                             .attn_mask = inputs.tgt_mask,
                                             .key_padding_mask = inputs.tgt_key_padding_mask,
                                             .is_causal = inputs.tgt_is_causal,
                                             .dropout = options.dropout,
                                             .dropout_seed = seed_of(options, Place::self_weights),
                                             .cache = inputs.cache};
        return multihead_attention(h, h, h, self).y;
    });
    Value cross_weights;
    x = residual(x, "norm2", options, Place::cross_sum, [&](Value h) {
        const MultiheadAttentionOptions cross{.name = "multihead_attn",
                                              .num_heads = options.nhead,
                                              .bias = options.bias,
                                              .attn_mask = inputs.memory_mask,
                                              .key_padding_mask = inputs.memory_key_padding_mask,
                                              .dropout = options.dropout,
                                              .dropout_seed = seed_of(options, Place::cross_weights),
                                              .memory = inputs.projected_memory};
        const AttentionResult a = multihead_attention(h, inputs.memory, inputs.memory, cross);
        cross_weights = a.weights;
        return a.y;
    });
    return {feed_forward_part(x, "norm3", options), cross_weights};
}

namespace {

TransformerLayerOptions numbered(TransformerLayerOptions layer, std::size_t index) {
    layer.name = "layers." + std::to_string(index);
    layer.dropout_seed =
        seed_of_place(layer.dropout_seed, static_cast<std::int64_t>(index) * static_cast<std::int64_t>(Place::count));
    return layer;
}

}  // namespace

Value transformer_encoder(Value src, const TransformerLayerOptions& layer, std::int64_t num_layers,
                          const std::string& name, Value src_mask, Value src_key_padding_mask) {
    require_layers("torch.nn.TransformerEncoder", "num_layers", num_layers);
    const LayerScope scope(src.graph(), name);
    for (std::int64_t i = 0; i < num_layers; ++i) {
        src = transformer_encoder_layer(src, numbered(layer, static_cast<std::size_t>(i)), src_mask,
                                        src_key_padding_mask);
    }
    return layer_norm_layer(src, "norm", layer.layer_norm_eps, layer.bias);
}

DecoderResult transformer_decoder(Value tgt, const TransformerLayerOptions& layer,
                                  const std::vector<DecoderInputs>& inputs, const std::string& name) {
    require_layers("torch.nn.TransformerDecoder", "the number of layers, one for each of inputs,",
                   static_cast<std::int64_t>(inputs.size()));
    const LayerScope scope(tgt.graph(), name);
    DecoderResult result{tgt, {}};
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        result = transformer_decoder_layer(result.y, numbered(layer, i), inputs[i]);
    }
    result.y = layer_norm_layer(result.y, "norm", layer.layer_norm_eps, layer.bias);
    return result;
}

Value transformer(Value src, Value tgt, const TransformerOptions& options, const TransformerMasks& masks) {
    constexpr const char* kTransformer = "torch.nn.Transformer";
    require_layers(kTransformer, "num_encoder_layers", options.num_encoder_layers);
    require_layers(kTransformer, "num_decoder_layers", options.num_decoder_layers);
    check_layer(kTransformer, src, options.layer);
    check_layer(kTransformer, tgt, options.layer);
    check_one_graph(kTransformer, src, {tgt});
    const LayerScope scope(src.graph(), options.name);
    DecoderInputs in;
    in.memory = transformer_encoder(src, options.layer, options.num_encoder_layers, "encoder", masks.src_mask,
                                    masks.src_key_padding_mask);
    in.tgt_mask = masks.tgt_mask;
    in.tgt_key_padding_mask = masks.tgt_key_padding_mask;
    in.memory_mask = masks.memory_mask;
    in.memory_key_padding_mask = masks.memory_key_padding_mask;
    in.tgt_is_causal = masks.tgt_is_causal;
    TransformerLayerOptions decoder = options.layer;  // draws on behind the encoder
    decoder.dropout_seed =
        seed_of_place(decoder.dropout_seed, options.num_encoder_layers * static_cast<std::int64_t>(Place::count));
    return transformer_decoder(tgt, decoder, std::vector(static_cast<std::size_t>(options.num_decoder_layers), in),
                               "decoder")
        .y;
}

}  // namespace vkf::torch
