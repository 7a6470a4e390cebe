// SPDX-License-Identifier: Apache-2.0
// add, mul, scale, activations, gated products, mask combination and copies: all one kernel.
#include "shaders/elementwise.h"

#include "elementwise.spv.h"
#include "ops/support.h"

namespace vkf {

namespace {

using namespace shader;
using namespace support;

const Shader kShader{"elementwise", spirv::kElementwiseSpirv};

static_assert(static_cast<uint>(Activation::none) == 0 && static_cast<uint>(Activation::sigmoid) == 6,
              "Activation and shaders/common/activation.h number alike");

struct ElementwiseParams {
    uint combine = kCombineNone;
    Activation activation = Activation::none;
    float alpha = 1.0f;
    uint flip = 0;
};

constexpr uint kLocalSize = 64;

void encode(const Operands& operands, Command& command) noexcept {
    const auto& params = operands.params<ElementwiseParams>();
    const View& a = operands[kElementwiseBindingA];
    const View& b = operands[kElementwiseBindingB];
    const View& out = operands[kElementwiseBindingOut];
    ElementwisePush push{};
    push.count = static_cast<uint>(out.elements());
    for (std::size_t i = 0; i < kMaxRank; ++i) {
        push.size[i] = out.size[i];
        push.a_stride[i] = a.size[i] == 1 ? 0 : a.stride[i];
        push.b_stride[i] = b.size[i] == 1 ? 0 : b.stride[i];
        push.out_stride[i] = out.stride[i];
    }
    push.a_offset = a.offset;
    push.b_offset = b.offset;
    push.out_offset = out.offset;
    push.alpha = params.alpha;
    push.flip = params.flip;
    command.push(push);
    command.groups(divide_up(out.elements(), kLocalSize * kElementwisePerInvocation));
    const double elements = static_cast<double>(out.elements());
    command.cost(elements * 2, elements * (params.combine == kCombineNone || params.combine == kCombineCopy ? 8 : 12));
}

void lower(Lowering& l) {
    const auto& params = l.params<ElementwiseParams>();
    const ValueId a = l.input(0);
    const ValueId b = l.inputs() > 1 ? l.input(1) : a;
    const ValueId out = l.output(0);
    bool dense = true;
    for (const ValueId v : {a, b, out}) {
        const ValueInfo& info = l.info(v);
        dense = dense && info.shape == l.info(out).shape && info.strides == contiguous_strides(info.shape);
    }
    Dispatch& d = l.dispatch({{&kShader,
                               {kLocalSize, params.combine, static_cast<uint>(params.activation), dense ? 1u : 0u},
                               dense ? "dense operands" : "strided operands"}},
                             {{a, Access::read}, {b, Access::read}, {out, Access::write}}, encode);
    if (a != b) {
        d.in_place_output = kElementwiseBindingOut;
        d.in_place_input = l.info(a).shape == l.info(out).shape ? kElementwiseBindingA : kElementwiseBindingB;
    }
}

constexpr OpType kAdd{"add", lower};
constexpr OpType kMul{"mul", lower};
constexpr OpType kScale{"scale", lower};
constexpr OpType kActivate{"activate", lower};
constexpr OpType kGated{"gated", lower};
constexpr OpType kCombineMasksOp{"combine_masks", lower};
constexpr OpType kContiguous{"contiguous", lower};
constexpr OpType kCopyInto{"copy_into", lower};

Value binary(const OpType& op, Value a, Value b, const ElementwiseParams& p) {
    require_dtype(op.name, a, DType::f32);
    require_dtype(op.name, b, DType::f32);
    return add_op(op, {a, b}, p, broadcast_shapes(op.name, a, b));
}

Value unary(const OpType& op, Value x, const ElementwiseParams& p) {
    require_dtype(op.name, x, DType::f32);
    return add_op(op, {x}, p, x.shape());
}

}  // namespace

Value add(Value a, Value b) { return binary(kAdd, a, b, {kCombineAdd, Activation::none, 1.0f, 0}); }

Value mul(Value a, Value b) { return binary(kMul, a, b, {kCombineMul, Activation::none, 1.0f, 0}); }

Value scale(Value x, float factor) {
    require_finite(kScale.name, "factor", factor);
    return unary(kScale, x, {kCombineNone, Activation::none, factor, 0});
}

Value activate(Value x, Activation activation) { return unary(kActivate, x, {kCombineNone, activation, 1.0f, 0}); }

Value gated(Value gate, Value up, Activation activation) {
    require(gate.shape() == up.shape(), kGated.name, gate.str() + " and " + up.str() + " differ in shape");
    return binary(kGated, gate, up, {kCombineMul, activation, 1.0f, 0});
}

Value combine_masks(Value a, Polarity a_polarity, Value b, Polarity b_polarity) {
    require_dtype(kCombineMasksOp.name, a, DType::i32);
    require_dtype(kCombineMasksOp.name, b, DType::i32);
    const uint flip = (a_polarity == Polarity::ignore ? 1u : 0u) | (b_polarity == Polarity::ignore ? 2u : 0u);
    return add_op(kCombineMasksOp, {a, b}, ElementwiseParams{kCombineMasks, Activation::none, 1.0f, flip},
                  broadcast_shapes(kCombineMasksOp.name, a, b), DType::i32);
}

Value contiguous(Value x) {
    require(size_of(x.dtype()) == 4, kContiguous.name, x.str() + " is not of a 4-byte type");
    return add_op(kContiguous, {x}, ElementwiseParams{kCombineCopy, Activation::none, 1.0f, 0}, x.shape(), x.dtype());
}

Value copy_into(Value window, Value x) {
    require(window.dtype() == x.dtype() && size_of(x.dtype()) == 4, kCopyInto.name,
            x.str() + " cannot be written into " + window.str() + ": the types differ or are not of 4 bytes");
    require(window.shape() == x.shape(), kCopyInto.name, x.str() + " cannot be written into " + window.str() + ": the shapes differ");
    return window.graph()
        .add_node(kCopyInto, {x}, params(ElementwiseParams{kCombineCopy, Activation::none, 1.0f, 0}),
                  {{x.dtype(), {}, {}, window}})
        .front();
}

Value repeat_kv(Value x, std::int64_t n) {
    constexpr const char* kName = "repeat_kv";
    require(x.rank() == 4, kName, x.str() + " must be (batch, tokens, kv_heads, head_dim)");
    require(n >= 1, kName, "n = " + std::to_string(n) + " is not positive");
    const Shape& s = x.shape();
    const Value wide = broadcast_to(reshape(x, {s[0], s[1], s[2], 1, s[3]}), {s[0], s[1], s[2], n, s[3]});
    return reshape(contiguous(wide), {s[0], s[1], s[2] * Dim(n), s[3]});
}

}  // namespace vkf
