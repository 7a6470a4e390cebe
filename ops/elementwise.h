// SPDX-License-Identifier: Apache-2.0
// Of the ops that work element by element, what other ops need.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/ops.h"
#include "runtime/compile/lowering.h"
#include "runtime/graph/op.h"
#include "shaders/elementwise.h"

namespace vkf::support {

/// What elementwise.comp is told.
struct ElementwiseParams {
    std::uint32_t combine = shader::kCombineNone;
    Activation activation = Activation::none;
    float alpha = 1.0f;
    bool flip_a = false, flip_b = false;
    std::uint32_t seed = 0, threshold = 0;
};

/// Emits the kernel's dispatch, or where a number has 16 bits that of a conversion: a copy then.
/// `how` is to call prepare_elementwise().
void lower_elementwise(Lowering& l, const ElementwiseParams& params, ValueId a, ValueId b, ValueId out, Prepare how);
void prepare_elementwise(const ElementwiseParams& params, const Operands& operands, Command& command) noexcept;

/// The node that add() makes.
extern const OpType kAdd;

/// A dense copy of a value, made while its node is lowered.
ValueId copied(Lowering& l, ValueId value);

// Dispatches for other ops: views of one shape, of which `out` may be one of the others.

void lower_copy(Lowering& l, ValueId x, ValueId out);
void lower_add(Lowering& l, ValueId a, ValueId b, ValueId out);
void lower_zero(Lowering& l, ValueId out);

/// Throws what copy_into() would.
void check_copy_into(const Value& window, const Value& x);

/// A copy whose dimensions are stored in that order (OutputSpec::stored_order).
Value copy_in_order(Value x, const std::vector<std::size_t>& order);

/// dy times the derivative of an activation. `from` is what its derivative is told by: its result
/// where derivative_of_result() says so, else what it was applied to.
Value activation_gradient(Value from, Value dy, Activation activation);
bool derivative_of_result(Activation activation);

}  // namespace vkf::support
