// SPDX-License-Identifier: Apache-2.0
// Views: the same bytes under another shape. No node, no copy; every op takes them.
#pragma once

#include "graph.h"

namespace vkf {

/// A view of the same elements in the same order, of another shape. One size may be -1 (worked out
/// from the rest). Throws when the strides of `x` cannot express it (then contiguous(x) first).
VKF_API Value reshape(Value x, Shape shape);
/// Swaps two dimensions; negative counts from the innermost.
VKF_API Value transpose(Value x, int a, int b);
/// Dimension i of the result is dimension order[i] of x.
VKF_API Value permute(Value x, const std::vector<std::size_t>& order);
/// Elements start .. start+length-1 of a dimension. Symbolic ends are checked at each run.
VKF_API Value slice(Value x, int dim, Dim start, Dim length);
/// x under `shape` as NumPy broadcasts: missing leading dimensions and sizes of 1 repeat.
VKF_API Value broadcast_to(Value x, const Shape& shape);
/// (..., L, H*d) -> (..., H, L, d): head h is columns h*d .. h*d+d-1.
VKF_API Value split_heads(Value x, std::int64_t heads);
/// (..., H, L, d) -> (..., L, H*d), the inverse of split_heads; free where the heads are stored
/// beside each other; throws as reshape() where they are not.
VKF_API Value merge_heads(Value x);

/// The shape two operands have together under NumPy's broadcasting. Throws naming `op`, both values
/// and the dimension.
VKF_API Shape broadcast_shapes(const char* op, const Value& a, const Value& b);
/// True when the value's elements lie densely in row-major order.
VKF_API bool is_contiguous(const Value& x);

}  // namespace vkf
