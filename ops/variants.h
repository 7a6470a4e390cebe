// SPDX-License-Identifier: Apache-2.0
// Kernels that VKFORMER_VARIANT asks for by name.
#pragma once

#include <span>
#include <string_view>

#include "runtime/compile/capabilities.h"

namespace vkf {

/// The names that VKFORMER_VARIANT may hold.
std::span<const char* const> variants();

/// Throws vkf::Error where VKFORMER_VARIANT names anything but variants(), or two that do the same
/// work.
void check_variants(const Capabilities& device);

/// True where VKFORMER_VARIANT names this one of variants(). Checks the others, too.
bool asks_for(const Capabilities& device, std::string_view variant);

}  // namespace vkf
