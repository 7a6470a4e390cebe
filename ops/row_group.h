// SPDX-License-Identifier: Apache-2.0
// How kernels that work row by row share rows out.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/base/numbers.h"
#include "runtime/compile/lowering.h"
#include "shaders/common/held.h"
#include "shaders/common/rounds.h"
#include "shaders/common/row.h"
#include "shaders/common/subgroups.h"

namespace vkf::support {

/// What makes of a module the kernel that sums by the arithmetic of subgroups, for devices that
/// have it (Capabilities::subgroup_arithmetic).
inline constexpr Constants::Named kBySubgroups{shader::kSpecSubgroups, 1};

/// The number of invocations that work on one row, and of those in a group. On processors each
/// invocation takes a row of its own: no shared memory, no barriers. On GPUs a group shares a row,
/// so that neighbours read neighbouring elements.
struct RowGroup {
    std::uint32_t local_size;
    std::uint32_t lanes;  ///< a power of two that divides local_size
    /// fours of a row that an invocation holds in registers; 0: it reads them again
    std::uint32_t held = 0;
    bool subgroups = false;  ///< with kSubgroups of shaders/common/row.glsl

    std::uint64_t groups(std::uint64_t rows) const noexcept { return divide_up(rows, local_size / lanes); }
};

/// Of GPUs, without subgroups.
inline RowGroup gpu_row_group(std::int64_t row_length) {
    return {shader::kMaxRowGroup, row_length <= 256 ? 32 : shader::kMaxRowGroup};
}

/// Throws Error where a row has too many elements even for a group.
inline RowGroup row_group(const Lowering& l, std::int64_t row_length) {
    constexpr std::int64_t kPasses = 4;  // no kernel passes over a row more often
    if (l.device().cpu()) {
        if (row_length <= shader::kMostRounds / kPasses) {
            return {16, 1};
        }
        l.check_rounds(row_length / shader::kMaxRowGroup * kPasses,
                       "a row of " + std::to_string(row_length) + " elements");
    }
    return gpu_row_group(row_length);
}

/// Longest rows that kernels hold in registers; with more some compilers spill (tools/gpu_report).
/// Norms hold weights too, and their gradient a second row.
inline constexpr std::int64_t kLongestHeldRow = 16384;
inline constexpr std::int64_t kLongestHeldNorm = 8192;

// What VKFORMER_VARIANT can ask of row kernels, on processors too: the row in registers and sums by
// subgroups; the same without these; neither.
inline constexpr const char* kRowsBySubgroups = "rows_subgroups";
inline constexpr const char* kRowsHeld = "rows_held";
inline constexpr const char* kRowsLooped = "rows_looped";

/// True where row kernels are those for GPUs: on GPUs, and where VKFORMER_VARIANT asks for them.
bool takes_gpu_rows(const Capabilities& device);
/// True where these sum by subgroups, with this kernel. Throws Error naming the op where
/// VKFORMER_VARIANT asks for what the device lacks.
bool rows_by_subgroups(const Lowering& l, const char* kernel);
/// The most invocations in a group, a power of two up to 1024.
std::uint32_t most_row_lanes(const Capabilities& device);

/// As row_group(), for kernels with a variant that sums by subgroups, and that can hold rows of up
/// to `most_held` elements in registers (0: none). `kernel` is the variant's name.
RowGroup held_row_group(const Lowering& l, std::int64_t row_length, std::int64_t most_held, const char* kernel);

/// Says for explain() how many invocations work on a row, and why.
std::string why_rows(const Capabilities& device, const RowGroup& group, bool fours = false);

}  // namespace vkf::support
