// SPDX-License-Identifier: Apache-2.0
// Products of programs for f16: on cooperative matrices where the device has them, in fp32 where it
// does not. The same sizes, views and epilogues as in fp32: matmul_test.cpp under
// VKFORMER_VARIANT=matmul_coopmat.
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>

#include "ops/matmul_tiles.h"
#include "tests/believed.h"
#include "tests/fixtures.h"
#include "tests/host.h"
#include "tests/op_check.h"
#include "tests/reference.h"
#include "tests/reference_packed.h"

namespace vkf::test {

namespace {

struct MatrixProduct {
    std::int64_t m = 1, n = 1, k = 1;
    bool transpose_b = true;
    WeightType weights = WeightType::f32;
    bool bias = false;
    Activation activation = Activation::none;
};

void describe(Graph& g, const MatrixProduct& p) {
    const Value b = p.transpose_b ? g.weight("w", {p.n, p.k}) : g.weight("w", {p.k, p.n});
    MatmulOptions o;
    o.transpose_b = p.transpose_b;
    o.activation = p.activation;
    o.bias = p.bias ? g.input("bias", {p.n}) : Value();
    g.output("y", matmul(g.input("x", {p.m, p.k}), b, o));
}

/// The product as the device computes it beside that of the operands in f16.
std::string matrix_mismatch(const MatrixProduct& p) {
    const Tensor x = random_tensor({p.m, p.k}, 1);
    const Tensor w = p.transpose_b ? random_tensor({p.n, p.k}, 2) : random_tensor({p.k, p.n}, 2);
    const Tensor bias = random_tensor({p.n}, 3);
    Graph g;
    describe(g, p);
    Program program = device().compile(g, load(w, p.weights), kF16);
    upload(program, "x", x);
    if (p.bias) {
        upload(program, "bias", bias);
    }
    program.run();
    const bool coopmat = on_coopmat(program.explain());
    if (!coopmat) {
        return "not on cooperative matrices:\n" + program.explain();
    }
    const bool few = p.m <= 4 && !device().capabilities().asks_for("matmul_coopmat");
    const bool codes = p.weights == WeightType::int8;  // exact in f16, their scales are fp32
    const Tensor kept = reference::packed(w, p.weights);
    const Tensor a = few ? x : reference::as_f16(x);
    const Tensor b = few || codes ? kept : reference::as_f16(kept);
    reference::MatmulOptions o{.activation = p.activation, .transpose_b = p.transpose_b};
    if (p.bias) {
        o.bias = bias;
    }
    return difference(download(program, "y"), reference::matmul(a, b, o),
                      {.rounding = reference::matmul_rounding(a, b, o)});
}

}  // namespace

TEST_SUITE("coopmat") {
    TEST_CASE("coopmat: every tile, at sizes around its edges, every way to read b") {
        if (!has_matrices()) {
            return;
        }
        const Believed gpu(as_gpu);
        const std::int64_t sizes[][3] = {{5, 1, 1},      {8, 8, 8},      {31, 127, 15}, {32, 128, 32},
                                         {33, 129, 33},  {64, 64, 40},   {65, 63, 64},  {129, 66, 65},
                                         {130, 132, 36}, {513, 130, 68}, {640, 257, 17}};
        for (const auto& size : sizes) {
            CAPTURE(size[0]);
            CAPTURE(size[1]);
            CAPTURE(size[2]);
            for (const bool transpose_b : {false, true}) {
                CHECK(matrix_mismatch({.m = size[0], .n = size[1], .k = size[2], .transpose_b = transpose_b}) == "");
            }
        }
    }

    TEST_CASE("coopmat: weights of every type, bias and activations") {
        if (!has_matrices()) {
            return;
        }
        const Believed gpu(as_gpu);
        for (const WeightType type :
             {WeightType::f32, WeightType::f16, WeightType::bf16, WeightType::int8, WeightType::int4}) {
            CAPTURE(name_of(type));
            CHECK(matrix_mismatch({.m = 70, .n = 68, .k = 100, .weights = type}) == "");
            CHECK(matrix_mismatch({.m = 9, .n = 70, .k = 33, .weights = type, .bias = true}) == "");
            CHECK(matrix_mismatch({.m = 600, .n = 36, .k = 40, .weights = type, .activation = Activation::gelu}) == "");
            CHECK(matrix_mismatch({.m = 40, .n = 5, .k = 4099, .weights = type}) == "");
        }
    }

    TEST_CASE("coopmat: rows decide at run time, and the same bits come every time") {
        if (!has_matrices()) {
            return;
        }
        const Believed gpu(as_gpu);
        Graph g;
        const Dim m = g.symbol("m", 600);
        g.output("y", linear(g.input("x", {m, 48}), g.input("w", {80, 48})));
        Program program = device().compile(g, {}, kF16);
        const Tensor w = random_tensor({80, 48}, 2);
        for (const std::int64_t rows : {1, 4, 5, 32, 33, 512, 513, 600, 0}) {
            CAPTURE(rows);
            const Tensor x = random_tensor({rows, 48}, 1);
            const bool exact = rows <= 4;  // sums split over invocations, in fp32
            program.set("m", rows);
            upload(program, "x", x);
            upload(program, "w", w);
            program.run();
            const Tensor first = download(program, "y");
            const Tensor want = reference::matmul(exact ? x : reference::as_f16(x), exact ? w : reference::as_f16(w),
                                                  {.transpose_b = true});
            CHECK(difference(first, want) == "");
            for (int run = 0; run < (rows == 33 ? 100 : 2); ++run) {
                program.run();
                CHECK(same_bits(download(program, "y"), first));
            }
        }
    }

    TEST_CASE("coopmat: many rows by many columns are rounded once, for all products of them") {
        if (!has_matrices()) {
            return;
        }
        const Believed gpu(as_gpu);
        const auto rounded_once = [](const std::string& explained) {
            return contains(explained, "rows as f16") && contains(explained, "a rounded once");
        };
        for (const WeightType type :
             {WeightType::f32, WeightType::f16, WeightType::bf16, WeightType::int8, WeightType::int4}) {
            CAPTURE(name_of(type));
            CHECK(matrix_mismatch({.m = 513, .n = 1024, .k = 72, .weights = type}) == "");
        }
        CHECK(matrix_mismatch({.m = 640, .n = 1033, .k = 8, .transpose_b = false}) == "");
        CHECK(matrix_mismatch({.m = 641, .n = 1026, .k = 136, .bias = true, .activation = Activation::gelu}) == "");

        const double kInf = std::numeric_limits<double>::infinity();
        Tensor weights = random_tensor({1028, 40}, 2);
        weights.at({1027, 39}) = -kInf;
        Graph g;
        const Dim m = g.symbol("m", 600);
        const Value x = g.input("x", {m, 40}), r = g.input("r", {m, 1028});
        g.output("y", linear(x, g.weight("w", {1028, 40})));
        g.output("z", silu(linear(x, g.weight("w", {1028, 40}), g.input("bias", {1028}))) + r);
        Program program = device().compile(g, load(weights, WeightType::f32), kF16);
        const std::string explained = program.explain();
        CHECK(rounded_once(explained));
        const std::size_t packed = explained.find("rows as f16");
        CHECK(explained.find("rows as f16", packed + 1) == std::string::npos);
        const Tensor bias = random_tensor({1028}, 3), w = reference::as_f16(weights);
        upload(program, "bias", bias);
        for (const std::int64_t rows : {1, 7, 512, 513, 600, 0}) {
            CAPTURE(rows);
            Tensor a = random_tensor({rows, 40}, 1);
            const Tensor plus = random_tensor({rows, 1028}, 4);
            if (rows > 6) {
                a.at({3, 0}) = std::numeric_limits<double>::quiet_NaN();
                a.at({5, 36}) = kInf;
                a.at({6, 1}) = 70000;  // infinite in f16
            }
            program.set("m", rows);
            upload(program, "x", a);
            upload(program, "r", plus);
            program.run();
            const bool exact = rows <= 4;
            const Tensor b = exact ? weights : w;
            a = exact ? a : reference::as_f16(a);
            const reference::MatmulOptions o{.transpose_b = true};
            CHECK(difference(download(program, "y"), reference::matmul(a, b, o),
                             {.rounding = reference::matmul_rounding(a, b, o)}) == "");
            const reference::MatmulOptions activated{.bias = bias, .activation = Activation::silu, .transpose_b = true};
            Tensor z = reference::matmul(a, b, activated);
            for (std::size_t i = 0; i < z.data.size(); ++i) {
                z.data[i] += plus.data[i];
            }
            CHECK(difference(download(program, "z"), z, {.rounding = reference::matmul_rounding(a, b, activated)}) ==
                  "");
            const Tensor first = download(program, "z");
            program.run();
            CHECK(same_bits(download(program, "z"), first));
        }

        // the result may take the residual's memory, here that of what is rounded
        Graph residual;
        const Value from = relu(residual.input("x", {520, 1024}));
        residual.output("y", from + linear(from, residual.weight("w", {1024, 1024})));
        const Tensor square = random_tensor({1024, 1024}, 5), rows = random_tensor({520, 1024}, 6);
        Program in_place = device().compile(residual, load(square, WeightType::f32), kF16);
        CHECK(rounded_once(in_place.explain()));
        upload(in_place, "x", rows);
        in_place.run();
        Tensor positive = rows;
        for (double& x : positive.data) {
            x = std::max(x, 0.0);
        }
        const Tensor left = reference::as_f16(positive), right = reference::as_f16(square);
        Tensor sum = reference::matmul(left, right, {.transpose_b = true});
        for (std::size_t i = 0; i < sum.data.size(); ++i) {
            sum.data[i] += positive.data[i];
        }
        CHECK(difference(download(in_place, "y"), sum,
                         {.rounding = reference::matmul_rounding(left, right, {.transpose_b = true})}) == "");

        Graph odd;
        odd.output("y", linear(odd.input("x", {600, 42}), odd.input("w", {1024, 42})));
        CHECK_FALSE(rounded_once(device().compile(odd, {}, kF16).explain()));
        Graph narrow;
        narrow.output("y", linear(narrow.input("x", {600, 40}), narrow.input("w", {1000, 40})));
        CHECK_FALSE(rounded_once(device().compile(narrow, {}, kF16).explain()));
    }

    TEST_CASE("coopmat: NaN, infinities and what f16 cannot hold stay in their rows and columns") {
        if (!has_matrices()) {
            return;
        }
        const Believed gpu(as_gpu);
        const double kInf = std::numeric_limits<double>::infinity();
        Tensor x = random_tensor({70, 37}, 1);
        Tensor w = random_tensor({66, 37}, 2);
        x.at({3, 0}) = std::numeric_limits<double>::quiet_NaN();
        x.at({5, 36}) = kInf;
        x.at({7, 1}) = 70000;  // infinite in f16
        x.at({69, 2}) = 65519;
        w.at({65, 36}) = -kInf;
        OpCheck check;
        check.arithmetic = Arithmetic::f16;
        const Value y = linear(check.input("x", x), check.input("w", w));
        const Tensor a = reference::as_f16(x), b = reference::as_f16(w);
        const reference::MatmulOptions o{.transpose_b = true};
        CHECK(difference(check.run(y), reference::matmul(a, b, o), {.rounding = reference::matmul_rounding(a, b, o)}) ==
              "");
    }

    TEST_CASE("coopmat: fp32 stays fp32, f16 says what was taken and why") {
        Graph g;
        g.output("y", linear(g.input("x", {40, 64}), g.input("w", {64, 64})));
        const auto explained = [&](const CompileOptions& o) { return device().compile(g, {}, o).explain(); };
        CHECK_FALSE(contains(explained({}), "f16"));
        CHECK_FALSE(on_coopmat(explained({})));
        const Believed gpu(as_gpu);
        CHECK_FALSE(on_coopmat(explained({})));
        if (device().capabilities().cooperative_matrix) {
            CHECK(on_coopmat(explained(kF16)));
            CHECK(contains(explained(kF16), "f16 arithmetic, tiles of "));
            const Believed processor([](Capabilities& c) { c.type = DeviceType::cpu; });
            CHECK(contains(explained(kF16), "fp32, though f16 was asked for: on a processor"));
            const Believed forced([](Capabilities& c) { c.variants = "matmul_coopmat"; });
            CHECK(on_coopmat(explained(kF16)));
            CHECK_FALSE(on_coopmat(explained({})));
        }
        const Believed without([](Capabilities& c) { c.cooperative_matrix = c.float16 = false; });
        CHECK(contains(explained(kF16), "fp32, though f16 was asked for: no cooperative matrices: "));
        const Believed forced([](Capabilities& c) { c.variants = "matmul_coopmat"; });
        CHECK(contains(error_of([&] { explained(kF16); }), "VKFORMER_VARIANT asks for matmul_coopmat"));
        CHECK(explained({}) != "");
    }

    TEST_CASE("coopmat: masked weights are multiplied in fp32") {
        const Believed gpu(as_gpu);
        const Tensor a = random_tensor({9, 20}, 1), b = random_tensor({20, 7}, 2);
        OpCheck check;
        check.arithmetic = Arithmetic::f16;
        const Value y = matmul(check.input("a", a), check.input("b", b), {.masked_weights = true});
        CHECK(difference(check.run(y), reference::matmul(a, b), {1e-6, 1e-6}) == "");
        if (device().capabilities().cooperative_matrix) {
            CHECK(contains(device().compile(check.graph, {}, kF16).explain(), "masked weights are multiplied in fp32"));
        }
    }

    TEST_CASE("coopmat: a borrowed device has what its host enabled") {
        Host plain;
        CHECK_FALSE(Device::borrow(plain.handles()).capabilities().cooperative_matrix);
        Host host(true);
        const BorrowedDevice handles = host.handles();
        const Device own = Device::create();
        const Device device = Device::borrow(handles);
        CHECK(device.capabilities().cooperative_matrix == own.capabilities().cooperative_matrix);
        const DeviceRequirements needs = Device::requirements(handles.instance, handles.physical);
        const auto named = std::count_if(needs.list().begin(), needs.list().end(), [](const DeviceRequirement& r) {
            return contains(r.name, "ooperative") && contains(r.buys, "CompileOptions::arithmetic");
        });
        CHECK((own.capabilities().minimum_profile || (named == 2) == own.capabilities().cooperative_matrix));
        CHECK(host.messages().empty());
    }
}

}  // namespace vkf::test
