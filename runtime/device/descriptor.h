// SPDX-License-Identifier: Apache-2.0
// File descriptors, which some systems do not have.
#pragma once

namespace vkf {

/// -1 where that fails or there are none.
int duplicate_descriptor(int descriptor) noexcept;
void close_descriptor(int descriptor) noexcept;

}  // namespace vkf
