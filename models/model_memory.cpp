// SPDX-License-Identifier: Apache-2.0
#include "models/model_memory.h"

#include "runtime/base/text.h"

namespace vkf {

void ModelMemory::add(const MemorySizes& program) noexcept {
    weights = program.weights;
    cache = program.state;
    scratch += program.scratch + program.exchanged;
    constants += program.constants;
    transfers += program.inputs + program.outputs + program.mirrors;
}

void require_memory(const Device& device, const ModelMemory& memory, const char* who) {
    const std::uint64_t there = device.capabilities().device_memory;
    if (memory.total() > there) {
        throw Error("needs " + megabytes(memory.total()) + " (weights " + megabytes(memory.weights) + ", cache " +
                        megabytes(memory.cache) + ", scratch " + megabytes(memory.scratch) + ", other " +
                        megabytes(memory.constants + memory.transfers) + "); the device has " + megabytes(there),
                    who);
    }
}

}  // namespace vkf
