// SPDX-License-Identifier: Apache-2.0
// Scaled dot-product attention, over rows, packed sequences and pages.
#include <cstdint>

#include "bind.h"

namespace py {

namespace {

using V = vkf::Value;
using Kept = Choice<vkf::WeightType>;

vkf::AttentionOptions attention_options(const std::optional<vkf::Mask>& mask, std::optional<float> scale, float softcap,
                                        const V& sinks, float dropout, const vkf::Dim& dropout_seed, bool log_sum_exp,
                                        const std::optional<vkf::ScoreMod>& score_mod, bool repeat_kv,
                                        const Kept& kv_type, std::int64_t value_dim,
                                        const std::optional<vkf::RingRows>& ring, const V& cumulative_queries,
                                        const V& cumulative_keys, const V& key_lengths, const V& pages) {
    vkf::AttentionOptions out;
    if (mask) out.mask = *mask;
    out.scale = scale;
    out.softcap = softcap;
    out.sinks = sinks;
    out.dropout = dropout;
    out.dropout_seed = dropout_seed;
    out.log_sum_exp = log_sum_exp;
    if (score_mod) out.score_mod = *score_mod;
    out.repeat_kv = repeat_kv;
    out.kv_type = kv_type;
    out.value_dim = value_dim;
    out.ring = ring;
    out.cumulative_queries = cumulative_queries;
    out.cumulative_keys = cumulative_keys;
    out.key_lengths = key_lengths;
    out.pages = pages;
    return out;
}

#define OPTION_TYPES                                                                                               \
    const std::optional<vkf::Mask>&mask, std::optional<float> scale, float softcap, const V &sinks, float dropout, \
        const vkf::Dim &dropout_seed, bool log_sum_exp, const std::optional<vkf::ScoreMod>&score_mod, bool repeat_kv
#define OPTION_NAMES                                                                                              \
    nb::kw_only(), "mask"_a = nb::none(), "scale"_a = nb::none(), "softcap"_a = 0.0f, "sinks"_a = nb::none(),     \
                   "dropout"_a = 0.0f, "dropout_seed"_a = 0, "log_sum_exp"_a = false, "score_mod"_a = nb::none(), \
                   "repeat_kv"_a = false

/// Keeps the sizes of a ring as they were given: those with symbols know their graph.
struct KeepSizes {
    static void precall(PyObject** arguments, std::size_t count, nb::detail::cleanup_list*) {
        nb::list sizes;
        for (std::size_t i = 1; i < count; ++i) sizes.append(nb::borrow(arguments[i]));
        nb::handle(arguments[0]).attr("_sizes") = nb::tuple(sizes);
    }
    template <class Result>
    static void postcall(PyObject**, std::size_t, Result&&) {}
};

}  // namespace

void bind_attention(nb::module_& m) {
    nb::class_<vkf::RingRows>(
        m, "RingRows",
        "`count` rows of a ring, beginning at row `first`; the first `before_end`, all that do, lie before its end.",
        nb::dynamic_attr())
        .def(
            "__init__",
            [](vkf::RingRows* self, const vkf::Dim& first, const vkf::Dim& before_end, const vkf::Dim& count) {
                new (self) vkf::RingRows{first, before_end, count};
            },
            "first"_a, "before_end"_a, "count"_a, nb::call_policy<KeepSizes>(), kOneGraph);
    m.def(
        "attention",
        [](V query, V key, V value, OPTION_TYPES, const Kept& kv_type, std::int64_t value_dim,
           const std::optional<vkf::RingRows>& ring, const V& cumulative_queries, const V& cumulative_keys,
           const V& key_lengths, const V& pages) {
            return vkf::scaled_dot_product_attention(
                query, key, value,
                attention_options(mask, scale, softcap, sinks, dropout, dropout_seed, log_sum_exp, score_mod, repeat_kv,
                                  kv_type, value_dim, ring, cumulative_queries, cumulative_keys, key_lengths, pages));
        },
        "query"_a, "key"_a, "value"_a, OPTION_NAMES, "kv_type"_a = Kept{"f32"}, "value_dim"_a = 0,
        "ring"_a = nb::none(), "cumulative_queries"_a = nb::none(), "cumulative_keys"_a = nb::none(),
        "key_lengths"_a = nb::none(), "pages"_a = nb::none(), kOneGraph,
        "C++'s scaled_dot_product_attention(), with all of its options: softmax(q k^T scale + mask) v. query (B, H, L, "
        "d), "
        "key (B, Hk, S, d), value (B, Hk, S, dv), H a multiple of Hk -> y (B, H, L, dv), weights (B, H, L, S), "
        "log_sum_exp (B, H, L). scale None: 1/sqrt(d).");
    m.def(
        "packed_attention",
        [](V query, V key, V value, V cumulative_queries, V cumulative_keys, OPTION_TYPES) {
            return vkf::packed_attention(
                query, key, value, cumulative_queries, cumulative_keys,
                attention_options(mask, scale, softcap, sinks, dropout, dropout_seed, log_sum_exp, score_mod, repeat_kv,
                                  Kept{"f32"}, 0, {}, {}, {}, {}, {}));
        },
        "query"_a, "key"_a, "value"_a, "cumulative_queries"_a, "cumulative_keys"_a, OPTION_NAMES, kOneGraph,
        "Attention over sequences behind each other, none padded: query (T, H, d), key (S, Hk, d), value (S, Hk, dv), "
        "cumulative lengths (N+1) int32 -> y (T, H, dv), log_sum_exp (1, H, T). flash_attn_varlen_func.");
    nb::class_<vkf::PagedKvCache>(m, "PagedKvCache", "Keys and values in a pool of pages (Kwon et al. 2023).")
        .def(
            "__init__",
            [](vkf::PagedKvCache* self, V key, V value, V table, V lengths) {
                new (self) vkf::PagedKvCache{key, value, table, lengths};
            },
            "key"_a, "value"_a, "table"_a, "lengths"_a, nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>(),
            nb::keep_alive<1, 4>(), nb::keep_alive<1, 5>(),
            "key, value: states (P, page size, Hk, d). table (B, W) int32: pages of each sequence, -1 where it has "
            "none. "
            "lengths (B) int32: tokens of each, those of this run included.")
        .def_prop_ro(
            "key", [](const vkf::PagedKvCache& c) { return c.key; }, "The pool of keys (P, page size, Hk, d).")
        .def_prop_ro(
            "value", [](const vkf::PagedKvCache& c) { return c.value; }, "The pool of values (P, page size, Hk, dv).")
        .def_prop_ro(
            "table", [](const vkf::PagedKvCache& c) { return c.table; }, "The pages of each sequence (B, W), int32.")
        .def_prop_ro(
            "lengths", [](const vkf::PagedKvCache& c) { return c.lengths; }, "Tokens of each sequence (B), int32.");
    m.def(
        "paged_attention",
        [](V query, const vkf::PagedKvCache& cache, OPTION_TYPES) {
            return vkf::paged_attention(
                query, cache,
                attention_options(mask, scale, softcap, sinks, dropout, dropout_seed, log_sum_exp, score_mod, repeat_kv,
                                  Kept{"f32"}, 0, {}, {}, {}, {}, {}));
        },
        "query"_a, "cache"_a, OPTION_NAMES, kOneGraph,
        "Attention of query (B, H, L, d), the last L tokens of each sequence, over all tokens of the sequence -> (B, "
        "H, L, dv).");
}

}  // namespace py
