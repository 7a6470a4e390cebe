// SPDX-License-Identifier: Apache-2.0
// Products of programs for f16 on devices that have its arithmetic and no cooperative matrices.
// More sizes, views and epilogues: matmul_test.cpp under VKFORMER_VARIANT=matmul_half.
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>

#include "tests/believed.h"
#include "tests/fixtures.h"
#include "tests/host.h"
#include "tests/op_check.h"
#include "tests/reference.h"
#include "tests/reference_packed.h"

namespace vkf::test {

namespace {

bool has_f16() {
    if (!device().capabilities().float16) {
        cannot_run("arithmetic in f16");
        return false;
    }
    return true;
}

void without_matrices(Capabilities& c) {
    as_gpu(c);
    c.cooperative_matrix = false;
}

void forced(Capabilities& c) { c.variants = "matmul_half"; }

struct HalfProduct {
    Tensor a, b;  ///< (..., m, k) and (..., k, n), or (n, k) and a weight
    reference::MatmulOptions options = {};
    WeightType weights = WeightType::f32;
};

Shape shape_of(const Tensor& t) { return {t.shape.begin(), t.shape.end()}; }

/// The product as the device computes it.
Tensor computed(const HalfProduct& p) {
    Graph g;
    const bool weight = p.weights != WeightType::f32;
    MatmulOptions o;
    o.transpose_b = p.options.transpose_b;
    o.activation = p.options.activation;
    o.bias = p.options.bias ? g.input("bias", shape_of(*p.options.bias)) : Value();
    const Value b = weight ? g.weight("w", shape_of(p.b)) : g.input("b", shape_of(p.b));
    g.output("y", matmul(g.input("a", shape_of(p.a)), b, o));
    Program program = device().compile(g, weight ? load(p.b, p.weights) : Weights(), kF16);
    if (!contains(program.explain(), "matmul_half<")) {
        MESSAGE("not in f16 arithmetic:\n", program.explain());
        return {};
    }
    upload(program, "a", p.a);
    if (!weight) {
        upload(program, "b", p.b);
    }
    if (p.options.bias) {
        upload(program, "bias", *p.options.bias);
    }
    program.run();
    return download(program, "y");
}

/// Compares with the product of the operands in f16, held to what docs/numerics.md promises.
std::string half_mismatch(const HalfProduct& p) {
    const Tensor kept = p.weights == WeightType::f32 ? p.b : reference::packed(p.b, p.weights);
    const Tensor a = reference::as_f16(p.a);
    // codes are exact
    const Tensor b = p.weights == WeightType::int8 ? kept : reference::as_f16(kept);
    return difference(computed(p), reference::matmul(a, b, p.options),
                      {.rounding = reference::half_rounding(a, b, p.options)});
}

/// Whole numbers of which no sum of 8 products leaves f16: every result is exact.
Tensor whole_halves(const Sizes& shape, std::uint32_t seed) {
    Tensor out = random_integers(shape, 17, seed);
    for (double& x : out.data) {
        x -= 8;
    }
    return out;
}

std::string inexact(const HalfProduct& p) {
    return difference(computed(p), reference::matmul(p.a, p.b, p.options), exactly());
}

}  // namespace

TEST_SUITE("half") {
    TEST_CASE("half: every tile, at sizes around its edges, every way to read b") {
        if (!has_f16()) {
            return;
        }
        const std::int64_t sizes[][3] = {{5, 1, 1},   {8, 8, 8},    {31, 63, 15},  {32, 64, 32},  {33, 65, 33},
                                         {64, 4, 40}, {65, 68, 64}, {129, 66, 65}, {130, 132, 36}};
        for (const char* tuning : {"", "matmul_rows=32,matmul_depth=8", "matmul_rows=128,matmul_depth=32"}) {
            CAPTURE(tuning);
            const Believed gpu([&](Capabilities& c) {
                without_matrices(c);
                c.tuning = tuning;
            });
            for (const auto& size : sizes) {
                const std::int64_t m = size[0], n = size[1], k = size[2];
                CAPTURE(m);
                CAPTURE(n);
                CAPTURE(k);
                const Tensor a = whole_halves({m, k}, 1);
                CHECK(inexact({.a = a, .b = whole_halves({k, n}, 2)}) == "");
                CHECK(inexact({.a = a, .b = whole_halves({n, k}, 3), .options = {.transpose_b = true}}) == "");
                CHECK(half_mismatch({.a = random_tensor({m, k}, 4), .b = random_tensor({k, n}, 5)}) == "");
            }
        }
    }

    TEST_CASE("half: few rows too where it is forced, batches, and long sums") {
        if (!has_f16()) {
            return;
        }
        const Believed half(forced);
        for (const std::int64_t m : {1, 3, 5}) {
            CHECK(inexact({.a = whole_halves({m, 37}, 1), .b = whole_halves({37, 6}, 2)}) == "");
        }
        CHECK(inexact({.a = whole_halves({2, 3, 9, 20}, 1), .b = whole_halves({2, 1, 20, 7}, 2)}) == "");
        CHECK(inexact({.a = whole_halves({2, 2, 3, 9, 8}, 1), .b = whole_halves({2, 1, 3, 8, 4}, 2)}) == "");
        CHECK(half_mismatch({.a = random_tensor({6, 4099}, 1), .b = random_tensor({4099, 5}, 2)}) == "");
    }

    TEST_CASE("half: weights of every type, bias and activations") {
        if (!has_f16()) {
            return;
        }
        const Believed gpu(without_matrices);
        for (const WeightType type :
             {WeightType::f32, WeightType::f16, WeightType::bf16, WeightType::int8, WeightType::int4}) {
            CAPTURE(name_of(type));
            const auto product = [&](std::int64_t m, std::int64_t n, std::int64_t k, double amplitude = 1) {
                return HalfProduct{.a = random_tensor({m, k}, 1, amplitude),
                                   .b = random_tensor({n, k}, 2),
                                   .options = {.transpose_b = true},
                                   .weights = type};
            };
            CHECK(half_mismatch(product(70, 68, 100)) == "");
            HalfProduct biased = product(9, 70, 33);
            biased.options.bias = random_tensor({70}, 3);
            CHECK(half_mismatch(biased) == "");
            HalfProduct activated = product(130, 36, 40);
            activated.options.activation = Activation::gelu;
            CHECK(half_mismatch(activated) == "");
            CHECK(half_mismatch(product(40, 5, 4099)) == "");
            // codes of int8 times as much would be infinite
            CHECK(half_mismatch(product(8, 12, 64, 4000)) == "");
        }
    }

    TEST_CASE("half: a residual and a gate in the epilogue") {
        if (!has_f16()) {
            return;
        }
        const Believed half(forced);
        const Tensor x = whole_halves({9, 24}, 1), w = whole_halves({12, 24}, 2), r = whole_halves({9, 12}, 3);
        const Tensor product = reference::matmul(x, w, {.transpose_b = true});
        for (const bool times : {false, true}) {
            OpCheck check;
            check.arithmetic = Arithmetic::f16;
            const Value a = check.input("x", x), b = check.input("w", w), other = check.input("r", r);
            Tensor want = product;
            for (std::size_t i = 0; i < want.data.size(); ++i) {
                want.data[i] = times ? want.data[i] * r.data[i] : want.data[i] + r.data[i];
            }
            const Value y = linear(a, b);
            CHECK(check.difference(times ? y * other : y + other, want, exactly()) == "");
        }
    }

    TEST_CASE("half: eight products are summed in f16, and those sums in fp32") {
        if (!has_f16()) {
            return;
        }
        const Believed half(forced);
        const auto one_and = [](std::int64_t place) {
            HalfProduct p{.a = Tensor({5, 40}), .b = Tensor({40, 1}, 1)};
            p.a.at({0, 0}) = 1;
            p.a.at({0, place}) = 0x1p-12;
            return computed(p).at({0, 0});
        };
        CHECK(one_and(14) == 1);            // the last of the same eight: f16 does not see it
        CHECK(one_and(1) == 1 + 0x1p-12);   // the other half of a word is summed apart
        CHECK(one_and(16) == 1 + 0x1p-12);  // the next eight
        CHECK(one_and(39) == 1 + 0x1p-12);
    }

    TEST_CASE("half: rows decide at run time, and the same bits come every time") {
        if (!has_f16()) {
            return;
        }
        const Believed gpu(without_matrices);
        Graph g;
        const Dim m = g.symbol("m", 200);
        g.output("y", linear(g.input("x", {m, 48}), g.input("w", {80, 48})));
        Program program = device().compile(g, {}, kF16);
        const Tensor w = random_tensor({80, 48}, 2);
        const reference::MatmulOptions o{.transpose_b = true};
        for (const std::int64_t rows : {1, 4, 5, 33, 200, 0}) {
            CAPTURE(rows);
            const Tensor x = random_tensor({rows, 48}, 1);
            program.set("m", rows);
            upload(program, "x", x);
            upload(program, "w", w);
            program.run();
            const Tensor first = download(program, "y");
            const Tensor a = reference::as_f16(x), b = reference::as_f16(w);
            if (rows <= 4) {  // sums split over invocations, in fp32
                CHECK(difference(first, reference::matmul(x, w, o)) == "");
            } else {
                CHECK(difference(first, reference::matmul(a, b, o), {.rounding = reference::half_rounding(a, b, o)}) ==
                      "");
            }
            for (int run = 0; run < (rows == 33 ? 100 : 2); ++run) {
                program.run();
                CHECK(same_bits(download(program, "y"), first));
            }
        }
    }

    TEST_CASE("half: NaN, infinities and what f16 cannot hold stay in their rows and columns") {
        if (!has_f16()) {
            return;
        }
        const Believed gpu(without_matrices);
        Tensor x = random_tensor({70, 37}, 1);
        Tensor w = random_tensor({66, 37}, 2);
        x.at({3, 0}) = std::numeric_limits<double>::quiet_NaN();
        x.at({5, 36}) = kInf;
        x.at({7, 1}) = 70000;  // infinite in f16
        x.at({69, 2}) = 65519;
        w.at({65, 36}) = -kInf;
        CHECK(half_mismatch({.a = x, .b = w, .options = {.transpose_b = true}}) == "");

        Tensor large({6, 20}), column({1, 20}, 240);
        for (std::int64_t k = 0; k < 20; ++k) {
            large.at({2, k}) = 250;  // two products of an eight are 120000
        }
        large.at({4, 7}) = 250;  // one is 60000
        const Tensor y = computed({.a = large, .b = column, .options = {.transpose_b = true}});
        CHECK(difference(y, Tensor({6, 1}, {0, 0, kInf, 0, 60000, 0}), exactly()) == "");
    }

    TEST_CASE("half: fp32 stays fp32, f16 says what was taken and why") {
        Graph g;
        g.output("y", linear(g.input("x", {40, 64}), g.input("w", {64, 64})));
        const auto explained = [&](const CompileOptions& o) { return device().compile(g, {}, o).explain(); };
        const auto use = [&](const CompileOptions& o) { return device().compile(g, {}, o).arithmetic(); };
        CHECK(use({}).asked == Arithmetic::f32);
        CHECK(use({}).used == Arithmetic::f32);
        CHECK(use({}).in_fp32.empty());
        if (device().capabilities().float16) {
            const Believed gpu(without_matrices);
            CHECK(use(kF16).asked == Arithmetic::f16);
            CHECK(use(kF16).used == Arithmetic::f16);
            CHECK(use(kF16).in_fp32.empty());
            CHECK_FALSE(contains(explained({}), "matmul_half<"));
            CHECK_FALSE(contains(explained({.arithmetic = Arithmetic::int8}), "matmul_half<"));
            CHECK(contains(explained(kF16), "matmul_half<"));
            CHECK(contains(explained(kF16), "f16 arithmetic, 8 products at a time: tiles of "));
            CHECK(contains(explained(kF16), "; no cooperative matrices: "));
            Graph few;
            few.output("y", linear(few.input("x", {4, 64}), few.input("w", {64, 64})));
            CHECK(contains(device().compile(few, {}, kF16).explain(),
                           "fp32, though f16 was asked for: products of so few rows"));
            const Believed processor([](Capabilities& c) { c.type = DeviceType::cpu; });
            CHECK(contains(explained(kF16), "on a processor arithmetic in f16 is no faster"));
            const Believed half(forced);
            CHECK(contains(explained(kF16), "matmul_half<"));
            CHECK_FALSE(contains(explained({}), "matmul_half<"));
        }
        if (device().capabilities().cooperative_matrix) {
            const Believed gpu([](Capabilities& c) { c.type = DeviceType::discrete; });
            CHECK(on_coopmat(explained(kF16)));
            const Believed half(forced);
            CHECK(contains(explained(kF16), "matmul_half<"));
        }
        const Believed without([](Capabilities& c) {
            without_matrices(c);
            c.float16 = false;
        });
        CHECK(use(kF16).asked == Arithmetic::f16);
        CHECK(use(kF16).used == Arithmetic::f32);
        REQUIRE(use(kF16).in_fp32.size() == 1);
        CHECK(use(kF16).in_fp32[0].dispatches == 1);
        CHECK(contains(explained(kF16), "fp32, though f16 was asked for: " + use(kF16).in_fp32[0].reason));
        CHECK(contains(explained(kF16), "fp32, though f16 was asked for: no cooperative matrices: "));
        CHECK(contains(explained(kF16), "; no arithmetic in f16: the device has none that rounds to the nearest"));
        const Believed half(forced);
        CHECK(contains(error_of([&] { explained(kF16); }), "VKFORMER_VARIANT asks for matmul_half"));
        CHECK(explained({}) != "");
    }

    TEST_CASE("half: masked weights are multiplied in fp32") {
        if (!has_f16()) {
            return;
        }
        const Believed gpu(without_matrices);
        const Tensor a = random_tensor({9, 20}, 1), b = random_tensor({20, 7}, 2);
        OpCheck check;
        check.arithmetic = Arithmetic::f16;
        const Value y = matmul(check.input("a", a), check.input("b", b), {.masked_weights = true});
        CHECK(difference(check.run(y), reference::matmul(a, b), {1e-6, 1e-6}) == "");
        CHECK(contains(device().compile(check.graph, {}, kF16).explain(), "masked weights are multiplied in fp32"));
    }

    TEST_CASE("half: few rows stay in fp32 where the kernels for them are left out") {
        if (!has_f16()) {
            return;
        }
        const Believed gpu([](Capabilities& c) {
            without_matrices(c);
            c.left_out = {{"matvec", "a test says so"}, {"matvec_columns", "a test says so"}};
        });
        const Tensor b = random_tensor({64, 512}, 2);
        for (const std::int64_t most : {3, 70}) {
            Graph g;
            const Dim rows = g.symbol("rows", most);
            g.output("y", linear(g.input("a", {rows, 512}), g.input("b", shape_of(b))));
            Program program = device().compile(g, {}, kF16);
            CHECK(contains(program.explain(), "matmul_half<") == (most > 4));
            CHECK(contains(program.explain(), "up to 4 rows, in fp32: tiles"));
            for (const std::int64_t m : {std::int64_t{1}, std::int64_t{3}, most}) {
                const Tensor a = random_tensor({m, 512}, 1);
                program.set("rows", m);
                upload(program, "a", a);
                upload(program, "b", b);
                program.run();
                const reference::MatmulOptions o{.transpose_b = true};
                const Tolerance in_fp32{.rounding = reference::matmul_rounding(a, b, o)};
                CHECK((difference(download(program, "y"), reference::matmul(a, b, o), in_fp32) == "") == (m <= 4));
            }
        }
    }

    TEST_CASE("half: a borrowed device has what its host enabled") {
        Host plain;
        CHECK_FALSE(Device::borrow(plain.handles()).capabilities().float16);
        Host host(true);
        const BorrowedDevice handles = host.handles();
        const Device own = Device::create();
        CHECK(Device::borrow(handles).capabilities().float16 == own.capabilities().float16);
        const DeviceRequirements needs = Device::requirements(handles.instance, handles.physical);
        const auto named = std::count_if(needs.list().begin(), needs.list().end(), [](const DeviceRequirement& r) {
            return contains(r.name, "float") != contains(r.name, "Float16") &&
                   contains(r.buys, "CompileOptions::arithmetic f16: matrix products in f16");
        });
        CHECK((own.capabilities().minimum_profile || (named == 3) == own.capabilities().float16));
        CHECK(host.messages().empty());
    }
}

}  // namespace vkf::test
