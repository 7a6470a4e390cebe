// SPDX-License-Identifier: Apache-2.0
// Ranks that compute together, and how bytes get from one to another.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "../runtime/base/export.h"

namespace vkf {

/// Bytes for another rank.
struct Outgoing {
    int to = 0;
    std::span<const std::byte> bytes;
};

/// Room for bytes of another rank.
struct Incoming {
    int from = 0;
    std::span<std::byte> bytes;
};

/// One rank's end of what joins all of them. It belongs to one thread at a time.
class VKF_API Transport {
public:
    Transport() = default;
    Transport(const Transport&) = delete;
    Transport& operator=(const Transport&) = delete;
    virtual ~Transport();

    /// This one's number, 0 to ranks() - 1.
    virtual int rank() const noexcept = 0;
    virtual int ranks() const noexcept = 0;
    /// Sends and receives, at most one message each way for each other rank, and returns once all
    /// have arrived and what was sent may change. The other rank must exchange too, with messages
    /// of the same sizes. Throws Error naming the rank that does not within the limit, or has
    /// ended; no later call succeeds then.
    virtual void exchange(std::span<const Outgoing> out, std::span<const Incoming> in) = 0;
    /// The longest that exchange() waits for other ranks, in seconds; 10 at first. Long messages
    /// may take longer.
    virtual void limit(double seconds) noexcept = 0;
};

/// Joins so many ranks in one process: one each for a thread, with a Device of its own. A rank that
/// is destroyed has ended for the others. Throws Error for fewer than one rank and for more than
/// 4096.
VKF_API std::vector<std::unique_ptr<Transport>> local_transports(int ranks);

}  // namespace vkf
