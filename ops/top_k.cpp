// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>

#include "ops/add_op.h"
#include "ops/checks.h"
#include "ops/fours.h"
#include "ops/gradient.h"
#include "ops/row_group.h"
#include "ops/variants.h"
#include "runtime/base/numbers.h"
#include "runtime/compile/lowering.h"
#include "shaders/top_k.h"
#include "shaders/top_k_parts.h"
#include "top_k.spv.h"
#include "top_k_parts.spv.h"

namespace vkf {

namespace {

using namespace shader;
using namespace support;

const Shader kShader{"top_k", spirv::kTopKSpirv};
const Shader kPartsShader{"top_k_parts", spirv::kTopKPartsSpirv};
constexpr const char* kName = "top_k";

struct TopKParams {
    uint k;
};

void prepare(const Operands& operands, Command& command) noexcept {
    const View& x = operands[kTopKBindingX];
    TopKPush push{};
    push.width = x.dim(0);
    push.k = operands.params<TopKParams>().k;
    push.x_offset = x.offset;
    push.values_offset = operands[kTopKBindingValues].offset;
    push.indices_offset = operands[kTopKBindingIndices].offset;
    command.push(push);
    command.groups(x.rows());
    command.cost(static_cast<double>(x.elements()) * 12, static_cast<double>(x.elements()) * 20);
}

/// A group a row, which it reads six times.
void lower_rows(Lowering& l) {
    constexpr std::int64_t kPasses = 6;
    const std::int64_t width = l.max_of(l.info(l.input(0)).shape.back());
    l.check_rounds(width / kTopKMost * kPasses, "a row of " + std::to_string(width) + " elements");
    l.dispatch({{&kShader, {}, "a group a row"}},
               {{l.input(0), Access::read}, {l.output(0), Access::write}, {l.output(1), Access::write}}, prepare, {});
}

// --- in parts ------------------------------------------------------------------------------------

/// One dispatch over what `count` elements of each row are: those of x, or those found before.
struct TopKStage {
    std::uint32_t count = 0, parts = 0, part_size = 0;
    std::uint32_t local_size = 0, held = 0;
};

TopKStage top_k_stage(const Capabilities& device, std::uint32_t count) {
    const std::uint32_t most_lanes = std::min(most_row_lanes(device), 256u);
    const auto most_parts = static_cast<std::uint32_t>(divide_up(count, most_lanes * kTopKMostHeld));
    TopKStage s{.count = count};
    s.part_size = static_cast<std::uint32_t>(divide_up(divide_up(count, most_parts), 4) * 4);
    s.parts = static_cast<std::uint32_t>(divide_up(count, s.part_size));
    s.local_size = s.part_size <= 512 ? kTopKMostRanked : most_lanes;
    s.held = std::bit_ceil(static_cast<std::uint32_t>(divide_up(s.part_size, s.local_size)));
    return s;
}

/// Words: a stage's numbers, and where the values are written: 1, in the last stage.
enum TopKWord : std::size_t { kCount, kPartCount, kPartSize, kIsLast };

void prepare_parts(const Operands& operands, Command& command) noexcept {
    const View& x = operands[kTopKPartsBindingX];
    TopKPartsPush push{};
    push.width = x.dim(0);
    push.count = operands.words[kCount];
    push.parts = operands.words[kPartCount];
    push.part_size = operands.words[kPartSize];
    push.k = operands.params<TopKParams>().k;
    push.x_offset = x.offset;
    push.indices_offset = operands[kTopKPartsBindingIndices].offset;
    push.found_offset = operands[kTopKPartsBindingFound].offset;
    push.values_offset = operands.words[kIsLast] != 0 ? operands[kTopKPartsBindingValues].offset : 0;
    command.push(push);
    command.groups(x.rows() * push.parts);
    const double elements = static_cast<double>(x.rows()) * push.count;
    command.cost(elements * 12, elements * 4);
}

/// A group a part of a row, which it reads once, and then what the parts found, until a row has one
/// part. A part gives at most a sixteenth of what it takes, so there are few dispatches.
void lower_parts(Lowering& l) {
    const ValueId x = l.input(0);
    const auto& params = l.params<TopKParams>();
    ValueId found = x;
    for (auto count = static_cast<std::uint32_t>(l.max_of(l.info(x).shape.back()));;) {
        const TopKStage s = top_k_stage(l.device(), count);
        const bool first = found == x, last = s.parts == 1;
        const bool fours = first && in_fours(l.info(x)) && s.held % 4 == 0;
        Shape shape = l.info(x).shape;
        shape.back() = Dim(static_cast<std::int64_t>(s.parts) * params.k);
        const ValueId indices = last ? l.output(1) : l.scratch(DType::i32, shape);
        const Kernel kernel{&kPartsShader,
                            {s.local_size,
                             {{kTopKPartsSpecHeld, s.held},
                              {kTopKPartsSpecStage, (first ? 0u : kTopKStageMerge) | (last ? kTopKStageLast : 0u)},
                              {kTopKPartsSpecFours, fours ? 1u : 0u}}},
                            std::to_string(s.parts) + (s.parts == 1 ? " part" : " parts") + " a row, in registers" +
                                (first ? "" : "; of what parts found") + (fours ? ", by fours" : "")};
        const Binding from{x, Access::read}, to{indices, Access::write}, of{found, Access::read};
        const std::vector<uint> words{s.count, s.parts, s.part_size, last ? 1u : 0u};
        if (last) {
            l.dispatch({kernel}, {from, to, of, {l.output(0), Access::write}}, prepare_parts, words);
            return;
        }
        l.dispatch({kernel}, {from, to, of}, prepare_parts, words);
        found = indices;
        count = s.parts * params.k;
    }
}

void lower(Lowering& l) {
    const bool parts =
        takes_gpu_rows(l.device()) && !asks_for(l.device(), kRowsLooped) && !l.device().leaves_out(kPartsShader.name);
    parts ? lower_parts(l) : lower_rows(l);
}

constexpr OpType kTopK{.name = kName, .lower = lower, .gradient = no_gradient};

}  // namespace

TopK top_k(Value x, std::int64_t k) {
    require_dtype(kName, x, DType::f32);
    require(x.rank() >= 1 && x.size(-1).is_constant(), kName, x.str() + " has no last dimension of a fixed size");
    const std::int64_t most = std::min<std::int64_t>(kTopKMost, x.size(-1).constant());
    require(k >= 1 && k <= most, kName,
            "k = " + std::to_string(k) + " of " + x.str() + " is outside 1.." + std::to_string(most));
    Shape shape = x.shape();
    shape.back() = k;
    const std::vector<Value> out = x.graph().add_node(kTopK, {dense(x)}, params(TopKParams{static_cast<uint>(k)}),
                                                      {{DType::f32, shape, {}, {}}, {DType::i32, shape, {}, {}}});
    return {out[0], out[1]};
}

}  // namespace vkf
