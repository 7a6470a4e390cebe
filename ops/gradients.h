// SPDX-License-Identifier: Apache-2.0
// Reverse-mode differentiation, from a graph to a larger graph (Griewank and Walther 2008).
#pragma once

#include <vector>

#include "../runtime/graph/graph.h"

namespace vkf {

/// The gradients of `loss` at each of the values: inputs, weights, states or computed ones.
/// The nodes that compute them are added to the graph, so they are planned, explained and recorded
/// like any others. A gradient has its value's shape, and is 0 where the loss does not depend on
/// the value. `loss` is one number, or has any shape where `seed`, of the same shape, is the
/// gradient that comes in there. torch.autograd.grad(loss, values, seed).
///
/// The gradient of a view, such as a slice, is that of its elements, through all of their uses.
/// Where a value is used several times its gradients add up, in the order of the graph. Integers,
/// argmax() and top_k() pass none. Throws Error naming an op that has no gradient, as the gradients
/// of many ops themselves have none, a state that is written on the way, or later than it was read,
/// a value or seed of another graph, and in a graph of several ranks (Graph::set_rank).
VKF_API std::vector<Value> gradients(Value loss, const std::vector<Value>& values, Value seed = {});

}  // namespace vkf
