// SPDX-License-Identifier: Apache-2.0
#include "shaders/argmax.h"

#include <algorithm>

#include "argmax.spv.h"
#include "ops/add_op.h"
#include "ops/argmax_of_finite.h"
#include "ops/checks.h"
#include "ops/fours.h"
#include "ops/gradient.h"
#include "ops/row_group.h"
#include "ops/variants.h"
#include "runtime/base/numbers.h"

namespace vkf {

namespace {

using namespace shader;
using namespace support;

const Shader kShader{"argmax", spirv::kArgmaxSpirv};
const Shader kSubgroups{"argmax_subgroups", spirv::kArgmaxSpirv, kBySubgroups};
constexpr const char* kName = "argmax";

struct ArgmaxParams {
    uint marks = 0;
};

/// Groups that work on rows in parts, all rows together.
constexpr std::uint32_t kMostParts = 512;
/// Fewer parts than this are not worth the dispatch that takes the best of them.
constexpr std::uint32_t kLeastParts = 4;
constexpr std::uint32_t kLeastPartSize = 8192;

struct ArgmaxParts {
    std::uint32_t count = 1, size = 0;
};

/// The parts that each of these rows is cut into; one: it stays whole.
ArgmaxParts argmax_parts(std::uint64_t rows, std::uint32_t width) noexcept {
    const std::uint64_t most = rows == 0 ? 0 : std::min(kMostParts / rows, divide_up(width, kLeastPartSize));
    if (most < kLeastParts) {
        return {};
    }
    const auto size = static_cast<std::uint32_t>(divide_up(divide_up(width, most), 4) * 4);
    return {static_cast<std::uint32_t>(divide_up(width, size)), size};
}

/// Words: invocations of a group and of a row, and 1 where rows can be cut into parts.
enum ArgmaxWord : std::size_t { kGroupSize, kRowLanes, kCanPart };

ArgmaxPush push_of(const Operands& operands, const ArgmaxParts& parts) noexcept {
    const View& x = operands[kArgmaxBindingX];
    ArgmaxPush push{};
    push.width = x.dim(0);
    push.rows = static_cast<uint>(x.rows());
    push.x_offset = x.offset;
    push.index_offset = operands[kArgmaxBindingIndex].offset;
    push.parts_offset = operands.words[kCanPart] != 0 ? operands[kArgmaxBindingParts].offset : 0;
    push.parts = parts.count;
    push.part_size = parts.size;
    return push;
}

/// Whole rows, or their parts.
void prepare(const Operands& operands, Command& command) noexcept {
    const View& x = operands[kArgmaxBindingX];
    const auto parts = operands.words[kCanPart] != 0 ? argmax_parts(x.rows(), x.dim(0)) : ArgmaxParts{};
    command.push(push_of(operands, parts));
    command.kernel(parts.count > 1 ? 1 : 0);
    command.groups(parts.count > 1 ? x.rows() * parts.count
                                   : RowGroup{operands.words[kGroupSize], operands.words[kRowLanes]}.groups(x.rows()));
    command.cost(static_cast<double>(x.elements()) * 2, static_cast<double>(x.elements()) * 4);
}

/// What the parts found, where there are such.
void prepare_merge(const Operands& operands, Command& command) noexcept {
    const View& x = operands[kArgmaxBindingX];
    const ArgmaxParts parts = argmax_parts(x.rows(), x.dim(0));
    command.push(push_of(operands, parts));
    command.groups(parts.count > 1 ? x.rows() : 0);
    const double found = static_cast<double>(x.rows()) * parts.count;
    command.cost(found * 2, found * 8);
}

void lower(Lowering& l) {
    const ValueId x = l.input(0), y = l.output(0);
    const std::int64_t width = l.max_of(l.info(x).shape.back());
    const bool fours = in_fours(l.info(x));
    const RowGroup group = held_row_group(l, width, 0, kSubgroups.name);
    const uint part_lanes = group.subgroups ? std::min(most_row_lanes(l.device()), 256u) : 128;
    const bool parted =
        takes_gpu_rows(l.device()) && !asks_for(l.device(), kRowsLooped) && width >= kLeastParts * kLeastPartSize;
    // short rows share groups, which the variant for subgroups does not know
    const auto shader = [&](const RowGroup& g) {
        return g.subgroups && g.local_size == g.lanes ? &kSubgroups : &kShader;
    };
    const uint marks = l.params<ArgmaxParams>().marks;
    const auto kernel = [&](const RowGroup& g, uint stage, const std::string& what) {
        RowGroup said = g;
        said.subgroups = shader(g) == &kSubgroups;
        return Kernel{shader(g),
                      {g.local_size,
                       {{kArgmaxSpecLanes, g.lanes},
                        {kArgmaxSpecStage, stage},
                        {kArgmaxSpecFours, fours && g.lanes > 1 ? 1u : 0u},
                        {kArgmaxSpecMarks, marks}}},
                      why_rows(l.device(), said, fours && g.lanes > 1 && stage != kArgmaxStageMerge) + what};
    };
    const std::vector<uint> words{group.local_size, group.lanes, parted ? 1u : 0u};
    if (!parted) {
        // as many bindings as where it is one of two: equal kernels are one pipeline
        l.dispatch({kernel(group, kArgmaxStageWhole, "")}, {{x, Access::read}, {y, Access::write}, {x, Access::read}},
                   prepare, words);
        return;
    }
    const RowGroup part{part_lanes, part_lanes, 0, group.subgroups};
    const ValueId found = l.scratch(DType::i32, {Dim(kMostParts)});
    l.dispatch({kernel(group, kArgmaxStageWhole, ""), kernel(part, kArgmaxStageParts, "; few rows, in parts")},
               {{x, Access::read}, {y, Access::write}, {found, Access::write}}, prepare, words);
    l.dispatch({kernel(part, kArgmaxStageMerge, "; the best of the parts")},
               {{x, Access::read}, {y, Access::write}, {found, Access::read}}, prepare_merge, words);
}

constexpr OpType kArgmax{.name = kName, .lower = lower, .gradient = no_gradient};

Value add_argmax(Value x, const ArgmaxParams& params) {
    require_dtype(kName, x, DType::f32);
    require(x.rank() >= 1, kName, x.str() + " has no last dimension");
    Shape shape = x.shape();
    shape.pop_back();
    if (!x.size(-1).is_constant()) {
        x.graph().constrain(1, x.size(-1), std::string(kName) + ": elements needed of each row of " + x.str());
    }
    return add_op(kArgmax, {dense(x)}, params, shape, DType::i32);
}

}  // namespace

Value argmax(Value x) { return add_argmax(x, {}); }

Value argmax_of_finite(Value x) { return add_argmax(x, {.marks = 1}); }

}  // namespace vkf
