// SPDX-License-Identifier: Apache-2.0
// How attention on cooperative matrices divides rows among subgroups, and what of queries, keys and
// values it has in shared memory at once.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>

#include "ops/matrices.h"
#include "runtime/base/numbers.h"
#include "runtime/compile/capabilities.h"
#include "shaders/attention.h"

namespace vkf {

/// The tile of one work group, for cooperative matrices of one shape.
struct AttentionTile {
    MatrixShape mat;
    std::uint32_t subgroups = 0, subgroup_rows = 0;
    std::uint32_t blocks = 0;    ///< blocks of kAttentionMatrixTile columns of O
    std::uint32_t part = 0;      ///< columns of Q and K
    std::uint32_t subgroup = 0;  ///< its size
    bool elements = false;       ///< for attention_coopmat_elements.comp

    std::uint32_t rows() const { return subgroups * subgroup_rows; }
    std::uint32_t invocations() const { return subgroups * subgroup; }

    /// Bytes of shared memory, as shaders/common/attention_stage.glsl declares it.
    std::uint32_t shared_bytes() const {
        constexpr std::uint32_t kKeys = shader::kAttentionMatrixTile;
        const std::uint32_t queries = rows() * (part / 8 + 1);
        const std::uint32_t tile = kKeys * (part / 8 + 1) + kKeys * (blocks * kKeys / 8 + 1);
        const std::uint32_t strips = rows() * (kKeys / (elements ? 8 : 4) + 1);
        // some rows of queries at a time, in the place of the others
        const std::uint32_t eights =
            elements ? std::max(subgroup_rows * (part / 8 + 1), tile + strips) : queries + tile + strips;
        const std::uint32_t marks = rows() * blocks * kKeys / 16;
        return 16 * eights + 4 * ((elements ? 1 : 2) * rows() + (elements ? 2 : 1) + marks);
    }

    bool fits(const Capabilities& device) const {
        constexpr std::uint32_t kKeys = shader::kAttentionMatrixTile;
        return mat.m != 0 && mat.n % 8 == 0 && mat.k % 8 == 0 && mat.n != 0 && mat.k != 0 && kKeys % mat.n == 0 &&
               kKeys % mat.k == 0 && part % mat.k == 0 && subgroup_rows % mat.m == 0 && std::has_single_bit(subgroup) &&
               (!elements || (mat.n == mat.k && subgroup_rows == mat.m)) && subgroups <= device.max_subgroups &&
               invocations() <= std::min(device.max_invocations, device.max_group_size[0]) &&
               shared_bytes() <= device.shared_memory;
    }
};

/// The tile of so many subgroups, with 16 rows each or as many as a matrix has (on a processor
/// always that), in the advertised shape that fits and has the most multiplications a matrix; of
/// equals the first. All of the head at once, or the largest part of it that fits. With `elements`
/// a subgroup has a matrix's rows, and a head is never in parts.
inline std::optional<AttentionTile> attention_tile(const Capabilities& device, std::uint32_t subgroups,
                                                   std::uint32_t blocks, std::uint32_t head_dim,
                                                   bool elements = false) {
    constexpr std::uint32_t kSubgroupRows = 16;
    std::optional<AttentionTile> best;
    for (const MatrixShape& shape : device.matrix_shapes) {
        if (multiplications(shape) <= (best ? multiplications(best->mat) : 0)) {
            continue;
        }
        const std::uint32_t whole = static_cast<std::uint32_t>(align_up(head_dim, shape.k));
        for (const std::uint32_t most : {256u, 128u, 64u, 32u}) {
            const AttentionTile t{shape,
                                  subgroups,
                                  device.cpu() || elements ? shape.m : std::max(kSubgroupRows, shape.m),
                                  blocks,
                                  std::min(whole, std::max(most, shape.k)),
                                  device.matrix_subgroup_size,
                                  elements};
            if (t.fits(device) && (!elements || t.part == whole)) {
                best = t;
                break;
            }
        }
    }
    return best;
}

}  // namespace vkf
