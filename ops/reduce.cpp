// SPDX-License-Identifier: Apache-2.0
// Sums over dimensions, and sums of squares.
#include "ops/reduce.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "ops/add_op.h"
#include "ops/checks.h"
#include "ops/gradient.h"
#include "ops/row_group.h"
#include "reduce.spv.h"
#include "runtime/base/numbers.h"
#include "runtime/compile/lowering.h"
#include "runtime/graph/info_of.h"
#include "shaders/common/rounds.h"
#include "shaders/reduce.h"

namespace vkf {

namespace {

using namespace shader;
using namespace support;

const Shader kShader{"reduce", spirv::kReduceSpirv};
constexpr const char* kName = "sum_to";

struct ReduceParams {
    /// which dimensions of the operand, the last first, are summed over
    uint summed = 0;
    bool square = false;
};

/// More than so many runs there are not: dimensions that are kept lie between them.
constexpr int kMostRuns = 3;

/// Summed dimensions that follow each other, which keeps_order() lets be one.
struct Run {
    uint size = 1, stride = 0;
};

bool sums_at(uint summed, std::size_t from_last) { return ((summed >> from_last) & 1u) != 0; }

/// True when summed dimensions that follow each other are walked through with one stride, as in a
/// dense tensor: then the order of a sum depends on the sizes alone.
bool keeps_order(const Shape& shape, const Shape& strides, uint summed) {
    std::optional<Dim> next;  // the stride of the dimension outside those so far
    for (std::size_t i = 0; i < shape.size(); ++i) {
        const std::size_t at = shape.size() - 1 - i;
        if (!sums_at(summed, i)) {
            next.reset();
        } else if (!(shape[at] == Dim(1))) {
            if (next && !(strides[at] == *next)) {
                return false;
            }
            next = strides[at] * shape[at];
        }
    }
    return true;
}

/// Words: local size, lanes, parts, and ReduceParams::summed.
enum Word : std::size_t { kLocal, kLaneCount, kParts, kSummed };

void prepare(const Operands& operands, Command& command) noexcept {
    const View& x = operands[kReduceBindingX];
    const uint summed = operands.words[kSummed];
    ReducePush push{};
    Run runs[kMostRuns];
    std::size_t levels = 0;
    bool goes_on = false;  // the dimension within this one belongs to the last run
    push.count = 1;
    for (std::size_t i = 0; i < kMaxRank; ++i) {  // from the innermost
        const bool sums = sums_at(summed, i);
        goes_on = goes_on && sums;
        const std::size_t at = kMaxRank - 1 - i;
        push.size[at] = sums ? 1 : x.size[at];
        push.stride[at] = sums || x.size[at] == 1 ? 0 : x.stride[at];
        push.count *= push.size[at];
        if (!sums || x.size[at] == 1) {
            continue;
        }
        if (goes_on) {
            runs[levels - 1].size *= x.size[at];
        } else {
            runs[levels++] = {x.size[at], x.stride[at]};
            goes_on = true;
        }
    }
    push.inner = push.last = runs[0].size;
    push.inner_stride = runs[0].stride;
    push.outer1 = runs[1].size;
    push.outer1_stride = runs[1].stride;
    push.outer0 = runs[2].size;
    push.outer0_stride = runs[2].stride;
    if (levels < kMostRuns && push.inner > kReduceRun) {
        push.outer0 = runs[1].size;
        push.outer0_stride = runs[1].stride;
        push.outer1 = static_cast<uint>(divide_up(push.inner, kReduceRun));
        push.outer1_stride = kReduceRun * push.inner_stride;
        push.last = push.inner - (push.outer1 - 1) * kReduceRun;
        push.inner = kReduceRun;
    }
    push.parts = operands.words[kParts];
    push.x_offset = x.offset;
    push.out_offset = operands[kReduceBindingOut].offset;
    command.push(push);
    command.groups(push.parts * divide_up(push.count, operands.words[kLocal] / operands.words[kLaneCount]));
    command.cost(static_cast<double>(x.elements()), static_cast<double>(x.elements()) * 4);
}

/// Up to so many elements of a sum are taken by one invocation, or those that share it.
constexpr std::int64_t kPart = 4096;
constexpr std::int64_t kMostParts = 1024;

/// Runs that the summed dimensions are, at most.
int runs_of(uint summed) { return std::popcount(summed & ~(summed << 1)); }

void emit(Lowering& l, ValueId from, const ReduceParams& params, ValueId to) {
    const ValueInfo& x = l.info(from);
    std::int64_t terms = 1, results = 1;
    for (std::size_t i = 0; i < x.shape.size(); ++i) {
        const bool sums = sums_at(params.summed, x.shape.size() - 1 - i);
        (sums ? terms : results) *= l.max_of(x.shape[i]);
    }
    const bool within_rows = (params.summed & 1u) != 0;  // neighbours read neighbouring elements
    const RowGroup group = l.device().cpu() ? RowGroup{16, 1}
                           : within_rows    ? RowGroup{kMaxRowGroup, 32}
                                            : RowGroup{64, 1};
    // with many results there is work enough for a device without parts
    const std::int64_t each = results >= kPart ? 16 * kPart : kPart;
    std::int64_t some = std::min((terms + each - 1) / each, kMostParts);
    const auto rounds = [&] { return 2 * terms / (some * group.lanes) + 2 * some; };
    while (l.device().cpu() && rounds() > kMostRounds && some < terms / some) {
        some *= 2;  // beyond that, more parts are no fewer rounds
    }
    l.check_rounds(rounds(), "a sum of " + std::to_string(terms) + " elements");
    const auto parts = static_cast<uint>(some);
    if (runs_of(params.summed) == kMostRuns) {  // parts are whole runs then
        const std::int64_t inner = l.max_of(x.shape.back());
        l.check_rounds(2 * inner / group.lanes, "a sum over rows of " + std::to_string(inner) + " elements");
    }
    const auto dispatch = [&](ValueId x_id, ValueId sums, uint in_parts, bool square, uint summed) {
        const std::string why = std::to_string(group.lanes) + " invocations a sum" +
                                (in_parts > 1 ? ", in " + std::to_string(in_parts) + " parts" : "");
        l.dispatch({{&kShader,
                     {group.local_size, {{kReduceSpecLanes, group.lanes}, {kReduceSpecSquare, square ? 1u : 0u}}},
                     why}},
                   {{x_id, Access::read}, {sums, Access::write}}, prepare,
                   {group.local_size, group.lanes, in_parts, summed});
    };
    if (parts == 1) {
        dispatch(from, to, 1, params.square, params.summed);
        return;
    }
    const ValueId partial = l.scratch(DType::f32, {parts, elements(l.info(to).shape)});
    constexpr uint kRows = 2;  // of (parts, sums)
    dispatch(from, partial, parts, params.square, params.summed);
    dispatch(partial, to, 1, false, kRows);
}

void lower(Lowering& l) { emit(l, l.input(0), l.params<ReduceParams>(), l.output(0)); }

std::vector<Value> gradient_of_sum(const GradientSite& site) {
    return {broadcast_to(site.gradient(), site.input(0).shape())};
}

bool can_read(const NodeInfo& node, std::size_t, const ValueInfo&, const ValueInfo& moved) {
    return keeps_order(moved.shape, moved.strides, static_cast<const ReduceParams*>(node.params.get())->summed);
}

constexpr OpType kSum{.name = "sum", .lower = lower, .can_read = can_read, .gradient = gradient_of_sum};

/// `shape` has x's rank.
Value add_sum(Value x, const Shape& shape) {
    ReduceParams p;
    for (std::size_t i = 0; i < shape.size(); ++i) {
        const bool kept = shape[i] == x.shape()[i];
        p.summed |= kept ? 0u : 1u << (shape.size() - 1 - i);
    }
    const Shape& strides = info_of(x).strides;
    return add_op(kSum, {keeps_order(x.shape(), strides, p.summed) ? x : dense(x)}, p, shape);
}

}  // namespace

Value sum_to(Value x, const Shape& shape) {
    require_dtype(kName, x, DType::f32);
    const auto fits = [&](bool good) {
        require(good, kName, x.str() + " cannot be summed to " + x.graph().str(shape));
    };
    fits(shape.size() <= x.rank());
    Shape kept(x.rank(), Dim(1));
    for (std::size_t i = 0; i < shape.size(); ++i) {
        const std::size_t at = x.rank() - shape.size() + i;
        fits(shape[i] == x.shape()[at] || shape[i] == Dim(1));
        kept[at] = shape[i];
    }
    const Value sum = kept == x.shape() ? x : add_sum(x, kept);
    return shape.size() == x.rank() ? sum : reshape(sum, shape);
}

Value sum(Value x) {
    require_dtype("sum", x, DType::f32);
    return reshape(add_sum(x, Shape(x.rank(), Dim(1))), {1});
}

void support::lower_sum(Lowering& l, ValueId x, const std::vector<bool>& summed, ValueId out) {
    ReduceParams p;
    for (const bool sums : summed) {
        p.summed = 2 * p.summed + (sums ? 1 : 0);
    }
    emit(l, x, p, out);
}

void support::lower_sum_of_squares(Lowering& l, ValueId x, ValueId out) {
    const std::size_t rank = l.info(x).shape.size();
    emit(l, x, {.summed = (1u << rank) - 1, .square = true}, out);
}

}  // namespace vkf
