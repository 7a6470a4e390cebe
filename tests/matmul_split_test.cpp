// SPDX-License-Identifier: Apache-2.0
// Products of few rows on GPUs, whose sums are divided among work groups.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "ops/matmul_split.h"
#include "runtime/compile/plan.h"
#include "tests/believed.h"
#include "tests/host.h"
#include "tests/op_check.h"
#include "tests/reference.h"
#include "tests/reference_packed.h"

namespace vkf::test {

namespace {

struct SplitProduct {
    std::int64_t n, k;
    WeightType weights = WeightType::f32;
    bool bias = false;
    Activation activation = Activation::none;
    int other = 0;  ///< 1: a residual, 2: a gate
    bool transpose_b = true;
    float scale = 1;
};

constexpr std::int64_t kMostRows = 600;

/// Rows are a symbol, "m".
void describe(Graph& g, const SplitProduct& p) {
    const Dim m = g.symbol("m", kMostRows);
    MatmulOptions o{.activation = p.activation, .scale = p.scale, .transpose_b = p.transpose_b};
    o.bias = p.bias ? g.input("bias", {p.n}) : Value();
    const Shape shape = p.transpose_b ? Shape{p.n, p.k} : Shape{p.k, p.n};
    Value y = matmul(g.input("x", {m, p.k}), g.weight("w", shape), o);
    if (p.other != 0) {
        const Value other = g.input("other", {m, p.n});
        y = p.other == 1 ? y + other : mul(y, other);
    }
    g.output("y", y);
}

Tensor wanted(const SplitProduct& p, const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& other,
              Tensor& rounding) {
    reference::MatmulOptions o{.activation = p.activation, .scale = p.scale, .transpose_b = p.transpose_b};
    if (p.bias) {
        o.bias = bias;
    }
    Tensor y = reference::matmul(x, w, o);
    rounding = reference::matmul_rounding(x, w, o);
    for (std::size_t i = 0; p.other != 0 && i < y.data.size(); ++i) {
        y.data[i] = p.other == 1 ? y.data[i] + other.data[i] : y.data[i] * other.data[i];
        rounding.data[i] = p.other == 1 ? rounding.data[i] : rounding.data[i] * std::abs(other.data[i]);
    }
    return y;
}

/// Into how many parts a run of so many rows divides the sums; 1: it does not.
std::uint32_t parts_of_sums(const Graph& g, std::int64_t rows, std::int64_t columns) {
    const Plan plan = make_plan(g, device().capabilities());
    std::uint64_t whole = 0, parts = 0, merges = 0;  // work groups
    std::uint32_t number = 1;
    for (const PlannedDispatch& d : plan.dispatches) {
        Command command;
        REQUIRE(plan.prepare(d, std::vector<std::int64_t>{rows}, command));
        const Kernel& first = d.dispatch.kernels.front();
        const std::string_view name = first.shader->name;
        if (first.why.starts_with("parts of the sums")) {
            parts = command.groups();
            number = SplitSums(d.dispatch.words)
                         .parts(static_cast<std::uint64_t>(rows), static_cast<std::uint32_t>(columns));
        } else if (name == "matmul_merge") {
            merges = command.groups();
        } else if (name.starts_with("mat")) {  // not what a device with few bindings does apart
            whole = command.groups();
        }
    }
    CHECK((whole > 0) != (parts > 0));
    CHECK((parts > 0) == (merges > 0));
    CHECK((parts > 0) == (number > 1));
    return number;
}

}  // namespace

TEST_SUITE("split sums") {
    TEST_CASE("split sums: few rows of long sums are divided, and give the product") {
        const Believed gpu(as_gpu);
        // as many parts as there may be, in sums as short as have them: each product runs 116 times
        const std::pair<SplitProduct, std::uint32_t> products[] = {
            {{36, 512}, 2},
            {{70, 1000, WeightType::f32, true}, 2},
            {{130, 2048, WeightType::f32, true, Activation::gelu}, 8},
            {{64, 1024, WeightType::f16, true, Activation::silu, 2}, 4},
            {{65, 1024, WeightType::bf16, false, Activation::none, 1}, 4},
            {{68, 2048, WeightType::f32, true, Activation::relu, 1}, 8},
            {{66, 1024, WeightType::int8, true, Activation::silu, 2}, 4},
            {{37, 2048, WeightType::int8}, 8},
            {{66, 1024, WeightType::int4, true, Activation::gelu, 1}, 4},
            {{37, 2048, WeightType::int4}, 8},
            {{36, 544, WeightType::f32, false, Activation::none, 0, false, 0.25f}, 2}};
        for (const auto& [product, parts] : products) {
            const SplitProduct& p = product;
            CAPTURE(p.n);
            CAPTURE(p.k);
            Graph g;
            describe(g, p);
            const Tensor kept = p.transpose_b ? random_tensor({p.n, p.k}, 2) : random_tensor({p.k, p.n}, 2);
            const Tensor bias = random_tensor({p.n}, 3);
            Program program = device().compile(g, load(kept, p.weights));
            const Tensor w = reference::packed(kept, p.weights);
            for (const std::int64_t rows : {1, 4, 5, 33, 64, 300, 512, 513}) {
                CAPTURE(rows);
                const std::uint32_t most = rows > 4 && rows <= 512 ? parts : 1, found = parts_of_sums(g, rows, p.n);
                CHECK(found <= most);  // many rows may have groups enough in fewer parts
                CHECK(found >= (rows <= 64 ? most : std::min(most, 2u)));
                const Tensor x = random_tensor({rows, p.k}, 1), other = random_tensor({rows, p.n}, 4);
                program.set("m", rows);
                upload(program, "x", x);
                if (p.bias) {
                    upload(program, "bias", bias);
                }
                if (p.other != 0) {
                    upload(program, "other", other);
                }
                program.run();
                const Tensor first = download(program, "y");
                Tensor rounding;
                const Tensor want = wanted(p, x, w, bias, other, rounding);
                CHECK(difference(first, want, {.rounding = rounding}) == "");
                for (int run = 0; run < (rows == 33 ? 100 : 1); ++run) {
                    program.run();
                    CHECK(same_bits(download(program, "y"), first));
                }
            }
        }
    }

    TEST_CASE("split sums: in f16 too, on cooperative matrices or without") {
        const Believed gpu(as_gpu);
        const std::int64_t n = 72, k = 1024;
        for (const WeightType type :
             {WeightType::f32, WeightType::f16, WeightType::bf16, WeightType::int8, WeightType::int4}) {
            CAPTURE(name_of(type));
            Graph g;
            describe(g, {n, k, type, true, Activation::silu});
            const Tensor kept = random_tensor({n, k}, 2), bias = random_tensor({n}, 3);
            Program program = device().compile(g, load(kept, type), kF16);
            const bool halves = contains(program.explain(), "matmul_half<");
            const bool f16 = halves || on_coopmat(program.explain());
            const Tensor w = reference::packed(kept, type);
            for (const std::int64_t rows : {5, 40, 100, 512}) {
                CAPTURE(rows);
                const Tensor x = random_tensor({rows, k}, 1);
                program.set("m", rows);
                upload(program, "x", x);
                upload(program, "bias", bias);
                program.run();
                const reference::MatmulOptions o{.bias = bias, .activation = Activation::silu, .transpose_b = true};
                // codes of int8 are f16 already
                const bool rounded = f16 && type != WeightType::int8;
                const Tensor a = f16 ? reference::as_f16(x) : x, b = rounded ? reference::as_f16(w) : w;
                const Tensor rounding =
                    halves ? reference::half_rounding(a, b, o) : reference::matmul_rounding(a, b, o);
                CHECK(difference(download(program, "y"), reference::matmul(a, b, o), {.rounding = rounding}) == "");
            }
        }
    }

    TEST_CASE("split sums: in f16 up to the rows that are rounded once") {
        if (!has_matrices()) {
            return;
        }
        const Believed gpu(as_gpu);
        const std::int64_t n = 1024, k = 512;
        Graph g;
        describe(g, {n, k, WeightType::f32, true, Activation::none, 1});
        const Tensor w = random_tensor({n, k}, 2), bias = random_tensor({n}, 3);
        Program program = device().compile(g, load(w, WeightType::f32), kF16);
        CHECK(contains(program.explain(), "a rounded once"));
        CHECK(contains(program.explain(), "parts of the sums"));
        const Tensor b = reference::as_f16(w);
        for (const std::int64_t rows : {5, 100, 512, 513, 600}) {
            CAPTURE(rows);
            const Tensor x = random_tensor({rows, k}, 1), other = random_tensor({rows, n}, 4);
            program.set("m", rows);
            upload(program, "x", x);
            upload(program, "bias", bias);
            upload(program, "other", other);
            program.run();
            Tensor rounding;
            const Tensor want = wanted({n, k, WeightType::f32, true, Activation::none, 1}, reference::as_f16(x), b,
                                       bias, other, rounding);
            CHECK(difference(download(program, "y"), want, {.rounding = rounding}) == "");
        }
    }

    TEST_CASE("split sums: whatever the sizes, in whole parts of enough products, for no more groups than asked for") {
        const std::uint32_t words[] = {128, 1, 4096, 4, 1, 4, 32, 32, 128, ~0u, 64, 64};
        SplitSums split(words);
        for (const std::uint32_t k : {512u, 520u, 1000u, 4096u, 4100u, 11008u}) {
            split.k = k;
            for (const std::uint32_t columns : {1u, 128u, 1000u, 4096u, 8192u, 152000u}) {
                for (const std::uint64_t rows : {1u, 4u, 5u, 32u, 33u, 512u, 513u}) {
                    CAPTURE(k);
                    CAPTURE(columns);
                    CAPTURE(rows);
                    const std::uint32_t parts = split.parts(rows, columns);
                    CHECK((parts == 1 || (k % (4 * parts) == 0 && k / parts >= kFewestPartProducts)));
                    CHECK((parts == 1 || parts * split.groups_of(rows, columns) <= 128));
                    CHECK((parts == 1 || (rows > 4 && rows <= kMostSplitRows)));
                }
            }
        }
        split.numbers = 2;  // f16 is read by eight
        split.k = 520;
        CHECK(split.parts(32, 1024) == 1);
        split.k = 528;
        CHECK(split.parts(32, 1024) == 2);
        split.numbers = 1;
        split.k = 4096;
        CHECK(split.parts(32, 4096) == 4);
        CHECK(split.parts(32, 1024) == 8);
        CHECK(split.parts(5, 8192) == 2);
        CHECK(split.parts(33, 4096) == 2);
        CHECK(split.parts(65, 4096) == 1);
    }

    TEST_CASE("split sums: sizes that do not change are decided when a program is compiled") {
        const Believed gpu(as_gpu);
        const auto dispatches = [](std::int64_t m, std::int64_t n, std::int64_t k, std::string_view tuning = "") {
            Capabilities c = device().capabilities();
            c.tuning = tuning;
            Graph g;
            g.output("y", linear(g.input("x", {m, k}), g.input("w", {n, k})));
            return make_plan(g, c).dispatches.size();
        };
        CHECK(dispatches(32, 64, 1024) == 2);
        CHECK(dispatches(32, 64, 1024, "matmul_groups=1") == 1);
        CHECK(dispatches(4, 64, 1024) == 1);
        CHECK(dispatches(32, 64, 256) == 1);
        CHECK(dispatches(1024, 64, 1024) == 1);
        CHECK(dispatches(512, 4096, 1024) == 1);
    }

    TEST_CASE("split sums: batches, and views whose sizes of 1 have any stride") {
        const Believed gpu(as_gpu);
        const Tensor w = random_tensor({40, 1024}, 2);
        const auto rows_of = [](Tensor x) {
            x.shape = {static_cast<std::int64_t>(x.data.size()) / x.shape.back(), x.shape.back()};
            return x;
        };
        for (const bool turned : {false, true}) {
            CAPTURE(turned);
            const Tensor x = random_tensor(
                turned ? std::vector<std::int64_t>{1, 9, 1024} : std::vector<std::int64_t>{3, 9, 1024}, 1);
            OpCheck check;
            const Value in = check.input("x", x);
            const Value y = linear(turned ? transpose(in, 0, 1) : in, check.input("w", w));
            const reference::MatmulOptions o{.transpose_b = true};
            const Tensor rounding = reference::matmul_rounding(rows_of(x), w, o);
            CHECK(difference(rows_of(check.run(y)), reference::matmul(rows_of(x), w, o), {.rounding = rounding}) == "");
            CHECK(contains(device().compile(check.graph).explain(), "matmul_merge<"));
        }
    }

    TEST_CASE("split sums: what is not finite stays in its row and column") {
        const Believed gpu(as_gpu);
        Tensor x = random_tensor({9, 1024}, 1), w = random_tensor({40, 1024}, 2);
        x.data[2 * 1024 + 700] = NAN;
        w.data[5 * 1024 + 3] = INFINITY;
        OpCheck check;
        const Tensor y = check.run(linear(check.input("x", x), check.input("w", w)));
        for (std::size_t i = 0; i < y.data.size(); ++i) {
            CHECK(std::isfinite(y.data[i]) == (i / 40 != 2 && i % 40 != 5));
        }
    }
}

}  // namespace vkf::test
