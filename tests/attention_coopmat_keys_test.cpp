// SPDX-License-Identifier: Apache-2.0
// Fused attention on cooperative matrices where keys lie in other ways: sequences behind each
// other, pages, splits, packed caches.
#include <doctest/doctest.h>

#include <cmath>

#include "tests/attention_f16.h"
#include "tests/believed.h"
#include "tests/reference_packed.h"

namespace vkf::test {

namespace {

using Options = reference::AttentionOptions;

}  // namespace

TEST_SUITE("attention coopmat") {
    TEST_CASE("coopmat attention: sequences of their own lengths, packed and in pages") {
        if (!has_matrices()) {
            return;
        }
        const Believed forced(as_forced);
        const std::int64_t heads = 4, kv_heads = 2, d = 20, dv = 12;
        const auto part = [](const Tensor& x, std::int64_t first, std::int64_t count) {
            return slice(x, 2, first, count);
        };
        for (const Causal causal : {Causal::none, Causal::bottom_right}) {
            Options o;
            o.scores.causal = causal;
            const std::vector<std::int64_t> query_ends{0, 5, 5, 6, 76, 83}, key_ends{0, 9, 12, 13, 113, 120};
            const Qkv x = random_qkv({1, heads, kv_heads, 83, 120, d, dv}, 6);
            OpCheck check;
            check.arithmetic = Arithmetic::f16;
            AttentionOptions options = fused_options(check, x, o);
            options.cumulative_queries = check.indices("queries", integers(query_ends));
            options.cumulative_keys = check.indices("keys", integers(key_ends));
            const Tensor y = check.run(scaled_dot_product_attention(check.input("q", x.query), check.input("k", x.key),
                                                                    check.input("v", x.value), options)
                                           .y);
            for (std::size_t i = 0; i + 1 < query_ends.size(); ++i) {
                const std::int64_t rows = query_ends[i + 1] - query_ends[i], keys = key_ends[i + 1] - key_ends[i];
                if (rows != 0) {
                    const Qkv one{part(x.query, query_ends[i], rows), part(x.key, key_ends[i], keys),
                                  part(x.value, key_ends[i], keys)};
                    CHECK(mismatch_f16(part(y, query_ends[i], rows), one, o) == "");
                }
            }

            const std::vector<std::int64_t> lengths{40, 1, 66};
            const std::int64_t page = 6, width = 11;
            Qkv pool{random_tensor({3, heads, 9, d}, 1), random_tensor({40, kv_heads, page, d}, 2),
                     random_tensor({40, kv_heads, page, dv}, 3)};
            Tensor table({3, width});
            for (std::int64_t i = 0; i < 3 * width; ++i) {
                table.data[static_cast<std::size_t>(i)] = static_cast<double>(i * 7 % 40);
            }
            OpCheck paged;
            paged.arithmetic = Arithmetic::f16;
            options = fused_options(paged, pool, o);
            options.key_lengths = paged.indices("lengths", integers(lengths));
            options.pages = paged.indices("pages", table);
            const Tensor z =
                paged.run(scaled_dot_product_attention(paged.input("q", pool.query), paged.input("k", pool.key),
                                                       paged.input("v", pool.value), options)
                              .y);
            for (std::int64_t b = 0; b < 3; ++b) {
                const std::int64_t keys = lengths[static_cast<std::size_t>(b)];
                Qkv one{slice(pool.query, 0, b, 1), Tensor({1, kv_heads, keys, d}), Tensor({1, kv_heads, keys, dv})};
                const auto gather = [&](const Tensor& from, Tensor& to) {
                    for_each_index(to.shape, [&](const Sizes& i) {
                        const auto at = static_cast<std::int64_t>(table.at({b, i[2] / page}));
                        to.at(i) = from.at({at, i[1], i[2] % page, i[3]});
                    });
                };
                gather(pool.key, one.key);
                gather(pool.value, one.value);
                CHECK(mismatch_f16(slice(z, 0, b, 1), one, o) == "");
            }
        }
    }

    TEST_CASE("coopmat attention: one query against many keys, which are split; keys and values kept packed") {
        if (!has_matrices()) {
            return;
        }
        const Believed forced(as_forced);
        const Qkv x = random_qkv({2, 8, 2, 1, 3000, 64, 64}, 1, 2);
        Options o;
        CHECK(mismatch_f16(x, o) == "");
        CHECK(mismatch_f16(x, o, false) == "");
        o.scores.sinks = random_tensor({8}, 5, 2);
        o.dropout = 0.25;
        CHECK(mismatch_f16(x, o) == "");

        const std::int64_t capacity = 300, used = 270, d = 24;
        for (const WeightType type : {WeightType::f16, WeightType::bf16, WeightType::int8}) {
            CAPTURE(name_of(type));
            for (const std::int64_t queries : {1, 40}) {
                const Qkv kept = random_qkv({1, 4, 2, queries, used, d, d}, 9);
                Graph g;
                const KvCache cache = kv_cache(g, "cache", 1, capacity, 2, d, 0, type);
                const Value k = g.input("k", {1, 2, used, d}), v = g.input("v", {1, 2, used, d});
                const CachedKv all = append(cache, transpose(k, 1, 2), transpose(v, 1, 2));
                const float scale = static_cast<float>(1 / std::sqrt(static_cast<double>(d)));
                AttentionOptions options;
                options.scale = scale;
                options.kv_type = type;
                g.output(
                    "y",
                    contiguous(
                        scaled_dot_product_attention(g.input("q", {1, 4, queries, d}), all.key, all.value, options).y));
                const State state = device().make_state({&g});
                Program p = device().compile(g, {}, {.state = state, .arithmetic = Arithmetic::f16});
                CHECK(contains(p.explain(), kTakenInF16));
                upload(p, "q", kept.query);
                upload(p, "k", kept.key);
                upload(p, "v", kept.value);
                p.run();
                const auto packed = [&](const Tensor& t) {
                    return reshape(reference::packed(reshape(t, {2 * used, d}), type), t.shape);
                };
                const Qkv seen = as_f16({kept.query, packed(kept.key), packed(kept.value)});
                const Tensor want = reference::attention(seen.query, seen.key, seen.value).y;
                CHECK(difference(download(p, "y"), want, f16_tolerance(seen, {})) == "");
            }
        }
    }
}

}  // namespace vkf::test
