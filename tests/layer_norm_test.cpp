// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <optional>

#include "ops/lanes.h"
#include "runtime/compile/plan.h"
#include "tests/believed.h"
#include "tests/device.h"
#include "tests/op_check.h"
#include "tests/reference.h"

using namespace vkf;
using namespace vkf::test;

namespace {

std::string layer_norm_mismatch(const Tensor& x, const std::optional<Tensor>& weight = {},
                                const std::optional<Tensor>& bias = {}, float eps = 1e-5f,
                                const Tolerance& tolerance = {}) {
    OpCheck check;
    const Value y = layer_norm(check.input("x", x), weight ? check.input("weight", *weight) : Value(),
                               bias ? check.input("bias", *bias) : Value(), eps);
    return check.difference(y, reference::layer_norm(x, weight, bias, static_cast<double>(eps)), tolerance);
}

}  // namespace

TEST_SUITE_BEGIN("layer_norm");

TEST_CASE("layer_norm: widths from 1 to beyond a group, with and without weight and bias") {
    for (const Sizes& shape : {Sizes{1}, Sizes{5}, Sizes{3, 1}, Sizes{3, 2}, Sizes{2, 3, 31}, Sizes{5, 64},
                               Sizes{2, 1, 2, 129}, Sizes{19, 36}, Sizes{17, 257}, Sizes{2, 1023}}) {
        CAPTURE(shape.back());
        const Tensor x = random_tensor(shape, 1, 3);
        const Tensor weight = random_tensor({shape.back()}, 2);
        const Tensor bias = random_tensor({shape.back()}, 3);
        CHECK(layer_norm_mismatch(x) == "");
        CHECK(layer_norm_mismatch(x, weight) == "");
        CHECK(layer_norm_mismatch(x, {}, bias) == "");
        CHECK(layer_norm_mismatch(x, weight, bias, 1e-3f) == "");
    }
}

TEST_CASE("layer_norm: a row of mean 1000 and spread 1 keeps four digits") {
    for (const std::int64_t width : {64, 767, 1000, 4095, 4096, 15999, 16000, 20000}) {
        CAPTURE(width);
        Tensor x = random_tensor({4, width}, 5, 1.7);
        for (double& v : x.data) {
            v = static_cast<float>(v + 1000);
        }
        CHECK(layer_norm_mismatch(x, {}, {}, 1e-5f, {2e-4, 1e-4}) == "");
    }
}

TEST_CASE("layer_norm: equal numbers far from 0 have no spread but that of their mean's last bits") {
    // sqrt(eps) divides what the mean is off: by 4 units in the last place at most
    constexpr double kOff = 4 * 6.2e-5 / 3.16e-3;
    for (const std::int64_t width : {5, 64, 767, 1000, 4095, 15999, 20000}) {
        CAPTURE(width);
        CHECK(layer_norm_mismatch(Tensor({3, width}, static_cast<double>(1000.1f)), {}, {}, 1e-5f, {kOff, 0}) == "");
    }
}

TEST_CASE("layer_norm: weights that lanes load together give the bits of those that each loads") {
    const Capabilities& device = test::device().capabilities();
    if (!hands_round(device)) {
        cannot_run("subgroups of a certain size on a processor");
        return;
    }
    const auto norm = [](const Sizes& shape, bool centred, bool together) {
        const Tensor x = random_tensor(shape, 1, 3), weight = random_tensor({shape.back()}, 2);
        const Tensor bias = random_tensor({shape.back()}, 3);
        OpCheck check;
        const Value in = check.input("x", x), w = check.input("weight", weight);
        const Value y = centred ? layer_norm(in, w, check.input("bias", bias)) : rms_norm(in, w);
        const Tensor result = check.run(y);
        const std::string why = test::device().compile(check.graph).explain();
        CHECK(contains(why, "layer_norm_lanes") == together);
        CHECK(contains(why, "lanes load the weights together") == together);
        const Tensor expected =
            centred ? reference::layer_norm(x, weight, bias, 1e-5) : reference::rms_norm(x, weight, 1e-6);
        CHECK(difference(result, expected) == "");
        return result;
    };
    for (const std::int64_t rows : {3, 8, 13, 32}) {
        for (const std::int64_t width : {4, 12, 20, 28, 32, 36, 1028}) {
            CAPTURE(rows);
            CAPTURE(width);
            for (const bool centred : {true, false}) {
                const Tensor together = norm({rows, width}, centred, true);
                const std::function<void(Capabilities&)> lacks[] = {
                    [](Capabilities& c) { c.exact_subgroup_size = 0; },
                    [](Capabilities& c) { c.subgroup_shuffle = false; }};
                for (const auto& change : lacks) {
                    const Believed alone(change);
                    CHECK(same_bits(norm({rows, width}, centred, false), together));
                }
            }
        }
    }
}

TEST_CASE("layer_norm: values of +-1e5, equal values, and what is not finite stays in its row") {
    CHECK(layer_norm_mismatch(random_tensor({3, 50}, 1, 1e5)) == "");
    CHECK(layer_norm_mismatch(Tensor({2, 7}, 3.0), random_tensor({7}), random_tensor({7}, 2)) == "");
    CHECK(layer_norm_mismatch(Tensor({2, 7}, 0.0)) == "");
    CHECK(layer_norm_mismatch(Tensor({9, 44}, 3.0), random_tensor({44}), random_tensor({44}, 2)) == "");
    Tensor x = random_tensor({4, 20}, 2);
    x.at({1, 3}) = std::numeric_limits<double>::quiet_NaN();
    x.at({2, 19}) = std::numeric_limits<double>::infinity();
    CHECK(layer_norm_mismatch(x) == "");
}

TEST_CASE("layer_norm: strided input, weight and bias") {
    const Tensor x = random_tensor({4, 6, 5}, 1);
    const Tensor w = random_tensor({6, 3}, 2);
    OpCheck check;
    const Value weights = check.input("w", w);
    const Value y = layer_norm(transpose(slice(check.input("x", x), 0, 1, 2), 1, 2),
                               reshape(slice(weights, 1, 1, 1), {6}), reshape(slice(weights, 1, 2, 1), {6}));
    const Tensor want = reference::layer_norm(transpose(slice(x, 0, 1, 2), 1, 2), reshape(slice(w, 1, 1, 1), {6}),
                                              reshape(slice(w, 1, 2, 1), {6}), static_cast<double>(1e-5f));
    CHECK(check.difference(y, want) == "");
}

TEST_CASE("layer_norm: rows that lie apart, in groups or not, are read where they are") {
    for (const std::int64_t heads : {1, 3}) {
        for (const std::int64_t width : {5, 8}) {
            CAPTURE(heads);
            CAPTURE(width);
            const std::int64_t columns = heads * width;
            const Tensor x = random_tensor({2, 7, columns + 4}, 1, 3);
            Tensor rows({2, 7, heads, width});
            for_each_index(rows.shape, [&](const Sizes& i) {
                rows.at(i) = x.at({i[0], i[1], 4 + i[2] * width + i[3]});
            });
            OpCheck check;
            const Dim tokens = check.graph.symbol("tokens", 9);
            check.set("tokens", 7);
            const Value wide = check.input("x", x, {2, tokens, columns + 4});
            const Value part = reshape(slice(wide, -1, 4, columns), {2, tokens, heads, width});
            CHECK(check.difference(layer_norm(part, {}, {}), reference::layer_norm(rows, {}, {}, 1e-5)) == "");
            CHECK(make_plan(check.graph, device().capabilities()).dispatches.size() == 1);
        }
    }
    OpCheck check;
    const Tensor x = random_tensor({3, 4, 5, 6}, 2);
    // groups of groups: by a copy
    const Value turned = permute(check.input("x", x), {1, 2, 0, 3});
    Tensor rows({4, 5, 3, 6});
    for_each_index(rows.shape, [&](const Sizes& i) { rows.at(i) = x.at({i[2], i[0], i[1], i[3]}); });
    CHECK(check.difference(layer_norm(turned, {}, {}), reference::layer_norm(rows, {}, {}, 1e-5)) == "");
}

TEST_CASE("layer_norm: no rows, and more than 65,535 groups of them") {
    OpCheck check;
    const Dim tokens = check.graph.symbol("tokens", 5);
    check.set("tokens", 0);
    CHECK(check.difference(layer_norm(check.input("x", Tensor({0, 4}), {tokens, 4}), {}, {}), Tensor({0, 4})) == "");
    const std::int64_t rows = 65535 * (device().capabilities().cpu() ? 16 : 4) + 17;
    const Tensor x = random_tensor({rows, 1});
    OpCheck many;
    CHECK(difference(many.run(layer_norm(many.input("x", x), {}, many.input("bias", Tensor({1}, 0.5)))),
                     Tensor({rows, 1}, 0.5)) == "");
}

TEST_CASE("layer_norm: one program at every length, the same bits every time") {
    Graph g;
    const Dim tokens = g.symbol("tokens", 40);
    g.output("y", layer_norm(g.input("x", {tokens, 77}), {}, {}));
    Program program = device().compile(g);
    const std::size_t pipelines = pipelines_of(device());
    for (const std::int64_t length : {40, 1, 0, 17, 33}) {
        const Tensor x = random_tensor({length, 77}, 4);
        program.set("tokens", length);
        upload(program, "x", x);
        program.run();
        const Tensor first = download(program, "y");
        CHECK(difference(first, reference::layer_norm(x, {}, {}, static_cast<double>(1e-5f))) == "");
        for (int repeat = 0; repeat < 5; ++repeat) {
            program.run();
            CHECK(same_bits(first, download(program, "y")));
        }
    }
    CHECK(pipelines_of(device()) == pipelines);
}

TEST_CASE("layer_norm: bad arguments are refused by name") {
    Graph g;
    const Value x = g.input("x", {3, 8});
    CHECK(contains(error_of([&] { layer_norm(x, {}, {}, NAN); }), "layer_norm: eps"));
    CHECK(contains(error_of([&] { layer_norm(x, {}, {}, -1); }), "layer_norm: eps"));
    CHECK(contains(error_of([&] { layer_norm(x, g.input("narrow", {7}), {}); }), "narrow (7)"));
    CHECK(contains(error_of([&] { layer_norm(x, {}, g.input("flat", {3, 8})); }), "flat (3, 8)"));
    CHECK(contains(error_of([&] {
                       layer_norm(g.input("ids", {3, 8}, DType::i32), {}, {});
                   }),
                   "ids (3, 8) I32 must be F32"));
    CHECK(contains(error_of([&] { layer_norm(x, g.input("gain", {8}, DType::i32), {}); }), "gain (8) I32 must be F32"));
    CHECK(contains(error_of([&] { layer_norm(g.input("scalar", {}), {}, {}); }), "scalar"));
}

TEST_SUITE_END();
