// SPDX-License-Identifier: Apache-2.0
// layer_norm and rms_norm, of a tensor or of the sum of two: one kernel.
#include <optional>

#include "layer_norm.spv.h"
#include "norm_gradient.spv.h"
#include "ops/add_op.h"
#include "ops/checks.h"
#include "ops/elementwise.h"
#include "ops/fours.h"
#include "ops/gradient.h"
#include "ops/lanes.h"
#include "ops/row_group.h"
#include "ops/row_load.h"
#include "runtime/graph/info_of.h"
#include "runtime/graph/rewrite.h"
#include "shaders/layer_norm.h"
#include "shaders/norm_gradient.h"

namespace vkf {

namespace {

using namespace shader;
using namespace support;

const Shader kShader{"layer_norm", spirv::kLayerNormSpirv};
const Shader kWide{"layer_norm_wide", spirv::kLayerNormSpirv, kWideLoads};
const Shader kTogether{"layer_norm_lanes", spirv::kLayerNormSpirv};
const Shader kTogetherWide{"layer_norm_lanes_wide", spirv::kLayerNormSpirv, kWideLoads};
const Shader kSubgroups{"layer_norm_subgroups", spirv::kLayerNormSpirv, kBySubgroups};
const Shader kGradientShader{"norm_gradient", spirv::kNormGradientSpirv};
const Shader kGradientSubgroups{"norm_gradient_subgroups", spirv::kNormGradientSpirv, kBySubgroups};

struct NormParams {
    float eps;
    bool centred, weight, bias, added;
};

/// The places where the rows of x begin: in groups of `size`, `inner` apart, the groups `outer`
/// apart.
struct RowGroups {
    uint size, outer, inner;
};

RowGroups row_groups(const View& x) {
    if (x.rows() == 0) {
        return {1, 0, 0};
    }
    std::uint64_t sizes[2] = {1, 1};
    uint strides[2] = {0, 0};
    std::size_t level = 0;
    for (std::size_t i = 1; i < kMaxRank; ++i) {
        if (x.dim(i) == 1) {
            continue;
        }
        if (sizes[level] != 1 && x.step(i) != sizes[level] * strides[level]) {
            ++level;  // at most once: see can_read()
        }
        strides[level] = sizes[level] == 1 ? x.step(i) : strides[level];
        sizes[level] *= x.dim(i);
    }
    return {static_cast<uint>(sizes[0]), strides[1], strides[0]};
}

/// True where the rows of a view begin as RowGroups has it, at whatever sizes, and are dense.
bool in_row_groups(const ValueInfo& v) {
    bool parted = false;
    std::optional<Dim> next;  // the stride with which the next dimension goes on without a gap
    for (std::size_t i = v.shape.size() - 1; i-- > 0;) {
        if (v.shape[i] == Dim(1)) {
            continue;
        }
        if (next && !(v.strides[i] == *next)) {
            if (parted) {
                return false;
            }
            parted = true;
        }
        next = v.shape[i] * v.strides[i];
    }
    return v.shape.back() == Dim(1) || v.strides.back() == Dim(1);
}

void prepare(const Operands& operands, Command& command) noexcept {
    const View& x = operands[kNormBindingX];
    const View& weight = operands[kNormBindingWeight];
    const View& bias = operands[kNormBindingBias];
    NormPush push{};
    push.width = x.dim(0);
    push.rows = static_cast<uint>(x.rows());
    push.x_offset = x.offset;
    const RowGroups groups = row_groups(x);
    push.x_group = groups.size;
    push.x_outer = groups.outer;
    push.x_inner = groups.inner;
    push.weight_offset = weight.offset;
    push.weight_stride = weight.step(0);
    push.bias_offset = bias.offset;
    push.bias_stride = bias.step(0);
    push.y_offset = operands[kNormBindingY].offset;
    const auto& params = operands.params<NormParams>();
    if (params.added) {
        push.residual_offset = operands[kNormBindingResidual].offset;
        push.sum_offset = operands[kNormBindingSum].offset;
    }
    push.eps = params.eps;
    command.push(push);
    command.groups(RowGroup{operands.words[0], operands.words[1]}.groups(push.rows));
    const double elements = static_cast<double>(x.elements());
    command.cost(elements * (params.added ? 9 : 8), elements * (params.added ? 16 : 8));
}

/// Invocations that load the weights together, each of which has a row by fours: a processor's
/// subgroup, where its lanes hand numbers round. 0: each loads them by itself.
uint together(const Lowering& l, const RowGroup& group, const Shader& shader) {
    const Capabilities& device = l.device();
    return hands_round(device) && group.lanes == 1 && !device.leaves_out(shader.name) ? device.exact_subgroup_size : 0;
}

/// Inputs: x, what is added to it, the weight, the bias, as far as there are such. Outputs: the sum
/// where there is one, and y.
void lower(Lowering& l) {
    const auto& params = l.params<NormParams>();
    const ValueId x = l.input(0);
    std::size_t next = 1;
    const auto input = [&](bool there) { return there ? l.input(next++) : x; };
    const ValueId r = input(params.added);
    const ValueId weight = input(params.weight);
    const ValueId bias = input(params.bias);
    const ValueId y = l.output(params.added ? 1 : 0);
    RowGroup group = held_row_group(l, l.max_of(l.info(x).shape.back()), kLongestHeldNorm, kSubgroups.name);
    const bool fours = in_fours(l.info(x)) && in_fours(l.info(r)) && in_fours(l.info(weight)) &&
                       in_fours(l.info(bias)) && in_fours(l.info(l.output(0))) && in_fours(l.info(y));
    const auto flag = [](bool set) { return set ? 1u : 0u; };
    // where kWide is left out, so are wide loads of lanes that share weights
    const RowLoad load = row_load(l, fours && !takes_gpu_rows(l.device()), kWide);
    const bool weighted = params.weight || params.bias;
    const Shader& lanes = load.wide ? kTogetherWide : kTogether;
    const uint shared = fours && weighted ? together(l, group, lanes) : 0;
    if (shared != 0) {
        group.local_size = shared;
    }
    const Shader& shader = group.subgroups ? kSubgroups : shared != 0 ? lanes : load.wide ? kWide : kShader;
    const Kernel kernel{&shader,
                        {group.local_size,
                         {{kNormSpecLanes, group.lanes},
                          {kNormSpecCentred, flag(params.centred)},
                          {kNormSpecWeight, flag(params.weight)},
                          {kNormSpecBias, flag(params.bias)},
                          {kNormSpecFours, flag(fours)},
                          {kNormSpecAdded, flag(params.added)},
                          {kNormSpecHeld, group.held},
                          {kNormSpecTogether, shared}}},
                        why_rows(l.device(), group, fours) + load.note +
                            (shared != 0 ? ", " + std::to_string(shared) + " lanes load the weights together" : "") +
                            (params.added ? "; of a sum" : "")};
    const Binding from{x, Access::read}, w{weight, Access::read}, b{bias, Access::read}, to{y, Access::write};
    const std::vector<uint> words{group.local_size, group.lanes};
    if (params.added) {
        Dispatch& d = l.dispatch({kernel}, {from, w, b, to, {r, Access::read}, {l.output(0), Access::read_write}},
                                 prepare, words);
        const auto elsewhere = [&](ValueId v) { return l.info(v).storage != l.info(r).storage; };
        if (elsewhere(x) && elsewhere(weight) && elsewhere(bias)) {
            d.in_place_input = kNormBindingResidual;
            d.in_place_output = kNormBindingSum;
        }
        return;
    }
    Dispatch& d = l.dispatch({kernel}, {from, w, b, to}, prepare, words);
    d.in_place_input = kNormBindingX;
    d.in_place_output = kNormBindingY;
}

std::string declined(const Capabilities& device, const NodeInfo& node, WantedOutputs) {
    const bool added = static_cast<const NormParams*>(node.params.get())->added;
    return added && device.storage_buffers <= kNormBindingSum
               ? "the device has " + std::to_string(device.storage_buffers) + " storage buffers a stage, not " +
                     std::to_string(kNormBindingSum + 1)
               : "";
}

std::vector<Value> decompose(Graph& graph, const NodeInfo& node, WantedOutputs wanted);

/// A residual that was added before becomes part of the norm.
Rewrite rewrite(const RewriteSite& site);

/// Rows of x may lie apart; what is added to it is dense.
bool can_read(const NodeInfo& node, std::size_t i, const ValueInfo&, const ValueInfo& moved) {
    const bool residual = i == 1 && static_cast<const NormParams*>(node.params.get())->added;
    return residual ? is_contiguous(moved.shape, moved.strides) : i != 0 || in_row_groups(moved);
}

std::vector<Value> gradient(const GradientSite& site);

constexpr OpType norm_op(const char* name) {
    return {.name = name,
            .lower = lower,
            .declined = declined,
            .decompose = decompose,
            .rewrite = rewrite,
            .can_read = can_read,
            .gradient = gradient};
}

constexpr OpType kLayerNorm = norm_op("layer_norm");
constexpr OpType kRmsNorm = norm_op("rms_norm");

/// The sum, and then its norm.
std::vector<Value> decompose(Graph& graph, const NodeInfo& node, WantedOutputs) {
    NormParams p = *static_cast<const NormParams*>(node.params.get());
    std::vector<Value> inputs;
    for (const ValueId id : node.inputs) {
        inputs.emplace_back(graph, id);
    }
    const Value sum = inputs[0] + inputs[1];
    inputs.erase(inputs.begin());
    inputs.front() = sum;
    p.added = false;
    return {sum, add_op(*node.op, inputs, p, sum.shape())};
}

Rewrite rewrite(const RewriteSite& site) {
    const NormParams p = *static_cast<const NormParams*>(site.node().params.get());
    const NodeId maker = p.added ? RewriteSite::kNone : site.maker(0, kAdd);
    if (maker == RewriteSite::kNone) {
        return {};
    }
    const Graph& g = site.graph();
    const NodeInfo& sum = g.nodes()[maker];
    const std::string miss = "not one pass with " + sum.label + ": ";
    for (const ValueId operand : sum.inputs) {
        const ValueInfo& x = g.values()[operand];
        if (!(x.shape == g.values()[sum.outputs[0]].shape) || !is_contiguous(x.shape, x.strides)) {
            return {.what = miss + "an operand is broadcast, or does not lie densely"};
        }
        if (in_fours(x) != in_fours(g.values()[sum.outputs[0]])) {
            return {.what = miss + "an operand does not begin at a multiple of four, as the sum does"};
        }
    }
    for (std::size_t i = 1; i < site.node().inputs.size(); ++i) {
        if (g.values()[site.node().inputs[i]].storage == g.values()[sum.outputs[0]].storage) {
            return {.what = miss + "its weight or bias is the sum itself"};
        }
    }
    if (const std::string why = site.why_not_moved(maker); !why.empty()) {
        return {.what = miss + why};
    }
    const auto make = [](Graph& graph, const std::vector<NodeInfo>& old) {
        NormParams added = *static_cast<const NormParams*>(old[1].params.get());
        added.added = true;
        std::vector<Value> inputs{Value(graph, old[0].inputs[0]), Value(graph, old[0].inputs[1])};
        for (std::size_t i = 1; i < old[1].inputs.size(); ++i) {
            inputs.emplace_back(graph, old[1].inputs[i]);
        }
        const OutputSpec like_x{DType::f32, inputs[0].shape(), {}, {}};
        return graph.add_node(*old[1].op, inputs, params(added), {like_x, like_x});
    };
    return {.nodes = {maker, site.id()}, .make = make, .what = "one pass with " + sum.label};
}

// --- the gradient --------------------------------------------------------------------------------

void prepare_gradient(const Operands& operands, Command& command) noexcept {
    const View& x = operands[kNormGradientBindingX];
    NormGradientPush push{};
    push.rows = static_cast<uint>(x.rows());
    push.width = x.dim(0);
    push.x_offset = x.offset;
    push.weight_offset = operands[kNormGradientBindingWeight].offset;
    push.dy_offset = operands[kNormGradientBindingDy].offset;
    push.dx_offset = operands[kNormGradientBindingDx].offset;
    push.eps = operands.params<NormParams>().eps;
    command.push(push);
    command.groups(RowGroup{operands.words[0], operands.words[1]}.groups(push.rows));
    const double elements = static_cast<double>(x.elements());
    command.cost(elements * 16, elements * 12);
}

/// Inputs: x, dy, the weight where there is one. All are dense.
void lower_gradient(Lowering& l) {
    const auto& params = l.params<NormParams>();
    const ValueId x = l.input(0), dy = l.input(1), weight = params.weight ? l.input(2) : x;
    const RowGroup group =
        held_row_group(l, l.max_of(l.info(x).shape.back()), kLongestHeldNorm, kGradientSubgroups.name);
    const bool fours = in_fours(l.info(x)) && in_fours(l.info(dy)) && in_fours(l.info(weight));
    Dispatch& d =
        l.dispatch({{group.subgroups ? &kGradientSubgroups : &kGradientShader,
                     {group.local_size,
                      {{kNormGradientSpecLanes, group.lanes},
                       {kNormGradientSpecCentred, params.centred ? 1u : 0u},
                       {kNormGradientSpecWeight, params.weight ? 1u : 0u},
                       {kNormGradientSpecFours, fours ? 1u : 0u},
                       {kNormGradientSpecHeld, group.held}}},
                     why_rows(l.device(), group, fours)}},
                   {{x, Access::read}, {weight, Access::read}, {dy, Access::read}, {l.output(0), Access::write}},
                   prepare_gradient, {group.local_size, group.lanes});
    d.in_place_input = kNormGradientBindingDy;
    d.in_place_output = kNormGradientBindingDx;
}

constexpr OpType kNormGradient{.name = "norm_gradient", .lower = lower_gradient};

std::vector<Value> gradient(const GradientSite& site) {
    const NormParams p = site.params<NormParams>();
    const OpType& op = *site.node().op;
    require(!p.added, op.name, "the norm of a sum is no op that people write");
    std::vector<Value> out(site.inputs());
    const Value x = dense(site.input(0)), dy = dense(site.gradient());
    const std::size_t bias_at = p.weight ? 2 : 1;
    if (site.wanted(0)) {
        std::vector<Value> inputs{x, dy};
        if (p.weight) {
            inputs.push_back(dense(site.input(1)));
        }
        out[0] = add_op(kNormGradient, inputs, p, x.shape());
    }
    if (p.weight && site.wanted(1)) {
        const Value normed = add_op(op, {x}, NormParams{p.eps, p.centred, false, false, false}, x.shape());
        out[1] = sum_to(mul(dy, normed), site.input(1).shape());
    }
    if (p.bias && site.wanted(bias_at)) {
        out[bias_at] = sum_to(dy, site.input(bias_at).shape());
    }
    return out;
}

/// x and the other inputs of a norm, checked.
std::vector<Value> norm_inputs(const OpType& op, Value x, Value weight, Value bias, float eps) {
    require_dtype(op.name, x, DType::f32);
    require(x.rank() >= 1, op.name, x.str() + " has no last dimension");
    check_epsilon(op.name, eps);
    std::vector<Value> inputs{in_row_groups(info_of(x)) ? x : contiguous(x)};
    for (const Value& v : {weight, bias}) {
        if (v) {
            require_dtype(op.name, v, DType::f32);
            require(v.shape() == Shape{x.size(-1)}, op.name, v.str() + " does not fit the rows of " + x.str());
            inputs.push_back(v);
        }
    }
    return inputs;
}

Value norm(const OpType& op, Value x, Value weight, Value bias, float eps, bool centred) {
    return add_op(op, norm_inputs(op, x, weight, bias, eps), NormParams{eps, centred, bool(weight), bool(bias), false},
                  x.shape());
}

}  // namespace

Value layer_norm(Value x, Value weight, Value bias, float eps) { return norm(kLayerNorm, x, weight, bias, eps, true); }

Value rms_norm(Value x, Value weight, float eps) { return norm(kRmsNorm, x, weight, {}, eps, false); }

}  // namespace vkf
