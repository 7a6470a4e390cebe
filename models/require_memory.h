// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "models/decoder.h"

namespace vkf {

/// Throws Error in the name of `who`, with the numbers, where that is more than the device has.
void require_memory(const Device& device, const DecoderMemory& memory, const char* who);
/// Takes in what a program needs; several share weights and states.
void add(DecoderMemory& sum, const MemorySizes& program);

}  // namespace vkf
