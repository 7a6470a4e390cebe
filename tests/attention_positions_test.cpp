// SPDX-License-Identifier: Apache-2.0
// Rotary positions through attention.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "tests/attention_check.h"
#include "tests/device.h"

using namespace vkf;
using namespace vkf::test;

TEST_SUITE_BEGIN("attention");

TEST_CASE("attention: rotated scores depend on relative positions only, up to position 100,000") {
    constexpr std::int64_t kPositions = 100001;
    constexpr std::int64_t kTokens = 13;
    constexpr std::int64_t kWidth = 32;
    using Kind = RopeScaling::Kind;
    const Tensor q = random_tensor({1, 2, kTokens, kWidth}, 1, 2);
    const Tensor k = random_tensor({1, 1, kTokens, kWidth}, 2, 2);
    for (const RopeLayout layout : {RopeLayout::interleaved, RopeLayout::half}) {
        const Kind kind = layout == RopeLayout::half ? Kind::yarn : Kind::none;
        const RopeScaling scaling{.kind = kind, .factor = 4, .attention_factor = 1, .original_max_positions = 4096};
        const Rope rotary{.layout = layout, .max_positions = kPositions, .scaling = scaling};
        // A table entry, a product and a sum in fp32 put a turned number off by at most 3 * 2^-24
        // of its pair's length; q and k both; then kWidth products are added, each step within
        // 2^-24 of the sum of their magnitudes.
        double longest = 0;
        for_each_index({2, kTokens, kTokens}, [&](const Sizes& i) {
            double sum = 0;
            for (std::int64_t a = 0; a < kWidth / 2; ++a) {
                const std::int64_t first = layout == RopeLayout::half ? a : 2 * a;
                const std::int64_t second = layout == RopeLayout::half ? a + kWidth / 2 : 2 * a + 1;
                sum += std::hypot(q.at({0, i[0], i[1], first}), q.at({0, i[0], i[1], second})) *
                       std::hypot(k.at({0, 0, i[2], first}), k.at({0, 0, i[2], second}));
            }
            longest = std::max(longest, sum);
        });
        const double allowed = 2 * (6 + kWidth) * 0x1p-24 * 2 * longest;
        Graph g;
        const Dim start = g.symbol("start", kPositions);
        const Value key = g.input("k", {1, 1, kTokens, kWidth});
        // attention of each query to one key at a time: the log-sum-exp of a single score is the
        // score
        const Value turned_query = rope(g.input("q", {1, 2, kTokens, kWidth}), rotary, start);
        const Value turned_key = rope(key, rotary, start);
        std::vector<std::string> names;
        for (const std::int64_t j : {std::int64_t{0}, kTokens / 2, kTokens - 1}) {
            AttentionOptions o;
            o.scale = 1;
            o.log_sum_exp = true;
            const Value one = slice(turned_key, 2, j, 1);
            names.push_back("scores of key " + std::to_string(j));
            g.output(names.back(), contiguous(scaled_dot_product_attention(turned_query, one, one, o).log_sum_exp));
        }
        AttentionOptions o;
        o.mask.causal = Causal::top_left;
        g.output("y", contiguous(scaled_dot_product_attention(turned_query, turned_key, key, o).y));
        Program p = device().compile(g);
        upload(p, "q", q);
        upload(p, "k", k);
        std::vector<Tensor> near;
        for (const std::int64_t at :
             {std::int64_t{0}, std::int64_t{1}, std::int64_t{4097}, std::int64_t{65535}, kPositions - kTokens}) {
            CAPTURE(at);
            p.set("start", at);
            p.run();
            std::vector<Tensor> now;
            for (const std::string& name : names) {
                now.push_back(download(p, name));
            }
            now.push_back(download(p, "y"));
            near = near.empty() ? now : near;
            for (std::size_t i = 0; i < now.size(); ++i) {
                CAPTURE(i);
                CHECK(difference(now[i], near[i], {i + 1 == now.size() ? 1e-4 : allowed, 1e-4, {}}) == "");
            }
        }
        p.set("start", kPositions - kTokens + 1);
        CHECK(contains(error_of([&] { p.run(); }), "100002 is more than 100001"));
    }
}

TEST_SUITE_END();
