// SPDX-License-Identifier: Apache-2.0
// layer_norm and rms_norm: one kernel.
#include "layer_norm.spv.h"
#include "ops/support.h"
#include "shaders/layer_norm.h"

namespace vkf {

namespace {

using namespace shader;
using namespace support;

const Shader kShader{"layer_norm", spirv::kLayerNormSpirv};

struct NormParams {
    float eps;
    bool centred, weight, bias;
};

void encode(const Operands& operands, Command& command) noexcept {
    const View& x = operands[kNormBindingX];
    const View& weight = operands[kNormBindingWeight];
    const View& bias = operands[kNormBindingBias];
    NormPush push{};
    push.width = x.dim(0);
    push.rows = static_cast<uint>(x.rows());
    push.x_offset = x.offset;
    push.weight_offset = weight.offset;
    push.weight_stride = weight.step(0);
    push.bias_offset = bias.offset;
    push.bias_stride = bias.step(0);
    push.y_offset = operands[kNormBindingY].offset;
    push.eps = operands.params<NormParams>().eps;
    command.push(push);
    command.groups(RowGroup{operands.words[0], operands.words[1]}.groups(push.rows));
    const double elements = static_cast<double>(x.elements());
    command.cost(elements * 8, elements * 8);
}

void lower(Lowering& l) {
    const auto& params = l.params<NormParams>();
    const ValueId x = l.input(0);
    const ValueId weight = params.weight ? l.input(1) : x;
    const ValueId bias = params.bias ? l.input(params.weight ? 2 : 1) : x;
    const RowGroup group = row_group(l, l.max_of(l.info(x).shape.back()));
    const bool fours =
        in_fours(l.info(x)) && in_fours(l.info(weight)) && in_fours(l.info(bias)) && in_fours(l.info(l.output(0)));
    Dispatch& d =
        l.dispatch({{&kShader,
                     {group.local_size, group.lanes, params.centred ? 1u : 0u, params.weight ? 1u : 0u,
                      params.bias ? 1u : 0u, fours ? 1u : 0u},
                     why_rows(l.device(), group, fours)}},
                   {{x, Access::read}, {weight, Access::read}, {bias, Access::read}, {l.output(0), Access::write}},
                   encode, {group.local_size, group.lanes});
    d.in_place_input = kNormBindingX;
    d.in_place_output = kNormBindingY;
}

constexpr OpType kLayerNorm{"layer_norm", lower};
constexpr OpType kRmsNorm{"rms_norm", lower};

Value norm(const OpType& op, Value x, Value weight, Value bias, float eps, bool centred) {
    require_dtype(op.name, x, DType::f32);
    require(x.rank() >= 1, op.name, x.str() + " has no last dimension");
    require(std::isfinite(eps) && eps >= 0, op.name, "eps = " + std::to_string(eps) + " is not finite and >= 0");
    std::vector<Value> inputs{dense(x)};
    for (const Value& v : {weight, bias}) {
        if (v) {
            require_dtype(op.name, v, DType::f32);
            require(v.shape() == Shape{x.size(-1)}, op.name, v.str() + " does not fit the rows of " + x.str());
            inputs.push_back(v);
        }
    }
    return add_op(op, inputs, NormParams{eps, centred, bool(weight), bool(bias)}, x.shape());
}

}  // namespace

Value layer_norm(Value x, Value weight, Value bias, float eps) { return norm(kLayerNorm, x, weight, bias, eps, true); }

Value rms_norm(Value x, Value weight, float eps) { return norm(kRmsNorm, x, weight, {}, eps, false); }

}  // namespace vkf
