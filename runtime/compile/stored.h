// SPDX-License-Identifier: Apache-2.0
// Tensors as a graph declares them, against those that are there.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/compile/weight_layout.h"
#include "runtime/graph/graph.h"

namespace vkf {

/// The storage of a weight or state, kept as the graph declares it; without its place.
StoredTensor as_declared(const StorageInfo& storage);

/// The reader of a tensor: a graph takes it whatever it is kept as, a program as what it was
/// compiled for.
enum class WantedBy : std::uint8_t { graph, program };

/// `given`, null where there is none, once it is what is wanted. Throws Error naming `what`, as in
/// "weight w", and both shapes and types.
const StoredTensor& check_stored(const std::string& what, const StoredTensor& wanted, const StoredTensor* given,
                                 WantedBy by);

}  // namespace vkf
