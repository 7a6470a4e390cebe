// SPDX-License-Identifier: Apache-2.0
// Whatever a host's integers say, ops keep to their tensors: ids, positions, labels, lengths,
// cumulative lengths, page tables, masks and packed words of any value, through every op that takes
// them and through its gradient, recorded and run. See tests/fenced.h, and rule 14 of
// docs/numerics.md.
#include <doctest/doctest.h>

#include <algorithm>

#include "ops/embedding_part.h"
#include "runtime/graph/packed.h"
#include "tests/hostile.h"

namespace vkf::test {

using namespace bounds;

TEST_SUITE_BEGIN("bounds");

TEST_CASE("bounds: ids of any value, in tables of every type") {
    Fenced fenced(true);
    constexpr std::int64_t kRows = 7, kIds = 30;
    for (const std::int64_t width : {5, 64}) {
        for (const WeightType type :
             {WeightType::f32, WeightType::f16, WeightType::bf16, WeightType::int8, WeightType::int4}) {
            CAPTURE(width);
            CAPTURE(name_of(type));
            const auto judge = [&](const std::map<std::string, Words>& all) -> std::string {
                for (std::size_t i = 0; i < kIds; ++i) {
                    const bool nan = is_nan_word(all.at("y0")[i * static_cast<std::size_t>(width)]);
                    if (nan != outside(all.at("ids"), i, kRows)) {
                        return "id " + std::to_string(i) + (nan ? " gives NaN; " : " does not give NaN; ");
                    }
                }
                return {};
            };
            CHECK(
                fenced.trespass(
                    [&](Graph& g) {
                        return Values{embedding(g.input("ids", {kIds}, DType::i32), g.weight("table", {kRows, width}))};
                    },
                    {.changes = hostile_changes("ids", kRows), .weights = type, .judge = judge}) == "");
        }
        CHECK(fenced.trespass(
                  [&](Graph& g) {
                      const Value table = g.input("table", {kRows, width});
                      return with_gradients(embedding(g.input("ids", {kIds}, DType::i32), table), {table});
                  },
                  {.changes = hostile_changes("ids", kRows)}) == "");
    }
}

TEST_CASE("bounds: ids of any value, in parts of a table") {
    Fenced fenced(true);
    constexpr std::int64_t kFirst = 7, kRows = 5, kWhole = 19, kIds = 30, kWidth = 6;
    const auto judge = [&](const std::map<std::string, Words>& all) -> std::string {
        for (std::size_t i = 0; i < kIds; ++i) {
            const std::uint32_t found = all.at("y0")[i * kWidth];
            const std::int64_t id = static_cast<std::int32_t>(all.at("ids")[i]);
            const bool own = id >= kFirst && id < kFirst + kRows, wrong = outside(all.at("ids"), i, kWhole);
            if (is_nan_word(found) != wrong || (!own && !wrong && found != 0)) {
                return "id " + std::to_string(id) + " is wrong; ";
            }
        }
        return {};
    };
    for (const WeightType type : {WeightType::f32, WeightType::f16, WeightType::int8}) {
        CAPTURE(name_of(type));
        for (const std::int64_t edge : {kFirst, kFirst + kRows, kWhole}) {
            CAPTURE(edge);
            CHECK(fenced.trespass(
                      [&](Graph& g) {
                          return Values{embedding_part(g.input("ids", {kIds}, DType::i32),
                                                       g.weight("table", {kRows, kWidth}), 1.0f, kFirst, kWhole)};
                      },
                      {.changes = hostile_changes("ids", edge), .weights = type, .judge = judge}) == "");
        }
    }
}

TEST_CASE("bounds: positions of any value") {
    Fenced fenced(true);
    constexpr std::int64_t kTable = 9, kTokens = 12;
    for (const std::int64_t width : {6, 16, 64}) {
        for (const RopeLayout layout : {RopeLayout::interleaved, RopeLayout::half}) {
            CAPTURE(width);
            const auto judge = [&](const std::map<std::string, Words>& all) -> std::string {
                const Words& y = all.at("y1");
                for (std::size_t i = 0; i < kTokens; ++i) {
                    if (is_nan_word(y[i * static_cast<std::size_t>(width)]) != outside(all.at("at"), i, kTable)) {
                        return "position " + std::to_string(i) + " is wrong; ";
                    }
                }
                return {};
            };
            CHECK(fenced.trespass(
                      [&](Graph& g) {
                          const Value x = g.input("x", {2, kTokens, width});
                          return with_gradients(rope_at(x, g.input("at", {kTokens}, DType::i32),
                                                        {.layout = layout, .max_positions = kTable}),
                                                {x});
                      },
                      {.changes = hostile_changes("at", kTable), .judge = judge}) == "");
        }
    }
}

TEST_CASE("bounds: labels of any value") {
    Fenced fenced(true);
    for (const std::int64_t classes : {1, 6, 130}) {
        for (const float smoothing : {0.0f, 0.25f}) {
            CAPTURE(classes);
            CAPTURE(smoothing);
            CHECK(fenced.trespass(
                      [&](Graph& g) {
                          const Value x = g.input("x", {11, classes});
                          return with_gradients(cross_entropy(x, g.input("labels", {11}, DType::i32),
                                                              {.ignore_index = -1, .label_smoothing = smoothing}),
                                                {x});
                      },
                      {.changes = hostile_changes("labels", classes)}) == "");
            // The last alone, so that nothing else makes the loss NaN.
            std::vector<Change> last;
            for (const std::int32_t label : hostile(classes)) {
                last.push_back([label](const std::string& name, DType, Words& words) {
                    if (name == "labels") {
                        std::fill(words.begin(), words.end(), 0u);
                        words.back() = static_cast<std::uint32_t>(label);
                    }
                });
            }
            CHECK(fenced.trespass(
                      [&](Graph& g) {
                          return Values{cross_entropy(g.input("x", {11, classes}), g.input("labels", {11}, DType::i32),
                                                      {.ignore_index = -1, .label_smoothing = smoothing})};
                      },
                      {.changes = last, .judge = [&](const std::map<std::string, Words>& all) -> std::string {
                           const bool wrong = outside(all.at("labels"), 10, classes) &&
                                              static_cast<std::int32_t>(all.at("labels")[10]) != -1;
                           return is_nan_word(all.at("y0")[0]) == wrong ? "" : "the loss is wrong; ";
                       }}) == "");
        }
    }
}

TEST_CASE("bounds: page tables and lengths of any value, read and appended to") {
    Fenced fenced(true);
    constexpr std::int64_t kPages = 5, kPage = 4, kWidth = 3, kBatch = 3;
    const auto guard = [](Graph& g, const char* name) { return g.state(name, {1024}); };
    for (const std::int64_t tokens : {1, 6}) {
        CAPTURE(tokens);
        // Pages that two sequences share are written by both, in any order: none does here.
        std::vector<Change> tables;
        for (std::int32_t turn = 0; turn < 10; ++turn) {
            tables.push_back([turn](const std::string& name, DType, Words& words) {
                const std::vector<std::int32_t> numbers = hostile(kPages);
                for (std::size_t i = 0; name == "table" && i < words.size(); ++i) {
                    std::int32_t page = numbers[(i + static_cast<std::size_t>(turn)) % numbers.size()];
                    page = page >= 0 && page < kPages ? -1 : page;
                    const auto good = static_cast<std::int32_t>(i) - turn;
                    words[i] = static_cast<std::uint32_t>(good >= 0 && good < kPages ? good : page);
                }
            });
        }
        const auto changes = together(tables, hostile_changes("lengths", kPage * kWidth + 1));
        CHECK(fenced.trespass(
                  [&](Graph& g) {
                      guard(g, "guard.0");
                      const Value pool = g.state("pool", {kPages, kPage, 2, 8});
                      guard(g, "guard.1");
                      const Value table = g.input("table", {kBatch, kWidth}, DType::i32);
                      const Value written = scatter_pages(pool, g.input("x", {kBatch, tokens, 2, 8}), table,
                                                          g.input("lengths", {kBatch}, DType::i32));
                      return Values{gather_pages(written, table)};
                  },
                  {.changes = changes}) == "");
    }
}

TEST_CASE("bounds: appending leaves the states beside the pool alone") {
    Fenced fenced;
    constexpr std::int64_t kPages = 4, kPage = 4;
    CHECK(fenced.trespass(
              [&](Graph& g) {
                  g.state("guard.low", {1024});
                  const Value pool = g.state("pool", {kPages, kPage, 1, 4});
                  g.state("guard.high", {1024});
                  // One sequence: two might write one page.
                  const Value table = g.input("table", {1, 2}, DType::i32);
                  const Value written =
                      scatter_pages(pool, g.input("x", {1, 2, 1, 4}), table, g.input("lengths", {1}, DType::i32));
                  return Values{written};
              },
              {.changes = together(hostile_changes("lengths", kPage * 2 + 1), hostile_changes("table", kPages))}) ==
          "");
}

TEST_CASE("bounds: lengths of any value in masks of sequences") {
    Fenced fenced(true);
    for (const Causal causal : {Causal::none, Causal::bottom_right}) {
        CHECK(fenced.trespass(
                  [&](Graph& g) {
                      return Values{sequence_mask(g.input("q", {3, 1, 5, 4}), g.input("k", {3, 1, 9, 4}), {},
                                                  g.input("keys", {3}, DType::i32), causal)};
                  },
                  {.changes = hostile_changes("keys", 10)}) == "");
        CHECK(fenced.trespass(
                  [&](Graph& g) {
                      return Values{sequence_mask(g.input("q", {1, 1, 11, 4}), g.input("k", {1, 1, 13, 4}),
                                                  g.input("ends", {5}, DType::i32), g.input("keys", {5}, DType::i32),
                                                  causal)};
                  },
                  {.changes = together(hostile_changes("ends", 12), hostile_changes("keys", 14))}) == "");
    }
}

TEST_CASE("bounds: masks of any integers, and indices of anything") {
    Fenced fenced(true);
    CHECK(fenced.trespass(
              [](Graph& g) {
                  const Value mask = g.input("mask", {2, 1, 5, 37}, DType::i32);
                  const Value both =
                      combine_masks(mask, Polarity::attend, g.input("more", {37}, DType::i32), Polarity::ignore);
                  return Values{softmax(g.input("x", {2, 3, 5, 37}), {.mask = {.keys = both}}), both};
              },
              {.changes = together(hostile_changes("mask", 2), hostile_changes("more", 2))}) == "");
    // Rows of NaN, of infinities and of equals: what top_k() and argmax() find is an id of a table.
    std::vector<Change> rows;
    for (const std::uint32_t word : {kNanWord, 0xffffffffu, 0x7f800000u, 0xff800000u, 0x80000000u, 0u}) {
        rows.push_back([word](const std::string& name, DType, Words& words) {
            for (std::size_t i = 0; name == "x" && i < words.size(); ++i) {
                words[i] = i % 5 == 0 || i > words.size() / 2 ? word : words[i];
            }
        });
    }
    for (const std::int64_t width : {1, 9, 400}) {
        CAPTURE(width);
        CHECK(fenced.trespass(
                  [&](Graph& g) {
                      const Value x = g.input("x", {5, width});
                      const Value table = g.input("table", {width, 3});
                      const TopK top = top_k(x, std::min<std::int64_t>(width, 128));
                      return Values{embedding(top.indices, table), embedding(argmax(x), table), top.values};
                  },
                  {.changes = rows, .judge = [](const std::map<std::string, Words>& all) -> std::string {
                       for (const char* y : {"y0", "y1"}) {
                           if (std::any_of(all.at(y).begin(), all.at(y).end(), is_nan_word)) {
                               return std::string(y) + " has an index outside the row; ";
                           }
                       }
                       return {};
                   }}) == "");
    }
}

TEST_CASE("bounds: caches and weights in fewer bits, of any words") {
    Fenced fenced(true);
    for (const WeightType type : {WeightType::f16, WeightType::bf16, WeightType::int8}) {
        CAPTURE(name_of(type));
        constexpr std::int64_t kWidth = 12;
        const auto words = static_cast<std::int64_t>(packed_row_words(type, kWidth));
        const auto wild = together(hostile_changes("k", 1), hostile_changes("v", 1));
        CHECK(fenced.trespass(
                  [&](Graph& g) {
                      return Values{unpack_rows(g.input("k", {2, 3, words}, DType::i32), type, kWidth)};
                  },
                  {.changes = hostile_changes("k", 1)}) == "");
        for (const std::string way : kWays) {
            CAPTURE(way);
            CHECK(fenced.trespass(
                      [&](Graph& g) {
                          AttentionOptions o{.kv_type = type};
                          o.mask.causal = Causal::bottom_right;
                          return Values{scaled_dot_product_attention(g.input("q", {2, 4, 5, kWidth}),
                                                                     g.input("k", {2, 2, 33, words}, DType::i32),
                                                                     g.input("v", {2, 2, 33, words}, DType::i32), o)};
                      },
                      {.changes = wild, .small_gpu = way.empty(), .variants = way}) == "");
        }
        CHECK(fenced.trespass([&](Graph& g) {
            g.state("guard.0", {1024});
            const Value cache = g.state("b", {2, 9, 2, words}, DType::i32);
            g.state("guard.1", {1024});
            const Dim start = g.symbol("start", 5);
            return Values{contiguous(pack_into(slice(cache, 1, start, 4), g.input("x", {2, 4, 2, kWidth}), type))};
        }) == "");
    }
    for (const WeightType type : {WeightType::f16, WeightType::bf16, WeightType::int8, WeightType::int4}) {
        CAPTURE(name_of(type));
        for (const std::int64_t rows : {1, 3, 70}) {
            CAPTURE(rows);
            for (const Arithmetic arithmetic : {Arithmetic::f32, Arithmetic::f16, Arithmetic::int8}) {
                CAPTURE(name_of(arithmetic));
                CHECK(fenced.trespass(
                          [&](Graph& g) {
                              const Value x = g.input("x", {rows, 40});
                              return Values{linear(x, g.weight("w", {33, 40}), g.input("bias", {33}))};
                          },
                          {.weights = type, .arithmetic = arithmetic}) == "");
            }
        }
    }
}

TEST_CASE("bounds: gradients at every width") {
    Fenced fenced(true);
    for (const std::int64_t width : {1, 5, 64, 300}) {
        CAPTURE(width);
        const auto with = [&](auto op) {
            return fenced.trespass([&](Graph& g) {
                const Value x = g.input("x", {7, width}), w = g.input("w", {width}), b = g.input("b", {width});
                return with_gradients(op(x, w, b), {x, w, b});
            });
        };
        CHECK(with([](Value x, Value w, Value b) { return layer_norm(x, w, b); }) == "");
        CHECK(with([](Value x, Value w, Value b) { return rms_norm(x, w) + b; }) == "");
        CHECK(with([](Value x, Value w, Value b) { return softmax(x * w + b); }) == "");
        CHECK(with([](Value x, Value w, Value b) { return gated(x * w, gelu(x) + b, Activation::silu); }) == "");
        CHECK(with([](Value x, Value w, Value b) { return dropout(x * w, 0.5f, 3) + b; }) == "");
        CHECK(fenced.trespass([&](Graph& g) {
            const Value x = g.input("x", {7, width}), w = g.input("w", {9, width}), b = g.input("b", {9});
            return with_gradients(linear(x, w, b, Activation::gelu), {x, w, b});
        }) == "");
    }
}

TEST_SUITE_END();

}  // namespace vkf::test
