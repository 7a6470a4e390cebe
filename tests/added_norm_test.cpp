// SPDX-License-Identifier: Apache-2.0
// A sum and its norm in one pass: bit for bit what two ops give.
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>

#include "runtime/compile/plan.h"
#include "tests/believed.h"
#include "tests/host.h"
#include "tests/op_check.h"
#include "tests/reference.h"

namespace vkf::test {

namespace {

struct BothNorms {
    Tensor sum, y;
};

/// `centred`: LayerNorm with weight and bias, else RMSNorm with weight.
BothNorms run(const Tensor& x, const Tensor& residual, bool centred, bool together) {
    Graph g;
    const auto shape = [](const Tensor& t) { return Shape(t.shape.begin(), t.shape.end()); };
    const Value vx = relu(g.input("x", shape(x))), vr = relu(g.input("r", shape(x)));
    const Value weight = g.input("weight", {x.shape.back()}), bias = g.input("bias", {x.shape.back()});
    const Value sum = vx + vr;
    g.output("sum", sum);
    g.output("y", centred ? layer_norm(sum, weight, bias) : rms_norm(sum, weight));
    if (!centred) {
        g.output("unused", bias + bias);
    }
    Program program = device().compile(g, {}, {.rewrite = together});
    CHECK(contains(program.explain(), "one pass with add") == together);
    upload(program, "x", x);
    upload(program, "r", residual);
    upload(program, "weight", random_tensor({x.shape.back()}, 8));
    upload(program, "bias", random_tensor({x.shape.back()}, 9));
    program.run();
    return {download(program, "sum"), download(program, "y")};
}

bool same(const BothNorms& a, const BothNorms& b) { return same_bits(a.sum, b.sum) && same_bits(a.y, b.y); }

}  // namespace

TEST_SUITE("added_norm") {
    TEST_CASE("added_norm: every width, both norms, as processor and as GPU, like two ops") {
        for (const Sizes& shape : {Sizes{1}, Sizes{5}, Sizes{3, 1}, Sizes{2, 3, 31}, Sizes{5, 64}, Sizes{19, 36},
                                   Sizes{17, 257}, Sizes{2, 1023}, Sizes{3, 2048}, Sizes{1, 20000}}) {
            CAPTURE(shape.back());
            const Tensor x = random_tensor(shape, 1, 3), r = random_tensor(shape, 2, 3);
            for (const bool centred : {true, false}) {
                CAPTURE(centred);
                CHECK(same(run(x, r, centred, true), run(x, r, centred, false)));
                const Believed gpu(as_gpu);
                CHECK(same(run(x, r, centred, true), run(x, r, centred, false)));
            }
        }
    }

    TEST_CASE("added_norm: beside double precision, with and without weight and bias, what is not finite in its row") {
        Tensor x = random_tensor({4, 20}, 1, 3);
        const Tensor r = random_tensor({4, 20}, 2), w = random_tensor({20}, 3), b = random_tensor({20}, 4);
        x.at({1, 3}) = std::numeric_limits<double>::quiet_NaN();
        x.at({2, 19}) = std::numeric_limits<double>::infinity();
        Tensor sum = x;
        for (std::size_t i = 0; i < sum.data.size(); ++i) {
            sum.data[i] += r.data[i];
        }
        OpCheck check;
        const Value vx = check.input("x", x), vr = check.input("r", r);
        const Value weight = check.input("w", w), bias = check.input("b", b);
        const double eps = static_cast<double>(1e-5f);
        CHECK(check.difference(layer_norm(vx + vr, weight, bias), reference::layer_norm(sum, w, b, eps)) == "");
        CHECK(check.difference(layer_norm(vx + vr, {}, bias), reference::layer_norm(sum, {}, b, eps)) == "");
        const Value plain = vx + vr;
        CHECK(check.difference(plain, sum) == "");
        CHECK(check.difference(layer_norm(plain, {}, {}), reference::layer_norm(sum, {}, {}, eps)) == "");
        CHECK(check.difference(rms_norm(vx + vr, weight, 1e-5f), reference::rms_norm(sum, w, eps)) == "");
        CHECK(check.difference(rms_norm(vx + vr, {}, 1e-5f), reference::rms_norm(sum, {}, eps)) == "");
    }

    TEST_CASE("added_norm: a residual that is the weight and the bias too") {
        const Tensor x = random_tensor({8}, 1), r = random_tensor({8}, 2);
        Tensor residual = r, sum = x;
        for (std::size_t i = 0; i < sum.data.size(); ++i) {
            residual.data[i] = std::max(residual.data[i], 0.0);
            sum.data[i] += residual.data[i];
        }
        OpCheck check;
        const Value vx = check.input("x", x), vr = relu(check.input("r", r));
        const double eps = static_cast<double>(1e-5f);
        CHECK(check.difference(layer_norm(vx + vr, vr, vr), reference::layer_norm(sum, residual, residual, eps)) == "");
        CHECK(check.difference(rms_norm(vx + vr, vr, 1e-5f), reference::rms_norm(sum, residual, eps)) == "");
    }

    TEST_CASE("added_norm: one dispatch where there are six storage buffers, else two") {
        const auto dispatches = [] {
            Graph g;
            const Value x = g.input("x", {6, 8}), r = g.input("r", {6, 8});
            const Value sum = x + r;
            g.output("y", rms_norm(sum, g.input("w", {8})));
            g.output("sum", sum);
            return plan_of(device().compile(g)).dispatches.size();
        };
        CHECK(dispatches() == (device().capabilities().storage_buffers >= 6 ? 1 : 2));
        const Believed four([](Capabilities& c) { c.storage_buffers = 4; });
        CHECK(dispatches() == 2);
    }

    TEST_CASE("added_norm: views, x and residual alike, no rows, the same bits every time") {
        const Tensor x = random_tensor({6, 5}, 1), across = transpose(x, 0, 1);
        OpCheck check;
        const Value vx = check.input("x", x), turned = transpose(vx, 0, 1);
        Tensor twice = x, mixed = across;
        for (std::size_t i = 0; i < twice.data.size(); ++i) {
            twice.data[i] *= 2;
            mixed.data[i] *= 2;
        }
        const double eps = static_cast<double>(1e-6f);
        CHECK(check.difference(rms_norm(vx + vx, {}), reference::rms_norm(twice, {}, eps)) == "");
        CHECK(check.difference(rms_norm(turned + turned, {}), reference::rms_norm(mixed, {}, eps)) == "");
        OpCheck empty;
        const Dim tokens = empty.graph.symbol("tokens", 5);
        empty.set("tokens", 0);
        const Value none = empty.input("x", Tensor({2, 0, 4}), {2, tokens, 4});
        CHECK(empty.difference(rms_norm(none + none, {}), Tensor({2, 0, 4})) == "");
        const Value wide = check.input("wide", random_tensor({9, 333}, 5));
        const Value y = rms_norm(wide + check.input("other", random_tensor({9, 333}, 6)), {});
        const Tensor first = check.run(y);
        for (int repeat = 0; repeat < 100; ++repeat) {
            CHECK(same_bits(first, check.run(y)));
        }
    }
}

}  // namespace vkf::test
