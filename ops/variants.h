// SPDX-License-Identifier: Apache-2.0
// Kernels that VKFORMER_VARIANT asks for by name.
#pragma once

#include <span>
#include <string_view>

#include "runtime/compile/capabilities.h"

namespace vkf {

/// The names that VKFORMER_VARIANT may hold.
std::span<const char* const> variants();

/// True where VKFORMER_VARIANT names this one of variants(). Throws vkf::Error where it names
/// anything else.
bool asks_for(const Capabilities& device, std::string_view variant);

}  // namespace vkf
