// SPDX-License-Identifier: Apache-2.0
// What a graph knows of a value.
#pragma once

#include "runtime/graph/graph.h"

namespace vkf {

/// Shape, strides and storage of a value; the reference stays good as the graph grows. Throws Error
/// where the value is of a layer that was refused.
inline const ValueInfo& info_of(const Value& x) {
    x.shape();
    return x.graph().values()[x.id()];
}

}  // namespace vkf
