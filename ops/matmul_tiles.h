// SPDX-License-Identifier: Apache-2.0
// How matmul_coopmat divides a product among subgroups.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "ops/matrices.h"
#include "runtime/compile/capabilities.h"

namespace vkf {

/// The tile of one work group, for cooperative matrices of one shape.
struct CoopmatTile {
    MatrixShape mat;
    std::uint32_t rows = 0, columns = 0, depth = 0;
    /// the part of the tile that one subgroup computes
    std::uint32_t subgroup_rows = 0, subgroup_columns = 0;
    std::uint32_t subgroup = 0;  ///< its size
    bool codes = false;          ///< operands are of int8, not of f16
    /// copies of A's and B's tile in shared memory, kMatmulSpecStages
    std::uint32_t stages = 2;

    std::uint32_t subgroups() const { return rows / subgroup_rows * (columns / subgroup_columns); }
    std::uint32_t invocations() const { return subgroups() * subgroup; }

    /// Shared memory as shaders/matmul_coopmat.comp declares it, in bytes; the larger of B's two
    /// layouts, of which codes have one.
    std::uint32_t shared_bytes() const {
        const std::uint32_t chunks = depth / (codes && mat.k % 16 == 0 ? 16 : 8);
        const std::uint32_t along_n = codes ? 0 : depth * (columns / 8 + 1);
        return 16 * std::max(stages * (rows * (chunks + 1) + std::max(columns * (chunks + 1), along_n)),
                             subgroups() * mat.m * (subgroup_columns / 4));
    }

    bool fits(const Capabilities& device) const {
        return mat.n % 8 == 0 && mat.k % (codes && mat.k != 8 ? 16 : 8) == 0 && depth % mat.k == 0 &&
               subgroup_rows % mat.m == 0 && subgroup_columns % mat.n == 0 && rows % subgroup_rows == 0 &&
               columns % subgroup_columns == 0 && subgroups() <= device.max_subgroups &&
               invocations() <= std::min(device.max_invocations, device.max_group_size[0]) &&
               shared_bytes() <= device.shared_memory;
    }

    std::string str() const {
        return std::to_string(rows) + "x" + std::to_string(columns) + "x" + std::to_string(depth) + ", " +
               matrices_of(mat) + (stages == 1 ? ", one stage" : "");
    }
};

/// The tile of `down` x `across` subgroups, each with `mats_down` x `mats_across` matrices, in the
/// advertised shape that fits and has the most multiplications a matrix; of equals the first. Two
/// matrices deep, or one; where it is `deep` at first as many as take 128 bytes of a row, which
/// then have one stage.
inline std::optional<CoopmatTile> coopmat_tile(const Capabilities& device, std::uint32_t mats_down,
                                               std::uint32_t mats_across, std::uint32_t down, std::uint32_t across,
                                               bool codes = false, bool deep = false) {
    std::optional<CoopmatTile> best;
    for (const MatrixShape& shape : codes ? device.int8_matrix_shapes : device.matrix_shapes) {
        if (multiplications(shape) <= (best ? multiplications(best->mat) : 0)) {
            continue;
        }
        const std::uint32_t rows = mats_down * shape.m, columns = mats_across * shape.n;
        const std::uint32_t line = codes ? 128 : 64;
        const std::pair<std::uint32_t, std::uint32_t> deep_first[] = {{line, 1}, {2 * shape.k, 2}, {shape.k, 2}};
        for (const auto& [depth, stages] : std::span(deep_first).subspan(deep ? 0 : 1)) {
            const CoopmatTile t{shape, down * rows, across * columns, depth, rows, columns, device.matrix_subgroup_size,
                                codes, stages};
            if (t.fits(device)) {
                best = t;
                break;
            }
        }
    }
    return best;
}

}  // namespace vkf
