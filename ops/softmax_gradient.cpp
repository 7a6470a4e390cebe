// SPDX-License-Identifier: Apache-2.0
#include "ops/softmax_gradient.h"

#include "ops/add_op.h"
#include "ops/fours.h"
#include "ops/row_group.h"
#include "softmax_gradient.spv.h"

namespace vkf {

namespace {

using namespace shader;
using namespace support;

const Shader kShader{"softmax_gradient", spirv::kSoftmaxGradientSpirv};

void prepare(const Operands& operands, Command& command) noexcept {
    const auto& params = operands.params<SoftmaxGradient>();
    const View& weights = operands[kSoftmaxGradientBindingWeights];
    SoftmaxGradientPush push{};
    push.width = weights.dim(0);
    // of sinks there is a result also for a row without keys
    push.rows = static_cast<uint>(params.of == kSoftmaxGradientSink ? operands[kSoftmaxGradientBindingOut].elements()
                                                                    : weights.rows());
    push.weights_offset = weights.offset;
    push.dy_offset = operands[kSoftmaxGradientBindingDy].offset;
    push.scores_offset = operands[kSoftmaxGradientBindingScores].offset;
    push.out_offset = operands[kSoftmaxGradientBindingOut].offset;
    push.scale = params.scale;
    push.softcap = params.softcap;
    command.push(push);
    command.groups(RowGroup{operands.words[0], operands.words[1]}.groups(push.rows));
    const double elements = static_cast<double>(weights.elements());
    command.cost(elements * 5, elements * 12);
}

/// Inputs: the weights, dy, the scores.
void lower(Lowering& l) {
    const auto& params = l.params<SoftmaxGradient>();
    const ValueId weights = l.input(0), dy = l.input(1), scores = l.input(2);
    const RowGroup group = row_group(l, l.max_of(l.info(weights).shape.back()));
    const bool a_number_a_row = params.of == kSoftmaxGradientLogSumExp;
    const bool fours = in_fours(l.info(weights)) && (a_number_a_row || in_fours(l.info(dy))) &&
                       (params.of == kSoftmaxGradientSink || in_fours(l.info(scores)));
    Dispatch& d =
        l.dispatch({{&kShader,
                     {group.local_size,
                      {{kSoftmaxGradientSpecLanes, group.lanes},
                       {kSoftmaxGradientSpecOf, params.of},
                       {kSoftmaxGradientSpecSoftcap, params.softcap == 0.0f ? 0u : 1u},
                       {kSoftmaxGradientSpecFours, fours ? 1u : 0u}}},
                     why_rows(l.device(), group, fours)}},
                   {{weights, Access::read}, {dy, Access::read}, {scores, Access::read}, {l.output(0), Access::write}},
                   prepare, {group.local_size, group.lanes});
    if (params.of == kSoftmaxGradientWeights && dy != weights) {
        d.in_place_input = kSoftmaxGradientBindingDy;
        d.in_place_output = kSoftmaxGradientBindingOut;
    }
}

constexpr OpType kSoftmaxGradientOp{.name = "softmax_gradient", .lower = lower};

}  // namespace

Value support::softmax_gradient(const SoftmaxGradient& what, Value weights, Value dy, Value scores) {
    Shape shape = weights.shape();
    if (what.of == kSoftmaxGradientSink) {
        shape.pop_back();
    }
    return add_op(kSoftmaxGradientOp, {weights, dy, scores}, what, shape);
}

}  // namespace vkf
