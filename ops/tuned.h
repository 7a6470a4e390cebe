// SPDX-License-Identifier: Apache-2.0
// What was chosen for a device of the numbers in ops/tuning.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/compile/capabilities.h"

namespace vkf::support {

struct Tuned {
    std::uint32_t value = 0;
    std::string note = {};  ///< text for explain(): ", tuned", or why not
    bool chosen = false;    ///< it was tuned, or asked for
};
/// Gives the value of a tunable on this device, `by_capability` where none was chosen. Throws Error
/// for whatever does not fit it in a list that was asked for.
Tuned tuned(const Capabilities& device, std::string_view name, std::uint32_t by_capability);

}  // namespace vkf::support
