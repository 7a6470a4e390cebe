// SPDX-License-Identifier: Apache-2.0
// Packs matrices on the device as they are loaded.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <utility>

#include "runtime/device/device.h"
#include "runtime/device/memory.h"
#include "runtime/device/program.h"

namespace vkf {

/// Rows go up as the file has them, through the uploader, and are packed into their place. Of a
/// device with a queue.
class Packer {
public:
    Packer(const Device& device, std::shared_ptr<DeviceCore> core, Uploader& uploader)
        : device_(device), core_(std::move(core)), uploader_(uploader) {}

    /// Rows of this matrix that pack() takes at once.
    std::uint64_t rows_at_once(const HostTensor& tensor, WeightType type) const;
    /// Makes what pack() needs, without which a driver that refuses the kernel is noticed late.
    void compile(const HostTensor& tensor, WeightType type) { program(tensor, type); }
    /// Packs rows first.. of a packable tensor to `offset` of `target`, and waits. Numbers that the
    /// type cannot hold are not looked for: require_packable() does.
    void pack(const HostTensor& tensor, WeightType type, std::int64_t first, std::uint64_t rows, const Block& target,
              std::uint64_t offset);

private:
    using Key = std::tuple<DType, WeightType, std::uint64_t, std::uint64_t>;  // and rows, columns

    Program& program(const HostTensor& tensor, WeightType type);

    const Device& device_;
    std::shared_ptr<DeviceCore> core_;
    Uploader& uploader_;
    std::map<Key, Program> programs_;
    Block numbers_, words_;
};

}  // namespace vkf
