// SPDX-License-Identifier: Apache-2.0
// Paged attention against each sequence by itself.
#include "layers/sequences.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "runtime/device/device.h"
#include "tests/attention_check.h"
#include "tests/attention_sequences.h"
#include "tests/device.h"
#include "tests/fixtures.h"

using namespace vkf;
using namespace vkf::test;

namespace {

using namespace sequences;

/// Pages of `kPage` keys for sequences of these lengths, given out so that no two pages of a
/// sequence are neighbours.
constexpr std::int64_t kPage = 6;

struct Paged {
    std::vector<std::int64_t> lengths;
    std::int64_t pages, width;
    Tensor table, pool_k, pool_v;

    Paged(std::vector<std::int64_t> given, std::int64_t page_count, std::int64_t table_width)
        : lengths(std::move(given)),
          pages(page_count),
          width(table_width),
          table({static_cast<std::int64_t>(lengths.size()), table_width}, -1),
          pool_k(random_tensor({page_count, kPage, kKvHeads, kHeadDim}, 5)),
          pool_v(random_tensor({page_count, kPage, kKvHeads, kValueDim}, 6)) {
        std::int64_t next = 0;
        for (std::int64_t slot = 0; slot < width; ++slot) {
            for (std::int64_t b = 0; b < batch(); ++b) {
                if (slot * kPage < lengths[static_cast<std::size_t>(b)]) {
                    table.at({b, slot}) = static_cast<double>(next++);
                }
            }
        }
    }
    std::int64_t batch() const { return static_cast<std::int64_t>(lengths.size()); }

    /// A sequence's rows in order, (1, Hk, S, d).
    Tensor rows(const Tensor& pool, std::int64_t b) const {
        const std::int64_t length = lengths[static_cast<std::size_t>(b)];
        Tensor out({1, kKvHeads, length, pool.size(3)});
        for_each_index(out.shape, [&](const Sizes& i) {
            const auto page = static_cast<std::int64_t>(table.at({b, i[2] / kPage}));
            out.at(i) = pool.at({page, i[2] % kPage, i[1], i[3]});
        });
        return out;
    }
};

Tensor run_paged(const Paged& x, const Tensor& q, const AttentionOptions& o, const Tensor& table) {
    OpCheck check;
    const PagedKvCache cache{check.input("k", x.pool_k), check.input("v", x.pool_v), check.indices("table", table),
                             check.indices("lengths", integers(x.lengths))};
    return check.run(contiguous(paged_attention(check.input("q", q), cache, o).y));
}

Tensor twin(const Paged& x, const Tensor& q, const reference::AttentionOptions& o) {
    Tensor out({x.batch(), kHeads, q.size(2), kValueDim});
    for (std::int64_t b = 0; b < x.batch(); ++b) {
        if (x.lengths[static_cast<std::size_t>(b)] == 0) {
            continue;
        }
        const Tensor y = reference::attention(slice(q, 0, b, 1), x.rows(x.pool_k, b), x.rows(x.pool_v, b), o).y;
        for_each_index(y.shape, [&](const Sizes& i) { out.at({b, i[1], i[2], i[3]}) = y.at(i); });
    }
    return out;
}

}  // namespace

TEST_SUITE("attention sequences") {
    TEST_CASE("paged attention: as with the keys in a row, for prompts and for steps") {
        const Paged x({7, 0, 25, 12}, 20, 5);
        on_each_way([&] {
            for (const std::int64_t queries : {1, 3}) {
                const Tensor q = random_tensor({x.batch(), kHeads, queries, kHeadDim}, 4);
                AttentionOptions o;
                reference::AttentionOptions same;
                CHECK(difference(run_paged(x, q, o, x.table), twin(x, q, same)) == "");
                o.mask.causal = same.scores.causal = Causal::bottom_right;
                CHECK(difference(run_paged(x, q, o, x.table), twin(x, q, same)) == "");
                o.mask.window = same.scores.window = 5;
                CHECK(difference(run_paged(x, q, o, x.table), twin(x, q, same)) == "");
            }
        });
    }

    TEST_CASE(
        "paged attention: packed queries, some of a prompt and some of a step, each read their sequence's pages") {
        if (device().capabilities().storage_buffers < 12) {
            cannot_run("12 storage buffers a stage");
            return;
        }
        const Paged x({7, 0, 25, 12}, 20, 5);
        const std::vector<std::int64_t> ends{0, 3, 4, 9, 10};
        const Tensor q = random_tensor({1, kHeads, ends.back(), kHeadDim}, 4);
        on_each_way([&] {
            for (const Causal causal : {Causal::none, Causal::bottom_right}) {
                OpCheck check;
                AttentionOptions o;
                reference::AttentionOptions same;
                o.mask.causal = same.scores.causal = causal;
                o.cumulative_queries = check.indices("ends", integers(ends));
                o.key_lengths = check.indices("lengths", integers(x.lengths));
                o.pages = check.indices("table", x.table);
                const Value k = transpose(check.input("k", x.pool_k), 1, 2);
                const Value v = transpose(check.input("v", x.pool_v), 1, 2);
                const Tensor y = check.run(contiguous(scaled_dot_product_attention(check.input("q", q), k, v, o).y));
                for (std::int64_t b = 0; b < x.batch(); ++b) {
                    const std::int64_t first = ends[static_cast<std::size_t>(b)];
                    const std::int64_t count = ends[static_cast<std::size_t>(b) + 1] - first;
                    const Tensor want = x.lengths[static_cast<std::size_t>(b)] == 0
                                            ? Tensor({1, kHeads, count, kValueDim})
                                            : reference::attention(slice(q, 2, first, count), x.rows(x.pool_k, b),
                                                                   x.rows(x.pool_v, b), same)
                                                  .y;
                    CHECK(difference(slice(y, 2, first, count), want) == "");
                }
            }
        });
    }

    TEST_CASE("paged attention: a long cache, split over its keys") {
        const Paged x({2500, 1300}, 640, 420);
        const Tensor q = random_tensor({2, kHeads, 1, kHeadDim}, 4);
        on_each_way([&] { CHECK(difference(run_paged(x, q, {}, x.table), twin(x, q, {})) == ""); });
    }

    TEST_CASE("paged attention: a prefix that two sequences share is there once") {
        Paged x({14, 15}, 8, 3);
        x.table.at({1, 0}) = x.table.at({0, 0});
        x.table.at({1, 1}) = x.table.at({0, 1});
        const Tensor q = random_tensor({2, kHeads, 1, kHeadDim}, 4);
        on_each_way([&] { CHECK(difference(run_paged(x, q, {}, x.table), twin(x, q, {})) == ""); });
    }

    TEST_CASE("paged attention: what lies in unused pages and slots leaves no trace") {
        Paged x({7, 9}, 8, 3);
        const Tensor q = random_tensor({2, kHeads, 2, kHeadDim}, 4);
        on_each_way([&] {
            const Tensor clean = run_paged(x, q, {}, x.table);
            Paged poisoned = x;
            for_each_index(poisoned.pool_k.shape, [&](const Sizes& i) {
                const bool used = i[0] < 2 || (i[0] == 2 && i[1] < 1) || (i[0] == 3 && i[1] < 3);
                if (!used) {
                    poisoned.pool_k.at(i) = kNan;
                }
            });
            for_each_index(poisoned.pool_v.shape, [&](const Sizes& i) {
                const bool used = i[0] < 2 || (i[0] == 2 && i[1] < 1) || (i[0] == 3 && i[1] < 3);
                if (!used) {
                    poisoned.pool_v.at(i) = kInf;
                }
            });
            CHECK(same_bits(clean, run_paged(poisoned, q, {}, x.table)));
        });
    }

    TEST_CASE("paged attention: tables and lengths out of range are refused where the host gives them") {
        Paged x({7, 9}, 8, 3);
        const Tensor q = random_tensor({2, kHeads, 2, kHeadDim}, 4);
        Tensor table = x.table;
        table.at({1, 1}) = 8;
        CHECK(contains(error_of([&] { run_paged(x, q, {}, table); }), "entry 4 is 8, not in -1..7"));
        x.lengths[1] = 19;
        CHECK(contains(error_of([&] { run_paged(x, q, {}, x.table); }), "length 1 is 19, not in 0..18"));
        Graph g;
        const Value pool = g.state("pool", {2, kPage, 1, kHeadDim});
        const Value lengths = g.input("lengths", {2}, DType::i32), query = g.input("q", {2, 1, 1, kHeadDim});
        CHECK(contains(error_of([&] {
                           paged_attention(query, {pool, pool, {}, lengths});
                       }),
                       "paged_attention: the cache has no table, over q (2, 1, 1, "));
        // a page may be of many tables' places, so that pools need not be large for that
        const Value long_pool = g.state("long_pool", {2, 4096, 1, kHeadDim});
        const Value wide = g.input("table", {2, 1 << 20}, DType::i32);
        CHECK(contains(error_of([&] {
                           paged_attention(query, {long_pool, long_pool, wide, lengths});
                       }),
                       "a sequence could have 4294967296 keys, more than 2147483647"));
    }

    TEST_CASE("paged attention: a page that does not exist gives NaN, and reads nothing") {
        const Paged x({7, 9}, 8, 3);
        const Tensor q = random_tensor({2, kHeads, 2, kHeadDim}, 4);
        on_each_way([&] {
            OpCheck check;
            // computed tables are not seen by the host
            const Value table = combine_masks(check.indices("a", Tensor({2, 3}, 1)), Polarity::attend,
                                              check.indices("b", Tensor({2, 3}, 1)), Polarity::attend);
            const Value pool_k = check.input("k", Tensor({1, kPage, kKvHeads, kHeadDim}, 0.5));
            const Value pool_v = check.input("v", Tensor({1, kPage, kKvHeads, kValueDim}, 0.5));
            const PagedKvCache cache{pool_k, pool_v, table, check.indices("lengths", integers(x.lengths))};
            const Tensor y = check.run(contiguous(paged_attention(check.input("q", q), cache).y));
            for (const double element : y.data) {
                CHECK(std::isnan(element));
            }
        });
    }

    TEST_CASE("paged attention: a pool's own rows are all read before any is written") {
        constexpr std::int64_t kTokens = 40;
        const Tensor start = random_tensor({3, kTokens, kKvHeads, kHeadDim}, 7);
        OpCheck check;
        const Value pool = check.graph.state("pool", {3, kTokens, kKvHeads, kHeadDim});
        copy_into(pool, check.input("start", start));
        // the first page becomes the second, and that the third
        const Value moved = scatter_pages(pool, slice(pool, 0, 0, 2), check.indices("table", Tensor({2, 1}, {1, 2})),
                                          check.indices("lengths", Tensor({2}, kTokens)));
        Tensor want = start;
        for_each_index(slice(start, 0, 0, 2).shape, [&](const Sizes& i) {
            want.at({i[0] + 1, i[1], i[2], i[3]}) = start.at(i);
        });
        CHECK(difference(check.run(contiguous(moved)), want, exactly()) == "");
    }

    TEST_CASE("paged attention: tokens are appended where each sequence ends") {
        const Paged x({7, 12, 3}, 10, 3);
        constexpr std::int64_t kTokens = 3;
        Graph g;
        const PagedKvCache cache{g.state("k", {10, kPage, kKvHeads, kHeadDim}),
                                 g.state("v", {10, kPage, kKvHeads, kValueDim}), g.input("table", {3, 3}, DType::i32),
                                 g.input("lengths", {3}, DType::i32)};
        const Dim tokens = g.symbol("tokens", 12);
        const PagedKvCache now = append(cache, g.input("new_k", {3, tokens, kKvHeads, kHeadDim}),
                                        g.input("new_v", {3, tokens, kKvHeads, kValueDim}));
        AttentionOptions o;
        o.mask.causal = Causal::bottom_right;
        g.output("y", contiguous(paged_attention(g.input("q", {3, kHeads, tokens, kHeadDim}), now, o).y));
        Program p = device().compile(g);
        upload(p, "table", x.table, DType::i32);
        Tensor y;
        // what a sequence has less than the longest comes first: the others write those tokens
        // again
        for (const std::int64_t count : {std::int64_t{12}, kTokens}) {
            const bool last = count == kTokens;
            std::vector<std::int64_t> lengths = x.lengths;
            for (std::size_t b = 0; b < 3; ++b) {
                lengths[b] = last ? x.lengths[b] : std::min(x.lengths[b], count);
            }
            p.set("tokens", count);
            Tensor k({3, count, kKvHeads, kHeadDim});
            Tensor v({3, count, kKvHeads, kValueDim});
            for (std::int64_t b = 0; b < 3; ++b) {
                const Tensor rows_k = x.rows(x.pool_k, b);
                const Tensor rows_v = x.rows(x.pool_v, b);
                const std::int64_t first = lengths[static_cast<std::size_t>(b)] - count;
                for_each_index(k.shape, [&](const Sizes& i) {
                    if (i[0] == b && first + i[1] >= 0) {
                        k.at(i) = rows_k.at({0, i[2], first + i[1], i[3]});
                    }
                });
                for_each_index(v.shape, [&](const Sizes& i) {
                    if (i[0] == b && first + i[1] >= 0) {
                        v.at(i) = rows_v.at({0, i[2], first + i[1], i[3]});
                    }
                });
            }
            const Tensor q = random_tensor({3, kHeads, count, kHeadDim}, 4);
            upload(p, "lengths", integers(lengths), DType::i32);
            upload(p, "new_k", k);
            upload(p, "new_v", v);
            upload(p, "q", q);
            p.run();
            y = download(p, "y");
            if (last) {
                reference::AttentionOptions same;
                same.scores.causal = Causal::bottom_right;
                CHECK(difference(y, twin(x, q, same)) == "");
            }
        }
    }
}
