// SPDX-License-Identifier: Apache-2.0
// The rows beside the device's ceilings, as a picture (Williams, Waterman and Patterson 2009,
// "Roofline").
#pragma once

#include <filesystem>

#include "benches.h"

/// Left: GFLOP/s over flops a byte, for rows that have both. Right: each row's share of the ceiling
/// that binds it. SVG. Throws when the file cannot be written.
void write_roofline(const std::filesystem::path& path, const std::vector<Row>& rows, const Ceilings& ceilings);
