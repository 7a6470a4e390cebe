// SPDX-License-Identifier: Apache-2.0
// Bounds of options.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/base/error.h"

namespace vkf {

/// Throws Error in the name of `who` where the option `what` is outside least..most.
inline void check_within(const char* who, const char* what, std::int64_t value, std::int64_t least, std::int64_t most) {
    if (value < least || value > most) {
        throw Error(std::string(what) + " = " + std::to_string(value) + " is outside " + std::to_string(least) + ".." +
                        std::to_string(most),
                    who);
    }
}

}  // namespace vkf
