// SPDX-License-Identifier: Apache-2.0
// The twins of what tells tokens their places.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "tests/reference.h"

namespace vkf::reference {

namespace {

using test::for_each_index;
using test::Sizes;

/// YaRN (Peng et al. 2023): the dimension that makes `turns` full turns over the length trained on.
double yarn_dimension(const Rope& o, double rotary_dim, double turns) {
    const double trained = static_cast<double>(o.scaling.original_max_positions);
    return rotary_dim * std::log(trained / (turns * 2 * std::numbers::pi)) / (2 * std::log(o.theta));
}

/// Radians a position that pair i of r / 2 turns by.
double frequency(const Rope& o, std::int64_t i, std::int64_t r) {
    const RopeScaling& s = o.scaling;
    const double width = static_cast<double>(r);
    const double pair = static_cast<double>(i);
    const double plain = std::pow(o.theta, -2 * pair / width);
    switch (s.kind) {
        case RopeScaling::Kind::none: return plain;
        case RopeScaling::Kind::linear: return plain / s.factor;
        case RopeScaling::Kind::ntk:
            return std::pow(o.theta * std::pow(s.factor, width / (width - 2)), -2 * pair / width);
        case RopeScaling::Kind::llama3: {
            // turns over the length trained on: many turns stay, few are stretched, between is a
            // blend
            const double turns = static_cast<double>(s.original_max_positions) * plain / (2 * std::numbers::pi);
            const double blend = (turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
            return std::lerp(plain / s.factor, plain, std::clamp(blend, 0.0, 1.0));
        }
        case RopeScaling::Kind::yarn: {
            const double first = yarn_dimension(o, width, s.beta_fast);
            const double last = yarn_dimension(o, width, s.beta_slow);
            const double low = std::max(s.truncate ? std::floor(first) : first, 0.0);
            const double high = std::min(s.truncate ? std::ceil(last) : last, width - 1);
            const double span = low == high ? 0.001 : high - low;
            return std::lerp(plain, plain / s.factor, std::clamp((pair - low) / span, 0.0, 1.0));
        }
    }
    return std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

Tensor rope(const Tensor& x, const Rope& o, const std::vector<std::int64_t>& positions) {
    const std::int64_t r = o.rotary_dim == 0 ? x.size(-1) : o.rotary_dim;
    const bool yarn = o.scaling.kind == RopeScaling::Kind::yarn;
    const double usual = yarn && o.scaling.factor > 1 ? 0.1 * std::log(o.scaling.factor) + 1 : 1;
    const double magnitude = yarn && o.scaling.attention_factor != 0 ? o.scaling.attention_factor : usual;
    Tensor y = x;
    for_each_index(Sizes(x.shape.begin(), x.shape.end() - 1), [&](const Sizes& row) {
        for (std::int64_t i = 0; i < r / 2; ++i) {
            Sizes first = row;
            Sizes second = row;
            first.push_back(o.layout == RopeLayout::half ? i : 2 * i);
            second.push_back(o.layout == RopeLayout::half ? i + r / 2 : 2 * i + 1);
            const double angle =
                static_cast<double>(positions[static_cast<std::size_t>(row.back())]) * frequency(o, i, r);
            y.at(first) = magnitude * (x.at(first) * std::cos(angle) - x.at(second) * std::sin(angle));
            y.at(second) = magnitude * (x.at(second) * std::cos(angle) + x.at(first) * std::sin(angle));
        }
    });
    return y;
}

Tensor sinusoidal_positions(std::int64_t length, std::int64_t dim) {
    Tensor y({length, dim});
    for_each_index(y.shape, [&](const Sizes& index) {
        const double pair = static_cast<double>(index[1] / 2);
        const double angle = static_cast<double>(index[0]) * std::pow(10000.0, -2 * pair / static_cast<double>(dim));
        y.at(index) = index[1] % 2 == 0 ? std::sin(angle) : std::cos(angle);
    });
    return y;
}

}  // namespace vkf::reference
