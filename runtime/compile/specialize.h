// SPDX-License-Identifier: Apache-2.0
// Specialization done on the words of a SPIR-V module, ahead of the driver.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace vkf {

/// A copy of a valid module in which specialization constant `i` is the plain constant
/// `constants[i]` (its default where `constants` is shorter), that of `constant` (id, value) the
/// plain constant it says, and what is computed from such constants is computed. An expression this
/// does not know stays as it is; the copy is valid all the same. Throws Error where a constant of
/// 64 bits is given another number than 0.
///
/// Drivers may put the values in only after they optimise, and SwiftShader does: whatever the
/// constants rule out is then compiled, and its conditions tested in every invocation. A matrix
/// product took 8 times as long to run there and 20 times as long to compile.
std::vector<std::uint32_t> specialize(std::span<const std::uint32_t> code, std::span<const std::uint32_t> constants,
                                      std::optional<std::pair<std::uint32_t, std::uint32_t>> constant = {});

}  // namespace vkf
