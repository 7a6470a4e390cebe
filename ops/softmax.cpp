// SPDX-License-Identifier: Apache-2.0
#include "shaders/softmax.h"

#include "ops/support.h"
#include "softmax.spv.h"

namespace vkf {

namespace {

using namespace shader;
using namespace support;

const Shader kShader{"softmax", spirv::kSoftmaxSpirv};
constexpr const char* kName = "softmax";

struct SoftmaxParams {
    float scale, softcap, fill;
    Causal causal;
    std::int64_t window;
    Polarity polarity;
    bool mask, bias;
};

void fill_strides(const View& view, uint (&strides)[5], uint& offset) noexcept {
    for (std::size_t i = 0; i < kMaxRank; ++i) {
        strides[i] = view.size[i] == 1 ? 0 : view.stride[i];
    }
    offset = view.offset;
}

void encode(const Operands& operands, Command& command) noexcept {
    const auto& params = operands.params<SoftmaxParams>();
    const View& scores = operands[kSoftmaxBindingScores];
    SoftmaxPush push{};
    push.keys = scores.dim(0);
    push.rows = static_cast<uint>(scores.rows());
    for (std::size_t i = 0; i < 4; ++i) {
        push.size[i] = scores.size[i];
    }
    fill_strides(operands[kSoftmaxBindingMask], push.mask_stride, push.mask_offset);
    fill_strides(operands[kSoftmaxBindingBias], push.bias_stride, push.bias_offset);
    push.scores_offset = scores.offset;
    push.weights_offset = operands[kSoftmaxBindingWeights].offset;
    const auto queries = static_cast<std::int64_t>(scores.dim(1));
    push.causal_shift = params.causal == Causal::bottom_right ? static_cast<int>(scores.dim(0) - queries) : 0;
    push.window = static_cast<uint>(params.window);
    push.scale = params.scale;
    push.softcap = params.softcap;
    push.fill = params.fill;
    command.push(push);
    const RowGroup group{operands.words[0], operands.words[1]};
    command.groups(group.groups(push.rows));
    const double elements = static_cast<double>(scores.elements());
    command.cost(elements * 20, elements * (params.mask ? 12 : 8));
}

void lower(Lowering& l) {
    const auto& params = l.params<SoftmaxParams>();
    const ValueId scores = l.input(0);
    const ValueId mask = params.mask ? l.input(1) : scores;
    const ValueId bias = params.bias ? l.input(params.mask ? 2 : 1) : scores;
    const RowGroup group = row_group(l.device(), l.max_of(l.info(scores).shape.back()));
    const uint mask_kind = !params.mask ? 0u : params.polarity == Polarity::attend ? 1u : 2u;
    Dispatch& d = l.dispatch({{&kShader,
                               {group.local_size, group.lanes, mask_kind, params.bias ? 1u : 0u,
                                params.causal == Causal::none ? 0u : 1u, params.softcap == 0 ? 0u : 1u},
                               why_rows(l.device(), group)}},
                             {{scores, Access::read}, {mask, Access::read}, {bias, Access::read}, {l.output(0), Access::read_write}},
                             encode, {group.local_size, group.lanes});
    d.in_place_input = kSoftmaxBindingScores;
    d.in_place_output = kSoftmaxBindingWeights;
}

constexpr OpType kSoftmax{kName, lower};

}  // namespace

Value softmax(Value scores, const SoftmaxOptions& o) {
    require_dtype(kName, scores, DType::f32);
    require(scores.rank() >= 1, kName, scores.str() + " has no last dimension");
    require(o.mask.causal == Causal::none || scores.rank() >= 2, kName, scores.str() + " has no queries for a causal mask");
    require_finite(kName, "scale", o.scale);
    require(std::isfinite(o.softcap) && o.softcap >= 0, kName, "softcap = " + std::to_string(o.softcap) + " is not finite and >= 0");
    require(!std::isnan(o.mask.fill) && o.mask.fill < 0, kName,
            "mask fill = " + std::to_string(o.mask.fill) + " is neither -inf nor a finite negative number");
    require(o.mask.window >= 0 && (o.mask.window == 0 || o.mask.causal != Causal::none), kName,
            "window = " + std::to_string(o.mask.window) + " needs a causal mask and must not be negative");
    scores = dense(scores);
    std::vector<Value> inputs{scores};
    const auto add = [&](const Value& tensor, DType dtype, const char* what) {
        if (!tensor) {
            return;
        }
        require_dtype(kName, tensor, dtype);
        try {
            inputs.push_back(broadcast_to(tensor, scores.shape()));
        } catch (const Error& e) {
            fail(kName, std::string(what) + " " + e.what());
        }
    };
    add(o.mask.keys, DType::i32, "mask:");
    add(o.mask.bias, DType::f32, "bias:");
    return add_op(kSoftmax, inputs,
                  SoftmaxParams{o.scale, o.softcap, o.mask.fill, o.mask.causal, o.mask.window, o.mask.polarity, bool(o.mask.keys),
                                bool(o.mask.bias)},
                  scores.shape());
}

}  // namespace vkf
