// SPDX-License-Identifier: Apache-2.0
#include "models/sampler.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "tests/op_check.h"

using namespace vkf;
using namespace vkf::test;

TEST_SUITE_BEGIN("sampler");

TEST_CASE("sampler: greedy, seeds, top-k and top-p") {
    const std::vector<std::int32_t> tokens{7, 3, 9, 1};
    const std::vector<float> logits{2.0f, 1.0f, 0.0f, -1.0f};
    const Candidates candidates{tokens, logits};
    const auto draws = [&](const SamplerOptions& o) {
        Sampler sampler(o);
        std::vector<std::int32_t> out;
        for (int i = 0; i < 4000; ++i) {
            out.push_back(sampler.choose(candidates));
        }
        return out;
    };
    const auto share = [](const std::vector<std::int32_t>& d, std::int32_t id) {
        return static_cast<double>(std::count(d.begin(), d.end(), id)) / static_cast<double>(d.size());
    };
    CHECK(share(draws({.temperature = 0}), 7) == 1.0);
    CHECK(share(draws({.top_k = 1}), 7) == 1.0);
    CHECK(draws({.seed = 4}) == draws({.seed = 4}));
    CHECK(draws({.seed = 4}) != draws({.seed = 5}));
    const double all = 1 + std::exp(-1.0) + std::exp(-2.0) + std::exp(-3.0);
    CHECK(share(draws({}), 7) == doctest::Approx(1 / all).epsilon(0.03));
    CHECK(share(draws({}), 1) == doctest::Approx(std::exp(-3.0) / all).epsilon(0.3));
    CHECK(share(draws({.top_k = 2}), 7) == doctest::Approx(1 / (1 + std::exp(-1.0))).epsilon(0.03));
    CHECK(share(draws({.top_p = 0.7f}), 9) == 0.0);  // 0.644 and 0.237 reach it
    CHECK(share(draws({.top_p = 0.7f}), 3) > 0.2);
    CHECK(share(draws({.top_p = 0.6f}), 7) == 1.0);
    CHECK(share(draws({.temperature = 0.25f}), 7) > 0.97);
    CHECK(contains(error_of([] { Sampler({.temperature = -1}); }), "temperature"));
    CHECK(contains(error_of([] { Sampler({.top_k = 0}); }), "top_k"));
    CHECK(contains(error_of([] { Sampler({.top_p = 0}); }), "top_p"));
}

TEST_CASE("sampler: logits that are not finite are refused, and so are too few candidates") {
    const std::vector<std::int32_t> tokens{7, 3, 9};
    const auto said = [&](const std::vector<float>& logits, std::int64_t vocab_size, const SamplerOptions& options) {
        const auto given = std::span(tokens).first(logits.size());
        return error_of([&] { Sampler(options).choose({given, logits, vocab_size}); });
    };
    const float nan = std::nanf(""), inf = INFINITY;
    for (const float temperature : {0.0f, 1.0f}) {
        for (const std::vector<float>& logits : {std::vector{nan, 1.0f, 0.0f}, std::vector{1.0f, nan, 0.0f},
                                                 std::vector{inf, inf, 0.0f}, std::vector{-inf, -inf, -inf}}) {
            CHECK(contains(said(logits, 3, {.temperature = temperature}), "Sampler: the logits of the candidates"));
        }
        CHECK(said({1.0f, 0.0f, -inf}, 3, {.temperature = temperature}) == "");
        // what is not drawn among is not looked at
        CHECK(said({1.0f, 0.0f, nan}, 9, {.temperature = temperature, .top_k = 2}) == "");
    }
    CHECK(contains(said({1.0f, 0.0f}, 9, {.top_k = 3}), "top_k = 3 chooses among 3 tokens, and there are 2"));
    CHECK(contains(said({1.0f, 0.0f}, 9, {}), "top_k = 50 chooses among 9 tokens"));
    CHECK(said({1.0f, 0.0f}, 9, {.temperature = 0}) == "");  // which takes the first
    CHECK(said({1.0f, 0.0f}, 2, {}) == "");
    CHECK(said({1.0f, 0.0f}, 0, {}) == "");  // of a vocabulary that is not told
    const std::vector<float> one{1.0f}, four(4, 1.0f);
    for (const std::vector<float>& logits : {one, four}) {
        CHECK(error_of([&] {
                  Sampler({.top_k = 2}).choose({tokens, logits});
              }) == "Sampler: 3 tokens have " + std::to_string(logits.size()) + " logits");
    }
}
