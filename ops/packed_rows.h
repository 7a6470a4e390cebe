// SPDX-License-Identifier: Apache-2.0
// Rows that are packed on the device, for other ops.
#pragma once

#include <cstdint>

#include "runtime/compile/lowering.h"

namespace vkf {

namespace support {

/// Rows of words hold so many numbers as that type, one of those that are packed on the device.
void check_packed(const char* op, const Value& words, WeightType type, const Dim& columns);

/// Throws what pack_into() would.
void check_pack_into(const Value& window, const Value& x, WeightType type);

/// A whole weight that is packed, (rows, columns), in fp32: made once for all that read it so.
ValueId numbers_of(Lowering& l, ValueId weight);

}  // namespace support

/// a (..., K) as rows of codes, where it has more than kMatvecMaxRows rows: made once for all the
/// products of a.
ValueId codes_of(Lowering& l, ValueId a);
/// a (..., K) as rows of halves, where it has more than so many rows, likewise.
ValueId halves_of(Lowering& l, ValueId a, std::uint32_t few);

}  // namespace vkf
