// SPDX-License-Identifier: Apache-2.0
// Variables of a SPIR-V module that become values, ahead of the driver.
#pragma once

#include <cstdint>
#include <vector>

namespace vkf {

/// A valid module in which the variables of functions, and those of an invocation that one function
/// alone names, are values in static single assignment form (Braun et al. 2013, "Simple and
/// Efficient Construction of Static Single Assignment Form"), number by number: arrays, structs,
/// matrices and vectors become their parts. Variables stay that are indexed by what is no constant,
/// whose address is handed on, or that hold cooperative matrices.
///
/// Values of vectors, in loops, cost lavapipe a quarter more time for products and attention.
std::vector<std::uint32_t> promote_variables(const std::vector<std::uint32_t>& code);

}  // namespace vkf
