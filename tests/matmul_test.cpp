// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>

#include "ops/lanes.h"
#include "runtime/compile/plan.h"
#include "tests/believed.h"
#include "tests/device.h"
#include "tests/product_check.h"

using namespace vkf;
using namespace vkf::test;

namespace {

MatmulOptions on_device(OpCheck& check, const reference::MatmulOptions& o) {
    MatmulOptions out;
    out.bias = o.bias ? check.input("bias", *o.bias) : Value();
    out.activation = o.activation;
    out.scale = static_cast<float>(o.scale);
    out.transpose_b = o.transpose_b;
    out.masked_weights = o.masked_weights;
    return out;
}

std::string matmul_mismatch(const Tensor& a, const Tensor& b, const reference::MatmulOptions& o = {}) {
    ProductCheck check;
    const Value y = matmul(check.input("a", a), check.input("b", b), on_device(check, o));
    return check.difference(y, twin(a, b, o), tolerance(taken(a), taken(b), o));
}

}  // namespace

TEST_SUITE_BEGIN("matmul");

TEST_CASE("matmul: sizes around every tile's edge, b as it is and transposed") {
    const std::int64_t sizes[][3] = {
        {1, 1, 1},    {1, 5, 3},    {3, 1, 7},   {2, 4, 1},     {4, 4, 4},     {5, 7, 9},    {1, 64, 64}, {2, 33, 12},
        {3, 65, 31},  {4, 100, 17}, {7, 12, 20}, {8, 32, 32},   {9, 36, 5},    {16, 64, 16}, {17, 63, 8}, {24, 31, 33},
        {33, 17, 66}, {65, 68, 40}, {70, 1, 19}, {1, 130, 257}, {128, 72, 24}, {150, 40, 12}};
    for (const auto& size : sizes) {
        const std::int64_t m = size[0], n = size[1], k = size[2];
        CAPTURE(m);
        CAPTURE(n);
        CAPTURE(k);
        CHECK(matmul_mismatch(random_tensor({m, k}, 1), random_tensor({k, n}, 2)) == "");
        CHECK(matmul_mismatch(random_tensor({m, k}, 3), random_tensor({n, k}, 4), {.transpose_b = true}) == "");
    }
}

TEST_CASE("matmul: more rows than small tiles are for, ending anywhere in a tile") {
    for (const std::int64_t m : {129, 134, 143, 156}) {
        for (const std::int64_t n : {5, 20}) {
            CAPTURE(m);
            CAPTURE(n);
            const std::int64_t k = n == 5 ? 13 : 16;
            Tensor a = random_tensor({m, k}, 1), b = random_tensor({k, n}, 2);
            const Tensor bias = random_tensor({n}, 3);
            CHECK(matmul_mismatch(a, b, {.bias = bias, .activation = Activation::relu}) == "");
            CHECK(matmul_mismatch(a, b, {.bias = bias, .activation = Activation::silu}) == "");
            b.at({k - 1, n - 1}) = kInf;
            b.at({0, 0}) = kNan;
            CHECK(matmul_mismatch(a, transpose(b, 0, 1), {.transpose_b = true}) == "");
            for (std::int64_t row = 0; row < m; row += 3) {
                a.at({row, 0}) = -0.0;
                a.at({row, k - 1}) = -0.0;
            }
            CHECK(matmul_mismatch(a, b, {.masked_weights = true}) == "");
        }
    }
}

TEST_CASE("matmul: four lanes without quads take the kernel that relies on no subgroups") {
    if (device().capabilities().exact_subgroup_size != 4 || !hands_round(device().capabilities())) {
        cannot_run("four lanes with quads");
        return;
    }
    const Tensor a = random_tensor({9, 20}, 1), b = random_tensor({20, 12}, 2);
    const auto said = [] {
        Graph g;
        g.output("y", matmul(g.input("a", {9, 20}), g.input("b", {20, 12})));
        g.output("norm", rms_norm(g.input("x", {8, 64}), g.input("w", {64})));
        const Value q = g.input("q", {1, 1, 200, 16});
        g.output("attention", scaled_dot_product_attention(q, q, q).y);
        return device().compile(g, {}).explain();
    };
    for (const bool quads : {true, false}) {
        const Believed as([&](Capabilities& c) {
            c.variants.clear();
            c.subgroup_quad = quads;
        });
        CAPTURE(quads);
        const std::string text = said();
        CHECK(contains(text, "matmul_lanes4<") == quads);
        CHECK(contains(text, "matmul<") == !quads);
        CHECK(contains(text, "layer_norm_lanes") == quads);
        CHECK(contains(text, "attention_lanes4<") == quads);
        CHECK(matmul_mismatch(a, b) == "");
    }
}

TEST_CASE("matmul: a first operand that is transposed, with more rows than small tiles are for") {
    for (const std::int64_t n : {5, 20}) {
        CAPTURE(n);
        const Tensor a = random_tensor({16, 132}, 1), b = random_tensor({16, n}, 2);
        ProductCheck check;
        const Value y = matmul(transpose(check.input("a", a), 0, 1), check.input("b", b));
        const Tensor turned = transpose(a, 0, 1);
        CHECK(check.difference(y, twin(turned, b, {}), tolerance(taken(turned), taken(b), {})) == "");
    }
}

TEST_CASE("matmul: long sums") {
    CHECK(matmul_mismatch(random_tensor({3, 4096}, 1), random_tensor({4096, 8}, 2)) == "");
    CHECK(matmul_mismatch(random_tensor({9, 4099}, 1), random_tensor({5, 4099}, 2), {.transpose_b = true}) == "");
}

TEST_CASE("matmul: few rows of large matrices, which have kernels of their own") {
    const std::int64_t sizes[][3] = {{1, 516, 520}, {1, 513, 515}, {3, 512, 516}, {4, 521, 513}, {9, 520, 512}};
    for (const auto& size : sizes) {
        const std::int64_t m = size[0], n = size[1], k = size[2];
        CAPTURE(m);
        CAPTURE(n);
        CAPTURE(k);
        Tensor a = random_tensor({m, k}, 1);
        Tensor b = random_tensor({k, n}, 2);
        CHECK(matmul_mismatch(a, b, {.bias = random_tensor({n}, 3), .activation = Activation::silu}) == "");
        CHECK(matmul_mismatch(a, transpose(b, 0, 1), {.transpose_b = true}) == "");
        // The infinity is in the last row: what pads the sum must not multiply with it.
        b.at({k - 1, n - 1}) = kInf;
        b.at({0, 0}) = kNan;  // in the first: nor what stands for rows past the end
        CHECK(matmul_mismatch(a, b) == "");
        CHECK(matmul_mismatch(a, transpose(b, 0, 1), {.transpose_b = true}) == "");
        for (std::int64_t row = 0; row < m; ++row) {
            a.at({row, 0}) = -0.0;
            a.at({row, k - 1}) = -0.0;
        }
        CHECK(matmul_mismatch(a, b, {.masked_weights = true}) == "");
    }
}

TEST_CASE("matmul: few rows on GPUs, 16 bytes of several columns at a time") {
    for (const bool subgroups : {true, false}) {
        const Believed as([&](Capabilities& c) { c.subgroup_arithmetic = c.subgroup_arithmetic && subgroups; });
        CAPTURE(subgroups);
        for (const std::int64_t m : {1, 2, 3, 4, 5, 9}) {
            for (const Sizes& nk : {Sizes{1, 128}, Sizes{6, 260}, Sizes{9, 1040}}) {
                CAPTURE(m);
                CAPTURE(nk[0]);
                const Tensor a = random_tensor({m, nk[1]}, 1), b = random_tensor({nk[0], nk[1]}, 2);
                CHECK(matmul_mismatch(a, b,
                                      {.bias = random_tensor({nk[0]}, 3),
                                       .activation = Activation::gelu,
                                       .scale = 0.5,
                                       .transpose_b = true}) == "");
            }
        }
        CHECK(matmul_mismatch(random_tensor({3, 2, 1, 128}, 1), random_tensor({3, 1, 7, 128}, 2),
                              {.transpose_b = true}) == "");
        Tensor a = random_tensor({3, 256}, 1), b = random_tensor({6, 256}, 2);
        a.at({1, 255}) = kNan;
        b.at({5, 0}) = kInf;
        CHECK(matmul_mismatch(a, b, {.transpose_b = true}) == "");
    }
}

TEST_CASE("matmul: which kernel few rows take on GPUs, and the same bits in every run") {
    const auto said = [](std::int64_t m, std::int64_t k) {
        Graph g;
        g.output("y", linear(g.input("x", {m, k}), g.input("w", {9, k})));
        return device().compile(g, {}).explain();
    };
    for (const bool subgroups : {true, false}) {
        const Believed gpu([&](Capabilities& c) {
            as_gpu(c);
            c.subgroup_arithmetic = c.subgroup_arithmetic && subgroups;
        });
        const bool by_subgroups = device().capabilities().subgroup_arithmetic;
        for (const std::int64_t m : {1, 2, 4}) {
            CHECK(contains(said(m, 512), by_subgroups ? "matvec_columns_subgroups" : "matvec_columns"));
            CHECK(contains(said(m, 512), std::to_string(m) + (m == 1 ? " row by" : " rows by")));
            CHECK(contains(said(m, 512), "and their subgroups") == by_subgroups);
        }
        CHECK_FALSE(contains(said(1, 512), "2 rows by"));
        CHECK(contains(said(2, 510), "split over 32 invocations, for b is not read along k by vec4"));
        CHECK(contains(said(1, 124), "for sums are not of 128 products, or more in steps of 4"));
        const Tensor x = random_tensor({3, 516}, 1), w = random_tensor({9, 516}, 2);
        OpCheck check;
        const Value y = linear(check.input("x", x), check.input("w", w));
        const Tensor first = check.run(y);
        for (int i = 0; i < 20; ++i) {
            CHECK(same_bits(check.run(y), first));
        }
    }
    if (device().capabilities().cpu()) {
        const Believed forced([](Capabilities& c) { c.variants = "matvec_columns"; });
        CHECK(contains(said(1, 512), "matvec_columns"));
    }
}

TEST_CASE("matmul: batches broadcast") {
    const std::pair<Sizes, Sizes> shapes[] = {
        {{2, 3, 4, 5}, {2, 3, 5, 6}},       {{2, 3, 4, 5}, {5, 6}},    {{4, 5}, {2, 3, 5, 6}},
        {{2, 1, 4, 5}, {1, 3, 5, 6}},       {{3, 4, 8}, {2, 1, 8, 4}}, {{7, 1, 8}, {7, 8, 12}},
        {{2, 2, 3, 4, 8}, {2, 1, 3, 8, 4}}, {{2, 2, 1, 9, 8}, {8, 16}}};
    for (const auto& pair : shapes) {
        const Sizes &a = pair.first, &b = pair.second;
        CAPTURE(a.size());
        CAPTURE(b.size());
        CHECK(matmul_mismatch(random_tensor(a, 1), random_tensor(b, 2)) == "");
        CHECK(matmul_mismatch(random_tensor(a, 1), transpose(random_tensor(b, 2), -1, -2), {.transpose_b = true}) ==
              "");
    }
}

TEST_CASE("matmul: scale, bias and every activation in the epilogue") {
    for (const Sizes& mnk : {Sizes{5, 7, 6}, Sizes{19, 36, 8}}) {
        const Tensor a = random_tensor({mnk[0], mnk[2]}, 1, 2);
        const Tensor b = random_tensor({mnk[2], mnk[1]}, 2, 2);
        const Tensor bias = random_tensor({mnk[1]}, 3, 2);
        CAPTURE(mnk[0]);
        CHECK(matmul_mismatch(a, b, {.scale = -0.25}) == "");
        CHECK(matmul_mismatch(a, b, {.bias = bias}) == "");
        CHECK(matmul_mismatch(a, b, {.bias = bias, .activation = Activation::relu}) == "");
        CHECK(matmul_mismatch(a, b, {.bias = bias, .activation = Activation::gelu, .scale = 0.5}) == "");
    }
    for (const Activation act : {Activation::gelu_tanh, Activation::silu, Activation::tanh, Activation::sigmoid}) {
        CAPTURE(static_cast<int>(act));
        CHECK(matmul_mismatch(random_tensor({5, 6}), random_tensor({6, 7}),
                              {.bias = random_tensor({7}), .activation = act}) == "");
    }
}

TEST_CASE("matmul: linear is x W^T + b on any rank") {
    const Tensor w = random_tensor({6, 10}, 2);
    const Tensor bias = random_tensor({6}, 3);
    for (const Sizes& shape : {Sizes{4, 10}, Sizes{2, 3, 10}, Sizes{2, 1, 5, 10}}) {
        const Tensor x = random_tensor(shape);
        ProductCheck check;
        const Value y = linear(check.input("x", x), check.input("w", w), check.input("bias", bias), Activation::relu);
        CHECK(check.mismatch(y, x, w, {.bias = bias, .activation = Activation::relu, .transpose_b = true}) == "");
    }
    ProductCheck check;
    const Tensor x = random_tensor({10});
    const Value row = reshape(linear(check.input("x", x), check.input("w", w)), {1, 6});
    CHECK(check.mismatch(row, reshape(x, {1, 10}), w, {.transpose_b = true}) == "");
}

TEST_CASE("matmul: operands that are views") {
    const Tensor a = random_tensor({3, 6, 9}, 1);
    const Tensor b = random_tensor({3, 11, 10}, 2);
    ProductCheck check;
    const Value va = check.input("a", a);
    const Value vb = check.input("b", b);
    const Tensor at = transpose(a, 1, 2);                 // (3, 9, 6)
    const Tensor bs = slice(slice(b, 1, 2, 6), 2, 3, 5);  // (3, 6, 5)
    CHECK(check.mismatch(matmul(transpose(va, 1, 2), slice(slice(vb, 1, 2, 6), 2, 3, 5)), at, bs) == "");
    const Tensor bt = transpose(slice(b, 2, 1, 9), 1, 2);  // (3, 9, 11)
    CHECK(check.mismatch(matmul(va, transpose(slice(vb, 2, 1, 9), 1, 2)), a, bt) == "");
    // (3, 4, 9), the rows all one
    const Tensor one_row = broadcast_to(slice(a, 1, 2, 1), {3, 4, 9});
    CHECK(check.mismatch(matmul(broadcast_to(slice(va, 1, 2, 1), {3, 4, 9}), transpose(slice(vb, 2, 1, 9), 1, 2)),
                         one_row, bt) == "");
}

TEST_CASE("matmul: batches that share b, in every order of storage") {
    const Tensor a = random_tensor({3, 6, 8}, 1);
    const Tensor w = random_tensor({8, 5}, 2);
    ProductCheck check;
    const Value va = check.input("a", a);
    const Value vw = check.input("w", w);
    CHECK(check.mismatch(matmul(va, vw), a, w) == "");
    CHECK(check.mismatch(matmul(slice(va, 1, 1, 4), vw), slice(a, 1, 1, 4), w) == "");
    CHECK(check.mismatch(matmul(transpose(va, 0, 1), vw), transpose(a, 0, 1), w) == "");
    CHECK(check.mismatch(matmul(broadcast_to(slice(va, 0, 1, 1), {4, 6, 8}), vw),
                         broadcast_to(slice(a, 0, 1, 1), {4, 6, 8}), w) == "");
    const Tensor deep = random_tensor({2, 3, 4, 8}, 3);
    ProductCheck more;
    const Value vd = more.input("deep", deep);
    const Value vm = more.input("w", w);
    CHECK(more.mismatch(matmul(transpose(vd, 1, 2), vm), transpose(deep, 1, 2), w) == "");
    CHECK(more.mismatch(contiguous(matmul(vd, vm, {.heads_last = true})), deep, w) == "");
    const Tensor groups = random_tensor({2, 3, 2, 4, 8}, 4);
    CHECK(more.mismatch(contiguous(matmul(more.input("groups", groups), vm, {.heads_last = true})), groups, w) == "");
    CHECK(more.mismatch(contiguous(matmul(transpose(vd, 0, 1), vm, {.heads_last = true})), transpose(deep, 0, 1), w) ==
          "");
}

TEST_CASE("matmul: split and merged heads, stored with heads last") {
    const Tensor x = random_tensor({2, 5, 24}, 1);
    const Tensor y = random_tensor({2, 7, 24}, 2);
    for (const bool heads_last : {false, true}) {
        CAPTURE(heads_last);
        OpCheck check;
        const Value q = split_heads(check.input("x", x), 3);
        const Value kv = split_heads(check.input("y", y), 3);
        const Value scores = matmul(q, kv, {.transpose_b = true});
        const Value heads = matmul(scores, kv, {.heads_last = heads_last});
        const Value merged = heads_last ? merge_heads(heads) : reshape(contiguous(transpose(heads, 1, 2)), {2, 5, 24});
        const Tensor tq = permute(reshape(x, {2, 5, 3, 8}), {0, 2, 1, 3});
        const Tensor tkv = permute(reshape(y, {2, 7, 3, 8}), {0, 2, 1, 3});
        const Tensor product = reference::matmul(reference::matmul(tq, tkv, {.transpose_b = true}), tkv);
        CHECK(check.difference(contiguous(merged), reshape(permute(product, {0, 2, 1, 3}), {2, 5, 24}), {1e-4, 1e-4}) ==
              "");
    }
}

TEST_CASE("matmul: grouped heads share keys by a stride of 0") {
    const Tensor q = random_tensor({2, 6, 4, 8}, 1);
    const Tensor k = random_tensor({2, 2, 5, 8}, 2);
    ProductCheck check;
    const Value grouped = reshape(check.input("q", q), {2, 2, 3, 4, 8});
    const Value keys = broadcast_to(reshape(check.input("k", k), {2, 2, 1, 5, 8}), {2, 2, 3, 5, 8});
    const Value y = matmul(grouped, keys, {.transpose_b = true});
    CHECK(check.mismatch(y, reshape(q, {2, 2, 3, 4, 8}), reshape(k, {2, 2, 1, 5, 8}), {.transpose_b = true}) == "");
}

TEST_CASE("matmul: a bias that is one number for all columns, and one that is a column of a matrix") {
    const Tensor biases = random_tensor({3, 2}, 3, 2);
    const Tensor all_alike(Sizes{8}, biases.at({1, 1}));
    const Tensor column = reshape(slice(biases, 1, 1, 1), {3});
    for (const std::int64_t m : {2, 9, 40}) {
        CAPTURE(m);
        const Tensor a = random_tensor({m, 12}, 1), b = random_tensor({12, 8}, 2), narrow = random_tensor({12, 3}, 4);
        const auto check = [&](const Tensor& right, const Tensor& bias, const auto& window) {
            ProductCheck product;
            const Value y = matmul(product.input("a", a), product.input("b", right),
                                   {.bias = window(product.input("biases", biases))});
            const reference::MatmulOptions o{.bias = bias};
            return product.difference(y, twin(a, right, o), tolerance(taken(a), taken(right), o));
        };
        CHECK(check(b, all_alike,
                    [](Value v) { return broadcast_to(reshape(slice(slice(v, 0, 1, 1), 1, 1, 1), {1}), {8}); }) == "");
        CHECK(check(narrow, column, [](Value v) { return reshape(slice(v, 1, 1, 1), {3}); }) == "");
    }
}

TEST_CASE("matmul: no rows, no columns, nothing to sum") {
    ProductCheck check;
    const Dim n = check.graph.symbol("n", 6);
    const Value empty_rows = check.input("x", Tensor({0, 4}), {n, 4});
    const Value full = check.input("w", random_tensor({4, 5}));
    check.set("n", 0);
    CHECK(check.difference(matmul(empty_rows, full), Tensor({0, 5})) == "");
    CHECK(check.difference(matmul(transpose(full, 0, 1), transpose(empty_rows, 0, 1)), Tensor({5, 0})) == "");
    ProductCheck sum;
    const Dim k = sum.graph.symbol("k", 6);
    const Tensor shift = random_tensor({5});
    sum.set("k", 0);
    const Value y = matmul(sum.input("a", Tensor({3, 0}), {3, k}), sum.input("b", Tensor({0, 5}), {k, 5}),
                           {.bias = sum.input("bias", shift)});
    CHECK(sum.difference(y, broadcast_to(shift, {3, 5})) == "");
}

TEST_CASE("matmul: values of +-1e5 and infinities, and a NaN stays in its row and column") {
    if (in_half()) {
        return;  // sums of such are beyond f16: half_test.cpp
    }
    Tensor a = random_tensor({6, 10}, 1, 1e5);
    Tensor b = random_tensor({10, 9}, 2, 1e5);
    CHECK(matmul_mismatch(a, b) == "");
    CHECK(matmul_mismatch(a, b, {.activation = Activation::gelu}) == "");
    CHECK(matmul_mismatch(a, b, {.activation = Activation::tanh}) == "");
    a.at({2, 3}) = kNan;
    a.at({4, 1}) = kInf;
    b.at({7, 5}) = kNan;
    b.at({9, 8}) = -kInf;  // in the last row: what pads the sum must not multiply with it
    CHECK(matmul_mismatch(a, b) == "");
    for (const Activation act : {Activation::relu, Activation::silu, Activation::tanh}) {
        CAPTURE(static_cast<int>(act));
        CHECK(matmul_mismatch(a, b, {.activation = act}) == "");
    }
    CHECK(matmul_mismatch(a, transpose(b, 0, 1), {.transpose_b = true}) == "");
}

TEST_CASE("matmul: a masked weight hides whatever the value holds, an underflowed one does not") {
    for (const Sizes& mnk : {Sizes{3, 5, 7}, Sizes{1, 8, 8}, Sizes{10, 36, 12}, Sizes{70, 72, 20}}) {
        CAPTURE(mnk[0]);
        Tensor w = random_tensor({mnk[0], mnk[2]}, 1);
        Tensor v = random_tensor({mnk[2], mnk[1]}, 2);
        for (std::int64_t row = 0; row < mnk[0]; ++row) {
            w.at({row, 2}) = -0.0;
            w.at({row, 5}) = -0.0;
        }
        for (std::int64_t column = 0; column < mnk[1]; ++column) {
            v.at({2, column}) = column % 2 == 0 ? kNan : kInf;
            v.at({5, column}) = -kInf;
        }
        const reference::MatmulOptions masked{.masked_weights = true};
        CHECK(matmul_mismatch(w, v, masked) == "");
        CHECK(matmul_mismatch(w, transpose(v, 0, 1), {.transpose_b = true, .masked_weights = true}) == "");
        CHECK(matmul_mismatch(w, v, {.bias = random_tensor({mnk[1]}), .scale = 3, .masked_weights = true}) == "");
        w.at({0, 2}) = 0.0;  // underflowed: 0 * NaN is NaN, 0 * inf too
        CHECK(matmul_mismatch(w, v, masked) == "");
        CHECK(matmul_mismatch(w, v) == "");
    }
}

TEST_CASE("matmul: attention lets no NaN of a masked key or value through, and every other") {
    const std::int64_t keys = 9;
    const Tensor q = random_tensor({2, 4, 8}, 1);
    Tensor k = random_tensor({2, keys, 8}, 2);
    Tensor v = random_tensor({2, keys, 8}, 3);
    Tensor mask({2, 1, keys}, 1.0);
    for (const std::int64_t hidden : {1, 8}) {
        mask.at({0, 0, hidden}) = 0;
        for (std::int64_t c = 0; c < 8; ++c) {
            k.at({0, hidden, c}) = kNan;
            v.at({0, hidden, c}) = c % 2 == 0 ? kNan : kInf;
        }
    }
    const auto attend = [&](const Tensor& values, bool causal) {
        OpCheck check;
        const Value scores = matmul(check.input("q", q), check.input("k", k), {.transpose_b = true});
        const Value weights = softmax(
            scores, {.mask = {.keys = check.indices("mask", mask), .causal = causal ? Causal::top_left : Causal::none},
                     .scale = 0.35f});
        const Value y = matmul(weights, check.input("v", values), {.masked_weights = true});
        const Tensor w = reference::softmax(
            reference::matmul(q, k, {.transpose_b = true}),
            {.keys = mask, .causal = causal ? Causal::top_left : Causal::none, .scale = static_cast<double>(0.35f)});
        const Tensor want = reference::matmul(w, values, {.masked_weights = true});
        return check.difference(y, want);
    };
    CHECK(attend(v, false) == "");
    CHECK(attend(v, true) == "");
    v.at({1, 3, 2}) = kNan;
    CHECK(attend(v, false) == "");
    CHECK(attend(v, true) == "");
    for (std::int64_t key = 0; key < keys; ++key) {
        mask.at({1, 0, key}) = 0;  // nothing left: zeros, though a value is NaN
    }
    CHECK(attend(v, false) == "");
}

TEST_CASE("matmul: one program at every length") {
    Graph g;
    const Dim m = g.symbol("m", 70);
    const Dim k = g.symbol("k", 40);
    const Value a = g.input("a", {2, m, k});
    const Value b = g.input("b", {2, m, k});
    g.output("scores", matmul(a, b, {.transpose_b = true}));
    g.output("gram", matmul(transpose(a, 1, 2), b));
    Program program = device().compile(g, {}, {.arithmetic = in_f16() ? Arithmetic::f16 : Arithmetic::f32});
    const std::size_t pipelines = pipelines_of(device());
    for (const auto& size : {std::pair{70, 40}, {1, 1}, {3, 7}, {4, 8}, {0, 5}, {33, 0}, {17, 40}, {64, 39}}) {
        const int rows = size.first, width = size.second;
        CAPTURE(rows);
        CAPTURE(width);
        const Tensor x = random_tensor({2, rows, width}, 1);
        const Tensor y = random_tensor({2, rows, width}, 2);
        program.set("m", rows);
        program.set("k", width);
        upload(program, "a", x);
        upload(program, "b", y);
        program.run();
        const reference::MatmulOptions transposed{.transpose_b = true};
        CHECK(difference(download(program, "scores"), twin(x, y, transposed), nearly(x, y, transposed)) == "");
        const Tensor columns = transpose(x, 1, 2);
        CHECK(difference(download(program, "gram"), twin(columns, y), nearly(columns, y, {})) == "");
    }
    CHECK(pipelines_of(device()) == pipelines);
}

TEST_CASE("matmul: the same bits every time") {
    Graph g;
    g.output("y", matmul(g.input("a", {37, 129}), g.input("b", {129, 65}), {.activation = Activation::gelu}));
    Program program = device().compile(g);
    upload(program, "a", random_tensor({37, 129}, 1));
    upload(program, "b", random_tensor({129, 65}, 2));
    program.run();
    const Tensor first = download(program, "y");
    for (int repeat = 0; repeat < 20; ++repeat) {
        program.run();
        CHECK(same_bits(first, download(program, "y")));
    }
}

TEST_CASE("matmul: bad arguments are refused by name") {
    Graph g;
    const Value a = g.input("left", {2, 3, 4});
    const Value b = g.input("right", {5, 6});
    const Value ids = g.input("ids", {4, 4}, DType::i32);
    const std::string inner = error_of([&] { matmul(a, b); });
    CHECK(contains(inner, "matmul: "));
    CHECK(contains(inner, "left (2, 3, 4)"));
    CHECK(contains(inner, "right (5, 6)"));
    CHECK(contains(inner, "4 against 5"));
    CHECK(contains(error_of([&] { matmul(a, b, {.transpose_b = true}); }), "4 against 6"));
    CHECK(contains(error_of([&] { matmul(a, ids); }), "ids (4, 4) I32 must be F32"));
    CHECK(contains(error_of([&] { matmul(ids, a); }), "ids (4, 4) I32 must be F32"));
    CHECK(contains(error_of([&] { matmul(g.input("vector", {4}), b); }), "vector (4)"));
    CHECK(contains(error_of([&] { matmul(a, g.input("batches", {3, 4, 5})); }), "batches (3, 4, 5)"));
    const Value w = g.input("w", {4, 7});
    CHECK(contains(error_of([&] { matmul(a, w, {.scale = NAN}); }), "scale"));
    CHECK(contains(error_of([&] { matmul(a, w, {.scale = INFINITY}); }), "scale"));
    CHECK(contains(error_of([&] { matmul(a, w, {.bias = g.input("short", {6})}); }), "short (6)"));
    CHECK(contains(error_of([&] { matmul(a, w, {.bias = ids}); }), "ids (4, 4) I32"));
    CHECK(contains(error_of([&] { matmul(a, w, {.heads_last = true}); }), "heads"));
    CHECK(contains(error_of([&] { linear(a, g.input("w3", {1, 4, 7})); }), "linear: w3"));
    CHECK(contains(error_of([&] { linear(a, b); }), "linear: inner sizes of left (2, 3, 4)"));
    CHECK(contains(error_of([&] { linear(a, ids); }), "linear: ids (4, 4) I32 must be F32"));
    CHECK(contains(error_of([&] { linear(a, g.input("w4", {7, 4}), g.input("b4", {6})); }), "linear: bias b4 (6)"));
    CHECK(contains(error_of([&] { matmul(Value(), a); }), "empty Value"));
    Graph other;
    CHECK(contains(error_of([&] { matmul(a, other.input("stranger", {4, 7})); }), "another graph"));
}

TEST_SUITE_END();
