// SPDX-License-Identifier: Apache-2.0
// Operations on the elements of matrices under the other of their two names.
#pragma once

#include <cstdint>
#include <vector>

namespace vkf {

/// Gives operations on the elements of matrices the names that a device offers: those of
/// SPV_EXT_cooperative_matrix_maintenance1 (`ext`) or of SPV_NV_cooperative_matrix2. Reductions,
/// conversions and per-element operations have the same numbers and meaning in both; only the
/// extension's name and the capability of conversions differ. A module without either stays as it
/// is.
void name_matrix_extension(std::vector<std::uint32_t>& code, bool ext);

}  // namespace vkf
