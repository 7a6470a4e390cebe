// SPDX-License-Identifier: Apache-2.0
// Whatever lengths, cumulative lengths and page tables say, attention and its gradient keep to
// their tensors, each way in which they are computed: see tests/fenced.h.
#include <doctest/doctest.h>

#include "runtime/graph/packed.h"
#include "tests/hostile.h"
#include "tests/tensor.h"

namespace vkf::test {

using namespace bounds;

TEST_SUITE_BEGIN("bounds");

TEST_CASE("bounds: attention over sequences of any lengths") {
    Fenced fenced(true);
    for (const std::string way : kWays) {
        CAPTURE(way);
        for (const Causal causal : {Causal::none, Causal::bottom_right}) {
            for (const std::int64_t keys : {9, 70}) {
                CAPTURE(keys);
                CHECK(
                    fenced.trespass(
                        [&](Graph& g) {
                            AttentionOptions o{.log_sum_exp = true};
                            o.mask.causal = causal;
                            o.mask.window = causal == Causal::none ? 0 : 5;
                            o.key_lengths = g.input("lengths", {3}, DType::i32);
                            const AttentionResult a =
                                scaled_dot_product_attention(g.input("q", {3, 4, 5, 8}), g.input("k", {3, 2, keys, 8}),
                                                             g.input("v", {3, 2, keys, 8}), o);
                            return Values{a.y, a.log_sum_exp};
                        },
                        {.changes = hostile_changes("lengths", keys + 1), .small_gpu = way.empty(), .variants = way}) ==
                    "");
                CHECK(fenced.trespass(
                          [&](Graph& g) {
                              AttentionOptions o{.log_sum_exp = true};
                              o.mask.causal = causal;
                              o.cumulative_queries = g.input("ends", {4}, DType::i32);
                              o.cumulative_keys = g.input("key_ends", {4}, DType::i32);
                              const AttentionResult a = scaled_dot_product_attention(g.input("q", {1, 4, 21, 8}),
                                                                                     g.input("k", {1, 2, keys, 8}),
                                                                                     g.input("v", {1, 2, keys, 8}), o);
                              return Values{a.y, a.log_sum_exp};
                          },
                          {.changes = together(hostile_changes("ends", 22), hostile_changes("key_ends", keys + 1)),
                           .small_gpu = way.empty(),
                           .variants = way}) == "");
            }
        }
    }
}

TEST_CASE("bounds: attention over pages of any number") {
    Fenced fenced(true);
    constexpr std::int64_t kPages = 6, kPage = 4, kWidth = 5;
    for (const std::string way : kWays) {
        CAPTURE(way);
        for (const bool packed : {false, true}) {
            if (packed && way == "attention_composed") {
                continue;  // is fused only
            }
            CAPTURE(packed);
            CHECK(fenced.trespass(
                      [&](Graph& g) {
                          AttentionOptions o;
                          o.mask.causal = Causal::bottom_right;
                          o.key_lengths = g.input("lengths", {3}, DType::i32);
                          o.pages = g.input("table", {3, kWidth}, DType::i32);
                          o.cumulative_queries = packed ? g.input("ends", {4}, DType::i32) : Value();
                          return Values{scaled_dot_product_attention(
                              packed ? g.input("q", {1, 4, 15, 8}) : g.input("q", {3, 4, 5, 8}),
                              g.input("k", {kPages, 2, kPage, 8}), g.input("v", {kPages, 2, kPage, 8}), o)};
                      },
                      {.changes = together(
                           together(hostile_changes("table", kPages), hostile_changes("lengths", kPage * kWidth + 1)),
                           hostile_changes("ends", 16)),
                       .small_gpu = way.empty() && !packed,
                       .variants = way}) == "");
        }
    }
}

TEST_CASE("bounds: attention in f16 and over packed caches, of sequences and pages of any number") {
    Fenced fenced(true);
    constexpr std::int64_t kPages = 6, kPage = 4, kTable = 5;
    for (const std::int64_t width : {8, 64}) {
        CAPTURE(width);
        for (const std::int64_t rows : {1, 37}) {
            CAPTURE(rows);
            for (const WeightType type : {WeightType::f32, WeightType::f16, WeightType::int8}) {
                CAPTURE(name_of(type));
                const std::int64_t words =
                    type == WeightType::f32
                        ? width
                        : static_cast<std::int64_t>(packed_row_words(type, static_cast<std::uint64_t>(width)));
                const DType kept = type == WeightType::f32 ? DType::f32 : DType::i32;
                const auto attention = [&](Graph& g, Shape keys, AttentionOptions o) {
                    o.kv_type = type;
                    o.mask.causal = Causal::bottom_right;
                    o.key_lengths = g.input("lengths", {3}, DType::i32);
                    return Values{scaled_dot_product_attention(g.input("q", {3, 4, rows, width}),
                                                               g.input("k", keys, kept), g.input("v", keys, kept), o)};
                };
                CHECK(fenced.trespass(
                          [&](Graph& g) {
                              return attention(g, {3, 2, 70, words}, {});
                          },
                          {.changes = hostile_changes("lengths", 71), .arithmetic = Arithmetic::f16}) == "");
                if (type != WeightType::f32) {
                    continue;  // pages are fp32
                }
                CHECK(fenced.trespass(
                          [&](Graph& g) {
                              return attention(g, {kPages, 2, kPage, words},
                                               {.pages = g.input("table", {3, kTable}, DType::i32)});
                          },
                          {.changes = together(hostile_changes("table", kPages),
                                               hostile_changes("lengths", kPage * kTable + 1)),
                           .arithmetic = Arithmetic::f16}) == "");
            }
        }
    }
}

TEST_CASE("bounds: gradients of attention over sequences of any lengths") {
    Fenced fenced(true);
    for (const std::string way : kWays) {
        CAPTURE(way);
        const auto gradients_of = [&](auto fill_in, Sizes query, Sizes key, std::vector<Change> changes) {
            return fenced.trespass(
                [&](Graph& g) {
                    AttentionOptions o;
                    fill_in(g, o);
                    const Value q = g.input("q", Shape(query.begin(), query.end())),
                                k = g.input("k", Shape(key.begin(), key.end())),
                                v = g.input("v", Shape(key.begin(), key.end()));
                    return with_gradients(scaled_dot_product_attention(q, k, v, o), {q, k, v});
                },
                {.changes = std::move(changes), .small_gpu = way.empty(), .variants = way});
        };
        CHECK(gradients_of([](Graph& g, AttentionOptions& o) { o.key_lengths = g.input("lengths", {2}, DType::i32); },
                           {2, 4, 6, 8}, {2, 2, 40, 8}, hostile_changes("lengths", 41)) == "");
        CHECK(gradients_of(
                  [](Graph& g, AttentionOptions& o) {
                      o.mask.causal = Causal::bottom_right;
                      o.cumulative_queries = g.input("ends", {4}, DType::i32);
                      o.cumulative_keys = g.input("key_ends", {4}, DType::i32);
                  },
                  {1, 4, 21, 8}, {1, 2, 19, 8},
                  together(hostile_changes("ends", 22), hostile_changes("key_ends", 20))) == "");
        CHECK(gradients_of(
                  [](Graph& g, AttentionOptions& o) {
                      o.mask.keys = g.input("mask", {1, 1, 6, 40}, DType::i32);
                  },
                  {2, 4, 6, 8}, {2, 2, 40, 8}, hostile_changes("mask", 2)) == "");
    }
}

TEST_SUITE_END();

}  // namespace vkf::test
