// SPDX-License-Identifier: Apache-2.0
// Checks of what layers are given.
#pragma once

#include <cstdint>

#include "ops/ops.h"

namespace vkf {

/// The last size of x, of any rank. Throws Error in the name of `layer` where it is a symbol.
inline std::int64_t fixed_last(const char* layer, const Value& x) {
    if (!x.size(-1).is_constant()) {
        throw Error(x.str() + " has no fixed width", layer);
    }
    return x.size(-1).constant();
}

/// E of x (B, L, E). Throws Error in the name of `layer` for another rank, or where E is a symbol.
inline std::int64_t fixed_width(const char* layer, const Value& x) {
    if (x.rank() != 3 || !x.size(-1).is_constant()) {
        throw Error(x.str() + " must be (batch, tokens, width) with a fixed width", layer);
    }
    return x.size(-1).constant();
}

}  // namespace vkf
