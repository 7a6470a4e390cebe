// SPDX-License-Identifier: Apache-2.0
// add, mul, scale, activations, gated products, mask combination and copies: all one kernel.
#include "ops/elementwise.h"

#include <algorithm>

#include "elementwise.spv.h"
#include "ops/add_op.h"
#include "ops/checks.h"
#include "ops/convert.h"
#include "ops/fours.h"
#include "ops/gradient.h"
#include "ops/matmul_params.h"
#include "ops/row_load.h"
#include "ops/stored_order.h"
#include "runtime/base/numbers.h"
#include "runtime/graph/info_of.h"
#include "runtime/graph/sixteen.h"
#include "shaders/elementwise.h"

namespace vkf {

namespace {

using namespace shader;
using namespace support;

const Shader kShader{"elementwise", spirv::kElementwiseSpirv};
const Shader kWide{"elementwise_wide", spirv::kElementwiseSpirv, kWideLoads};

static_assert(static_cast<uint>(Activation::none) == 0 && static_cast<uint>(Activation::rsqrt) == 7,
              "Activation and shaders/common/activation.h number alike");

constexpr uint kLocalSize = 64;

void prepare(const Operands& operands, Command& command) noexcept {
    prepare_elementwise(operands.params<ElementwiseParams>(), operands, command);
}

constexpr ElementwiseParams kCopy{.combine = kCombineCopy};
constexpr ElementwiseParams kSum{.combine = kCombineAdd};
constexpr ElementwiseParams kZero{.combine = kCombineZero};

template <const ElementwiseParams& kParams>
void prepare_fixed(const Operands& operands, Command& command) noexcept {
    prepare_elementwise(kParams, operands, command);
}

void lower(Lowering& l) {
    const ValueId a = l.input(0);
    lower_elementwise(l, l.params<ElementwiseParams>(), a, l.inputs() > 1 ? l.input(1) : a, l.output(0), prepare);
}

/// The first of two wishes that a product has room for; else why neither has.
Rewrite either(const RewriteSite& site, const EpilogueWish& first, const EpilogueWish& second) {
    Rewrite one = into_epilogue(site, first);
    if (!one.nodes.empty()) {
        return one;
    }
    Rewrite other = into_epilogue(site, second);
    if (other.nodes.empty() && !one.what.empty()) {
        other.what = one.what + (other.what.empty() || other.what == one.what ? "" : "; " + other.what);
    }
    return other;
}

/// The one of two products that is computed last takes the other in.
Rewrite rewrite_binary(const RewriteSite& site, bool times) {
    return either(site, {.product = 1, .other = 0, .gate = times}, {.product = 0, .other = 1, .gate = times});
}

Rewrite rewrite_add(const RewriteSite& site) { return rewrite_binary(site, false); }

Rewrite rewrite_mul(const RewriteSite& site) { return rewrite_binary(site, true); }

Activation activation_of(const RewriteSite& site) {
    return static_cast<const ElementwiseParams*>(site.node().params.get())->activation;
}

Rewrite rewrite_activate(const RewriteSite& site) {
    return into_epilogue(site, {.product = 0, .activation = activation_of(site)});
}

Rewrite rewrite_gated(const RewriteSite& site) {
    return into_epilogue(site, {.product = 0, .activation = activation_of(site), .other = 1, .gate = true});
}

/// Gives the place of each dimension of `whole` in `turned`, which is the same elements with
/// dimensions in another order; empty where it is not.
std::vector<std::size_t> places(const ValueInfo& whole, const ValueInfo& turned) {
    std::vector<std::size_t> out;
    if (whole.shape.size() != turned.shape.size() || !(whole.offset == turned.offset)) {
        return out;
    }
    for (std::size_t i = 0; i < whole.shape.size(); ++i) {
        for (std::size_t j = 0; j < turned.shape.size(); ++j) {
            if (whole.shape[i] == turned.shape[j] && whole.strides[i] == turned.strides[j] &&
                std::find(out.begin(), out.end(), j) == out.end()) {
                out.push_back(j);
                break;
            }
        }
    }
    return out.size() == whole.shape.size() ? out : std::vector<std::size_t>();
}

/// Lets the op before write directly into a state's window, where nothing else reads its result.
Rewrite rewrite_copy_into(const RewriteSite& site) {
    const NodeId maker = site.writer(0);
    if (maker == RewriteSite::kNone) {
        return {};
    }
    const Graph& g = site.graph();
    const NodeInfo& made = g.nodes()[maker];
    if (!made.op->writes_views || !made.writes.empty()) {
        return {};
    }
    const std::vector<std::size_t> order = places(g.values()[made.outputs.front()], g.values()[site.node().inputs[0]]);
    const auto storage = [&](ValueId id) { return g.values()[id].storage; };
    const bool reads_it = std::any_of(made.inputs.begin(), made.inputs.end(),
                                      [&](ValueId in) { return storage(in) == storage(site.node().outputs.front()); });
    const auto dtype = [&](ValueId id) { return g.storages()[storage(id)].dtype; };
    const bool converted = dtype(made.outputs.front()) != dtype(site.node().outputs.front());
    std::string why = order.empty() ? "only a part of what it gives is copied"
                      : converted   ? "the copy converts it"
                      : reads_it    ? "it reads the state"
                                    : site.why_not_later(maker);
    if (!why.empty()) {
        return {.what = "not written by " + made.label + ": " + why};
    }
    const auto make = [order](Graph& graph, const std::vector<NodeInfo>& old) {
        std::vector<Value> inputs;
        for (const ValueId id : old[0].inputs) {
            inputs.emplace_back(graph, id);
        }
        const Value window = permute(Value(graph, old[1].outputs.front()), order);
        graph.add_node(*old[0].op, inputs, old[0].params, {{window.dtype(), {}, {}, window}});
        return std::vector<Value>{{}, {}};
    };
    return {.nodes = {maker, site.id()}, .make = make, .what = "written by " + made.label};
}

std::vector<Value> gradient_of_add(const GradientSite& site) {
    return {sum_to(site.gradient(), site.input(0).shape()), sum_to(site.gradient(), site.input(1).shape())};
}

std::vector<Value> gradient_of_mul(const GradientSite& site) {
    std::vector<Value> out(2);
    for (std::size_t i = 0; i < 2; ++i) {
        if (site.wanted(i)) {
            out[i] = sum_to(mul(site.gradient(), site.input(1 - i)), site.input(i).shape());
        }
    }
    return out;
}

std::vector<Value> gradient_of_scale(const GradientSite& site) {
    return {scale(site.gradient(), site.params<ElementwiseParams>().alpha)};
}

std::vector<Value> gradient_of_activate(const GradientSite& site) {
    const Activation activation = site.params<ElementwiseParams>().activation;
    const Value from = derivative_of_result(activation) ? site.output() : site.input(0);
    return {activation_gradient(from, site.gradient(), activation)};
}

std::vector<Value> gradient_of_gated(const GradientSite& site) {
    const Activation activation = site.params<ElementwiseParams>().activation;
    const Value gate = site.input(0), dy = site.gradient();
    std::vector<Value> out(2);
    if (site.wanted(0)) {
        const Value from = derivative_of_result(activation) ? activate(gate, activation) : gate;
        out[0] = activation_gradient(from, mul(dy, site.input(1)), activation);
    }
    if (site.wanted(1)) {
        out[1] = gated(gate, dy, activation);
    }
    return out;
}

std::vector<Value> gradient_of_copy(const GradientSite& site) { return {site.gradient()}; }

constexpr OpType kMul{
    .name = "mul", .lower = lower, .rewrite = rewrite_mul, .can_read = can_read_any, .gradient = gradient_of_mul};
constexpr OpType kScale{.name = "scale", .lower = lower, .can_read = can_read_any, .gradient = gradient_of_scale};
constexpr OpType kActivate{.name = "activate",
                           .lower = lower,
                           .rewrite = rewrite_activate,
                           .can_read = can_read_any,
                           .gradient = gradient_of_activate};
constexpr OpType kActivationGradient{.name = "activation_gradient", .lower = lower, .can_read = can_read_any};
constexpr OpType kGated{
    .name = "gated", .lower = lower, .rewrite = rewrite_gated, .can_read = can_read_any, .gradient = gradient_of_gated};
constexpr OpType kCombineMasksOp{
    .name = "combine_masks", .lower = lower, .can_read = can_read_any, .gradient = no_gradient};
constexpr OpType kContiguous{
    .name = "contiguous", .lower = lower, .can_read = can_read_any, .gradient = gradient_of_copy};
constexpr OpType kCopyInto{.name = "copy_into", .lower = lower, .rewrite = rewrite_copy_into, .can_read = can_read_any};

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

const OpType support::kAdd{
    .name = "add", .lower = lower, .rewrite = rewrite_add, .can_read = can_read_any, .gradient = gradient_of_add};

bool support::derivative_of_result(Activation activation) {
    return activation == Activation::relu || activation == Activation::tanh || activation == Activation::sigmoid ||
           activation == Activation::rsqrt;
}

Value support::activation_gradient(Value from, Value dy, Activation activation) {
    if (activation == Activation::none) {
        return dy;
    }
    return binary(kActivationGradient, from, dy, {.combine = kCombineActivationGradient, .activation = activation});
}

void support::prepare_elementwise(const ElementwiseParams& params, const Operands& operands,
                                  Command& command) noexcept {
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
    push.flip_a = params.flip_a ? 1 : 0;
    push.flip_b = params.flip_b ? 1 : 0;
    push.seed = params.seed;
    push.threshold = params.threshold;
    command.push(push);
    command.groups(divide_up(out.elements(), kLocalSize * operands.words[0]));
    const double elements = static_cast<double>(out.elements());
    command.cost(elements * 2, elements * (params.combine == kCombineNone || params.combine == kCombineCopy ? 8 : 12));
}

void support::lower_elementwise(Lowering& l, const ElementwiseParams& params, ValueId a, ValueId b, ValueId out,
                                Prepare how) {
    if (size_of(l.dtype(a)) == 2 || size_of(l.dtype(out)) == 2) {  // copies alone
        lower_conversion(l, a, out);
        return;
    }
    bool dense = true;
    bool fours = true;
    for (const ValueId v : {a, b, out}) {
        const ValueInfo& info = l.info(v);
        dense = dense && info.shape == l.info(out).shape && info.strides == contiguous_strides(info.shape);
        fours = fours && dense && in_fours(info);
    }
    // On a processor a group costs as much as a hundred elements.
    const uint fours_each = !fours ? 0u : l.device().cpu() ? 16u : 1u;
    const RowLoad load = row_load(l, fours, kWide);
    const char* why = fours ? "dense operands, by fours" : dense ? "dense operands" : "strided operands";
    Dispatch& d = l.dispatch({{load.wide ? &kWide : &kShader,
                               {kLocalSize,
                                {{kElementwiseSpecCombine, params.combine},
                                 {kElementwiseSpecActivation, static_cast<uint>(params.activation)},
                                 {kElementwiseSpecDense, dense ? 1u : 0u},
                                 {kElementwiseSpecFours, fours_each}}},
                               why + load.note}},
                             {{a, Access::read}, {b, Access::read}, {out, Access::write}}, how,
                             {fours ? 4 * fours_each : kElementwisePerInvocation});
    const auto elsewhere = [&](ValueId v) { return l.info(v).storage != l.info(out).storage; };
    if (elsewhere(a) && elsewhere(b)) {
        d.in_place_output = kElementwiseBindingOut;
        d.in_place_input = l.info(a).shape == l.info(out).shape ? kElementwiseBindingA : kElementwiseBindingB;
    }
}

ValueId support::copied(Lowering& l, ValueId value) {
    const ValueId copy = l.scratch(l.dtype(value), l.info(value).shape);
    lower_copy(l, value, copy);
    return copy;
}

void support::lower_copy(Lowering& l, ValueId x, ValueId out) {
    lower_elementwise(l, kCopy, x, x, out, prepare_fixed<kCopy>);
}

void support::lower_add(Lowering& l, ValueId a, ValueId b, ValueId out) {
    lower_elementwise(l, kSum, a, b, out, prepare_fixed<kSum>);
}

void support::lower_zero(Lowering& l, ValueId out) { lower_elementwise(l, kZero, out, out, out, prepare_fixed<kZero>); }

Value add(Value a, Value b) { return binary(kAdd, a, b, {.combine = kCombineAdd}); }

Value mul(Value a, Value b) { return binary(kMul, a, b, {.combine = kCombineMul}); }

Value scale(Value x, float factor) {
    require_finite(kScale.name, "factor", factor);
    return unary(kScale, x, {.combine = kCombineNone, .alpha = factor});
}

Value activate(Value x, Activation activation) {
    require_dtype(kActivate.name, x, DType::f32);
    const ElementwiseParams p{.combine = kCombineNone, .activation = activation};
    return add_op(kActivate, {x}, p, x.shape(), DType::f32, order_like(x));
}

Value gated(Value gate, Value up, Activation activation) {
    require(gate.shape() == up.shape(), kGated.name, gate.str() + " and " + up.str() + " differ in shape");
    return binary(kGated, gate, up, {.combine = kCombineMul, .activation = activation});
}

Value combine_masks(Value a, Polarity a_polarity, Value b, Polarity b_polarity) {
    require_dtype(kCombineMasksOp.name, a, DType::i32);
    require_dtype(kCombineMasksOp.name, b, DType::i32);
    const ElementwiseParams p{
        .combine = kCombineMasks, .flip_a = a_polarity == Polarity::ignore, .flip_b = b_polarity == Polarity::ignore};
    return add_op(kCombineMasksOp, {a, b}, p, broadcast_shapes(kCombineMasksOp.name, a, b), DType::i32);
}

Value contiguous(Value x) { return add_op(kContiguous, {x}, kCopy, x.shape(), x.dtype()); }

Value support::copy_in_order(Value x, const std::vector<std::size_t>& order) {
    return add_op(kContiguous, {x}, kCopy, x.shape(), x.dtype(), order);
}

void support::check_copy_into(const Value& window, const Value& x) {
    const auto fits = [&](bool condition, const char* why) {
        require(condition, kCopyInto.name, x.str() + " cannot be written into " + window.str() + ": " + why);
    };
    fits(window.dtype() == x.dtype() || (is_floating(window.dtype()) && is_floating(x.dtype())), "the types differ");
    fits(window.shape() == x.shape(), "the shapes differ");
    const ValueInfo& target = info_of(window);
    for (std::size_t i = 0; i < target.shape.size(); ++i) {
        fits(target.shape[i] == Dim(1) || !(target.strides[i] == Dim(0)), "it holds an element more than once");
    }
}

Value copy_into(Value window, Value x) {
    check_copy_into(window, x);
    if (info_of(window).storage == info_of(x).storage) {
        x = contiguous(x);  // the two may overlap: all is read before anything is written
    }
    return window.graph().add_node(kCopyInto, {x}, params(kCopy), {{window.dtype(), {}, {}, window}}).front();
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
