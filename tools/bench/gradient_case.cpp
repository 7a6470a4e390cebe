// SPDX-License-Identifier: Apache-2.0
#include "gradient_case.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <stdexcept>

#include "op_case.h"

namespace {

constexpr std::int64_t kAttentionHeads = 8;
/// Of the largest element of a gradient.
constexpr double kGradientTolerance = 1e-4;

std::size_t place(std::int64_t row, std::int64_t columns, std::int64_t column) {
    return static_cast<std::size_t>(row * columns + column);
}

std::vector<std::string> input_names(const GradientCase& c) {
    return c.attention ? std::vector<std::string>{"query", "key", "value", "dy"}
                       : std::vector<std::string>{"x", "w", "dy"};
}

std::vector<std::vector<std::int64_t>> input_shapes(const GradientCase& c) {
    if (c.attention) {
        return {4, {1, kAttentionHeads, c.rows, c.columns}};
    }
    return {{c.rows, c.inner}, {c.columns, c.inner}, {c.rows, c.columns}};
}

std::int64_t count_of(const std::vector<std::int64_t>& shape) {
    std::int64_t count = 1;
    for (const std::int64_t size : shape) {
        count *= size;
    }
    return count;
}

/// Throws unless `got`, from its first row on at every `step`-th, is near `want`, which has these
/// rows alone.
void check_rows(const GradientCase& c, const std::string& name, std::span<const float> got, const Numbers& want,
                std::int64_t columns, std::int64_t step) {
    double largest = 0, worst = 0;
    for (const double v : want) {
        largest = std::max(largest, std::abs(v));
    }
    for (std::size_t i = 0; i < want.size(); ++i) {
        const auto row = static_cast<std::int64_t>(i) / columns * step;
        const double error = std::abs(got[place(row, columns, static_cast<std::int64_t>(i) % columns)] - want[i]);
        worst = error <= worst ? worst : error;  // NaN too
    }
    if (!(worst <= kGradientTolerance * largest)) {
        throw std::runtime_error(c.name + ": the gradient at " + name + " is wrong by " + std::to_string(worst) +
                                 ", its largest element is " + std::to_string(largest));
    }
}

/// Every row of A^T B, or of A B, that is checked: rows of the result at multiples of `step`.
Numbers product_rows(std::span<const float> a, std::span<const float> b, std::int64_t rows, std::int64_t inner,
                     std::int64_t columns, std::int64_t step, bool transposed) {
    Numbers out;
    for (std::int64_t row = 0; row < rows; row += step) {
        Numbers sums(static_cast<std::size_t>(columns));
        for (std::int64_t k = 0; k < inner; ++k) {
            const double x = transposed ? a[place(k, rows, row)] : a[place(row, inner, k)];
            for (std::int64_t j = 0; j < columns; ++j) {
                sums[static_cast<std::size_t>(j)] += x * static_cast<double>(b[place(k, columns, j)]);
            }
        }
        out.insert(out.end(), sums.begin(), sums.end());
    }
    return out;
}

void check_product(const GradientCase& c, const GradientData& data, vkf::Program& program) {
    const auto& x = data.inputs[0];
    const auto& w = data.inputs[1];
    const auto& dy = data.inputs[2];
    const std::int64_t step = std::max<std::int64_t>(1, c.rows / 64) | 1;
    check_rows(c, "x", program.download("d0"), product_rows(dy, w, c.rows, c.columns, c.inner, step, false), c.inner,
               step);
    const std::int64_t wide = std::max<std::int64_t>(1, c.columns / 64) | 1;
    check_rows(c, "w", program.download("d1"), product_rows(dy, x, c.columns, c.rows, c.inner, wide, true), c.inner,
               wide);
}

double dot(const float* a, const float* b, std::int64_t count) {
    double sum = 0;
    for (std::int64_t i = 0; i < count; ++i) {
        sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
    }
    return sum;
}

void add_times(double* to, const float* row, double factor, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
        to[i] += factor * static_cast<double>(row[i]);
    }
}

/// The first head in double precision, row by row of the queries.
void check_attention(const GradientCase& c, const GradientData& data, vkf::Program& program) {
    const std::int64_t d = c.columns;
    const auto size = static_cast<std::size_t>(c.rows * d);
    const double scale = 1 / std::sqrt(static_cast<double>(d));
    const float *q = data.inputs[0].data(), *k = data.inputs[1].data(), *v = data.inputs[2].data();
    const float* dy = data.inputs[3].data();
    Numbers dq(size), dk(size), dv(size), weights, weight_gradients;
    for (std::int64_t i = 0; i < c.rows; ++i) {
        weights.assign(static_cast<std::size_t>(i + 1), 0);
        weight_gradients = weights;
        double largest = -1e300, sum = 0, delta = 0;
        for (std::size_t j = 0; j < weights.size(); ++j) {
            const auto key = static_cast<std::int64_t>(j) * d;
            weights[j] = scale * dot(q + i * d, k + key, d);
            weight_gradients[j] = dot(dy + i * d, v + key, d);
            largest = std::max(largest, weights[j]);
        }
        for (double& w : weights) {
            w = std::exp(w - largest);
            sum += w;
        }
        for (std::size_t j = 0; j < weights.size(); ++j) {
            weights[j] /= sum;
            delta += weights[j] * weight_gradients[j];
        }
        for (std::size_t j = 0; j < weights.size(); ++j) {
            const auto key = static_cast<std::int64_t>(j) * d;
            const double ds = scale * weights[j] * (weight_gradients[j] - delta);
            add_times(&dq[static_cast<std::size_t>(i * d)], k + key, ds, d);
            add_times(&dk[static_cast<std::size_t>(key)], q + i * d, ds, d);
            add_times(&dv[static_cast<std::size_t>(key)], dy + i * d, weights[j], d);
        }
    }
    check_rows(c, "query", program.download("d0"), dq, d, 1);
    check_rows(c, "key", program.download("d1"), dk, d, 1);
    check_rows(c, "value", program.download("d2"), dv, d, 1);
}

}  // namespace

double GradientCase::backward_flops() const {
    if (attention) {
        return 10.0 * static_cast<double>(kAttentionHeads * rows * (rows + 1) / 2 * columns);
    }
    return 4.0 * static_cast<double>(rows * inner * columns);
}

std::vector<GradientCase> gradient_cases() {
    std::vector<GradientCase> cases{{"linear_backward_512", false, 512, 512, 512},
                                    {"linear_backward_1024", false, 1024, 1024, 1024},
                                    // as in the decoder of training_bench.cpp
                                    {"linear_backward_512x320x864", false, 512, 320, 864},
                                    {"linear_backward_512x864x320", false, 512, 864, 320},
                                    {"linear_backward_512x320x4096", false, 512, 320, 4096}};
    for (const std::int64_t width : {64, 128}) {
        for (const std::int64_t tokens : {512, 1024, 2048, 4096}) {
            cases.push_back({"attention_backward_d" + std::to_string(width) + "_" + std::to_string(tokens) + "_causal",
                             true, tokens, tokens, width});
        }
    }
    return cases;
}

GradientData make_gradient_data(const GradientCase& c) {
    GradientData data;
    std::uint32_t seed = 31;
    for (const std::vector<std::int64_t>& shape : input_shapes(c)) {
        data.inputs.push_back(random_floats(count_of(shape), seed++));
    }
    if (c.attention) {
        for (float& x : data.inputs.front()) {
            x *= 8.0f;  // some keys matter more than others
        }
    }
    return data;
}

void describe_gradient(vkf::Graph& g, const GradientCase& c) {
    const std::vector<std::string> names = input_names(c);
    const std::vector<std::vector<std::int64_t>> shapes = input_shapes(c);
    std::vector<vkf::Value> inputs;
    for (std::size_t i = 0; i < names.size(); ++i) {
        inputs.push_back(g.input(names[i], vkf::Shape(shapes[i].begin(), shapes[i].end())));
    }
    const vkf::Value dy = inputs.back();
    inputs.pop_back();
    vkf::AttentionOptions options;
    options.mask.causal = vkf::Causal::bottom_right;
    const vkf::Value y = c.attention ? vkf::scaled_dot_product_attention(inputs[0], inputs[1], inputs[2], options).y
                                     : vkf::linear(inputs[0], inputs[1]);
    const std::vector<vkf::Value> found = vkf::gradients(y, inputs, dy);
    g.output("y", vkf::contiguous(y));
    for (std::size_t i = 0; i < found.size(); ++i) {
        g.output("d" + std::to_string(i), vkf::contiguous(found[i]));
    }
}

vkf::Program compile_gradient(const vkf::Device& device, const GradientCase& c, const GradientData& data) {
    vkf::Graph g;
    describe_gradient(g, c);
    vkf::CompileOptions options;
    options.name = c.name;
    options.profile = true;
    vkf::Program program = device.compile(g, {}, options);
    const std::vector<std::string> names = input_names(c);
    for (std::size_t i = 0; i < names.size(); ++i) {
        program.upload(names[i], data.inputs[i]);
    }
    return program;
}

void check_gradient(const GradientCase& c, const GradientData& data, vkf::Program& program) {
    c.attention ? check_attention(c, data, program) : check_product(c, data, program);
}
