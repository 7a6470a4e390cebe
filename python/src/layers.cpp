// SPDX-License-Identifier: Apache-2.0
// Layers: attention, caches, feed-forward, LoRA.
#include <cstdint>

#include <nanobind/stl/array.h>

#include "bind.h"

namespace py {

namespace {

using V = vkf::Value;
using Act = Choice<vkf::Activation>;
using Kept = Choice<vkf::WeightType>;

void bind_kv_cache(nb::module_& m) {
    nb::class_<vkf::KvCache>(m, "KvCache", "Keys and values that stay on the device between runs; see kv_cache().")
        .def(
            "__init__",
            [](vkf::KvCache* self, V key, V value, const vkf::Dim& start, const Kept& type,
               const std::optional<vkf::RingRows>& written, const std::optional<vkf::RingRows>& seen) {
                new (self) vkf::KvCache{key, value, start, type, written, seen};
            },
            "key"_a, "value"_a, "start"_a = 0, "type"_a = Kept{"f32"}, "written"_a = nb::none(), "seen"_a = nb::none(),
            nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>(), kOneGraph,
            "key, value: states (B, capacity, Hk, d), of which the first `start` tokens are there already. written and "
            "seen: the rows of a ring, where no query sees further back than a window.")
        .def_prop_ro(
            "key", [](const vkf::KvCache& c) { return c.key; }, "The state of the keys (B, C, Hk, d).")
        .def_prop_ro(
            "value", [](const vkf::KvCache& c) { return c.value; }, "The state of the values (B, C, Hk, d).")
        .def_prop_ro(
            "start", [](const vkf::KvCache& c) { return wrap(c.start, graph_object(c.key)); },
            nb::sig("def start(self) -> int | Dim"), "Tokens that the cache holds before a run.")
        .def_prop_ro(
            "type", [](const vkf::KvCache& c) { return name(c.type); }, "What keys and values are kept as.");
    m.def(
        "kv_cache",
        [](vkf::Graph& graph, const std::string& cache, std::int64_t batch, std::int64_t capacity,
           std::int64_t kv_heads, std::int64_t head_dim, const vkf::Dim& start,
           const Kept& type) { return vkf::kv_cache(graph, cache, batch, capacity, kv_heads, head_dim, start, type); },
        "graph"_a, "name"_a, "batch"_a, "capacity"_a, "kv_heads"_a, "head_dim"_a, "start"_a, "type"_a = Kept{"f32"},
        nb::keep_alive<0, 1>(), kOneGraph,
        "The states `name`.key and `name`.value of a cache for sequences of up to `capacity` tokens.");
    nb::class_<vkf::CachedKv>(m, "CachedKv", "Keys and values of one layer, heads first: (B, Hk, S, d).")
        .def(
            "__init__",
            [](vkf::CachedKv* self, V key, V value) {
                new (self) vkf::CachedKv{key, value};
            },
            "key"_a, "value"_a, nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>())
        .def_prop_ro(
            "key", [](const vkf::CachedKv& c) { return c.key; }, "Keys, heads first: (B, Hk, S, d).")
        .def_prop_ro(
            "value", [](const vkf::CachedKv& c) { return c.value; }, "Values, heads first: (B, Hk, S, d).");
    m.def(
        "append", [](const vkf::KvCache& cache, V key, V value) { return vkf::append(cache, key, value); }, "cache"_a,
        "key"_a, "value"_a, nb::keep_alive<0, 1>(),
        "Writes key and value (B, L, Hk, d) behind what the cache holds; gives all start + L tokens.");
    m.def(
        "append", [](const vkf::PagedKvCache& cache, V key, V value) { return vkf::append(cache, key, value); },
        "cache"_a, "key"_a, "value"_a, nb::keep_alive<0, 1>(),
        "Writes key and value as the last L tokens of each sequence of a pool of pages.");
}

void bind_attention_layers(nb::module_& m) {
    m.def(
        "self_attention",
        [](V x, const std::string& layer, bool fused_qkv, bool out_proj, bool bias,
           const std::optional<vkf::Mask>& mask) {
            return vkf::self_attention(x, {.name = layer,
                                           .fused_qkv = fused_qkv,
                                           .out_proj = out_proj,
                                           .bias = bias,
                                           .mask = mask.value_or(vkf::Mask())});
        },
        "x"_a, nb::kw_only(), "name"_a = "", "fused_qkv"_a = false, "out_proj"_a = true, "bias"_a = true,
        "mask"_a = nb::none(),
        "One head over x (B, L, E): y (B, L, E), weights (B, L, L). Weights q_proj, k_proj, v_proj (or qkv_proj), "
        "out_proj.");
    m.def(
        "multi_head_attention",
        [](V query, V key, V value, const std::string& layer, std::int64_t heads, bool bias,
           const std::optional<vkf::Mask>& mask) {
            return vkf::multi_head_attention(
                query, key, value, {.name = layer, .heads = heads, .bias = bias, .mask = mask.value_or(vkf::Mask())});
        },
        "query"_a, "key"_a, "value"_a, nb::kw_only(), "name"_a = "", "heads"_a = 1, "bias"_a = true,
        "mask"_a = nb::none(),
        "Vaswani et al. 2017: q_proj, k_proj, v_proj, out_proj, each (E, E). y (B, L, E), weights (B, H, L, S).");
    m.def(
        "multi_head_attention_by_heads",
        [](V query, V key, V value, const std::string& layer, std::int64_t heads, bool bias,
           const std::optional<vkf::Mask>& mask) {
            return vkf::multi_head_attention_by_heads(
                query, key, value, {.name = layer, .heads = heads, .bias = bias, .mask = mask.value_or(vkf::Mask())});
        },
        "query"_a, "key"_a, "value"_a, nb::kw_only(), "name"_a = "", "heads"_a = 1, "bias"_a = true,
        "mask"_a = nb::none(),
        "The same numbers head by head, from `name`.heads.I.q_proj, .k_proj and .v_proj (E/H, E), then out_proj.");
    m.def(
        "grouped_query_attention",
        [](V x, const std::string& layer, std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim,
           std::optional<vkf::Rope> rope, const std::optional<vkf::Mask>& mask, bool bias, bool qkv_bias,
           std::optional<float> qk_norm_eps, bool fused_qkv, std::optional<float> scale, float softcap, V sinks,
           bool repeat_kv, std::optional<vkf::KvCache> cache, const std::vector<std::string>& names) {
            vkf::GroupedQueryAttentionOptions o{
                .name = layer, .heads = heads, .kv_heads = kv_heads, .head_dim = head_dim, .rope = rope};
            if (mask) o.mask = *mask;
            o.bias = bias;
            o.qkv_bias = qkv_bias;
            o.qk_norm_eps = qk_norm_eps;
            o.fused_qkv = fused_qkv;
            o.scale = scale;
            o.softcap = softcap;
            o.sinks = sinks;
            o.repeat_kv = repeat_kv;
            o.cache = cache;
            if (names.size() != 4)
                fail("has 4 names: of the projections of queries, keys, values and the result", "names");
            for (std::size_t i = 0; i < 4; ++i) o.names[i] = names[i].c_str();
            return vkf::grouped_query_attention(x, o);
        },
        "x"_a, nb::kw_only(), "name"_a = "", "heads"_a = 1, "kv_heads"_a = 1, "head_dim"_a = 0, "rope"_a = nb::none(),
        "mask"_a = nb::none(), "bias"_a = false, "qkv_bias"_a = false, "qk_norm_eps"_a = nb::none(),
        "fused_qkv"_a = false, "scale"_a = nb::none(), "softcap"_a = 0.0f, "sinks"_a = nb::none(),
        "repeat_kv"_a = false, "cache"_a = nb::none(),
        "names"_a = std::vector<std::string>{"q_proj", "k_proj", "v_proj", "o_proj"},
        "Grouped-query attention (Ainslie et al. 2023) over x (B, L, E): y (B, L, E), weights (B, H, L, S). Without a "
        "mask "
        "a query sees everything before it; a Mask says anew whether and how it is causal. qk_norm_eps: an RMSNorm of "
        "each "
        "head's query and key. cache: keys and values of earlier runs. names: those of the projections' weights.");
    m.def(
        "incremental_attention",
        [](V x, V context, V cache_key, V cache_value, const std::string& layer, std::int64_t heads,
           std::int64_t kv_heads, std::int64_t head_dim, std::optional<float> scale,
           const std::optional<vkf::Mask>& mask) {
            const auto out = vkf::incremental_attention(x, context, cache_key, cache_value,
                                                        {.name = layer,
                                                         .heads = heads,
                                                         .kv_heads = kv_heads,
                                                         .head_dim = head_dim,
                                                         .scale = scale,
                                                         .mask = mask.value_or(vkf::Mask())});
            return nb::make_tuple(out.y, out.cache_key, out.cache_value);
        },
        "x"_a, "context"_a, "cache_key"_a, "cache_value"_a, nb::kw_only(), "name"_a = "", "heads"_a = 1,
        "kv_heads"_a = 1, "head_dim"_a = 1, "scale"_a = nb::none(), "mask"_a = nb::none(),
        nb::sig("def incremental_attention(x: Value, context: Value, cache_key: Value, cache_value: Value, *, name: "
                "str = '', heads: int = 1, kv_heads: int = 1, head_dim: int = 1, scale: float | None = None, mask: "
                "Mask | None = None) -> tuple[Value, Value, Value]"),
        "One new token against M cached ones (Shazeer 2019): y (B, E), and the caches (B, Hk, M+1, d).");
    m.def(
        "attention_scores",
        [](V query, V key, const std::string& layer, const Choice<vkf::ScoreKind>& kind, std::int64_t hidden) {
            return vkf::attention_scores(query, key, {.name = layer, .kind = kind, .hidden = hidden});
        },
        "query"_a, "key"_a, nb::kw_only(), "name"_a = "", "kind"_a = Choice<vkf::ScoreKind>{"dot"}, "hidden"_a = 0,
        "query (B, L, D), key (B, S, D) -> scores (B, L, S): dot, scaled_dot, general (q w k) or additive (v tanh(w q "
        "+ u k)).");
}

void bind_feed_forward(nb::module_& m) {
    m.def(
        "linear_layer",
        [](V x, const std::string& layer, std::int64_t out, bool bias, const Act& activation) {
            return vkf::linear_layer(x, layer, out, bias, activation);
        },
        "x"_a, "name"_a, "out"_a, "bias"_a = true, "activation"_a = Act{"none"},
        "x W^T + b with the weights `name`.weight (out, in) and `name`.bias (out): x (..., in) -> (..., out). "
        "torch.nn.Linear.");
    m.def(
        "feed_forward",
        [](V x, std::int64_t hidden, const Act& activation, const std::string& layer, bool bias) {
            return vkf::feed_forward(x, hidden, activation, layer, bias);
        },
        "x"_a, "hidden"_a, "activation"_a, "name"_a = "", "bias"_a = true,
        "linear2(activation(linear1(x))): x (..., E) -> (..., E).");
    m.def(
        "gated_feed_forward",
        [](V x, std::int64_t hidden, const Act& activation, const std::string& layer, bool bias) {
            return vkf::gated_feed_forward(x, hidden, activation, layer, bias);
        },
        "x"_a, "hidden"_a, "activation"_a = Act{"silu"}, "name"_a = "", "bias"_a = false,
        "down_proj(activation(gate_proj x) * up_proj x). SwiGLU (Shazeer 2020) with silu.");
    nb::class_<vkf::LoraOptions>(m, "LoraOptions", "Low-rank adapters (Hu et al. 2021).")
        .def(
            "__init__",
            [](vkf::LoraOptions* self, std::int64_t rank, float alpha, const std::vector<std::string>& targets) {
                new (self) vkf::LoraOptions{.rank = rank, .alpha = alpha, .targets = targets};
            },
            "rank"_a = 8, "alpha"_a = 8.0f, "targets"_a = std::vector<std::string>(),
            "targets: layers by their whole names, by the last parts of these (q_proj), or by patterns with *.")
        .def_ro("rank", &vkf::LoraOptions::rank, "Rows of A, columns of B.")
        .def_ro("alpha", &vkf::LoraOptions::alpha, "Over the rank, what B A x is multiplied by.")
        .def_ro("targets", &vkf::LoraOptions::targets,
                "The layers that have an adapter: names, last parts of names, or patterns with *.");
    nb::class_<vkf::Lora>(
        m, "Lora",
        "Gives adapters to the linear layers of a graph that are described after it: y + alpha / rank * B (A x). "
        "A graph that has a hook (after_linear) already is refused.")
        .def(nb::init<vkf::Graph&, const vkf::LoraOptions&>(), "graph"_a, "options"_a, nb::keep_alive<1, 2>())
        .def("parameters", &vkf::Lora::parameters, "A and B of each layer in turn.");
}

}  // namespace

void bind_layers(nb::module_& m) {
    bind_kv_cache(m);
    bind_attention_layers(m);
    bind_feed_forward(m);
}

}  // namespace py
