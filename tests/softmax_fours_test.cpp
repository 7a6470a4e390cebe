// SPDX-License-Identifier: Apache-2.0
// softmax where it takes four keys at a time: every option, alone and with values that must be carried.
#include <doctest/doctest.h>

#include <limits>

#include "tests/device.h"
#include "tests/op_check.h"
#include "tests/reference.h"

using namespace vkf;
using namespace vkf::test;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::string mismatch(const Tensor& scores, const reference::SoftmaxOptions& o = {}) {
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
    const Tensor scores = random_tensor({2, 3, 5, 12}, 1, 20);
    CHECK(mismatch(scores) == "");
    CHECK(mismatch(scores, {.scale = -0.3, .softcap = 2}) == "");
    CHECK(mismatch(scores, {.bias = random_tensor({3, 1, 12}, 3, 4)}) == "");
    CHECK(mismatch(scores, {.bias = random_tensor({2, 3, 5, 1}, 3, 4), .scale = 0.5}) == "");
    CHECK(mismatch(scores, {.alibi_slopes = Tensor({3}, {0.5, 0.25, 2}), .causal = Causal::bottom_right}) == "");
    CHECK(mismatch(scores, {.sinks = Tensor({3}, {1, -kInf, 30})}) == "");
    CHECK(mismatch(scores, {.alibi_slopes = Tensor({3}, {0.5, 0.25, 2}), .sinks = Tensor({3}, {1, -kInf, 9})}) == "");
}

TEST_CASE("softmax by fours: masks") {
    const Tensor scores = random_tensor({2, 3, 6, 20}, 4, 4);
    for (const double fill : {-kInf, -1e20}) {
        CAPTURE(fill);
        for (const Polarity polarity : {Polarity::attend, Polarity::ignore}) {
            for (const Sizes& shape : {Sizes{20}, Sizes{2, 1, 1, 20}, Sizes{2, 3, 6, 20}, Sizes{6, 1}}) {
                CHECK(mismatch(scores, {.keys = random_integers(shape, 2, 5), .polarity = polarity, .fill = fill}) ==
                      "");
            }
            CHECK(mismatch(scores, {.keys = Tensor({1, 20}, 0.0), .polarity = polarity, .fill = fill}) == "");
        }
        for (const Causal causal : {Causal::top_left, Causal::bottom_right}) {
            for (const std::int64_t window : {0, 1, 3}) {
                CHECK(mismatch(scores, {.causal = causal, .window = window, .fill = fill}) == "");
            }
        }
    }
}

TEST_CASE("softmax by fours: infinities, NaN and large scores are carried") {
    Tensor scores = random_tensor({6, 8}, 5, 1e5);
    scores.data[9] = kInf;
    scores.data[18] = kNan;
    for (std::size_t i = 24; i < 32; ++i) {
        scores.data[i] = -kInf;
    }
    scores.data[35] = -kInf;
    scores.data[43] = kNan;
    scores.data[47] = kInf;
    CHECK(mismatch(scores) == "");
    CHECK(mismatch(scores, {.sinks = Tensor({6, 1}, {0, 0, 0, 0, kNan, 0})}) == "");
    CHECK(mismatch(scores, {.keys = Tensor({8}, {1, 0, 0, 1, 1, 1, 0, 0})}) == "");
}
