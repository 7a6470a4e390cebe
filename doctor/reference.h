// SPDX-License-Identifier: Apache-2.0
// What kernels are held to: plain loops in double precision, with the error that each result may
// have.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "ops/ops.h"

namespace vkf::doctor {

using Sizes = std::vector<std::int64_t>;
using Doubles = std::vector<double>;

inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::size_t count_of(const Sizes& sizes);

/// Results, and the error that each may have.
struct Expected {
    Doubles values, allowed;
};

/// The errors of fp32: `absolute` and `relative` of each value.
Expected within(Doubles values, double absolute = 1e-5, double relative = 1e-4);

/// A product a (m, k) b^T (n, k) in the arithmetic that the kernel multiplies in.
struct ProductSizes {
    std::int64_t m = 1, n = 1, k = 1;
};
Expected product(const ProductSizes& sizes, const Doubles& a, const Doubles& b, bool f16 = false);

double activate(Activation activation, double x);

/// Softmax of rows of `width`; `masked(i)` tells of an element. A masked weight is -0.0.
Doubles softmax(const Doubles& scores, std::int64_t width, const std::function<bool(std::size_t)>& masked);

/// Query (heads, queries, dim), key and value (kv_heads, keys, dim) and (kv_heads, keys,
/// value_dim); masked(query, key) holds for every head. Keys that no query sees are not looked at.
/// A bias (heads, queries, keys), where there is one, is added to the scores.
struct AttentionSizes {
    std::int64_t heads = 1, kv_heads = 1, queries = 1, keys = 1, dim = 1, value_dim = 1;
};
using MaskedPair = std::function<bool(std::int64_t query, std::int64_t key)>;
Expected attention(const AttentionSizes& sizes, const Doubles& query, const Doubles& key, const Doubles& value,
                   const MaskedPair& masked, bool f16 = false, const Doubles& bias = {});

/// Rows of `width` normalised, less their mean where `centred`, times weight, plus bias where there
/// is one.
Doubles norm(const Doubles& x, std::int64_t width, const Doubles& weight, const Doubles& bias, double eps,
             bool centred);

/// The gradient of sum(seed * f(x)) at x, by central differences.
Doubles gradient(const std::function<Doubles(const Doubles&)>& f, const Doubles& x, const Doubles& seed);

/// Numbers of magnitude up to `amplitude` that f16 holds, the same for the same seed everywhere.
Doubles numbers(std::size_t count, std::uint32_t seed, double amplitude = 1);

}  // namespace vkf::doctor
