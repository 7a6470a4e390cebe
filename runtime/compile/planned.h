// SPDX-License-Identifier: Apache-2.0
// What a plan is made of: dispatches with their place and time, collectives, and copies.
// For op authors: <vkformer/advanced/planned.h>. It may change between versions.
#pragma once

#include <cstdint>
#include <vector>

#include "dispatch.h"

namespace vkf {

/// The part of a storage that a binding's descriptor covers.
struct Window {
    StorageId storage = 0;
    /// bytes from the storage's start; a multiple of the device's alignment
    std::uint64_t base = 0;
    std::uint64_t bytes = 0;
};

struct PlannedDispatch {
    Dispatch dispatch;
    std::vector<Window> windows;  ///< one a binding
    /// The bindings that may be texel buffers (texel_fetches.h) where their memory is the
    /// library's, a bit each.
    std::uint32_t texels = 0;
    std::uint32_t step = 0;  ///< a barrier stands where it grows
    /// Of a collective: the entry of Plan::work before which it has to be over. The ones in between
    /// run while the ranks exchange.
    std::uint32_t over_before = 0;
    /// The kernel that sizes which are constant choose: the others are never needed. -1: chosen
    /// when recorded.
    int only_kernel = -1;

    bool may_choose(std::size_t kernel) const noexcept {
        return only_kernel < 0 || kernel == static_cast<std::size_t>(only_kernel);
    }
};

enum class CopyDirection : std::uint8_t { to_device, to_host };

/// A copy of an input from its mirror, memory that the host writes, or of an output to its mirror,
/// memory that the host reads: as much as there is at the sizes set, and of inputs those that were
/// uploaded since the last run. Program::run() and submit() make it; a host that records
/// binds buffers of its own, for which copies are left out.
struct PlannedCopy {
    StorageId storage = 0;
    CopyDirection direction = CopyDirection::to_device;
    std::uint32_t step = 0;
};

enum class WorkKind : std::uint8_t { dispatch, copy, collective };

/// One entry of what a plan records: an index into Plan::dispatches, where collectives are too, or
/// Plan::copies.
struct PlannedWork {
    WorkKind kind = WorkKind::dispatch;
    std::uint32_t index = 0;
};

}  // namespace vkf
