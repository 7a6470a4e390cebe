// SPDX-License-Identifier: Apache-2.0
// Dropout of attention weights. With queries of 0 each of S keys weighs 1/S, so that values can
// tell which weights were kept.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "tests/attention_check.h"

using namespace vkf;
using namespace vkf::test;

namespace {

using Options = reference::AttentionOptions;

Options dropped(double p, std::uint32_t seed) {
    Options o;
    o.dropout = static_cast<double>(static_cast<float>(p));
    o.dropout_seed = seed;
    return o;
}

/// y (B, H, L, S) shows each weight.
Qkv weights_shown(std::int64_t keys) {
    Qkv x{Tensor({2, 4, 19, 8}), random_tensor({2, 2, keys, 8}), Tensor({2, 2, keys, keys})};
    for_each_index(x.value.shape, [&](const Sizes& i) { x.value.at(i) = i[2] == i[3] ? 1 : 0; });
    return x;
}

}  // namespace

TEST_SUITE_BEGIN("attention");

TEST_CASE("attention: dropout keeps what Philox says, the same on every device, and scales it by 1/(1-p)") {
    for (const std::int64_t keys : {64, 37}) {
        CAPTURE(keys);
        const Qkv x = weights_shown(keys);
        for (const double p : {0.1, 0.5, 0.9}) {
            CAPTURE(p);
            const Options o = dropped(p, 77);
            const Tensor want = reference::attention(x.query, x.key, x.value, o).y;
            for (const Ask ask : asks()) {
                const Tensor got = attend(x, o, ask).y;
                CHECK(difference(got, want, {1e-9, 1e-6, {}}) == "");
                std::size_t otherwise = 0;
                for (std::size_t i = 0; i < want.data.size(); ++i) {
                    otherwise += (got.data[i] == 0) == (want.data[i] == 0) ? 0 : 1;
                }
                CHECK(otherwise == 0);
            }
        }
    }
}

TEST_CASE("attention: dropout keeps 1 - p of 1e7 weights, within four sigma") {
    constexpr std::int64_t kHeads = 10;
    constexpr std::int64_t kTokens = 1024;  // a power of two: 1/S is exact
    const Qkv x{Tensor({1, kHeads, kTokens, 1}), Tensor({1, 1, kTokens, 1}), Tensor({1, 1, kTokens, 1}, 1.0)};
    const Options o = dropped(0.1, 3);
    const Tensor y = attend(x, o).y;
    double kept = 0;
    double from_whole = 0;
    std::vector<double> counts;
    for (const double share : y.data) {  // of each row's kTokens weights
        const double count = share * kTokens * (1 - o.dropout);
        counts.push_back(std::round(count));
        kept += counts.back();
        from_whole = std::max(from_whole, std::abs(count - counts.back()));
    }
    CHECK(from_whole < 0.02);
    constexpr double kDraws = static_cast<double>(kHeads * kTokens * kTokens);
    static_assert(kDraws > 1e7);
    CHECK(std::abs(kept - kDraws * (1 - o.dropout)) < 4 * std::sqrt(kDraws * o.dropout * (1 - o.dropout)));

    const Tensor first_head = reference::dropout(Tensor({kTokens, kTokens}, 1.0), o.dropout, o.dropout_seed);
    std::size_t otherwise = 0;
    for (std::size_t row = 0; row < kTokens; ++row) {
        double count = 0;
        for (std::size_t key = 0; key < kTokens; ++key) {
            count += first_head.data[row * kTokens + key] != 0 ? 1 : 0;
        }
        otherwise += count == counts[row] ? 0 : 1;
    }
    CHECK(otherwise == 0);
}

TEST_CASE("attention: dropout with a seed again gives the same bits, with another seed others") {
    const Qkv x = random_qkv({2, 4, 2, 21, 45, 16, 12});
    Options o = dropped(0.3, 1234567891);
    o.scores.causal = Causal::bottom_right;
    const Attended first = attend(x, o, Ask::y_and_lse);
    CHECK(same_bits(first.y, attend(x, o, Ask::y_and_lse).y));
    for (const std::uint32_t seed : {0u, 1234567890u, 0xffffffffu}) {
        o.dropout_seed = seed;
        CHECK_FALSE(same_bits(first.y, attend(x, o, Ask::y_and_lse).y));
    }
    const Options none = [&] {
        Options plain = o;
        plain.dropout = 0;
        return plain;
    }();
    const Attended whole = attend(x, none, Ask::y_and_lse);
    // what is dropped has counted in the sum
    CHECK(same_bits(whole.log_sum_exp, first.log_sum_exp));
    CHECK(same_bits(*attend(x, none, Ask::everything).weights, *attend(x, o, Ask::everything).weights));
}

TEST_CASE("attention: dropout of p = 0 changes nothing, of p = 1 leaves exactly 0") {
    const Qkv x = random_qkv({1, 3, 1, 9, 50, 16, 16});
    for (const Ask ask : {Ask::y, Ask::everything}) {
        CHECK(same_bits(attend(x, dropped(0, 5), ask).y, attend(x, {}, ask).y));
        for (const double share : attend(x, dropped(1, 5), ask).y.data) {
            CHECK(share == 0);
        }
    }
    Graph g;
    const Value v = g.input("v", {1, 1, 2, 4});
    for (const float p : {-0.1f, 1.5f, std::numeric_limits<float>::quiet_NaN()}) {
        AttentionOptions o;
        o.dropout = p;
        CHECK(contains(error_of([&] { scaled_dot_product_attention(v, v, v, o); }), "dropout"));
    }
}

TEST_SUITE_END();
