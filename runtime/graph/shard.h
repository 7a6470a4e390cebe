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
/// units as the others, or one more.
VKF_API Part share_of(std::int64_t size, Rank rank, std::int64_t unit = 1);

/// The part of a whole tensor: its bytes, or those of a copy in `owned`, which must outlive the
/// result. The tensor may be packed; then a shard of columns is one where packed_shard() says so.
VKF_API HostTensor cut(const HostTensor& whole, const Shard& shard, std::vector<float>& owned);
/// True where packed rows can be cut so: whole rows, or columns in such numbers that no word and no
/// scale belongs to two parts.
VKF_API bool packed_shard(WeightType type, const Shard& shard) noexcept;

}  // namespace vkf
