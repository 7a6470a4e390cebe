// SPDX-License-Identifier: Apache-2.0
// softmax where it takes four keys at a time, or four times four: every option, alone and with
// values that must be carried.
#include <doctest/doctest.h>

#include "tests/believed.h"
#include "tests/device.h"
#include "tests/op_check.h"
#include "tests/reference.h"

using namespace vkf;
using namespace vkf::test;

namespace {

std::string softmax_fours_mismatch(const Tensor& scores, const reference::SoftmaxOptions& o = {}) {
    OpCheck check;
    SoftmaxOptions options;
    options.scale = static_cast<float>(o.scale);
    options.softcap = static_cast<float>(o.softcap);
    options.mask.keys = o.keys ? check.indices("mask", *o.keys) : Value();
    options.mask.bias = o.bias ? check.input("bias", *o.bias) : Value();
    options.mask.alibi_slopes = o.alibi_slopes ? check.input("slopes", *o.alibi_slopes) : Value();
    options.sinks = o.sinks ? check.input("sinks", *o.sinks) : Value();
    options.mask.polarity = o.polarity;
    options.mask.causal = o.causal;
    options.mask.window = o.window;
    options.mask.fill = static_cast<float>(o.fill);
    const Value y = softmax(check.input("scores", scores), options);
    return check.difference(y, reference::softmax(scores, o));
}

}  // namespace

TEST_SUITE_BEGIN("softmax");

TEST_CASE("softmax by fours: scale, softcap, bias, slopes and sinks") {
    for (const std::int64_t keys : {12, 48}) {
        CAPTURE(keys);
        const Tensor scores = random_tensor({2, 3, 5, keys}, 1, 20);
        const Tensor slopes({3}, {0.5, 0.25, 2});
        CHECK(softmax_fours_mismatch(scores) == "");
        CHECK(softmax_fours_mismatch(scores, {.scale = -0.3, .softcap = 2}) == "");
        CHECK(softmax_fours_mismatch(scores, {.bias = random_tensor({3, 1, keys}, 3, 4)}) == "");
        CHECK(softmax_fours_mismatch(scores, {.bias = random_tensor({2, 3, 5, 1}, 3, 4), .scale = 0.5}) == "");
        CHECK(softmax_fours_mismatch(scores, {.alibi_slopes = slopes, .causal = Causal::bottom_right}) == "");
        for (const Sizes& shape : {Sizes{1, keys}, Sizes{3, 5, keys}, Sizes{5, 1}}) {
            CHECK(softmax_fours_mismatch(scores, {.alibi_slopes = random_tensor(shape, 3)}) == "");
        }
        CHECK(softmax_fours_mismatch(scores, {.sinks = Tensor({3}, {1, -kInf, 30})}) == "");
        CHECK(softmax_fours_mismatch(scores, {.alibi_slopes = slopes, .sinks = Tensor({3}, {1, -kInf, 9})}) == "");
    }
}

TEST_CASE("softmax by fours: masks") {
    for (const std::int64_t keys : {20, 32}) {
        CAPTURE(keys);
        const Tensor scores = random_tensor({2, 3, 6, keys}, 4, 4);
        for (const double fill : {-kInf, -1e20}) {
            CAPTURE(fill);
            for (const Polarity polarity : {Polarity::attend, Polarity::ignore}) {
                for (const Sizes& shape : {Sizes{keys}, Sizes{2, 1, 1, keys}, Sizes{2, 3, 6, keys}, Sizes{6, 1}}) {
                    CHECK(softmax_fours_mismatch(
                              scores, {.keys = random_integers(shape, 2, 5), .polarity = polarity, .fill = fill}) ==
                          "");
                }
                CHECK(softmax_fours_mismatch(
                          scores, {.keys = Tensor({1, keys}, 0.0), .polarity = polarity, .fill = fill}) == "");
            }
            for (const Causal causal : {Causal::top_left, Causal::bottom_right}) {
                for (const std::int64_t window : {0, 1, 3}) {
                    CHECK(softmax_fours_mismatch(scores, {.causal = causal, .window = window, .fill = fill}) == "");
                }
            }
        }
    }
}

TEST_CASE("softmax by fours: infinities, NaN and large scores are carried") {
    for (const std::int64_t keys : {8, 16}) {
        CAPTURE(keys);
        Tensor scores = random_tensor({6, keys}, 5, 1e5);
        scores.at({1, 1}) = kInf;
        scores.at({2, 2}) = kNan;
        for (std::int64_t i = 0; i < keys; ++i) {
            scores.at({3, i}) = -kInf;
        }
        scores.at({4, 3}) = -kInf;
        scores.at({5, 3}) = kNan;
        scores.at({5, keys - 1}) = kInf;
        Tensor some({keys}, 1);
        some.at({1}) = some.at({2}) = some.at({keys - 2}) = some.at({keys - 1}) = 0;
        CHECK(softmax_fours_mismatch(scores) == "");
        CHECK(softmax_fours_mismatch(scores, {.sinks = Tensor({6, 1}, {0, 0, 0, 0, kNan, 0})}) == "");
        CHECK(softmax_fours_mismatch(scores, {.keys = some}) == "");
    }
}

TEST_CASE("softmax by fours: loads of 64 bits, in turns or not, give the same bits as loads of 32") {
    if (!device().capabilities().int64) {
        cannot_run("loads of 64 bits");
        return;
    }
    const auto weights = [](const Tensor& scores, bool masked, const char* kernel) {
        OpCheck check;
        SoftmaxOptions o;
        o.mask.causal = masked ? Causal::top_left : Causal::none;
        const Tensor y = check.run(softmax(check.input("scores", scores), o));
        CHECK(contains(device().compile(check.graph).explain(), kernel));
        return y;
    };
    for (const std::int64_t keys : {4, 20, 64, 1024}) {
        CAPTURE(keys);
        for (const bool masked : {false, true}) {
            const Tensor scores = random_tensor({19, keys}, 6, 10);
            const Tensor wide = weights(scores, masked, "softmax_wide<");
            const Believed narrow([](Capabilities& c) { c.int64 = false; });
            CHECK(same_bits(weights(scores, masked, "softmax<"), wide));
        }
    }
}
