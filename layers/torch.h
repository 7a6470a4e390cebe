// SPDX-License-Identifier: Apache-2.0
// PyTorch's own modules, argument by argument: torch.nn.MultiheadAttention and
// torch.nn.Transformer*. Parameter names are PyTorch's, so that a state_dict saved as safetensors
// loads by name. Boolean masks here are as in PyTorch: 1 = may NOT attend.
#pragma once

#include <optional>
#include <string>

#include "attention.h"

namespace vkf::torch {

struct MultiheadAttentionOptions {
    std::string name = {};
    std::int64_t num_heads = 1;
    bool bias = true;
    /// one more key and value, bias_k and bias_v (1, 1, E); never masked
    bool add_bias_kv = false;
    /// one more key and value of zeros, behind that one; never masked
    bool add_zero_attn = false;
    bool batch_first = true;  ///< false: query, key, value and y are (tokens, B, E)
    /// weights (B, L, S) averaged over heads, as PyTorch returns them by default
    bool average_attn_weights = false;
    /// (B, H, L, S), or what broadcasts to that, as (L, S) and (H, L, S) do, or (B*H, L, S),
    /// batch-major. i32: 1 = may not; f32: added
    Value attn_mask = {};
    Value key_padding_mask = {};  ///< (B, S); i32: 1 = ignore the key; f32: added
    bool is_causal = false;       ///< top-left, as PyTorch; with `cache` bottom-right
    /// probability with which a weight is dropped before the product with the values, as in
    /// training
    float dropout = 0.0f;
    Dim dropout_seed = 0;  ///< a number, or made of symbols, see dropout()
    std::optional<KvCache> cache =
        {};  ///< self-attention over runs: keys and values are appended and all are attended to
    /// cross-attention to these keys and values; the arguments key and value are then ignored, and
    /// no row is added
    std::optional<CachedKv> memory = {};
};

/// torch.nn.MultiheadAttention. query (B, L, E), key (B, S, kdim), value (B, S, vdim): y (B, L, E),
/// weights (B, H, L, S'), where S' counts appended rows. Parameters in_proj_weight (3E, E), or
/// q_proj_weight, k_proj_weight, v_proj_weight where kdim or vdim is not E; in_proj_bias (3E),
/// out_proj.weight, out_proj.bias. Where the graph is of several ranks (Graph::set_rank), each has
/// its share of the heads, and theirs are the weights, cache and memory; averaged weights are those
/// of all. Throws Error for dropout then, for a cache, add_bias_kv and add_zero_attn beside memory,
/// and for masks that do not fit.
VKF_API AttentionResult multihead_attention(Value query, Value key, Value value,
                                            const MultiheadAttentionOptions& options);

/// Projects `memory` (B, S, E) to the keys and values that a multihead_attention of that name makes
/// of it, for MultiheadAttentionOptions::memory.
VKF_API CachedKv project_memory(Value memory, const std::string& name, std::int64_t num_heads, bool bias = true);

struct TransformerLayerOptions {
    std::string name = {};
    std::int64_t nhead = 1;
    std::int64_t dim_feedforward = 2048;
    Activation activation = Activation::relu;
    bool norm_first = false;
    float layer_norm_eps = 1e-5f;
    bool bias = true;
    /// probability of dropout in the places where PyTorch's layers have it: weights of attention,
    /// inside the feed-forward, and what is added to x. 0: as in evaluation mode.
    float dropout = 0.0f;
    /// a number, or made of symbols, see dropout(). Places and layers draw differently from one
    /// seed.
    Dim dropout_seed = 0;
};

/// torch.nn.TransformerEncoderLayer: src (B, L, E); mask arguments as above.
VKF_API Value transformer_encoder_layer(Value src, const TransformerLayerOptions& options, Value src_mask = {},
                                        Value src_key_padding_mask = {});

struct DecoderInputs {
    Value memory = {};  ///< (B, S, E); not needed with `projected_memory`
    Value tgt_mask = {};
    Value tgt_key_padding_mask = {};
    Value memory_mask = {};
    Value memory_key_padding_mask = {};
    bool tgt_is_causal = false;
    std::optional<KvCache> cache = {};  ///< cache of the self-attention
    std::optional<CachedKv> projected_memory = {};
};

struct DecoderResult {
    Value y;
    Value cross_weights;  ///< (B, H, L, S)
    operator Value() const { return y; }
};

/// torch.nn.TransformerDecoderLayer: tgt (B, L, E).
VKF_API DecoderResult transformer_decoder_layer(Value tgt, const TransformerLayerOptions& options,
                                                const DecoderInputs& inputs);

struct TransformerOptions {
    TransformerLayerOptions layer = {};  ///< its name is ignored
    std::string name = {};
    std::int64_t num_encoder_layers = 6, num_decoder_layers = 6;  ///< at least 1
};

/// Masks as torch.nn.Transformer.forward takes them.
struct TransformerMasks {
    Value src_mask = {}, tgt_mask = {}, memory_mask = {};  ///< (S, S), (T, T), (T, S)
    Value src_key_padding_mask = {}, tgt_key_padding_mask = {},
          memory_key_padding_mask = {};  ///< (B, S), (B, T), (B, S)
    bool tgt_is_causal = false;
};

/// torch.nn.TransformerEncoder: layers.*, at least 1, and a final `norm`. src (B, S, E).
VKF_API Value transformer_encoder(Value src, const TransformerLayerOptions& layer, std::int64_t num_layers,
                                  const std::string& name, Value src_mask = {}, Value src_key_padding_mask = {});
/// torch.nn.TransformerDecoder: layers.*, at least 1, and a final `norm`; inputs[i] is what layer i
/// attends to. tgt (B, T, E).
VKF_API DecoderResult transformer_decoder(Value tgt, const TransformerLayerOptions& layer,
                                          const std::vector<DecoderInputs>& inputs, const std::string& name);
/// torch.nn.Transformer, batch first: src (B, S, E), tgt (B, T, E) -> (B, T, E). Parameters
/// encoder.* and decoder.*.
VKF_API Value transformer(Value src, Value tgt, const TransformerOptions& options, const TransformerMasks& masks = {});

/// torch.nn.LayerNorm with parameters `name`.weight and `name`.bias.
VKF_API Value layer_norm_layer(Value x, const std::string& name, float eps = 1e-5f, bool bias = true);

}  // namespace vkf::torch
