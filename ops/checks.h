// SPDX-License-Identifier: Apache-2.0
// Checks of arguments, in the words of all ops.
#pragma once

#include <cmath>
#include <string>

#include "runtime/base/error.h"

namespace vkf::support {

[[noreturn]] inline void fail(const char* op, const std::string& what) { throw Error(what, op); }

inline void require(bool condition, const char* op, const std::string& what) {
    if (!condition) {
        fail(op, what);
    }
}

inline void require_finite(const char* op, const char* parameter, double value) {
    require(std::isfinite(value), op, std::string(parameter) + " = " + std::to_string(value) + " is not finite");
}

}  // namespace vkf::support
