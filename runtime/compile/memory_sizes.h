// SPDX-License-Identifier: Apache-2.0
// The memory that a program takes.
#pragma once

#include <cstdint>

namespace vkf {

/// Bytes by kind, all symbols at their maxima.
struct MemorySizes {
    std::uint64_t weights = 0;  ///< bytes of the tensors the graph names
    std::uint64_t state = 0;
    std::uint64_t constants = 0;
    std::uint64_t scratch = 0;  ///< the arena
    std::uint64_t inputs = 0;
    std::uint64_t outputs = 0;
    /// host-side copies of inputs and outputs; 0 where memory is unified
    std::uint64_t mirrors = 0;
    std::uint64_t exchanged = 0;  ///< scratch that the host sees, for what ranks do together
};

}  // namespace vkf
