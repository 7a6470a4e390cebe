// SPDX-License-Identifier: Apache-2.0
#include "doctor/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

namespace vkf::doctor {

namespace {

constexpr double kFp32Share = 16 * 0x1p-24;
/// Arithmetic in f16: sums of a few products are rounded, and what is too small for it is lost.
constexpr double kHalfShare = 0x1p-8 + 0x1p-17, kHalfLost = 0x1p-25;

}  // namespace

std::size_t count_of(const Sizes& sizes) {
    std::size_t count = 1;
    for (const std::int64_t size : sizes) {
        count *= static_cast<std::size_t>(size);
    }
    return count;
}

Expected within(Doubles values, double absolute, double relative) {
    Expected out;
    for (const double v : values) {
        out.allowed.push_back(absolute + (std::isfinite(v) ? relative * std::abs(v) : 0));
    }
    out.values = std::move(values);
    return out;
}

Expected product(const ProductSizes& s, const Doubles& a, const Doubles& b, bool f16) {
    Expected out;
    for (std::int64_t i = 0; i < s.m * s.n; ++i) {
        const double* row = a.data() + i / s.n * s.k;
        const double* column = b.data() + i % s.n * s.k;
        double sum = 0, magnitude = 0;
        for (std::int64_t k = 0; k < s.k; ++k) {
            sum += row[k] * column[k];
            magnitude += std::abs(row[k] * column[k]);
        }
        out.values.push_back(sum);
        out.allowed.push_back((kFp32Share + (f16 ? kHalfShare : 0)) * magnitude + 1e-30 +
                              (f16 ? kHalfLost * static_cast<double>(s.k) : 0));
    }
    return out;
}

double activate(Activation activation, double x) {
    switch (activation) {
        case Activation::none: return x;
        case Activation::relu: return std::max(x, 0.0);
        case Activation::gelu: return x * 0.5 * std::erfc(-x / std::numbers::sqrt2);
        case Activation::gelu_tanh:
            return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
        case Activation::silu: return x / (1 + std::exp(-x));
        case Activation::tanh: return std::tanh(x);
        case Activation::sigmoid: return 1 / (1 + std::exp(-x));
        case Activation::rsqrt: return 1 / std::sqrt(x);
    }
    return x;
}

Doubles softmax(const Doubles& scores, std::int64_t width, const std::function<bool(std::size_t)>& masked) {
    Doubles out(scores.size(), -0.0);
    const auto columns = static_cast<std::size_t>(width);
    for (std::size_t first = 0; first < scores.size(); first += columns) {
        double largest = -std::numeric_limits<double>::infinity(), sum = 0;
        for (std::size_t i = first; i < first + columns; ++i) {
            largest = masked(i) ? largest : std::max(largest, scores[i]);
        }
        for (std::size_t i = first; i < first + columns; ++i) {
            sum += masked(i) ? 0 : std::exp(scores[i] - largest);
        }
        for (std::size_t i = first; i < first + columns; ++i) {
            out[i] = masked(i) ? -0.0 : std::exp(scores[i] - largest) / sum;
        }
    }
    return out;
}

Expected attention(const AttentionSizes& s, const Doubles& query, const Doubles& key, const Doubles& value,
                   const MaskedPair& masked, bool f16, const Doubles& bias) {
    Expected out;
    const std::int64_t group = s.heads / s.kv_heads;
    const double scale = 1 / std::sqrt(static_cast<double>(s.dim));
    for (std::int64_t row = 0; row < s.heads * s.queries; ++row) {
        const std::int64_t from = row / s.queries / group * s.keys, q = row % s.queries;
        Doubles scores(static_cast<std::size_t>(s.keys), 0);
        for (std::int64_t k = 0; k < s.keys; ++k) {
            scores[static_cast<std::size_t>(k)] = bias.empty() ? 0 : bias[static_cast<std::size_t>(row * s.keys + k)];
            for (std::int64_t c = 0; c < s.dim && !masked(q, k); ++c) {
                scores[static_cast<std::size_t>(k)] += query[static_cast<std::size_t>(row * s.dim + c)] *
                                                       key[static_cast<std::size_t>((from + k) * s.dim + c)] * scale;
            }
        }
        const Doubles weights =
            softmax(scores, s.keys, [&](std::size_t k) { return masked(q, static_cast<std::int64_t>(k)); });
        for (std::int64_t c = 0; c < s.value_dim; ++c) {
            double sum = 0, magnitude = 0;
            for (std::int64_t k = 0; k < s.keys; ++k) {
                if (!masked(q, k)) {
                    const double part = weights[static_cast<std::size_t>(k)] *
                                        value[static_cast<std::size_t>((from + k) * s.value_dim + c)];
                    sum += part;
                    magnitude += std::abs(part);
                }
            }
            out.values.push_back(sum);
            out.allowed.push_back(1e-5 + 1e-4 * std::abs(sum) + (f16 ? (0x1p-11 + 1e-4) * magnitude + 1e-5 : 0));
        }
    }
    return out;
}

Doubles norm(const Doubles& x, std::int64_t width, const Doubles& weight, const Doubles& bias, double eps,
             bool centred) {
    Doubles out(x.size());
    const auto columns = static_cast<std::size_t>(width);
    for (std::size_t first = 0; first < x.size(); first += columns) {
        double mean = 0, squares = 0;
        for (std::size_t i = 0; i < columns; ++i) {
            mean += centred ? x[first + i] / static_cast<double>(columns) : 0;
        }
        for (std::size_t i = 0; i < columns; ++i) {
            squares += (x[first + i] - mean) * (x[first + i] - mean) / static_cast<double>(columns);
        }
        for (std::size_t i = 0; i < columns; ++i) {
            out[first + i] =
                (x[first + i] - mean) / std::sqrt(squares + eps) * weight[i] + (bias.empty() ? 0 : bias[i]);
        }
    }
    return out;
}

Doubles gradient(const std::function<Doubles(const Doubles&)>& f, const Doubles& x, const Doubles& seed) {
    constexpr double kStep = 1e-5;
    const auto weighed = [&](const Doubles& at) {
        const Doubles y = f(at);
        double sum = 0;
        for (std::size_t i = 0; i < y.size(); ++i) {
            sum += y[i] * seed[i];
        }
        return sum;
    };
    Doubles out, at = x;
    for (std::size_t i = 0; i < x.size(); ++i) {
        at[i] = x[i] + kStep;
        const double above = weighed(at);
        at[i] = x[i] - kStep;
        out.push_back((above - weighed(at)) / (2 * kStep));
        at[i] = x[i];
    }
    return out;
}

Doubles numbers(std::size_t count, std::uint32_t seed, double amplitude) {
    constexpr std::uint32_t kSteps = 512;
    std::uint32_t state = seed * 2654435761u + 12345u;
    Doubles out;
    for (std::size_t i = 0; i < count; ++i) {
        state = state * 1664525u + 1013904223u;  // Numerical Recipes' generator
        out.push_back(amplitude * (static_cast<double>((state >> 16) % (2 * kSteps + 1)) / kSteps - 1));
    }
    return out;
}

}  // namespace vkf::doctor
