// SPDX-License-Identifier: Apache-2.0
// A corner of a state: the first so many elements along each dimension, shape[i] of dimension i.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/device/tensor_store.h"

namespace vkf {

/// The shape of the corner with the first `length` elements of one dimension, or with all where
/// that is -1. Throws Error where the state has not as many.
std::vector<std::int64_t> corner_of(const StoredTensor& state, std::size_t dim, std::int64_t length);
/// Reads the elements of a corner, as State::read() gives them.
std::vector<std::byte> read_corner(const TensorStore& store, const StoredTensor& state,
                                   std::span<const std::int64_t> shape);
/// Writes its elements, as State::write() does.
void write_corner(TensorStore& store, const StoredTensor& state, std::span<const std::int64_t> shape,
                  std::span<const std::byte> bytes);

}  // namespace vkf
