// SPDX-License-Identifier: Apache-2.0
// PyTorch's own modules, argument by argument, in a graph: the submodule `torch`.
#include <cstdint>

#include "bind.h"

namespace py {

namespace {

using V = vkf::Value;
using Act = Choice<vkf::Activation>;
namespace t = vkf::torch;

/// What a decoder layer gives: its y, and the weights of the cross-attention.
struct DecoderResult : Value {
    vkf::Value cross_weights;
};

DecoderResult wrapped(const t::DecoderResult& result) {
    return DecoderResult{{result.y, graph_object(result.y)}, result.cross_weights};
}

t::TransformerLayerOptions layer_options(const std::string& name, std::int64_t nhead, std::int64_t dim_feedforward,
                                         const Act& activation, bool norm_first, float layer_norm_eps, bool bias,
                                         float dropout, const vkf::Dim& dropout_seed) {
    return {.name = name,
            .nhead = nhead,
            .dim_feedforward = dim_feedforward,
            .activation = activation,
            .norm_first = norm_first,
            .layer_norm_eps = layer_norm_eps,
            .bias = bias,
            .dropout = dropout,
            .dropout_seed = dropout_seed};
}

#define LAYER_TYPES                                                                                                 \
    std::int64_t nhead, std::int64_t dim_feedforward, const Act &activation, bool norm_first, float layer_norm_eps, \
        bool bias, float dropout, const vkf::Dim &dropout_seed
#define LAYER_NAMES                                                                                  \
    "nhead"_a = 1, "dim_feedforward"_a = 2048, "activation"_a = Act{"relu"}, "norm_first"_a = false, \
    "layer_norm_eps"_a = 1e-5, "bias"_a = true, "dropout"_a = 0.0f, "dropout_seed"_a = 0

}  // namespace

void bind_torch(nb::module_& parent) {
    nb::module_ m =
        parent.def_submodule("torch",
                             "PyTorch's own modules, argument by argument, as parts of a graph. Parameter names are "
                             "PyTorch's. Boolean masks are as in PyTorch: 1 = may NOT attend.");
    nb::class_<DecoderResult, Value>(m, "DecoderResult",
                                     "What a decoder layer gives. It is its y, wherever a Value is expected.")
        .def_prop_ro(
            "y", [](const DecoderResult& r) { return r.value; }, "The layer's output (B, L, E).")
        .def_prop_ro(
            "cross_weights", [](const DecoderResult& r) { return r.cross_weights; }, "(B, H, L, S)");
    m.def(
        "multihead_attention",
        [](V query, V key, V value, const std::string& layer, std::int64_t num_heads, bool bias, bool add_bias_kv,
           bool add_zero_attn, bool batch_first, bool average_attn_weights, V attn_mask, V key_padding_mask,
           bool is_causal, float dropout, const vkf::Dim& dropout_seed, std::optional<vkf::KvCache> cache,
           std::optional<vkf::CachedKv> memory) {
            return t::multihead_attention(query, key, value,
                                          {.name = layer,
                                           .num_heads = num_heads,
                                           .bias = bias,
                                           .add_bias_kv = add_bias_kv,
                                           .add_zero_attn = add_zero_attn,
                                           .batch_first = batch_first,
                                           .average_attn_weights = average_attn_weights,
                                           .attn_mask = attn_mask,
                                           .key_padding_mask = key_padding_mask,
                                           .is_causal = is_causal,
                                           .dropout = dropout,
                                           .dropout_seed = dropout_seed,
                                           .cache = cache,
                                           .memory = memory});
        },
        "query"_a, "key"_a = nb::none(), "value"_a = nb::none(), nb::kw_only(), "name"_a = "", "num_heads"_a = 1,
        "bias"_a = true, "add_bias_kv"_a = false, "add_zero_attn"_a = false, "batch_first"_a = true,
        "average_attn_weights"_a = false, "attn_mask"_a = nb::none(), "key_padding_mask"_a = nb::none(),
        "is_causal"_a = false, "dropout"_a = 0.0f, "dropout_seed"_a = 0, "cache"_a = nb::none(),
        "memory"_a = nb::none(), kOneGraph,
        "torch.nn.MultiheadAttention: query (B, L, E), key (B, S, kdim), value (B, S, vdim) -> y (B, L, E), weights "
        "(B, H, L, S').");
    m.def("project_memory", &t::project_memory, "memory"_a, "name"_a, "num_heads"_a, "bias"_a = true,
          nb::keep_alive<0, 1>(),
          "Projects memory (B, S, E) to the keys and values that a multihead_attention of that name makes of it.");
    m.def(
        "transformer_encoder_layer",
        [](V src, V src_mask, V src_key_padding_mask, const std::string& layer, LAYER_TYPES) {
            return t::transformer_encoder_layer(src,
                                                layer_options(layer, nhead, dim_feedforward, activation, norm_first,
                                                              layer_norm_eps, bias, dropout, dropout_seed),
                                                src_mask, src_key_padding_mask);
        },
        "src"_a, "src_mask"_a = nb::none(), "src_key_padding_mask"_a = nb::none(), nb::kw_only(), "name"_a = "",
        LAYER_NAMES, kOneGraph, "torch.nn.TransformerEncoderLayer: src (B, L, E).");
    nb::class_<t::DecoderInputs>(m, "DecoderInputs", "What a decoder layer attends to.")
        .def(
            "__init__",
            [](t::DecoderInputs* self, V memory, V tgt_mask, V tgt_key_padding_mask, V memory_mask,
               V memory_key_padding_mask, bool tgt_is_causal, std::optional<vkf::KvCache> cache,
               std::optional<vkf::CachedKv> projected_memory) {
                new (self) t::DecoderInputs{
                    memory,        tgt_mask, tgt_key_padding_mask, memory_mask, memory_key_padding_mask,
                    tgt_is_causal, cache,    projected_memory};
            },
            "memory"_a = nb::none(), nb::kw_only(), "tgt_mask"_a = nb::none(), "tgt_key_padding_mask"_a = nb::none(),
            "memory_mask"_a = nb::none(), "memory_key_padding_mask"_a = nb::none(), "tgt_is_causal"_a = false,
            "cache"_a = nb::none(), "projected_memory"_a = nb::none(), nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>(),
            nb::keep_alive<1, 4>(), nb::keep_alive<1, 5>(), nb::keep_alive<1, 6>(), nb::keep_alive<1, 8>(),
            nb::keep_alive<1, 9>());
    m.def(
        "transformer_decoder_layer",
        [](V tgt, const t::DecoderInputs& inputs, const std::string& layer, LAYER_TYPES) {
            return wrapped(
                t::transformer_decoder_layer(tgt,
                                             layer_options(layer, nhead, dim_feedforward, activation, norm_first,
                                                           layer_norm_eps, bias, dropout, dropout_seed),
                                             inputs));
        },
        "tgt"_a, "inputs"_a, nb::kw_only(), "name"_a = "", LAYER_NAMES, kOneGraph,
        "torch.nn.TransformerDecoderLayer: tgt (B, L, E).");
    m.def(
        "transformer_encoder",
        [](V src, V src_mask, V src_key_padding_mask, const std::string& encoder, std::int64_t num_layers,
           LAYER_TYPES) {
            return t::transformer_encoder(src,
                                          layer_options("", nhead, dim_feedforward, activation, norm_first,
                                                        layer_norm_eps, bias, dropout, dropout_seed),
                                          num_layers, encoder, src_mask, src_key_padding_mask);
        },
        "src"_a, "src_mask"_a = nb::none(), "src_key_padding_mask"_a = nb::none(), nb::kw_only(), "name"_a = "",
        "num_layers"_a, LAYER_NAMES, kOneGraph,
        "torch.nn.TransformerEncoder: layers.* and a final norm. src (B, S, E).");
    m.def(
        "transformer_decoder",
        [](V tgt, const std::vector<t::DecoderInputs>& inputs, const std::string& decoder, LAYER_TYPES) {
            return wrapped(t::transformer_decoder(tgt,
                                                  layer_options("", nhead, dim_feedforward, activation, norm_first,
                                                                layer_norm_eps, bias, dropout, dropout_seed),
                                                  inputs, decoder));
        },
        "tgt"_a, "inputs"_a, nb::kw_only(), "name"_a = "", LAYER_NAMES, kOneGraph,
        "torch.nn.TransformerDecoder; inputs[i] is what layer i attends to. tgt (B, T, E).");
    m.def(
        "transformer",
        [](V src, V tgt, const std::string& whole, std::int64_t encoders, std::int64_t decoders, LAYER_TYPES,
           V src_mask, V tgt_mask, V memory_mask, V src_key_padding_mask, V tgt_key_padding_mask,
           V memory_key_padding_mask, bool tgt_is_causal) {
            return t::transformer(src, tgt,
                                  {.layer = layer_options("", nhead, dim_feedforward, activation, norm_first,
                                                          layer_norm_eps, bias, dropout, dropout_seed),
                                   .name = whole,
                                   .num_encoder_layers = encoders,
                                   .num_decoder_layers = decoders},
                                  {src_mask, tgt_mask, memory_mask, src_key_padding_mask, tgt_key_padding_mask,
                                   memory_key_padding_mask, tgt_is_causal});
        },
        "src"_a, "tgt"_a, nb::kw_only(), "name"_a = "", "num_encoder_layers"_a = 6, "num_decoder_layers"_a = 6,
        LAYER_NAMES, kOneGraph, "src_mask"_a = nb::none(), "tgt_mask"_a = nb::none(), "memory_mask"_a = nb::none(),
        "src_key_padding_mask"_a = nb::none(), "tgt_key_padding_mask"_a = nb::none(),
        "memory_key_padding_mask"_a = nb::none(), "tgt_is_causal"_a = false,
        "torch.nn.Transformer, batch first: src (B, S, E), tgt (B, T, E) -> (B, T, E). Parameters encoder.* and "
        "decoder.*.");
    m.def("layer_norm_layer", &t::layer_norm_layer, "x"_a, "name"_a, "eps"_a = 1e-5, "bias"_a = true,
          "torch.nn.LayerNorm with parameters `name`.weight and `name`.bias.");
}

}  // namespace py
