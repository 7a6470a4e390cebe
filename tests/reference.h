// SPDX-License-Identifier: Apache-2.0
// The CPU twin of every op: its definition in double precision, as plainly as it can be written.
// Shapes are those of ops/ops.h.
#pragma once

#include <limits>
#include <optional>

#include "ops/ops.h"
#include "tests/tensor.h"

namespace vkf::reference {

using test::Tensor;

double activate(Activation activation, double x);

/// The options of vkf::matmul, over tensors of the host.
struct MatmulOptions {
    std::optional<Tensor> bias = {};
    Activation activation = Activation::none;
    double scale = 1;
    bool transpose_b = false;
    bool masked_weights = false;  ///< -0.0 in a: b is not looked at
};

Tensor matmul(const Tensor& a, const Tensor& b, const MatmulOptions& options = {});
/// The error that fp32 may have: 16 * 2^-24 * sum over k of |a||b|.
Tensor matmul_rounding(const Tensor& a, const Tensor& b, const MatmulOptions& options = {});
/// The error that arithmetic in f16 may have, of operands that are f16: (2^-8 + 2^-17) * sum over k
/// of |a||b|, 2^-25 for each product, and what fp32 may.
Tensor half_rounding(const Tensor& a, const Tensor& b, const MatmulOptions& options = {});

/// Mask and softmax options of ops.h, over tensors of the host.
struct SoftmaxOptions {
    std::optional<Tensor> keys = {};
    Polarity polarity = Polarity::attend;
    std::optional<Tensor> bias = {};
    std::optional<Tensor> alibi_slopes = {};  ///< (H) or anything that broadcasts to the scores
    std::optional<Tensor> sinks = {};         ///< the same
    Causal causal = Causal::none;
    std::int64_t window = 0;
    double fill = -std::numeric_limits<double>::infinity();
    double scale = 1;
    double softcap = 0;
};

/// A masked weight is -0.0.
Tensor softmax(const Tensor& scores, const SoftmaxOptions& options = {});
Tensor log_sum_exp(const Tensor& scores, const SoftmaxOptions& options = {});
Tensor hard_max(const Tensor& scores, const SoftmaxOptions& options = {});

Tensor layer_norm(const Tensor& x, const std::optional<Tensor>& weight, const std::optional<Tensor>& bias, double eps);
Tensor rms_norm(const Tensor& x, const std::optional<Tensor>& weight, double eps);
Tensor argmax(const Tensor& x);
Tensor cross_entropy(const Tensor& logits, const Tensor& labels, const CrossEntropyOptions& options = {});

struct BatchNorm {
    Tensor y, running_mean, running_var;
};

BatchNorm batch_norm_train(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& running_mean,
                           const Tensor& running_var, double momentum, double eps);
Tensor batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& running_mean,
                  const Tensor& running_var, double eps);

Tensor add(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
Tensor scale(const Tensor& x, double factor);
Tensor activate(const Tensor& x, Activation activation);
Tensor gated(const Tensor& gate, const Tensor& up, Activation activation);
/// Keeps elements as Philox-2x32-10 of their place (the counter) and the seed (the key) says.
Tensor dropout(const Tensor& x, double p, std::uint32_t seed);
Tensor combine_masks(const Tensor& a, Polarity a_polarity, const Tensor& b, Polarity b_polarity);

/// Turns row l of x (..., L, d) by positions[l].
Tensor rope(const Tensor& x, const Rope& options, const std::vector<std::int64_t>& positions);
Tensor sinusoidal_positions(std::int64_t length, std::int64_t dim);

Tensor embedding(const Tensor& ids, const Tensor& table, double scale = 1);
Tensor repeat_kv(const Tensor& x, std::int64_t n);
Tensor concat(const std::vector<Tensor>& parts, std::size_t dim);

}  // namespace vkf::reference
