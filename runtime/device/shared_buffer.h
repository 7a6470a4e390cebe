// SPDX-License-Identifier: Apache-2.0
// Buffers whose memory other devices, processes or libraries see too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "../base/export.h"
#include "vulkan_handles.h"

namespace vkf {

struct DeviceCore;

/// A storage buffer on memory that is shared; bind it as BufferRange::buffer. Whoever shares it
/// orders the accesses: with semaphores, fences or by waiting; between devices with changes of
/// ownership from and to VK_QUEUE_FAMILY_EXTERNAL (BufferRange::acquire_from and release_to).
/// Copies share the buffer, which is destroyed with the last one.
class VKF_API SharedBuffer {
public:
    SharedBuffer(const SharedBuffer&) = default;  // and no moves: there is always a buffer
    SharedBuffer& operator=(const SharedBuffer&) = default;

    VkBuffer buffer() const noexcept;
    std::uint64_t bytes() const noexcept;
    /// A new file descriptor of the memory, the caller's to close. Throws for memory that was
    /// imported from the host.
    int export_fd() const;

private:
    friend class Device;
    struct Core;
    explicit SharedBuffer(std::shared_ptr<Core> core) : core_(std::move(core)) {}
    std::shared_ptr<Core> core_;
};

}  // namespace vkf
