// SPDX-License-Identifier: Apache-2.0
// Between what describes matrix products and what dispatches them.
#pragma once

#include "ops/ops.h"
#include "runtime/graph/rewrite.h"
#include "shaders/matmul.h"

namespace vkf {

inline constexpr const char* kMatmulName = "matmul";
inline constexpr const char* kProjectionsName = "projections";

struct MatmulParams {
    Activation activation;
    float scale;
    bool bias, transpose_b, masked_weights;
    /// unless kMatmulOtherNone, the last input is another operand of the result's shape
    shader::uint other = shader::kMatmulOtherNone;
    std::size_t weights = 1;  ///< number of weights that kProjections reads as one
    /// the gradient that comes in may be masked: where it is -0.0, what it is multiplied with is
    /// skipped
    bool masked_gradient = false;
    /// part of a backward pass, which runs step after step: a kernel may take longer to compile
    bool backward = false;
    /// it was given a residual, and without one its sums are divided on a processor
    bool divided = false;

    bool has_other() const { return other != shader::kMatmulOtherNone; }
    bool is_gate() const { return other == shader::kMatmulOtherGate || other == shader::kMatmulOtherGateBesideBias; }
    bool other_beside_bias() const { return bias && has_other(); }

    struct Axes {
        std::size_t k, n;
    };
    /// The places of b's k and n dimensions, counted from the innermost.
    Axes b_axes() const { return transpose_b ? Axes{0, 1} : Axes{1, 0}; }
};

/// True where b, should it be cut, is cut along k: its rows along n reach over the whole of it.
inline bool is_summed_in_parts(const ValueInfo& b, const MatmulParams& params) {
    const std::size_t last = b.shape.size() - 1;
    const Dim& k = b.strides[last - params.b_axes().k];
    const Dim& n = b.strides[last - params.b_axes().n];
    return n.is_constant() && (!k.is_constant() || n.constant() < k.constant());
}

/// Inputs: a, b, the bias where there is one, the other operand of shaders/matmul.h where there is
/// one.
extern const OpType kMatmul;

/// OpType::gradient of kMatmul.
std::vector<Value> matmul_gradient(const GradientSite& site);

/// The work that an op which works element by element would leave to a product's epilogue.
struct EpilogueWish {
    std::size_t product = 0;  ///< the input that the product computes
    Activation activation = Activation::none;
    int other = -1;  ///< an input that is multiplied with it, or added; -1: none
    bool gate = false;
};

/// The product with that in its epilogue, in the place of both; or why not, where little is
/// missing; or neither.
Rewrite into_epilogue(const RewriteSite& site, const EpilogueWish& wish);

/// A product and later ones of the same a, whose weights lie behind each other, in one launch; or
/// why not, where little is missing; or neither.
Rewrite join_projections(const RewriteSite& site);

/// The op that join_projections() puts in place of the products. Inputs: a, then the weights, then
/// as many biases or none. Output: their columns side by side.
extern const OpType kProjections;

}  // namespace vkf
