// SPDX-License-Identifier: Apache-2.0
// Products of programs for int8: codes multiplied on cooperative matrices or by integer dot
// products where the device has them, numbers in fp32 where it does not.
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

const CompileOptions kInt8{.arithmetic = Arithmetic::int8};

/// A GPU whose integer dot products are fast.
void with_fast_dots(Capabilities& c) {
    as_gpu(c);
    c.fast_integer_dot = c.integer_dot;
}

struct Way {
    std::string kernel, lacking;
    bool Capabilities::*offered;

    /// Whether explain() tells of it, its sums finished element by element or not.
    bool used_in(const std::string& explanation) const {
        return contains(explanation, kernel + "<") || contains(explanation, kernel + "_elements<");
    }
    /// A device that computes codes this way of itself.
    Believed on_gpu() const {
        return Believed([this](Capabilities& c) {
            with_fast_dots(c);
            c.cooperative_matrix_int8 = c.cooperative_matrix_int8 && offered == &Capabilities::cooperative_matrix_int8;
        });
    }
    /// The device as it is, told to.
    Believed forced() const {
        return Believed([this](Capabilities& c) { c.variants = kernel; });
    }
};

const Way kDot{"matmul_dot", "integer dot products", &Capabilities::integer_dot};
const Way kMatrices{"matmul_coopmat_int8", "cooperative matrices of int8", &Capabilities::cooperative_matrix_int8};

bool can(const Way& way) {
    const bool has = device().capabilities().*way.offered;
    if (!has) {
        cannot_run(way.lacking);
    }
    return has;
}

/// Gives the ways that the device has.
std::vector<Way> ways() {
    std::vector<Way> out;
    for (const Way& way : {kDot, kMatrices}) {
        if (can(way)) {
            out.push_back(way);
        }
    }
    return out;
}

struct CodesProduct {
    Sizes a;  ///< (..., K)
    std::int64_t n = 1;
    bool bias = false;
    Activation activation = Activation::none;
};

/// Gives what int8 keeps of rows (..., K).
Tensor codes_of(const Tensor& x) {
    const std::int64_t k = x.shape.back();
    return reshape(reference::packed(reshape(x, {x.count() / k, k}), WeightType::int8), x.shape);
}

/// Compares what the device computes of x and w with the product of what int8 keeps of both.
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

std::string mismatch(const Way& way, const CodesProduct& p) {
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
    Program program = device().compile(g, load(w, WeightType::int8), kInt8);
    if (!way.used_in(program.explain())) {
        return "not by " + way.kernel + ":\n" + program.explain();
    }
    return difference_of(program, x, w, twin);
}

}  // namespace

TEST_SUITE("codes") {
    TEST_CASE("codes: sizes around tiles and words, bias and activations") {
        for (const Way& way : ways()) {
            CAPTURE(way.kernel);
            const Believed forced = way.forced();
            for (const std::int64_t m : {5, 32, 65, 130}) {
                for (const std::int64_t n : {1, 63, 68}) {
                    for (const std::int64_t k : {16, 17, 33, 68}) {
                        CAPTURE(m);
                        CAPTURE(n);
                        CAPTURE(k);
                        CHECK(mismatch(way, {.a = {m, k}, .n = n}) == "");
                    }
                }
            }
            CHECK(mismatch(way, {.a = {3, 2, 7, 40}, .n = 36, .bias = true}) == "");
            CHECK(mismatch(way, {.a = {70, 100}, .n = 68, .bias = true, .activation = Activation::gelu}) == "");
            CHECK(mismatch(way, {.a = {6, 4099}, .n = 5}) == "");
        }
    }

    TEST_CASE("codes: every tile that a GPU has, at sizes around its edges") {
        const std::int64_t sizes[][3] = {{5, 1, 16},      {8, 8, 17},     {31, 127, 31}, {32, 128, 32},
                                         {33, 129, 33},   {64, 64, 40},   {65, 63, 64},  {129, 66, 65},
                                         {130, 132, 130}, {513, 130, 68}, {640, 257, 17}};
        for (const Way& way : ways()) {
            CAPTURE(way.kernel);
            const Believed gpu = way.on_gpu();
            for (const auto& size : sizes) {
                CAPTURE(size[0]);
                CAPTURE(size[1]);
                CAPTURE(size[2]);
                CHECK(mismatch(way, {.a = {size[0], size[2]}, .n = size[1]}) == "");
            }
        }
    }

    TEST_CASE("codes: the largest, whose sums are exact, give the same bits either way") {
        if (!can(kDot) || !can(kMatrices)) {
            return;
        }
        Tensor x = random_tensor({40, 70}, 1), w = random_tensor({36, 70}, 2);
        for (Tensor* t : {&x, &w}) {
            for (double& v : t->data) {
                v = v < 0 ? -2.5 : 2.5;
            }
        }
        Graph g;
        g.output("y", linear(g.input("x", {40, 70}), g.weight("w", {36, 70})));
        std::vector<Tensor> results;
        for (const Way& way : {kDot, kMatrices}) {
            const Believed forced = way.forced();
            Program program = device().compile(g, load(w, WeightType::int8), kInt8);
            CHECK(way.used_in(program.explain()));
            CHECK(difference_of(program, x, w) == "");
            results.push_back(download(program, "y"));
        }
        CHECK(same_bits(results[0], results[1]));
    }

    TEST_CASE("codes: rows decide at run time, and the same bits come every time") {
        const Tensor w = random_tensor({80, 48}, 2);
        for (const Way& way : ways()) {
            for (const bool gpu : {false, true}) {
                CAPTURE(way.kernel);
                CAPTURE(gpu);
                const Believed believed = gpu ? way.on_gpu() : way.forced();
                Graph g;
                const Dim m = g.symbol("m", 600);
                g.output("y", linear(g.input("x", {m, 48}), g.weight("w", {80, 48})));
                Program program = device().compile(g, load(w, WeightType::int8), kInt8);
                CHECK(way.used_in(program.explain()));
                for (const std::int64_t rows : {1, 4, 5, 33, 200, 600, 0}) {
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
    }

    TEST_CASE("codes: views of activations, a residual and a gate in the epilogue") {
        const Tensor x = random_tensor({24, 9}, 1), w = random_tensor({12, 24}, 2), r = random_tensor({9, 12}, 3);
        const Tensor a = codes_of(transpose(x, 0, 1));
        const Tensor bias = random_tensor({12}, 4);
        for (const Way& way : ways()) {
            CAPTURE(way.kernel);
            const Believed forced = way.forced();
            for (int kind = 0; kind < 4; ++kind) {
                const bool times = kind % 2 != 0, biased = kind / 2 != 0;
                CAPTURE(times);
                CAPTURE(biased);
                Graph g;
                const Value residual = g.input("r", {9, 12});
                MatmulOptions o{.transpose_b = true};
                reference::MatmulOptions twin{.transpose_b = true};
                if (biased) {
                    o.bias = g.input("bias", {12});
                    twin.bias = bias;
                }
                const Value product = matmul(transpose(g.input("x", {24, 9}), 0, 1), g.weight("w", {12, 24}), o);
                g.output("y", times ? product * residual : product + residual);
                Program program = device().compile(g, load(w, WeightType::int8), kInt8);
                CHECK(way.used_in(program.explain()));
                upload(program, "x", x);
                upload(program, "r", r);
                if (biased) {
                    upload(program, "bias", bias);
                }
                program.run();
                Tensor want = reference::matmul(a, codes_of(w), twin);
                for (std::size_t i = 0; i < want.data.size(); ++i) {
                    want.data[i] = times ? want.data[i] * r.data[i] : want.data[i] + r.data[i];
                }
                CHECK(difference(download(program, "y"), want) == "");
            }
        }
    }

    TEST_CASE("codes: a row that is not finite is NaN, and others are as they are") {
        Tensor x = random_tensor({8, 37}, 1);
        const Tensor w = random_tensor({6, 37}, 2);
        x.at({3, 0}) = kNan;
        x.at({5, 36}) = std::numeric_limits<double>::infinity();
        for (std::int64_t i = 0; i < 37; ++i) {
            x.at({7, i}) = 0;
        }
        Tensor finite = x;
        for (std::int64_t i = 0; i < 37; ++i) {
            finite.at({3, i}) = finite.at({5, i}) = 0;
        }
        Tensor want = reference::matmul(codes_of(finite), codes_of(w), {.transpose_b = true});
        for (std::int64_t i = 0; i < 6; ++i) {
            want.at({3, i}) = want.at({5, i}) = kNan;
        }
        for (const Way& way : ways()) {
            CAPTURE(way.kernel);
            const Believed forced = way.forced();
            Graph g;
            g.output("y", linear(g.input("x", {8, 37}), g.weight("w", {6, 37})));
            Program program = device().compile(g, load(w, WeightType::int8), kInt8);
            CHECK(way.used_in(program.explain()));
            upload(program, "x", x);
            program.run();
            CHECK(difference(download(program, "y"), want) == "");
        }
    }

    TEST_CASE("codes: what is asked for is said, and why not") {
        const Tensor w = random_tensor({64, 64}, 2);
        const Weights codes = load(w, WeightType::int8), halves = load(w, WeightType::f16);
        Graph g;
        g.output("y", linear(g.input("x", {40, 64}), g.weight("w", {64, 64})));
        const auto explained = [&](const Weights& weights, const CompileOptions& o) {
            return device().compile(g, weights, o).explain();
        };
        CHECK_FALSE(contains(explained(codes, {}), "int8 arithmetic"));
        for (const Way& way : ways()) {
            CAPTURE(way.kernel);
            const Believed gpu = way.on_gpu();
            CHECK_FALSE(way.used_in(explained(codes, {})));
            CHECK_FALSE(way.used_in(explained(codes, {.arithmetic = Arithmetic::f16})));
            CHECK(way.used_in(explained(codes, kInt8)));
            CHECK(contains(explained(codes, kInt8), "int8 arithmetic, "));
            CHECK(device().compile(g, codes, kInt8).arithmetic().used == Arithmetic::int8);
            CHECK(contains(explained(halves, kInt8), "fp32, though int8 was asked for: b is no weight kept as int8"));
            const Believed anyway = way.forced();
            CHECK(way.used_in(explained(codes, kInt8)));
            CHECK_FALSE(way.used_in(explained(codes, {})));
        }
        if (can(kDot)) {
            const Believed gpu = kDot.on_gpu();
            CHECK(contains(explained(codes, kInt8), "; no cooperative matrices: "));
            const Believed slow([](Capabilities& c) { c.fast_integer_dot = false; });
            CHECK(contains(explained(codes, kInt8), "fp32, though int8 was asked for: the device does not call"));
        }
        if (can(kMatrices)) {
            const Believed processor([](Capabilities& c) {
                c.type = DeviceType::cpu;
                c.variants.clear();
            });
            CHECK_FALSE(kMatrices.used_in(explained(codes, kInt8)));
            CHECK(contains(explained(codes, kInt8), "on a processor cooperative matrices are the slower way"));
            const Believed odd([](Capabilities& c) {
                c.type = DeviceType::discrete;
                c.int8_matrix_shapes = {{16, 12, 24}};
            });
            CHECK(
                contains(explained(codes, kInt8), "no cooperative matrices: the device has none of a shape that fits"));
        }
        const Believed without([](Capabilities& c) { c.integer_dot = c.cooperative_matrix_int8 = false; });
        CHECK(contains(explained(codes, kInt8), "fp32, though int8 was asked for: the device has no integer dot"));
        CHECK(contains(explained(codes, kInt8), "; no cooperative matrices: "));
        for (const Way& way : {kDot, kMatrices}) {
            const Believed asked = way.forced();
            CHECK(contains(error_of([&] { explained(codes, kInt8); }), "VKFORMER_VARIANT asks for " + way.kernel));
            CHECK(explained(codes, {}) != "");
        }
    }

    TEST_CASE("codes: a sum that might pass 31 bits stays in fp32, and one that gains nothing") {
        const Tensor w = random_tensor({1, 140000}, 2);
        for (const Way& way : ways()) {
            CAPTURE(way.kernel);
            const Believed forced = way.forced();
            Graph g;
            g.output("y", linear(g.input("x", {5, 140000}), g.weight("w", {1, 140000})));
            CHECK(contains(device().compile(g, load(w, WeightType::int8), kInt8).explain(),
                           "a sum of 140000 products of codes may pass 31"));
            Graph narrow;
            narrow.output("y", linear(narrow.input("x", {5, 15}), narrow.weight("w", {1, 15})));
            CHECK(contains(device().compile(narrow, load(random_tensor({1, 15}, 2), WeightType::int8), kInt8).explain(),
                           "a sum of 15 products: codes would take more room than numbers"));
        }
    }

    TEST_CASE("codes: a borrowed device has what its host enabled") {
        Host plain;
        const Device bare = Device::borrow(plain.handles());
        CHECK_FALSE(bare.capabilities().integer_dot);
        CHECK_FALSE(bare.capabilities().cooperative_matrix_int8);
        Host host(true);
        const BorrowedDevice handles = host.handles();
        const Device own = Device::create();
        const Device device = Device::borrow(handles);
        CHECK(device.capabilities().integer_dot == own.capabilities().integer_dot);
        CHECK(device.capabilities().cooperative_matrix_int8 == own.capabilities().cooperative_matrix_int8);
        const DeviceRequirements needs = Device::requirements(handles.instance, handles.physical);
        const auto named = [&](std::string_view part) {
            return std::count_if(needs.list().begin(), needs.list().end(), [&](const DeviceRequirement& r) {
                return contains(r.name, part) && contains(r.buys, "CompileOptions::arithmetic int8");
            });
        };
        CHECK((own.capabilities().minimum_profile || (named("nteger") == 2) == own.capabilities().integer_dot));
        CHECK((own.capabilities().minimum_profile ||
               (named("shaderInt8") == 1) == own.capabilities().cooperative_matrix_int8));
        CHECK(host.messages().empty());
    }
}

}  // namespace vkf::test
