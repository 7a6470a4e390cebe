// SPDX-License-Identifier: Apache-2.0
// Taking out of a SPIR-V module what can never run, ahead of the driver, and keeping loops.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/compile/kernel.h"

namespace vkf {

/// A valid module without the branches that constant conditions rule out, the functions then called
/// by nobody, and the variables of invocations and groups and the constants then used by nobody.
/// Loops and switches stay as they are; blocks that only follow each other become one.
///
/// Where neither what is left of the functions nor an entry point names a 64-bit integer or what is
/// made of one, these and the capability go too: so a device without them takes a kernel that could
/// load 8 bytes at a time. The capabilities of arithmetic of subgroups and of quads go where no
/// function has such, and all of subgroups, with the variables that tell of an invocation's
/// subgroup, where none has to do with these.
///
/// A kernel that is specialized for eight rows carries the code for sixteen. Drivers drop it too,
/// but late: before that they inline it and walk over it many times. The attention kernels compile
/// in half the time without.
std::vector<std::uint32_t> prune(const std::vector<std::uint32_t>& code);

/// Asks the driver not to unroll loops.
void keep_loops(std::vector<std::uint32_t>& code, Loops loops);

}  // namespace vkf
