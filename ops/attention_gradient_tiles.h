// SPDX-License-Identifier: Apache-2.0
// How attention_gradient_coopmat divides near rows among subgroups, and what of the rows it has in
// shared memory at once.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>
#include <string>

#include "ops/attention_params.h"
#include "runtime/base/numbers.h"
#include "runtime/compile/capabilities.h"
#include "runtime/compile/kernel.h"
#include "shaders/attention_gradient_tiles.h"

namespace vkf {

/// The tile of one work group, for cooperative matrices of one shape.
struct GradientMatrixTile {
    MatrixShape mat;
    std::uint32_t subgroups = 0, subgroup_rows = 0;
    std::uint32_t blocks = 0;    ///< blocks of kAttentionGradientTile columns of the results
    std::uint32_t part = 0;      ///< columns that are staged at once
    bool whole = false;          ///< these are all columns, and rows stay staged
    std::uint32_t subgroup = 0;  ///< its size

    std::uint32_t rows() const { return subgroups * subgroup_rows; }
    std::uint32_t invocations() const { return subgroups * subgroup; }

    /// Bytes of shared memory, as shaders/attention_gradient_coopmat.comp declares it.
    std::uint32_t shared_bytes() const {
        constexpr std::uint32_t kFar = shader::kAttentionGradientTile;
        const std::uint32_t staged = (rows() + kFar) * (part / 8 + 1) * (whole ? 2 : 1);
        const std::uint32_t strips = rows() * 2 * (kFar / 8 + 1);
        const std::uint32_t mask = std::max(rows(), kFar * std::max(1u, rows() / 32));
        return 16 * (staged + strips) + 4 * mask + (12 + 4) * kFar;
    }

    bool fits(const Capabilities& device) const {
        constexpr std::uint32_t kFar = shader::kAttentionGradientTile;
        return mat.m != 0 && mat.n % 8 == 0 && mat.k % 8 == 0 && mat.n != 0 && mat.k != 0 && kFar % mat.n == 0 &&
               kFar % mat.k == 0 && part % mat.k == 0 && subgroup_rows % mat.m == 0 && std::has_single_bit(rows()) &&
               std::has_single_bit(subgroup) && subgroups <= device.max_subgroups &&
               invocations() <= std::min(device.max_invocations, device.max_group_size[0]) &&
               shared_bytes() <= device.shared_memory;
    }
};

/// The tile for so many near rows and results so wide: in the advertised shape that fits and has
/// the most multiplications a matrix (of equals the first), the first that fits of four subgroups
/// with whole rows, or with a part of them, and two. A processor takes few rows and one block,
/// which compile sooner.
std::optional<GradientMatrixTile> gradient_matrix_tile(const Capabilities& device, std::int64_t near_rows,
                                                       std::uint32_t columns, std::uint32_t widest);

/// Says what keeps the gradient of this attention from cooperative matrices, in a program for f16;
/// empty: nothing.
std::string no_coopmat_gradient(const Capabilities& device, const AttentionParams& params);
const Shader& coopmat_gradient_shader();
/// The constants that a tile adds to those of the kernel in shared memory.
void add_gradient_matrix_constants(const GradientMatrixTile& tile, Constants& constants);

}  // namespace vkf
