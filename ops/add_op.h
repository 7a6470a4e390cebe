// SPDX-License-Identifier: Apache-2.0
// How an op's function adds its node to a graph.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "ops/ops.h"
#include "runtime/graph/op.h"

namespace vkf::support {

/// x itself when its elements lie densely, else a copy (a node of its own, visible in explain()).
inline Value dense(Value x) { return is_contiguous(x) ? x : contiguous(x); }

/// The OpType::can_read of ops whose kernels read through strides.
inline bool can_read_any(const NodeInfo&, std::size_t, const ValueInfo&, const ValueInfo&) { return true; }

template <class Params>
std::shared_ptr<const void> params(Params p) {
    return std::make_shared<const Params>(std::move(p));
}

/// One node with one fresh fp32 output.
template <class Params>
Value add_op(const OpType& op, std::vector<Value> inputs, Params p, const Shape& shape, DType dtype = DType::f32,
             std::vector<std::size_t> stored_order = {}) {
    Graph& g = inputs.front().graph();
    return g.add_node(op, std::move(inputs), params(std::move(p)), {{dtype, shape, std::move(stored_order), {}}})
        .front();
}

}  // namespace vkf::support
