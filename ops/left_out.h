// SPDX-License-Identifier: Apache-2.0
// Kernels that a device is to do without (Capabilities::left_out), in the words of all ops.
#pragma once

#include <string>
#include <string_view>

#include "ops/checks.h"
#include "ops/variants.h"
#include "runtime/compile/capabilities.h"

namespace vkf::support {

/// Says why a kernel is left out; empty where it is not. Throws where VKFORMER_VARIANT asks for it
/// under the name `variant`.
inline std::string left_out(const Capabilities& device, const char* op, std::string_view kernel,
                            std::string_view variant) {
    std::string why = device.why_left_out(kernel);
    if (!why.empty() && asks_for(device, variant)) {
        fail(op, "VKFORMER_VARIANT asks for " + std::string(variant) + "; " + why);
    }
    return why;
}

inline std::string left_out(const Capabilities& device, const char* op, std::string_view kernel) {
    return left_out(device, op, kernel, kernel);
}

}  // namespace vkf::support
