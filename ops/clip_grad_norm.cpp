// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "clip.spv.h"
#include "ops/add_op.h"
#include "ops/checks.h"
#include "ops/optimizer.h"
#include "ops/optimizer_checks.h"
#include "ops/reduce.h"
#include "shaders/clip.h"

namespace vkf {

namespace {

using namespace shader;
using namespace support;

const Shader kShader{"clip", spirv::kClipSpirv};
constexpr const char* kName = "clip_grad_norm";
constexpr uint kLanes = 64;

struct ClipParams {
    float max_norm;
    bool scaled;
};

void prepare(const Operands& operands, Command& command) noexcept {
    const View& squares = operands[kClipBindingSquares];
    ClipPush push{};
    push.count = static_cast<uint>(squares.elements());
    push.squares_offset = squares.offset;
    push.norm_offset = operands[kClipBindingNorm].offset;
    push.scale_offset = operands[kClipBindingScale].offset;
    push.loss_scale_offset = operands[kClipBindingLossScale].offset;
    push.max_norm = operands.params<ClipParams>().max_norm;
    command.push(push);
    command.groups(1);
    command.cost(push.count, push.count * 4.0);
}

/// The sums of the gradients' squares lie behind each other; one group takes them together.
void lower(Lowering& l) {
    const bool scaled = l.params<ClipParams>().scaled;
    const std::size_t gradients = l.inputs() - (scaled ? 1 : 0);
    const ValueId squares = l.scratch(DType::f32, {static_cast<std::int64_t>(gradients)});
    for (std::size_t i = 0; i < gradients; ++i) {
        lower_sum_of_squares(l, l.input(i), l.slice(squares, 0, static_cast<std::int64_t>(i), 1));
    }
    l.dispatch({{&kShader, {kLanes, {{kClipSpecLanes, kLanes}, {kClipSpecScaled, scaled ? 1u : 0u}}}, "one group"}},
               {{squares, Access::read},
                {l.output(0), Access::write},
                {l.output(1), Access::write},
                {scaled ? l.input(gradients) : squares, Access::read}},
               prepare);
}

constexpr OpType kClip{.name = kName, .lower = lower};

}  // namespace

void support::check_max_norm(float max_norm) {
    require(max_norm > 0 && !std::isnan(max_norm), kName,
            "max_norm = " + std::to_string(max_norm) + " is not positive");
}

ClippedNorm clip_grad_norm(const std::vector<Value>& gradients, float max_norm, Value loss_scale) {
    require(!gradients.empty(), kName, "there are no gradients");
    check_max_norm(max_norm);
    std::vector<Value> inputs;
    for (const Value& gradient : gradients) {
        require_dtype(kName, gradient, DType::f32);
        inputs.push_back(dense(gradient));
    }
    if (loss_scale) {
        require_dtype(kName, loss_scale, DType::f32);
        require(loss_scale.shape() == Shape{1}, kName, "loss_scale " + loss_scale.str() + " must be one number, (1)");
        inputs.push_back(loss_scale);
    }
    const OutputSpec one{DType::f32, {1}, {}, {}};
    const std::vector<Value> made =
        gradients.front().graph().add_node(kClip, inputs, params(ClipParams{max_norm, bool(loss_scale)}), {one, one});
    return {made[0], made[1]};
}

}  // namespace vkf
