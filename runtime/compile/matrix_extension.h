// SPDX-License-Identifier: Apache-2.0
// Operations on the elements of matrices under the other of their two names.
#pragma once

#include <cstdint>
#include <vector>

namespace vkf {

/// Makes a module that was compiled with SPV_NV_cooperative_matrix2 one with
/// SPV_EXT_cooperative_matrix_maintenance1: reductions, conversions and per-element operations have
/// the same numbers and meaning in both, and only the extension's name and the capability of
/// conversions differ. A module without that extension stays as it is.
void name_matrix_maintenance(std::vector<std::uint32_t>& code);

}  // namespace vkf
