// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>
#include <utility>

#include "tests/device.h"
#include "tests/op_check.h"
#include "tests/reference.h"

using namespace vkf;
using namespace vkf::test;

namespace {

/// The twin's options as options of the op, their tensors as inputs of the graph.
SoftmaxOptions on_device(OpCheck& check, const reference::SoftmaxOptions& o) {
    SoftmaxOptions out;
    out.scale = static_cast<float>(o.scale);
    out.softcap = static_cast<float>(o.softcap);
    out.mask.keys = o.keys ? check.indices("mask", *o.keys) : Value();
    out.mask.bias = o.bias ? check.input("bias", *o.bias) : Value();
    out.mask.alibi_slopes = o.alibi_slopes ? check.input("slopes", *o.alibi_slopes) : Value();
    out.sinks = o.sinks ? check.input("sinks", *o.sinks) : Value();
    out.mask.polarity = o.polarity;
    out.mask.causal = o.causal;
    out.mask.window = o.window;
    out.mask.fill = static_cast<float>(o.fill);
    return out;
}

std::string softmax_mismatch(const Tensor& scores, const reference::SoftmaxOptions& options = {}) {
    OpCheck check;
    const Value y = softmax(check.input("scores", scores), on_device(check, options));
    return check.difference(y, reference::softmax(scores, options));
}

Tensor run(const Tensor& scores, const reference::SoftmaxOptions& options = {}) {
    OpCheck check;
    return check.run(softmax(check.input("scores", scores), on_device(check, options)));
}

bool is_masked(double weight) { return weight == 0 && std::signbit(weight); }

}  // namespace

TEST_SUITE_BEGIN("softmax");

TEST_CASE("softmax: sizes from 1 to beyond a group, every rank") {
    for (const Sizes& shape :
         {Sizes{1}, Sizes{7}, Sizes{1, 1}, Sizes{3, 1}, Sizes{5, 2}, Sizes{2, 3, 31}, Sizes{2, 2, 3, 33}, Sizes{4, 127},
          Sizes{3, 128}, Sizes{3, 129}, Sizes{2, 257}, Sizes{2, 1, 3, 2, 1000}}) {
        CAPTURE(shape.size());
        CAPTURE(shape.back());
        CHECK(softmax_mismatch(random_tensor(shape, 3, 6)) == "");
    }
}

TEST_CASE("softmax: more rows than 65,535 groups hold") {
    // a group takes 16 rows on processors and 4 elsewhere
    const std::int64_t rows = 65535 * (device().capabilities().cpu() ? 16 : 4) + 17;
    const Tensor scores = random_tensor({rows, 1}, 2, 3);
    CHECK(difference(run(scores), Tensor({rows, 1}, 1.0), exactly()) == "");
}

TEST_CASE("softmax: no rows") {
    OpCheck check;
    const Dim tokens = check.graph.symbol("tokens", 5);
    const Value y = softmax(check.input("scores", Tensor({0, 4}), {tokens, 4}));
    check.set("tokens", 0);
    CHECK(check.difference(y, Tensor({0, 4})) == "");
}

TEST_CASE("softmax: no keys") {
    OpCheck check;
    const Dim keys = check.graph.symbol("keys", 5);
    const Value y = softmax(check.input("scores", Tensor({3, 0}), {3, keys}));
    check.set("keys", 0);
    CHECK(check.difference(y, Tensor({3, 0})) == "");
}

TEST_CASE("softmax: scale, softcap and bias in their order") {
    const Tensor scores = random_tensor({2, 3, 4, 9}, 1, 40);
    CHECK(softmax_mismatch(scores, {.scale = 0.125}) == "");
    CHECK(softmax_mismatch(scores, {.scale = -0.5}) == "");
    CHECK(softmax_mismatch(scores, {.softcap = 5}) == "");
    CHECK(softmax_mismatch(scores, {.scale = 0.3, .softcap = 2}) == "");
    CHECK(softmax_mismatch(scores, {.bias = random_tensor({2, 3, 4, 9}, 8, 3), .scale = 0.3, .softcap = 2}) == "");
    for (const Sizes& shape : {Sizes{9}, Sizes{4, 1}, Sizes{3, 1, 9}, Sizes{2, 1, 4, 9}, Sizes{1, 3, 4, 1}}) {
        CHECK(softmax_mismatch(scores, {.bias = random_tensor(shape, 5, 4)}) == "");
    }
}

TEST_CASE("softmax: boolean masks of both polarities, broadcast from every dimension") {
    const Tensor scores = random_tensor({2, 3, 4, 9}, 1, 4);
    for (const Sizes& shape :
         {Sizes{2, 3, 4, 9}, Sizes{9}, Sizes{2, 1, 1, 9}, Sizes{4, 9}, Sizes{3, 4, 1}, Sizes{1, 1}}) {
        CAPTURE(shape.size());
        const Tensor mask = random_integers(shape, 2, 4);
        for (const double fill : {-kInf, -1e20, -1e9}) {
            CAPTURE(fill);
            CHECK(softmax_mismatch(scores, {.keys = mask, .fill = fill}) == "");
            CHECK(softmax_mismatch(scores, {.keys = mask, .polarity = Polarity::ignore, .fill = fill}) == "");
        }
    }
}

TEST_CASE("softmax: causal in both alignments, with fewer, as many and more queries than keys, and a window") {
    for (const Sizes& shape : {Sizes{5, 5}, Sizes{2, 3, 7}, Sizes{2, 7, 3}, Sizes{1, 9}, Sizes{9, 1}, Sizes{3, 70}}) {
        const Tensor scores = random_tensor(shape, 6, 4);
        CAPTURE(shape.front());
        CAPTURE(shape.back());
        for (const Causal causal : {Causal::top_left, Causal::bottom_right}) {
            for (const std::int64_t window : {0ll, 1ll, 3ll, 100ll, 0xffffffffll, 0x100000001ll}) {
                CAPTURE(window);
                CHECK(softmax_mismatch(scores, {.causal = causal, .window = window}) == "");
                CHECK(softmax_mismatch(scores, {.causal = causal, .window = window, .fill = -1e20}) == "");
            }
        }
    }
}

TEST_CASE("softmax: every kind of mask at once") {
    const Tensor scores = random_tensor({2, 2, 6, 8}, 9, 10);
    CHECK(softmax_mismatch(scores, {.keys = random_integers({2, 1, 1, 8}, 2, 7),
                                    .polarity = Polarity::ignore,
                                    .bias = random_tensor({2, 6, 8}, 3, 2),
                                    .causal = Causal::bottom_right,
                                    .window = 4,
                                    .scale = 0.7,
                                    .softcap = 8}) == "");
}

TEST_CASE("softmax: a row with no key left gives weights 0 under fill -inf, uniform ones under a finite fill") {
    const Tensor scores = random_tensor({2, 3, 5}, 1, 4);
    const Tensor none({1}, 0.0);
    for (const double w : run(scores, {.keys = none}).data) {
        CHECK(is_masked(w));
    }
    CHECK(softmax_mismatch(scores, {.keys = none}) == "");
    CHECK(difference(run(scores, {.keys = none, .fill = -1e20}), Tensor({2, 3, 5}, 0.2)) == "");
    CHECK(difference(run(scores, {.keys = none, .bias = random_tensor({5}), .fill = -1e4}), Tensor({2, 3, 5}, 0.2)) ==
          "");
}

TEST_CASE("softmax: masked weights are -0.0, weights that merely underflow are +0.0") {
    const Tensor scores({1, 4}, {0.0, -200.0, 3.0, 1.0});
    const Tensor w = run(scores, {.keys = Tensor({4}, {1, 1, 0, 1})});
    CHECK(w.data[0] > 0);
    CHECK(w.data[1] == 0);
    CHECK_FALSE(is_masked(w.data[1]));
    CHECK(is_masked(w.data[2]));
    const Tensor causal = run(random_tensor({3, 3}), {.causal = Causal::top_left});
    CHECK(is_masked(causal.at({0, 1})));
    CHECK(is_masked(causal.at({1, 2})));
    CHECK_FALSE(is_masked(causal.at({1, 0})));
}

TEST_CASE("softmax: logits of +-1e5 and of +-inf") {
    CHECK(softmax_mismatch(Tensor({3, 3}, {1e5, -1e5, 99999, -1e5, -1e5, -1e5 + 1, 1e5, 1e5, 1e5})) == "");
    CHECK(softmax_mismatch(Tensor({3, 3}, {-kInf, 0, 1, -kInf, -kInf, -kInf, -kInf, 1e5, -1e5})) == "");
    CHECK(softmax_mismatch(Tensor({2, 3}, {kInf, 0, 1, kInf, -kInf, kInf})) == "");
    CHECK(softmax_mismatch(Tensor({1, 3}, {3e38, -3e38, 0})) == "");
    CHECK(softmax_mismatch(random_tensor({2, 300}, 4, 1e5)) == "");
    CHECK(softmax_mismatch(Tensor({2, 3}, {kInf, -kInf, 1e5, 1, -1, 0}), {.softcap = 20}) == "");
    CHECK(softmax_mismatch(Tensor({2, 3}, 1.0), {.bias = Tensor({3}, {0, -kInf, -1e5})}) == "");
    CHECK(softmax_mismatch(Tensor({2, 3}, 1.0), {.bias = Tensor({1}, -kInf)}) == "");
    for (const double w : run(Tensor({1, 2}, -kInf)).data) {
        CHECK(is_masked(w));
    }
}

TEST_CASE("softmax: a masked NaN leaves no trace, an unmasked one propagates") {
    Tensor scores = random_tensor({2, 40}, 2, 3);
    scores.at({0, 5}) = kNan;
    scores.at({0, 6}) = kInf;
    Tensor mask({2, 40}, 1.0);
    mask.at({0, 5}) = 0;
    mask.at({0, 6}) = 0;
    CHECK(softmax_mismatch(scores, {.keys = mask}) == "");
    CHECK(softmax_mismatch(scores, {.keys = mask, .fill = -1e20}) == "");
    CHECK(softmax_mismatch(scores, {.keys = mask, .scale = 0.5, .softcap = 3}) == "");
    for (const double w : run(scores, {.keys = mask}).data) {
        CHECK_FALSE(std::isnan(w));
    }
    const Tensor spoilt = run(scores);
    for (std::int64_t key = 0; key < 40; ++key) {
        CHECK(std::isnan(spoilt.at({0, key})));
        CHECK_FALSE(std::isnan(spoilt.at({1, key})));
    }
    scores.at({1, 39}) = kNan;
    CHECK(softmax_mismatch(scores) == "");
    CHECK(softmax_mismatch(scores, {.causal = Causal::top_left}) == "");
    Tensor bias({40}, 0.0);
    bias.data[3] = kNan;
    CHECK(softmax_mismatch(random_tensor({2, 40}), {.bias = bias}) == "");
}

TEST_CASE("softmax: scores, masks and biases that are views") {
    const Tensor scores = random_tensor({3, 6, 5}, 2, 4);
    const Tensor mask = random_integers({5, 6}, 2, 6);
    const Tensor bias = random_tensor({4, 6, 5}, 7);
    OpCheck check;
    const Value x = transpose(check.input("scores", scores), -1, -2);
    SoftmaxOptions o;
    o.mask.keys = check.indices("mask", mask);
    o.mask.bias = transpose(slice(check.input("bias", bias), 0, 1, 3), 1, 2);
    const Value y = softmax(slice(x, 1, 1, 4),
                            {.mask = {.keys = slice(o.mask.keys, 0, 0, 4), .bias = slice(o.mask.bias, 1, 1, 4)}});
    reference::SoftmaxOptions twin;
    twin.keys = slice(mask, 0, 0, 4);
    twin.bias = slice(transpose(slice(bias, 0, 1, 3), 1, 2), 1, 1, 4);
    CHECK(check.difference(y, reference::softmax(slice(transpose(scores, -1, -2), 1, 1, 4), twin)) == "");
}

TEST_CASE("softmax: ALiBi slopes and sinks, alone and with every other bias") {
    const Tensor scores = random_tensor({2, 3, 4, 6}, 1, 4);
    const Tensor slopes({3}, {0.5, 0.25, 0.0625});
    const Tensor sinks({3}, {1.0, -2.0, -kInf});
    const Tensor bias = random_tensor({4, 6}, 2, 3);
    const Tensor mask = random_integers({2, 1, 1, 6}, 2, 4);
    for (const Causal causal : {Causal::none, Causal::top_left, Causal::bottom_right}) {
        CAPTURE(static_cast<int>(causal));
        CHECK(softmax_mismatch(scores, {.alibi_slopes = slopes, .causal = causal}) == "");
        CHECK(softmax_mismatch(scores, {.sinks = sinks, .causal = causal}) == "");
        CHECK(softmax_mismatch(
                  scores, {.bias = bias, .alibi_slopes = slopes, .causal = causal, .scale = 0.5, .softcap = 3}) == "");
        CHECK(
            softmax_mismatch(
                scores,
                {.keys = mask, .bias = bias, .alibi_slopes = slopes, .sinks = sinks, .causal = causal, .scale = 0.5}) ==
            "");
    }
    for (const Sizes& shape : {Sizes{2, 3, 1, 1}, Sizes{3, 4, 1}, Sizes{1, 6}, Sizes{3, 4, 6}}) {
        CAPTURE(shape.back());
        CHECK(softmax_mismatch(scores, {.alibi_slopes = random_tensor(shape)}) == "");
    }
    CHECK(softmax_mismatch(scores, {.keys = Tensor({1}, 0.0), .sinks = sinks}) == "");
    CHECK(softmax_mismatch(scores, {.keys = Tensor({1}, 0.0), .sinks = sinks, .fill = -1e20}) == "");
    CHECK(softmax_mismatch(scores, {.sinks = Tensor({3}, {1e5, -1e5, 100})}) == "");
    CHECK(softmax_mismatch(scores, {.bias = bias, .sinks = Tensor({3}, kNan)}) == "");
}

TEST_CASE("softmax: biased scores count positions as the mask says, and see every key") {
    const Tensor scores = random_tensor({1, 2, 3, 7}, 1, 4), slopes({2}, {0.5, 0.25});
    for (const Causal causal : {Causal::none, Causal::top_left, Causal::bottom_right}) {
        CAPTURE(static_cast<int>(causal));
        OpCheck check;
        const reference::SoftmaxOptions o{
            .alibi_slopes = slopes, .causal = causal, .window = causal == Causal::none ? 0 : 2};
        const Value y = biased_scores(check.input("scores", scores), on_device(check, o));
        Tensor want = scores;
        for_each_index(scores.shape, [&](const Sizes& i) {
            const std::int64_t self = i[2] + (causal == Causal::bottom_right ? 4 : 0);
            want.at(i) -= slopes.at({i[1]}) * static_cast<double>(std::abs(self - i[3]));
        });
        CHECK(check.difference(y, want) == "");
    }
}

TEST_CASE("softmax: log-sum-exp of the same scores") {
    const auto lse_mismatch = [](const Tensor& scores, const reference::SoftmaxOptions& options = {}) {
        OpCheck check;
        const Value y = log_sum_exp(check.input("scores", scores), on_device(check, options));
        return check.difference(y, reference::log_sum_exp(scores, options));
    };
    for (const Sizes& shape : {Sizes{1}, Sizes{3, 1}, Sizes{2, 3, 33}, Sizes{2, 2, 5, 300}, Sizes{1, 1, 70, 2}}) {
        CAPTURE(shape.back());
        CHECK(lse_mismatch(random_tensor(shape, 1, 5)) == "");
    }
    const Tensor scores = random_tensor({2, 3, 4, 6}, 1, 4);
    CHECK(lse_mismatch(scores, {.keys = random_integers({2, 1, 1, 6}, 2, 4),
                                .causal = Causal::bottom_right,
                                .scale = 0.3,
                                .softcap = 2}) == "");
    CHECK(lse_mismatch(scores, {.alibi_slopes = Tensor({3}, {0.5, 0.25, 2}), .sinks = Tensor({3}, {1, -kInf, 9})}) ==
          "");
    CHECK(lse_mismatch(scores, {.keys = Tensor({1}, 0.0)}) == "");
    CHECK(lse_mismatch(scores, {.keys = Tensor({1}, 0.0), .fill = -1e20}) == "");
    CHECK(lse_mismatch(Tensor({4, 2}, {1e5, -1e5, -kInf, -kInf, kInf, 0, kNan, 0})) == "");
    OpCheck check;
    const Dim keys = check.graph.symbol("keys", 5);
    check.set("keys", 0);
    CHECK(check.difference(log_sum_exp(check.input("scores", Tensor({3, 0}), {3, keys})), Tensor({3}, -kInf)) == "");
}

TEST_CASE("softmax: the hard maximum") {
    const auto hard_mismatch = [](const Tensor& scores, const reference::SoftmaxOptions& options = {}) {
        OpCheck check;
        const Value y = hard_max(check.input("scores", scores), on_device(check, options));
        return check.difference(y, reference::hard_max(scores, options), exactly());
    };
    for (const Sizes& shape : {Sizes{1}, Sizes{3, 1}, Sizes{2, 3, 33}, Sizes{5, 300}}) {
        CAPTURE(shape.back());
        CHECK(hard_mismatch(random_tensor(shape, 1, 5)) == "");
        CHECK(hard_mismatch(random_integers(shape, 3)) == "");  // of equals the first
    }
    const Tensor scores = random_tensor({2, 3, 4, 6}, 1, 4);
    CHECK(hard_mismatch(scores,
                        {.keys = random_integers({2, 1, 1, 6}, 2, 4), .causal = Causal::top_left, .window = 2}) == "");
    CHECK(hard_mismatch(scores, {.keys = Tensor({1}, 0.0)}) == "");
    CHECK(hard_mismatch(scores, {.keys = Tensor({1}, 0.0), .fill = -1e20}) == "");
    CHECK(hard_mismatch(Tensor({4, 3}, {1e5, -1e5, 0, -kInf, -kInf, -kInf, kInf, 0, kInf, 0, kNan, kInf})) == "");
    Graph g;
    CHECK(contains(error_of([&] { hard_max(g.input("x", {2, 3, 4}), {.sinks = g.input("s", {2})}); }), "sinks"));
}

TEST_CASE("softmax: one program at every length") {
    Graph g;
    const Dim queries = g.symbol("queries", 6);
    const Dim keys = g.symbol("keys", 300);
    SoftmaxOptions o{.mask = {.keys = g.input("mask", {keys}, DType::i32), .causal = Causal::bottom_right}};
    g.output("y", softmax(g.input("x", {2, queries, keys}), o));
    Program program = device().compile(g);
    const std::size_t pipelines = pipelines_of(device());
    for (const auto& size : {std::pair{1, 1}, {6, 300}, {3, 17}, {2, 0}, {0, 4}, {5, 129}, {6, 3}}) {
        const int rows = size.first, width = size.second;
        CAPTURE(rows);
        CAPTURE(width);
        const Tensor scores = random_tensor({2, rows, width}, 3, 5);
        const Tensor mask = random_integers({width}, 2, 9);
        program.set("queries", rows);
        program.set("keys", width);
        upload(program, "x", scores);
        upload(program, "mask", mask, DType::i32);
        program.run();
        CHECK(difference(download(program, "y"),
                         reference::softmax(scores, {.keys = mask, .causal = Causal::bottom_right})) == "");
    }
    CHECK(pipelines_of(device()) == pipelines);
}

TEST_CASE("softmax: the same bits every time") {
    OpCheck check;
    check.graph.output("y", softmax(check.graph.input("x", {7, 321})));
    Program program = device().compile(check.graph);
    upload(program, "x", random_tensor({7, 321}, 5, 9));
    program.run();
    const Tensor first = download(program, "y");
    for (int repeat = 0; repeat < 20; ++repeat) {
        program.run();
        CHECK(same_bits(first, download(program, "y")));
    }
}

TEST_CASE("softmax: bad arguments are refused by name") {
    Graph g;
    const Value x = g.input("logits", {2, 3, 4});
    const Value ids = g.input("ids", {3, 4}, DType::i32);
    const auto refusal = [&](const SoftmaxOptions& o) { return error_of([&] { softmax(x, o); }); };
    CHECK(contains(error_of([&] { softmax(ids); }), "softmax: ids (3, 4) I32 must be F32"));
    CHECK(contains(error_of([&] { softmax(g.input("scalar", {})); }), "scalar"));
    CHECK(contains(refusal({.scale = NAN}), "softmax: scale"));
    CHECK(contains(refusal({.scale = INFINITY}), "softmax: scale"));
    CHECK(contains(refusal({.softcap = NAN}), "softmax: softcap"));
    CHECK(contains(refusal({.softcap = -1}), "softmax: softcap"));
    CHECK(contains(refusal({.mask = {.fill = NAN}}), "fill"));
    CHECK(contains(refusal({.mask = {.fill = 1}}), "fill"));
    CHECK(contains(refusal({.mask = {.window = 2}}), "window"));
    CHECK(contains(refusal({.mask = {.causal = Causal::top_left, .window = -1}}), "window"));
    CHECK(contains(error_of([&] { softmax(g.input("row", {4}), {.mask = {.causal = Causal::top_left}}); }), "row (4)"));
    CHECK(contains(refusal({.mask = {.keys = x}}), "must be I32"));
    CHECK(contains(refusal({.mask = {.bias = ids}}), "must be F32"));
    const std::string softmax_mismatch = refusal({.mask = {.keys = g.input("padding", {2, 3}, DType::i32)}});
    CHECK(contains(softmax_mismatch, "softmax: mask"));
    CHECK(contains(softmax_mismatch, "padding (2, 3)"));
    CHECK(contains(softmax_mismatch, "(2, 3, 4)"));
    CHECK(contains(refusal({.mask = {.bias = g.input("wide", {2, 2, 3, 4})}}), "wide (2, 2, 3, 4)"));
    CHECK(contains(refusal({.mask = {.alibi_slopes = g.input("slopes", {3})}}), "slopes"));
    CHECK(contains(refusal({.sinks = g.input("sinks", {4})}), "sinks"));
    CHECK(contains(error_of([&] { log_sum_exp(ids); }), "log_sum_exp: ids (3, 4) I32"));
    CHECK(contains(error_of([&] { hard_max(x, {.scale = NAN}); }), "hard_max: scale"));
    CHECK(contains(error_of([&] {
                       biased_scores(x, {.mask = {.bias = g.input("long", {2, 3, 5})}});
                   }),
                   "biased_scores: bias: "));
    CHECK(contains(refusal({.sinks = g.input("by key", {2, 1, 4})}), "by key (2, 1, 4) F32 have a number a key"));
}

TEST_SUITE_END();
