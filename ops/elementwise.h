// SPDX-License-Identifier: Apache-2.0
// Of the ops that work element by element, what other ops need.
#pragma once

#include "runtime/compile/lowering.h"
#include "runtime/graph/op.h"

namespace vkf::support {

/// The node that add() makes.
extern const OpType kAdd;

/// A dense copy of a value, made while its node is lowered.
ValueId copied(Lowering& l, ValueId value);

}  // namespace vkf::support
