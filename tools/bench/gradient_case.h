// SPDX-License-Identifier: Apache-2.0
// The gradients that are timed: sizes, inputs, and what they must give.
#pragma once

#include <vkformer/vkformer.h>

#include <cstdint>
#include <string>
#include <vector>

/// y = x w^T with x (rows, inner), w (columns, inner); or causal attention of 8 heads, queries and
/// keys (8, rows, columns). Both are differentiated at all that goes in, with a gradient of y that
/// comes in.
struct GradientCase {
    std::string name;
    bool attention;
    std::int64_t rows, inner, columns;

    /// Operations of products that the gradient is made of, without those that the mask hides.
    /// Attention's five products count, each once.
    double backward_flops() const;
};

/// Of a product x, w and dy; of attention query, key, value and dy.
struct GradientData {
    std::vector<std::vector<float>> inputs;
};

std::vector<GradientCase> gradient_cases();
GradientData make_gradient_data(const GradientCase& c);
/// Adds inputs, forward pass and gradients to a graph. Outputs: y, and d0, d1 and so on, the
/// gradients at the inputs in their order.
void describe_gradient(vkf::Graph& g, const GradientCase& c);
/// The program of that graph, profiled, its inputs uploaded.
vkf::Program compile_gradient(const vkf::Device& device, const GradientCase& c, const GradientData& data);
/// Compares what the program gave with double precision: of products some 64 rows, of attention the
/// first head. Throws std::runtime_error naming the gradient that is wrong, and by how much.
void check_gradient(const GradientCase& c, const GradientData& data, vkf::Program& program);
