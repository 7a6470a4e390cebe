// SPDX-License-Identifier: Apache-2.0
// The part of a tensor that one of several ranks has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "../base/export.h"
#include "host_tensor.h"

namespace vkf {

/// One of the ranks that compute a graph together.
struct Rank {
    int rank = 0, ranks = 1;
    /// How fast the ranks' devices are, in any unit: what is shared out is so in proportion. One
    /// for each rank, above 0; empty: alike.
    std::vector<double> speeds = {};

    bool operator==(const Rank&) const = default;
};

/// `count` neighbours from `first` on.
struct Part {
    std::int64_t first = 0, count = 0;

    bool operator==(const Part&) const = default;
};

/// A weight that is a part of a whole tensor: along one dimension these, one behind the other; of
/// the others everything.
struct Shard {
    std::size_t dim = 0;
    std::int64_t whole = 0;  ///< the size of the whole tensor there
    std::vector<Part> parts;

    bool operator==(const Shard&) const = default;
};

/// What a rank has of `size` things in units of `unit`, the last of which may be smaller: as many
/// units as the others, or one more. Where ranks have speeds, it is in proportion to them, so that
/// the slowest takes the least time; one unit at least to each where there are so many. Throws
/// Error as check_rank() does, for a size below 0 and for a unit below 1.
VKF_API Part share_of(std::int64_t size, const Rank& rank, std::int64_t unit = 1);
/// Throws Error naming the numbers for a rank that there is not, for another number of speeds than
/// of ranks, and for one that is not above 0.
VKF_API void check_rank(const Rank& rank);

/// The part of a whole tensor: its bytes, or those of a copy in `owned`, which must outlive the
/// result. The tensor may be packed; then a shard of columns is one where packed_shard() says so.
VKF_API HostTensor cut(const HostTensor& whole, const Shard& shard, std::vector<float>& owned);
/// True where packed rows can be cut so: whole rows, or columns in such numbers that no word and no
/// scale belongs to two parts.
VKF_API bool packed_shard(WeightType type, const Shard& shard) noexcept;

}  // namespace vkf
