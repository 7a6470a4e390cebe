// SPDX-License-Identifier: Apache-2.0
// Score mods within attention, fused and composed, against masks and biases that say the same.
#include <doctest/doctest.h>

#include <cmath>

#include "layers/attention.h"
#include "runtime/device/device.h"
#include "runtime/device/device_core.h"
#include "runtime/device/insides.h"
#include "tests/attention_check.h"
#include "tests/device.h"
#include "tests/glsl.h"

using namespace vkf;
using namespace vkf::test;

namespace {

constexpr AttentionSizes kSizes{2, 4, 2, 37, 150, 20, 12};

Tensor attend_with(const Qkv& x, const char* expression, const std::vector<float>& parameters,
                   AttentionOptions o = {}) {
    OpCheck check;
    o.score_mod =
        ScoreMod::glsl(std::string("float score_mod(float score, uint batch, uint head, uint query, uint key) ") +
                           "{ " + expression + " }",
                       parameters);
    return check.run(contiguous(
        scaled_dot_product_attention(check.input("q", x.query), check.input("k", x.key), check.input("v", x.value), o)
            .y));
}

/// f(batch, head, query, key) for every score.
template <class F>
Tensor of_scores(F f) {
    Tensor out({kSizes.batch, kSizes.heads, kSizes.queries, kSizes.keys});
    for_each_index(out.shape, [&](const Sizes& i) { out.at(i) = f(i[0], i[1], i[2], i[3]); });
    return out;
}

/// Calls f for each way to compute attention that the device has.
template <class F>
void on_each_variant(F f) {
    Capabilities& capabilities = Insides::core(device()).capabilities;
    const std::string before = capabilities.variants;
    for (const char* variant : {before.c_str(), "attention_shared", "attention_rows", "attention_composed"}) {
        capabilities.variants = variant;
        CAPTURE(variant);
        f();
    }
    capabilities.variants = before;
}

}  // namespace

TEST_SUITE("attention score mods") {
    TEST_CASE("attention: a mod by positions and heads is a bias") {
        if (!can_compile_glsl()) {
            return;
        }
        const Qkv x = random_qkv(kSizes);
        reference::AttentionOptions same;
        same.scores.bias = of_scores([](auto b, auto h, auto q, auto k) {
            return 0.125 * static_cast<double>(b + 2 * h) - 0.0625 * std::abs(static_cast<double>(q - k));
        });
        const Tensor want = reference::attention(x.query, x.key, x.value, same).y;
        on_each_variant([&] {
            const Tensor got = attend_with(x,
                                           "return score + parameter(0) * float(batch + 2u * head)"
                                           " - parameter(1) * abs(float(int(query) - int(key)));",
                                           {0.125f, 0.0625f});
            CHECK(difference(got, want) == "");
        });
    }

    TEST_CASE("attention: a mod beside ALiBi and a causal mask counts positions as that one does") {
        if (!can_compile_glsl()) {
            return;
        }
        const Qkv x = random_qkv({1, 2, 2, 3, 9, 8, 8});
        const Tensor slopes({2}, {0.5, 0.25});
        for (const Causal causal : {Causal::none, Causal::top_left, Causal::bottom_right}) {
            CAPTURE(static_cast<int>(causal));
            reference::AttentionOptions same;
            same.scores.alibi_slopes = slopes;
            same.scores.causal = causal;
            OpCheck check;
            const AttentionOptions o{
                .mask = {.alibi_slopes = check.input("slopes", slopes), .causal = causal},
                .score_mod = ScoreMod::glsl("float score_mod(float score, uint batch, uint head, uint query, uint key) "
                                            "{ return score; }")};
            const Value y = scaled_dot_product_attention(check.input("q", x.query), check.input("k", x.key),
                                                         check.input("v", x.value), o)
                                .y;
            CHECK(check.difference(contiguous(y), reference::attention(x.query, x.key, x.value, same).y) == "");
        }
    }

    TEST_CASE("attention: a mod that returns -inf masks, rows without a key give 0") {
        if (!can_compile_glsl()) {
            return;
        }
        const Qkv x = random_qkv(kSizes);
        reference::AttentionOptions same;
        same.scores.keys =
            of_scores([](auto, auto, auto q, auto k) { return q / 8 == k / 40 && q % 5 != 3 ? 1.0 : 0.0; });
        const Tensor want = reference::attention(x.query, x.key, x.value, same).y;
        on_each_variant([&] {
            const Tensor got =
                attend_with(x, "return query / 8u == key / 40u && query % 5u != 3u ? score : negative_infinity();", {});
            CHECK(difference(got, want) == "");
        });
    }

    TEST_CASE("attention: a mod comes after scale and softcap and before the mask") {
        if (!can_compile_glsl()) {
            return;
        }
        const Qkv x = random_qkv(kSizes, 1, 4);
        AttentionOptions o;
        o.softcap = 3.0f;
        o.mask.causal = Causal::bottom_right;
        o.mask.window = 50;
        reference::AttentionOptions same;
        same.scores.softcap = 3.0;
        same.scores.causal = Causal::bottom_right;
        same.scores.window = 50;
        same.scores.bias = of_scores([](auto, auto, auto, auto k) { return k % 2 == 0 ? 0.5 : 0.0; });
        const Tensor want = reference::attention(x.query, x.key, x.value, same).y;
        on_each_variant([&] {
            const Tensor got = attend_with(x, "return score + (key % 2u == 0u ? 0.5 : 0.0);", {}, o);
            CHECK(difference(got, want) == "");
        });
    }
}
