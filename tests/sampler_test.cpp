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
