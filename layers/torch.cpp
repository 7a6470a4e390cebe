// SPDX-License-Identifier: Apache-2.0
#include "layers/torch.h"

#include "layers/feed_forward.h"

namespace vkf::torch {

namespace {

constexpr const char* kName = "torch.nn.MultiheadAttention";

struct Packed {
    Value weight, bias;  // (3E, E) rows q | k | v, and (3E)
    std::int64_t width;

    /// The projection by the rows of part `first` up to `last` (0 q, 1 k, 2 v): (B, L, (last-first) E).
    Value project(Value x, std::int64_t first, std::int64_t last) const {
        const auto rows = [&](Value v) { return slice(v, 0, first * width, (last - first) * width); };
        return linear(x, rows(weight), bias ? rows(bias) : Value());
    }
};

Packed packed(Value x, bool bias) {
    if (x.rank() != 3 || !x.size(-1).is_constant()) {
        throw Error(x.str() + " must be (batch, tokens, embed_dim) with a fixed embed_dim", kName);
    }
    const std::int64_t width = x.size(-1).constant();
    Graph& g = x.graph();
    return {g.weight("in_proj_weight", {3 * width, width}), bias ? g.weight("in_proj_bias", {3 * width}) : Value(), width};
}

/// PyTorch's two masks as one of ours. Shapes are checked where they are used.
Mask mask_of(const MultiheadAttentionOptions& o) {
    Mask mask;
    Value padding = o.key_padding_mask;
    if (padding) {
        if (padding.rank() != 2) {
            throw Error("key_padding_mask " + padding.str() + " must be (batch, keys)", kName);
        }
        if (padding.dtype() != DType::i32) {
            throw Error("key_padding_mask " + padding.str() + " must be I32, 1 = ignore", kName);
        }
        padding = reshape(padding, {padding.size(0), 1, 1, padding.size(1)});
    }
    if (o.attn_mask && o.attn_mask.dtype() == DType::i32) {
        mask.keys = padding ? combine_masks(o.attn_mask, Polarity::ignore, padding, Polarity::ignore) : o.attn_mask;
        mask.polarity = padding ? Polarity::attend : Polarity::ignore;
    } else {
        mask.bias = o.attn_mask;
        mask.keys = padding;
        mask.polarity = Polarity::ignore;
    }
    if (o.is_causal) {
        mask.causal = o.cache ? Causal::bottom_right : Causal::top_left;
    }
    return mask;
}

}  // namespace

AttentionResult multihead_attention(Value query, Value key, Value value, const MultiheadAttentionOptions& o) {
    Graph& g = query.graph();
    const Scope scope(g, o.name);
    const Packed in = packed(query, o.bias);
    const std::int64_t e = in.width;
    Value q, k, v;
    if (o.memory) {
        q = in.project(query, 0, 1);
        k = o.memory->key;
        v = o.memory->value;
    } else if (query.id() == key.id() && key.id() == value.id()) {  // one product for all three
        const Value qkv = in.project(query, 0, 3);
        q = slice(qkv, -1, 0, e);
        k = split_heads(slice(qkv, -1, e, e), o.num_heads);
        v = split_heads(slice(qkv, -1, 2 * e, e), o.num_heads);
    } else {
        q = in.project(query, 0, 1);
        k = split_heads(in.project(key, 1, 2), o.num_heads);
        v = split_heads(in.project(value, 2, 3), o.num_heads);
    }
    q = split_heads(q, o.num_heads);
    if (o.cache) {
        const CachedKv all = append(*o.cache, transpose(k, 1, 2), transpose(v, 1, 2));
        k = all.key;
        v = all.value;
    }
    const AttentionResult a = scaled_dot_product_attention(q, k, v, {.mask = mask_of(o)});
    return {linear_layer(merge_heads(a.y), "out_proj", e, o.bias), a.weights};
}

CachedKv project_memory(Value memory, const std::string& name, std::int64_t num_heads, bool bias) {
    const Scope scope(memory.graph(), name);
    const Packed in = packed(memory, bias);
    const Value kv = in.project(memory, 1, 3);
    const auto heads = [&](std::int64_t part) { return transpose(split_heads(slice(kv, -1, part * in.width, in.width), num_heads), 1, 2); };
    return {heads(0), heads(1)};
}

Value layer_norm_layer(Value x, const std::string& name, float eps, bool bias) {
    Graph& g = x.graph();
    const Scope scope(g, name);
    return layer_norm(x, g.weight("weight", {x.size(-1)}), bias ? g.weight("bias", {x.size(-1)}) : Value(), eps);
}

namespace {

/// x + f(norm(x)) or norm(x + f(x)).
template <class F>
Value residual(Value x, const char* norm, const TransformerLayerOptions& o, F f) {
    if (o.norm_first) {
        return x + f(layer_norm_layer(x, norm, o.layer_norm_eps, o.bias));
    }
    return layer_norm_layer(x + f(x), norm, o.layer_norm_eps, o.bias);
}

}  // namespace

Value transformer_encoder_layer(Value src, const TransformerLayerOptions& o, Value src_mask, Value src_key_padding_mask) {
    const Scope scope(src.graph(), o.name);
    const Value x = residual(src, "norm1", o, [&](Value h) {
        return multihead_attention(
                   h, h, h,
                   {.name = "self_attn", .num_heads = o.nhead, .bias = o.bias, .attn_mask = src_mask, .key_padding_mask = src_key_padding_mask})
            .y;
    });
    return residual(x, "norm2", o, [&](Value h) { return feed_forward(h, o.dim_feedforward, o.activation, {}, o.bias); });
}

DecoderResult transformer_decoder_layer(Value tgt, const TransformerLayerOptions& o, const DecoderInputs& in) {
    const Scope scope(tgt.graph(), o.name);
    Value x = residual(tgt, "norm1", o, [&](Value h) {
        MultiheadAttentionOptions self{.name = "self_attn", .num_heads = o.nhead, .bias = o.bias};
        self.attn_mask = in.tgt_mask;
        self.key_padding_mask = in.tgt_key_padding_mask;
        self.is_causal = in.tgt_is_causal;
        self.cache = in.cache;
        return multihead_attention(h, h, h, self).y;
    });
    Value cross_weights;
    x = residual(x, "norm2", o, [&](Value h) {
        MultiheadAttentionOptions cross{.name = "multihead_attn", .num_heads = o.nhead, .bias = o.bias};
        cross.attn_mask = in.memory_mask;
        cross.key_padding_mask = in.memory_key_padding_mask;
        cross.memory = in.projected_memory;
        const AttentionResult a = multihead_attention(h, in.memory, in.memory, cross);
        cross_weights = a.weights;
        return a.y;
    });
    x = residual(x, "norm3", o, [&](Value h) { return feed_forward(h, o.dim_feedforward, o.activation, {}, o.bias); });
    return {x, cross_weights};
}

}  // namespace vkf::torch
