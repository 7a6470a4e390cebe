// SPDX-License-Identifier: Apache-2.0
// Matrix products: odd sizes and even ones, few rows and many, every arithmetic, and every type
// that weights are kept as.
#include <cmath>

#include "doctor/cases.h"
#include "ops/ops.h"

namespace vkf::doctor {

namespace {

/// What follows a product.
struct Epilogue {
    Activation activation = Activation::none;
    bool bias = false, residual = false;
};

/// linear() of x (m, k) and a weight (n, k).
Case linear_case(const ProductSizes& s, const Epilogue& epilogue = {}, Arithmetic arithmetic = Arithmetic::f32,
                 WeightType type = WeightType::f32) {
    Case c;
    c.arithmetic = arithmetic;
    const auto count = [](std::int64_t a, std::int64_t b) { return static_cast<std::size_t>(a * b); };
    Doubles x = numbers(count(s.m, s.k), 1), w = numbers(count(s.n, s.k), 2);
    const Value xv = c.input("x", {s.m, s.k}, x);
    const Value wv = type == WeightType::f32 ? c.input("w", {s.n, s.k}, w) : c.weight("w", {s.n, s.k}, w, type);
    Expected want = product(s, x, w, arithmetic == Arithmetic::f16);
    Value y;
    if (epilogue.bias) {
        const Doubles bias = numbers(static_cast<std::size_t>(s.n), 3);
        y = linear(xv, wv, c.input("bias", {s.n}, bias), epilogue.activation);
        for (std::size_t i = 0; i < want.values.size(); ++i) {
            want.values[i] = activate(epilogue.activation, want.values[i] + bias[i % bias.size()]);
            want.allowed[i] = 1.2 * want.allowed[i] + 1e-6;  // gelu's slope, and its own rounding
        }
    } else {
        y = linear(xv, wv, {}, epilogue.activation);
    }
    if (epilogue.residual) {
        const Doubles r = numbers(count(s.m, s.n), 4);
        y = y + c.input("residual", {s.m, s.n}, r);
        for (std::size_t i = 0; i < r.size(); ++i) {
            want.values[i] += r[i];
            want.allowed[i] += 1e-6;
        }
    }
    c.output("y", y, std::move(want));
    return c;
}

Case one_row() { return linear_case({1, 530, 515}); }
Case few_rows() { return linear_case({3, 520, 516}); }
Case odd_rows() { return linear_case({37, 45, 71}, {Activation::gelu, true, false}); }
Case many_rows() { return linear_case({150, 72, 64}, {Activation::none, false, true}); }
Case tall() { return linear_case({300, 520, 68}, {Activation::gelu, true, false}); }
Case long_sums() { return linear_case({9, 40, 1024}, {Activation::gelu, true, true}); }
Case half_long_sums() { return linear_case({20, 64, 1024}, {Activation::none, true, false}, Arithmetic::f16); }
Case half() { return linear_case({37, 45, 71}, {}, Arithmetic::f16); }
Case half_by_fours() { return linear_case({70, 64, 96}, {Activation::none, true, true}, Arithmetic::f16); }
/// Rows that are rounded to f16 once, before.
Case half_tall() { return linear_case({520, 1032, 72}, {Activation::none, true, false}, Arithmetic::f16); }

/// One product that comes near to the largest number of f16, and many that are small.
Case half_large() {
    Case c;
    c.arithmetic = Arithmetic::f16;
    const ProductSizes s{19, 24, 48};
    Doubles x = numbers(static_cast<std::size_t>(s.m * s.k), 5), w = numbers(static_cast<std::size_t>(s.n * s.k), 6);
    for (std::int64_t row = 0; row < s.m; ++row) {
        x[static_cast<std::size_t>(row * s.k + row)] = row % 2 == 0 ? 65504 : -65504;
    }
    for (double& v : w) {
        v *= 0x1p-6;
    }
    c.output("y", linear(c.input("x", {s.m, s.k}, x), c.input("w", {s.n, s.k}, w)), product(s, x, w, true));
    return c;
}

/// Numbers that int8 holds, so that results are exact.
Case codes(const ProductSizes& s) {
    Case c;
    c.arithmetic = Arithmetic::int8;
    const auto whole = [&](std::int64_t rows, std::uint32_t seed, double unit) {
        Doubles out = numbers(static_cast<std::size_t>(rows * s.k), seed, 127);
        for (std::size_t i = 0; i < out.size(); ++i) {
            out[i] = (i % static_cast<std::size_t>(s.k) == 0 ? 127 : std::nearbyint(out[i])) * unit;
        }
        return out;
    };
    Doubles x = whole(s.m, 7, 0x1p-7), w = whole(s.n, 8, 0x1p-8);
    const Value wv = c.weight("w", {s.n, s.k}, w, WeightType::int8);
    c.output("y", linear(c.input("x", {s.m, s.k}, x), wv), within(product(s, x, w).values, 1e-6, 1e-6));
    return c;
}

/// matmul() by rows of b, and of a that lies along m.
Case turned() {
    Case c;
    const ProductSizes s{64, 40, 68};
    const Doubles a = numbers(static_cast<std::size_t>(s.m * s.k), 9),
                  b = numbers(static_cast<std::size_t>(s.n * s.k), 10);
    Doubles at(a.size()), bt(b.size());
    for (std::int64_t k = 0; k < s.k; ++k) {
        for (std::int64_t i = 0; i < s.m; ++i) {
            at[static_cast<std::size_t>(k * s.m + i)] = a[static_cast<std::size_t>(i * s.k + k)];
        }
        for (std::int64_t i = 0; i < s.n; ++i) {
            bt[static_cast<std::size_t>(k * s.n + i)] = b[static_cast<std::size_t>(i * s.k + k)];
        }
    }
    const Value av = transpose(c.input("a", {s.k, s.m}, at), 0, 1);
    c.output("y", matmul(av, c.input("b", {s.k, s.n}, bt)), product(s, a, b));
    return c;
}

template <WeightType type, int rows>
Case packed() {
    return linear_case({rows, 530, 520}, {}, Arithmetic::f32, type);
}

constexpr CaseMaker kProducts[] = {
    {"product of 1 row, 515 by 530", false, one_row},
    {"product of 3 rows, 516 by 520", false, few_rows},
    {"product of 37 rows, 71 by 45, bias and gelu", false, odd_rows},
    {"product of 150 rows, 64 by 72, residual", false, many_rows},
    {"product of 9 rows, 1024 by 40, bias, gelu and residual", false, long_sums},
    {"product in f16 of 37 rows, 71 by 45", false, half},
    {"product in f16 near 65504", false, half_large},
    {"product in int8 of 37 rows, 96 by 40", false,
     [] {
         return codes({37, 40, 96});
     }},
    {"product in f16 of 70 rows, 96 by 64, bias and residual", true, half_by_fours},
    {"product in f16 of 20 rows, 1024 by 64, bias", true, half_long_sums},
    {"product of 300 rows, 68 by 520, bias and gelu", true, tall},
    {"product in f16 of 520 rows, 72 by 1032, bias", true, half_tall},
    {"product in int8 of 520 rows, 96 by 136", true,
     [] {
         return codes({520, 136, 96});
     }},
    {"product of transposed views", true, turned},
    {"product of 1 row, weight kept as f16", true, packed<WeightType::f16, 1>},
    {"product of 1 row, weight kept as bf16", true, packed<WeightType::bf16, 1>},
    {"product of 1 row, weight kept as int8", true, packed<WeightType::int8, 1>},
    {"product of 1 row, weight kept as int4", true, packed<WeightType::int4, 1>},
    {"product of 37 rows, weight kept as int8", true, packed<WeightType::int8, 37>},
    {"product of 37 rows, weight kept as int4", true, packed<WeightType::int4, 37>},
};

}  // namespace

std::span<const CaseMaker> product_cases() { return kProducts; }

}  // namespace vkf::doctor
