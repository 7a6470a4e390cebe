// SPDX-License-Identifier: Apache-2.0
#include "tests/reference_packed.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace vkf::reference {

namespace {

using test::Sizes;

/// Rounds to `digits` significant bits, ties to even, with steps no finer than 2^least.
double rounded(double x, int digits, int least) {
    if (!std::isfinite(x) || x == 0) {
        return x;
    }
    const int step = std::max(std::ilogb(x) + 1 - digits, least);
    return std::ldexp(std::nearbyint(std::ldexp(x, -step)), step);
}

/// Gives the number that int8 and int4 take x for.
float counted(double x) { return std::abs(x) < 0x1p-126 ? 0.0f : static_cast<float>(x); }

struct Group {
    double scale = 0;
    double zero = 0;
    double smallest_code = 0, largest_code = 0;
};

/// Finds the group of the `count` numbers from `first` on in a row.
Group group_of(const Tensor& w, std::int64_t row, std::int64_t first, std::int64_t count, WeightType type) {
    float low = 0, high = 0;
    for (std::int64_t k = first; k < first + count; ++k) {
        low = std::min(low, counted(w.at({row, k})));
        high = std::max(high, counted(w.at({row, k})));
    }
    if (type == WeightType::int8) {
        const float scale = std::max(-low, high) / 127.0f;
        return {static_cast<double>(scale), 0, -127, 127};
    }
    // the smallest of 20 significant bits that reaches from end to end in 15 steps
    const double exact = (static_cast<double>(high) - static_cast<double>(low)) / 15;
    if (exact == 0) {
        return {};
    }
    const int step = std::ilogb(exact) - 19;
    const double scale = std::ldexp(std::ceil(std::ldexp(exact, -step)), step);
    const double zero = std::nearbyint(static_cast<double>(-low / static_cast<float>(scale)));
    return {scale, zero, 0, 15};
}

/// Calls f(row, k, group) for each number.
template <class F>
void for_each_number(const Tensor& w, WeightType type, F f) {
    const std::int64_t size = type == WeightType::int8 ? w.size(1) : 32;
    for (std::int64_t row = 0; row < w.size(0); ++row) {
        for (std::int64_t first = 0; first < w.size(1); first += size) {
            const std::int64_t end = std::min(first + size, w.size(1));
            const Group group = group_of(w, row, first, end - first, type);
            for (std::int64_t k = first; k < end; ++k) {
                f(row, k, group);
            }
        }
    }
}

}  // namespace

Tensor packed(const Tensor& weights, WeightType type) {
    Tensor out = weights;
    if (type == WeightType::f16 || type == WeightType::bf16) {
        for (double& x : out.data) {
            x = type == WeightType::f16 ? rounded(x, 11, -24) : rounded(x, 8, -133);
        }
    } else if (type != WeightType::f32) {
        for_each_number(weights, type, [&](std::int64_t row, std::int64_t k, const Group& g) {
            const float steps = counted(weights.at({row, k})) / static_cast<float>(g.scale);
            const double code = std::nearbyint(static_cast<double>(steps)) + g.zero;
            out.at({row, k}) =
                g.scale == 0 ? 0 : g.scale * (std::clamp(code, g.smallest_code, g.largest_code) - g.zero);
        });
    }
    return out;
}

Tensor as_f16(const Tensor& numbers) {
    Tensor out = packed(numbers, WeightType::f16);
    for (double& x : out.data) {
        x = std::abs(x) >= 65520 ? std::copysign(std::numeric_limits<double>::infinity(), x) : x;
    }
    return out;
}

Tensor packing_error(const Tensor& weights, WeightType type) {
    Tensor out(weights.shape, 0.0);
    if (type == WeightType::f16 || type == WeightType::bf16) {
        for (std::size_t i = 0; i < out.data.size(); ++i) {
            const double x = std::abs(weights.data[i]);
            out.data[i] = type == WeightType::f16 ? std::max(x * 0x1p-11, 0x1p-25) : x * 0x1p-8;
        }
    } else if (type != WeightType::f32) {
        for_each_number(weights, type, [&](std::int64_t row, std::int64_t k, const Group& g) {
            out.at({row, k}) = g.scale * 0.5;
        });
    }
    return out;
}

}  // namespace vkf::reference
