// SPDX-License-Identifier: Apache-2.0
// Errors of calls that neither throw nor allocate.
#pragma once

#include "runtime/device/status.h"

namespace vkf {

/// These format as printf does. What does not fit is cut in its middle, between characters: names
/// stand in front, and the end says what is wrong. misuse() has the result Status::kWrongUse.
Status failure(int result, const char* format, ...) noexcept;
Status misuse(const char* format, ...) noexcept;

using ull = unsigned long long;  // the type that printf has

}  // namespace vkf
