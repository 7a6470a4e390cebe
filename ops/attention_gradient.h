// SPDX-License-Identifier: Apache-2.0
// Between what describes the gradient of attention and what dispatches it.
#pragma once

#include "ops/attention_params.h"
#include "ops/gradient.h"
#include "runtime/compile/lowering.h"
#include "runtime/graph/op.h"

namespace vkf {

/// Inputs of the node: those of the attention, then y, its log-sum-exp in two parts, and what comes
/// in at y and, where `weights` or `log_sum_exp` say so, at the others. Outputs: the gradients that
/// are asked for, in the order of the attention's inputs.
struct AttentionGradientParams {
    AttentionParams attention;
    std::size_t inputs = 3;  ///< of the attention
    bool weights = false, log_sum_exp = false;
    std::vector<std::size_t> wanted = {};  ///< the inputs whose gradients are asked for
};

namespace support {

/// OpType::lower of the gradient, where a kernel computes it as one.
void lower_gradient(Lowering& l);
/// OpType::declined of the gradient.
std::string declined_gradient(const Capabilities& device, const AttentionGradientParams& p);
/// Prepares one side of the gradient. Operands: those of shaders/attention_gradient.h. Words: the
/// side, the columns and rows that a group takes, then the first query of a chunk and its most
/// queries, or 0.
void prepare_gradient(const Operands& operands, Command& command) noexcept;

// --- GPUs: attention_gradient_shared.cpp ---------------------------------------------------------

/// What both sides of the gradient read, and what is asked for.
struct GradientOperands {
    ValueId query, key, value, dy;
    ValueId lse, delta;          ///< of each row of queries; the log-sum-exp in two parts
    ValueId mask, bias, slopes;  ///< any value where there is none
    std::optional<ValueId> of_queries, of_keys, of_values;
};

/// True where the kernels for GPUs are taken: on GPUs, and where VKFORMER_VARIANT asks for them.
bool takes_shared_gradient(const Capabilities& device);
/// True where these compute on cooperative matrices, which take dy rounded to f16.
bool gradient_on_matrices(const Lowering& l, const AttentionParams& params);
/// Says why these cannot compute a gradient; empty: they can. (The attention can be fused, and its
/// weights have no gradient.)
std::string declined_shared_gradient(const Capabilities& device, const AttentionGradientParams& p);
void lower_shared_gradient(Lowering& l, const GradientOperands& operands);

}  // namespace support

/// OpType::gradient of kAttention.
std::vector<Value> attention_gradient(const GradientSite& site);

}  // namespace vkf
