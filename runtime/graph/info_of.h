// SPDX-License-Identifier: Apache-2.0
// What a graph knows of a value.
#pragma once

#include "runtime/graph/graph.h"

namespace vkf {

/// Shape, strides and storage of a value; the reference stays good as the graph grows.
inline const ValueInfo& info_of(const Value& x) { return x.graph().values()[x.id()]; }

}  // namespace vkf
