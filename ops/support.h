// SPDX-License-Identifier: Apache-2.0
// What the ops' own files share: checks of shapes, choice of group sizes, conversion of views to
// push constants.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>

#include "ops/checks.h"
#include "ops/ops.h"
#include "runtime/base/numbers.h"
#include "runtime/compile/lowering.h"
#include "shaders/common/rounds.h"

namespace vkf::support {

inline void require_dtype(const char* op, const Value& x, DType dtype) {
    require(x.dtype() == dtype, op,
            x.str() + " must be " + std::string(name_of(dtype)) +
                (dtype == DType::f32 && size_of(x.dtype()) == 2 ? ": use to(x, DType::f32)" : ""));
}

/// Rows of words hold so many numbers as that type, one of those that are packed on the device.
void check_packed(const char* op, const Value& words, WeightType type, const Dim& columns);

/// x itself when its elements lie densely, else a copy (a node of its own, visible in explain()).
inline Value dense(Value x) { return is_contiguous(x) ? x : contiguous(x); }

/// OpType::can_read of ops whose kernels read through strides.
inline bool can_read_any(const NodeInfo&, std::size_t, const ValueInfo&) { return true; }

/// A copy that converts f32, f16 and bf16 into each other.
void lower_conversion(Lowering& l, ValueId from, ValueId to);

/// A dense copy of a value, made while its node is lowered.
ValueId copied(Lowering& l, ValueId value);

/// What a ring (B, Hk, S, n) holds, the oldest rows first.
Value ring_in_order(Value x, const RingRows& ring);

/// (...,) of (..., V): log-sum-exp less `smoothing` times the mean of each row.
Value smoothed_log_sum_exp(Value scores, float smoothing);

template <class Params>
std::shared_ptr<const void> params(Params p) {
    return std::make_shared<const Params>(std::move(p));
}

/// The node that add() makes.
extern const OpType kAdd;

/// One node with one fresh fp32 output.
template <class Params>
Value add_op(const OpType& op, std::vector<Value> inputs, Params p, const Shape& shape, DType dtype = DType::f32,
             std::vector<std::size_t> stored_order = {}) {
    Graph& g = inputs.front().graph();
    return g.add_node(op, std::move(inputs), params(std::move(p)), {{dtype, shape, std::move(stored_order), {}}})
        .front();
}

/// An element is dropped when its 32 random bits are below this.
inline std::uint32_t dropout_threshold(float p) {
    return static_cast<std::uint32_t>(std::min(std::round(static_cast<double>(p) * 4294967296.0), 4294967295.0));
}

/// What kept elements are multiplied by. p = 1 keeps none.
inline float dropout_scale(float p) {
    return p == 1.0f ? 0.0f : static_cast<float>(1.0 / (1.0 - static_cast<double>(p)));
}

using vkf::divide_up;

/// The columns of matmul_shared's tiles, and how deep they are.
inline constexpr std::uint32_t kSharedColumns = 64, kSharedDepth = 16;

/// Shared memory of such a tile, in bytes.
inline std::uint32_t shared_tile_bytes(std::uint32_t rows, std::uint32_t depth) {
    return (rows + kSharedColumns + 8) * depth * 4;
}

/// Storage buffers of fused attention that splits its keys.
inline constexpr std::uint32_t kSplitBuffers = 12;

struct Tuned {
    std::uint32_t value = 0;
    std::string note;  ///< for explain(): ", tuned", or why not
};
/// What a tunable (ops/tuning.h) is on this device. Throws Error for whatever does not fit it in a
/// list that was asked for.
Tuned tuned(const Capabilities& device, std::string_view name, std::uint32_t by_capability);

/// How many invocations work on one row, and how many in a group. On processors each invocation
/// takes a row of its own: no shared memory, no barriers. On GPUs a group shares a row, so that
/// neighbours read neighbouring elements.
struct RowGroup {
    std::uint32_t local_size;
    std::uint32_t lanes;  ///< a power of two that divides local_size

    std::uint64_t groups(std::uint64_t rows) const noexcept { return divide_up(rows, local_size / lanes); }
};

/// Throws Error where a row has too many elements even for a group.
inline RowGroup row_group(const Lowering& l, std::int64_t row_length) {
    constexpr std::int64_t kPasses = 4;  // no kernel passes over a row more often
    if (l.device().cpu()) {
        if (row_length <= shader::kMostRounds / kPasses) {
            return {16, 1};
        }
        l.check_rounds(row_length / 128 * kPasses, "a row of " + std::to_string(row_length) + " elements");
    }
    return row_length <= 256 ? RowGroup{128, 32} : RowGroup{128, 128};
}

/// True when every row of the value can be read and written four elements at a time, whatever the
/// sizes of a run: dense along the last dimension, rows of a multiple of four, each beginning at
/// one. (What a descriptor leaves of an offset is always one: descriptors are aligned to 16 bytes
/// at least.)
inline bool in_fours(const ValueInfo& value) {
    const auto by_four = [](const Dim& d) {
        Dim quotient;
        return d.divided_by(Dim(4), quotient);
    };
    if (value.shape.empty() || !(value.strides.back() == Dim(1)) || !by_four(value.shape.back()) ||
        !by_four(value.offset)) {
        return false;
    }
    return std::all_of(value.strides.begin(), value.strides.end() - 1, by_four);
}

inline std::string why_rows(const Capabilities& device, const RowGroup& group, bool fours = false) {
    return (device.cpu() && group.lanes == 1 ? "processor: a row an invocation"
                                             : std::to_string(group.lanes) + " invocations a row") +
           (fours ? ", by fours" : "");
}

}  // namespace vkf::support
