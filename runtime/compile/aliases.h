// SPDX-License-Identifier: Apache-2.0
// Buffers of a SPIR-V module that share memory, and are said to.
#pragma once

#include <cstdint>
#include <vector>

namespace vkf {

/// A valid module in which buffers of one binding are decorated Aliased, where functions touch
/// several of them and not all are only read. A module whose parts are not known is given back as
/// it is.
///
/// A kernel sees the same floats as single ones and in fours. Without the decoration a compiler may
/// take it that what is stored as the one is not what is loaded as the other (SPIR-V 2.18.2), and
/// compilers of GLSL write none.
std::vector<std::uint32_t> mark_aliases(const std::vector<std::uint32_t>& code);

}  // namespace vkf
