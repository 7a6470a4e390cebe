// SPDX-License-Identifier: Apache-2.0
// The gradient of attention where whole rows of scores are large: fp32 drops the logarithm of the
// sum from their log-sum-exp, not from what the gradient computes weights of.
#include <doctest/doctest.h>

#include <string>

#include "tests/attention_gradient_check.h"
#include "tests/believed.h"

namespace vkf::test {

namespace {

constexpr double kLowest = -3.4028234663852886e38;

/// Multiples of 1/4 between -2 and 2, of which fp32 computes scores of 16 columns without rounding.
Tensor quarters(const Sizes& shape, unsigned seed) {
    Tensor t = random_integers(shape, 17, seed);
    for (double& x : t.data) {
        x = (x - 8) / 4;
    }
    return t;
}

TiledProblem exact_problem(const Sizes& query, const Sizes& key) {
    TiledProblem p = tiled_problem(query, key, 24);
    p.query = quarters(query, 1);
    p.key = quarters(key, 2);
    return p;
}

/// As exact_problem(), with 2^15 added to the scores, which are exact too.
TiledProblem large_products(const Sizes& query, const Sizes& key) {
    TiledProblem p = exact_problem(query, key);
    for_each_index(query, [&](const Sizes& i) { p.query.at(i) = i[3] < 8 ? 128.0 : p.query.at(i); });
    for_each_index(key, [&](const Sizes& i) { p.key.at(i) = i[3] < 8 ? 128.0 : p.key.at(i); });
    return p;
}

/// A bias of the row of number i % 8 of each query i.
Tensor bias_of_rows(std::int64_t queries) {
    constexpr double kRows[] = {0, -1e9, 1e5, kLowest, -1e20, 1e9, -1e5, 1e4};
    Tensor bias({queries, 1}, 0.0);
    for (std::int64_t i = 0; i < queries; ++i) {
        bias.at({i, 0}) = kRows[i % 8];
    }
    return bias;
}

/// A mask that hides some keys of each query, and all of every fifth.
Tensor mask_of_rows(std::int64_t queries, std::int64_t keys) {
    Tensor mask = random_integers({queries, keys}, 2, 9);
    for_each_index(mask.shape, [&](const Sizes& i) { mask.at(i) = i[0] % 5 == 3 ? 0 : mask.at(i); });
    return mask;
}

/// Says how the gradients by a kind of kernels differ from the composed ones; empty: they do not.
std::string mismatch_by(const char* variant, const char* expected, const TiledProblem& p) {
    const Gradients want = gradients_as(p, as_composed);
    const Gradients got = gradients_as(p, [&](Capabilities& c) { c.variants = variant; });
    if (device().capabilities().storage_buffers < 12) {
        cannot_run("the gradient of fused attention");
    } else if (!contains(got.explained, expected)) {
        return std::string("no ") + expected + ":\n" + got.explained;
    }
    return difference(got, want);
}

/// By the kernels of a processor.
std::string mismatch_by_lanes(const TiledProblem& p, const char* expected = "attention_delta") {
    if (!device().capabilities().cpu()) {
        cannot_run("the gradient of fused attention on a processor");
        return "";
    }
    return mismatch_by("attention_lanes", expected, p);
}

std::string mismatch_by_each(const TiledProblem& p) {
    return mismatch_by_lanes(p) + mismatch_by("attention_shared", "of queries, tiles in shared memory", p);
}

}  // namespace

TEST_SUITE_BEGIN("attention gradient");

TEST_CASE("attention gradient of large rows: a finite fill, rows masked whole") {
    for (const float fill : {-1e4f, -1e9f, -1e20f, static_cast<float>(kLowest)}) {
        CAPTURE(fill);
        TiledProblem p = exact_problem({2, 4, 45, 16}, {2, 2, 75, 16});
        p.fill = fill;
        p.mask = mask_of_rows(45, 75);
        CHECK(mismatch_by_each(p) == "");
        p.causal = Causal::bottom_right;
        p.mask = {};
        CHECK(mismatch_by_each(p) == "");
    }
}

TEST_CASE("attention gradient of large rows: a bias, beside masks, dropout and sinks") {
    TiledProblem p = exact_problem({2, 4, 45, 16}, {2, 2, 75, 16});
    p.bias = bias_of_rows(45);
    CHECK(mismatch_by_each(p) == "");
    p.log_sum_exp = true;
    CHECK(mismatch_by_each(p) == "");
    p.mask = mask_of_rows(45, 75);
    CHECK(mismatch_by_each(p) == "");
    p.dropout = 0.3f;
    p.fill = -1e9f;
    CHECK(mismatch_by_each(p) == "");
    p.sinks = Tensor({4}, 1e5);
    p.sinks->at({1}) = -1e9;
    p.sinks->at({2}) = 0;
    CHECK(mismatch_by_each(p) == "");
}

TEST_CASE("attention gradient of large rows: products that are large") {
    TiledProblem p = large_products({1, 2, 40, 16}, {1, 2, 90, 16});
    CHECK(mismatch_by_each(p) == "");
}

TEST_CASE("attention gradient of large rows: few queries, whose keys are split") {
    TiledProblem p = exact_problem({1, 2, 8, 16}, {1, 2, 1300, 16});
    p.bias = bias_of_rows(8);
    CHECK(mismatch_by_each(p) == "");
    CHECK(mismatch_by_lanes(p, "splits of the keys put together") == "");
}

TEST_CASE("attention gradient of large rows: packed sequences") {
    TiledProblem p = large_products({1, 2, 150, 16}, {1, 2, 150, 16});
    p.ends = Tensor({4}, 0.0);
    p.ends->at({1}) = 37;
    p.ends->at({2}) = 38;
    p.ends->at({3}) = 150;
    CHECK(mismatch_by_lanes(p) == "");
    p.causal = Causal::top_left;
    p.sinks = Tensor({2}, 32768.0);
    CHECK(mismatch_by_lanes(p) == "");
    p.sinks = {};
    p.log_sum_exp = true;
    CHECK(mismatch_by_lanes(p) == "");
}

TEST_CASE("attention gradient of large rows: weights asked for, so that the attention is composed") {
    // and its gradient is not
    TiledProblem p = exact_problem({1, 2, 150, 16}, {1, 2, 133, 16});
    p.bias = bias_of_rows(150);
    p.sinks = Tensor({2}, 1e5);
    p.weights = true;
    CHECK(mismatch_by_lanes(p) == "");
}

TEST_SUITE_END();

}  // namespace vkf::test
