// SPDX-License-Identifier: Apache-2.0
// Products of programs for int8: codes multiplied by integer dot products where the device has them, numbers in fp32 where it does not.
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

const CompileOptions kInt8{.arithmetic = Arithmetic::int8};

bool has_dot() {
    if (!device().capabilities().integer_dot) {
        cannot_run("integer dot products");
        return false;
    }
    return true;
}

/// A GPU whose integer dot products are fast.
void as_gpu(Capabilities& c) {
    c.type = DeviceType::discrete;
    c.fast_integer_dot = c.integer_dot;
    c.variants.clear();
}

void forced(Capabilities& c) { c.variants = "matmul_dot"; }

struct Product {
    Sizes a;  ///< (..., K)
    std::int64_t n = 1;
    bool bias = false;
    Activation activation = Activation::none;
};

Weights load(const Tensor& w, WeightType type = WeightType::int8) {
    const std::vector<float> floats = w.floats();
    const HostTensor tensor{"w", DType::f32, w.shape, std::as_bytes(std::span(floats))};
    return device().load({&tensor, 1}, {.matrices = type});
}

/// What int8 keeps of rows (..., K).
Tensor codes_of(const Tensor& x) {
    const std::int64_t k = x.shape.back();
    return reshape(reference::packed(reshape(x, {x.count() / k, k}), WeightType::int8), x.shape);
}

/// What the device computes of x and w beside the product of what int8 keeps of both.
std::string difference_of(Program& program, const Tensor& x, const Tensor& w, reference::MatmulOptions o = {}) {
    upload(program, "x", x);
    if (o.bias) {
        upload(program, "bias", *o.bias);
    }
    program.run();
    o.transpose_b = true;
    const Tensor a = x.count() / x.shape.back() <= 4 ? x : codes_of(x);
    const Tensor b = codes_of(w);
    return difference(download(program, "y"), reference::matmul(a, b, o),
                      {.rounding = reference::matmul_rounding(a, b, o)});
}

std::string mismatch(const Product& p) {
    const Tensor x = random_tensor(p.a, 1);
    const std::int64_t k = x.shape.back();
    const Tensor w = random_tensor({p.n, k}, 2);
    Graph g;
    reference::MatmulOptions twin{.activation = p.activation};
    if (p.bias) {
        twin.bias = random_tensor({p.n}, 3);
    }
    g.output("y", linear(g.input("x", Shape(p.a.begin(), p.a.end())), g.weight("w", {p.n, k}),
                         p.bias ? g.input("bias", {p.n}) : Value(), p.activation));
    Program program = device().compile(g, load(w), kInt8);
    if (!contains(program.explain(), "matmul_dot<")) {
        return "not by integer dot products:\n" + program.explain();
    }
    return difference_of(program, x, w, twin);
}

}  // namespace

TEST_SUITE("integer_dot") {
    TEST_CASE("integer dot: sizes around tiles and words, bias and activations") {
        if (!has_dot()) {
            return;
        }
        const Believed dot(forced);
        for (const std::int64_t m : {5, 32, 65, 130}) {
            for (const std::int64_t n : {1, 63, 68}) {
                for (const std::int64_t k : {16, 17, 33, 68}) {
                    CAPTURE(m);
                    CAPTURE(n);
                    CAPTURE(k);
                    CHECK(mismatch({.a = {m, k}, .n = n}) == "");
                }
            }
        }
        CHECK(mismatch({.a = {3, 2, 7, 40}, .n = 36, .bias = true}) == "");
        CHECK(mismatch({.a = {70, 100}, .n = 68, .bias = true, .activation = Activation::gelu}) == "");
        CHECK(mismatch({.a = {6, 4099}, .n = 5}) == "");
    }

    TEST_CASE("integer dot: rows decide at run time, and the same bits come every time") {
        if (!has_dot()) {
            return;
        }
        const Tensor w = random_tensor({80, 48}, 2);
        for (const bool gpu : {false, true}) {
            CAPTURE(gpu);
            const Believed dot(gpu ? as_gpu : forced);
            Graph g;
            const Dim m = g.symbol("m", 200);
            g.output("y", linear(g.input("x", {m, 48}), g.weight("w", {80, 48})));
            Program program = device().compile(g, load(w), kInt8);
            CHECK(contains(program.explain(), "matmul_dot<"));
            for (const std::int64_t rows : {1, 4, 5, 33, 200, 0}) {
                CAPTURE(rows);
                program.set("m", rows);
                CHECK(difference_of(program, random_tensor({rows, 48}, 1), w) == "");
                const Tensor first = download(program, "y");
                for (int run = 0; run < (rows == 33 ? 100 : 2); ++run) {
                    program.run();
                    CHECK(same_bits(download(program, "y"), first));
                }
            }
        }
    }

    TEST_CASE("integer dot: views of activations, a residual and a gate in the epilogue") {
        if (!has_dot()) {
            return;
        }
        const Believed dot(forced);
        const Tensor x = random_tensor({24, 9}, 1), w = random_tensor({12, 24}, 2), r = random_tensor({9, 12}, 3);
        const Tensor a = codes_of(transpose(x, 0, 1));
        const Tensor product = reference::matmul(a, codes_of(w), {.transpose_b = true});
        for (const bool times : {false, true}) {
            Graph g;
            const Value residual = g.input("r", {9, 12});
            MatmulOptions o{.transpose_b = true};
            (times ? o.times : o.plus) = residual;
            g.output("y", matmul(transpose(g.input("x", {24, 9}), 0, 1), g.weight("w", {12, 24}), o));
            Program program = device().compile(g, load(w), kInt8);
            CHECK(contains(program.explain(), "matmul_dot<"));
            upload(program, "x", x);
            upload(program, "r", r);
            program.run();
            Tensor want = product;
            for (std::size_t i = 0; i < want.data.size(); ++i) {
                want.data[i] = times ? want.data[i] * r.data[i] : want.data[i] + r.data[i];
            }
            CHECK(difference(download(program, "y"), want) == "");
        }
    }

    TEST_CASE("integer dot: a row that is not finite is NaN, and others are as they are") {
        if (!has_dot()) {
            return;
        }
        const Believed dot(forced);
        constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
        Tensor x = random_tensor({8, 37}, 1);
        const Tensor w = random_tensor({6, 37}, 2);
        x.at({3, 0}) = kNan;
        x.at({5, 36}) = std::numeric_limits<double>::infinity();
        for (std::int64_t i = 0; i < 37; ++i) {
            x.at({7, i}) = 0;
        }
        Graph g;
        g.output("y", linear(g.input("x", {8, 37}), g.weight("w", {6, 37})));
        Program program = device().compile(g, load(w), kInt8);
        upload(program, "x", x);
        program.run();
        Tensor finite = x;
        for (std::int64_t i = 0; i < 37; ++i) {
            finite.at({3, i}) = finite.at({5, i}) = 0;
        }
        Tensor want = reference::matmul(codes_of(finite), codes_of(w), {.transpose_b = true});
        for (std::int64_t i = 0; i < 6; ++i) {
            want.at({3, i}) = want.at({5, i}) = kNan;
        }
        CHECK(difference(download(program, "y"), want) == "");
    }

    TEST_CASE("integer dot: what is asked for is said, and why not") {
        const Tensor w = random_tensor({64, 64}, 2);
        const Weights codes = load(w), halves = load(w, WeightType::f16);
        Graph g;
        g.output("y", linear(g.input("x", {40, 64}), g.weight("w", {64, 64})));
        const auto explained = [&](const Weights& weights, const CompileOptions& o) {
            return device().compile(g, weights, o).explain();
        };
        CHECK_FALSE(contains(explained(codes, {}), "int8 arithmetic"));
        const Believed gpu(as_gpu);
        CHECK_FALSE(contains(explained(codes, {}), "matmul_dot<"));
        CHECK_FALSE(contains(explained(codes, {.arithmetic = Arithmetic::f16}), "matmul_dot<"));
        if (device().capabilities().integer_dot) {
            CHECK(contains(explained(codes, kInt8), "int8 arithmetic, integer dot products: tiles of "));
            CHECK(contains(explained(halves, kInt8), "fp32, though int8 was asked for: b is no weight kept as int8"));
            const Believed slow([](Capabilities& c) { c.fast_integer_dot = false; });
            CHECK(contains(explained(codes, kInt8), "fp32, though int8 was asked for: the device does not call"));
            const Believed anyway(forced);
            CHECK(contains(explained(codes, kInt8), "matmul_dot<"));
            CHECK_FALSE(contains(explained(codes, {}), "matmul_dot<"));
        }
        const Believed without([](Capabilities& c) { c.integer_dot = false; });
        CHECK(contains(explained(codes, kInt8), "fp32, though int8 was asked for: the device has no integer dot"));
        const Believed asked(forced);
        CHECK(contains(error_of([&] { explained(codes, kInt8); }), "VKFORMER_VARIANT asks for matmul_dot"));
    }

    TEST_CASE("integer dot: a sum that might pass 31 bits stays in fp32, and one that gains nothing") {
        if (!has_dot()) {
            return;
        }
        const Believed dot(forced);
        Graph g;
        g.output("y", linear(g.input("x", {5, 140000}), g.weight("w", {1, 140000})));
        const Tensor w = random_tensor({1, 140000}, 2);
        CHECK(contains(device().compile(g, load(w), kInt8).explain(), "a sum of 140000 products of codes may pass 31"));
        Graph narrow;
        narrow.output("y", linear(narrow.input("x", {5, 15}), narrow.weight("w", {1, 15})));
        CHECK(contains(device().compile(narrow, load(random_tensor({1, 15}, 2)), kInt8).explain(),
                       "a sum of 15 products: codes would take more room than numbers"));
    }

    TEST_CASE("integer dot: a borrowed device has what its host enabled") {
        Host plain;
        CHECK_FALSE(Device::borrow(plain.handles()).capabilities().integer_dot);
        Host host(true);
        const BorrowedDevice handles = host.handles();
        const Device own = Device::create();
        CHECK(Device::borrow(handles).capabilities().integer_dot == own.capabilities().integer_dot);
        const DeviceRequirements needs = Device::requirements(handles.instance, handles.physical);
        const auto named = std::count_if(needs.list().begin(), needs.list().end(), [](const DeviceRequirement& r) {
            return contains(r.name, "nteger") && contains(r.buys, "CompileOptions::arithmetic int8");
        });
        CHECK((own.capabilities().minimum_profile || (named == 2) == own.capabilities().integer_dot));
        CHECK(host.messages().empty());
    }
}

}  // namespace vkf::test
