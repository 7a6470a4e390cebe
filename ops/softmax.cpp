// SPDX-License-Identifier: Apache-2.0
#include "ops/softmax.h"

#include "shaders/softmax.h"

#include "ops/add_op.h"
#include "ops/checks.h"
#include "ops/fours.h"
#include "ops/gradient.h"
#include "ops/pushed_mask.h"
#include "ops/row_group.h"
#include "ops/row_load.h"
#include "ops/softmax_gradient.h"
#include "runtime/compile/texel_fetches.h"
#include "softmax.spv.h"

namespace vkf {

namespace {

using namespace shader;
using namespace support;

const Shader kShader{"softmax", spirv::kSoftmaxSpirv};
const Shader kWide{"softmax_wide", spirv::kSoftmaxSpirv, kWideLoads};
const Shader kSubgroups{"softmax_subgroups", spirv::kSoftmaxSpirv, kBySubgroups};
constexpr const char* kName = "softmax";
/// A float counts no further by ones.
constexpr std::int64_t kMostHardKeys = std::int64_t{1} << 24;

struct SoftmaxParams {
    float scale, softcap, fill;
    Causal causal;
    std::int64_t window;
    Polarity polarity;
    bool mask;
    uint term;    // kSoftmaxTermNone ...
    uint output;  // kSoftmaxOutputWeights ...
    float smoothing = 0.0f;
    bool unmasked = false;  // queries stand where `causal` says, and see every key
};

bool masks_causally(const SoftmaxParams& p) noexcept { return p.causal != Causal::none && !p.unmasked; }

bool of_rows(uint output) noexcept {
    return output == kSoftmaxOutputLogSumExp || output == kSoftmaxOutputSmoothed ||
           output == kSoftmaxOutputLogSumExpParts || output == kSoftmaxOutputSinkWeight;
}

void fill_strides(const View& view, uint (&strides)[5], uint& offset) noexcept {
    for (std::size_t i = 0; i < kMaxRank; ++i) {
        strides[i] = view.size[i] == 1 ? 0 : view.stride[i];
    }
    offset = view.offset;
}

void prepare(const Operands& operands, Command& command) noexcept {
    const auto& params = operands.params<SoftmaxParams>();
    const View& scores = operands[kSoftmaxBindingScores];
    SoftmaxPush push{};
    push.keys = scores.dim(0);
    push.rows = 1;
    for (std::size_t i = 0; i < 4; ++i) {
        push.size[i] = scores.size[i];
        push.rows *= scores.size[i];
    }
    fill_strides(operands[kSoftmaxBindingMask], push.mask_stride, push.mask_offset);
    fill_strides(operands[kSoftmaxBindingTerm], push.term_stride, push.term_offset);
    push.scores_offset = scores.offset;
    push.out_offset = operands[kSoftmaxBindingOut].offset;
    const auto queries = static_cast<std::int64_t>(scores.dim(1));
    push.causal_shift = params.causal == Causal::bottom_right ? static_cast<int>(scores.dim(0) - queries) : 0;
    push.window = pushed_window(params.window, scores.dim(1), scores.dim(0));
    push.scale = params.scale;
    push.softcap = params.softcap;
    push.fill = params.fill;
    push.smoothing = params.smoothing;
    command.push(push);
    // which has a value without keys too
    const bool nothing = push.keys == 0 && !of_rows(params.output);
    command.groups(nothing ? 0 : RowGroup{operands.words[0], operands.words[1]}.groups(push.rows));
    const double elements = static_cast<double>(scores.elements());
    command.cost(elements * 20, elements * (params.mask ? 12 : 8));
}

/// Rows of whole turns of one lane.
bool in_turns(const ValueInfo& value) {
    Dim quotient;
    return value.shape.back().divided_by(Dim(4 * kSoftmaxMostFours), quotient);
}

void lower(Lowering& l) {
    const auto& params = l.params<SoftmaxParams>();
    const ValueId scores = l.input(0);
    const std::int64_t keys = l.max_of(l.info(scores).shape.back());
    require(params.output != kSoftmaxOutputHard || keys <= kMostHardKeys, l.node().op->name,
            "rows of " + std::to_string(keys) + " scores; " + std::to_string(kMostHardKeys) + " are possible");
    const ValueId mask = params.mask ? l.input(1) : scores;
    const ValueId term = params.term != kSoftmaxTermNone ? l.input(params.mask ? 2 : 1) : scores;
    const RowGroup group =
        held_row_group(l, keys, params.output == kSoftmaxOutputWeights ? kLongestHeldRow : 0, kSubgroups.name);
    const bool by_fours = params.output == kSoftmaxOutputWeights && in_fours(l.info(scores)) &&
                          in_fours(l.info(l.output(0))) && in_fours(l.info(mask)) &&
                          (params.term != kSoftmaxTermBias || in_fours(l.info(term))) &&
                          (params.term != kSoftmaxTermSlopes || l.info(term).strides.back() == Dim(0));
    const RowLoad load = row_load(l, by_fours && !takes_gpu_rows(l.device()), kWide);
    const uint fours = !by_fours                                                   ? 0
                       : load.wide && group.lanes == 1 && in_turns(l.info(scores)) ? kSoftmaxMostFours
                                                                                   : 1;
    // where lanes store one after the other, and fetch together
    const bool again = by_fours && takes_texels(l.device());
    const uint mask_kind = !params.mask ? 0u : params.polarity == Polarity::attend ? 1u : 2u;
    Dispatch& d = l.dispatch(
        {{group.subgroups ? &kSubgroups
          : load.wide     ? &kWide
                          : &kShader,
          {group.local_size,
           {{kSoftmaxSpecLanes, group.lanes},
            {kSoftmaxSpecMask, mask_kind},
            {kSoftmaxSpecTerm, params.term},
            {kSoftmaxSpecCausal, masks_causally(params) ? 1u : 0u},
            {kSoftmaxSpecSoftcap, params.softcap == 0 ? 0u : 1u},
            {kSoftmaxSpecOutput, params.output},
            {kSoftmaxSpecFours, fours},
            {kSoftmaxSpecHeld, group.held},
            {kSoftmaxSpecAgain, again ? 1u : 0u}}},
          why_rows(l.device(), group, by_fours) + load.note}},
        {{scores, Access::read}, {mask, Access::read}, {term, Access::read}, {l.output(0), Access::read_write}},
        prepare, {group.local_size, group.lanes});
    if (params.output == kSoftmaxOutputWeights ||
        params.output == kSoftmaxOutputScores) {  // the others read scores again after writing
        d.in_place_input = kSoftmaxBindingScores;
        d.in_place_output = kSoftmaxBindingOut;
    }
}

std::vector<Value> gradient_of_weights(const GradientSite& site);
std::vector<Value> gradient_of_scores(const GradientSite& site);
std::vector<Value> gradient_of_log_sum_exp(const GradientSite& site);

constexpr OpType kSoftmax{.name = kName, .lower = lower, .gradient = gradient_of_weights};
constexpr OpType kBiasedScores{.name = "biased_scores", .lower = lower, .gradient = gradient_of_scores};
constexpr OpType kLogSumExp{.name = "log_sum_exp", .lower = lower, .gradient = gradient_of_log_sum_exp};
constexpr OpType kHardMax{.name = "hard_max", .lower = lower, .gradient = no_gradient};
constexpr OpType kParts{.name = "log_sum_exp_parts", .lower = lower};
constexpr OpType kSmoothed{.name = "smoothed_log_sum_exp", .lower = lower};
constexpr OpType kSinkWeight{.name = "sink_weight", .lower = lower};

// --- gradients -----------------------------------------------------------------------------------

std::size_t term_input(const SoftmaxParams& p) { return p.mask ? 2 : 1; }

bool term_is_wanted(const GradientSite& site, uint term) {
    const auto& p = site.params<SoftmaxParams>();
    const bool wanted = p.term != kSoftmaxTermNone && site.wanted(term_input(p));
    if (wanted && p.term == kSoftmaxTermSlopes) {
        fail(site.node().op->name, "alibi_slopes " + site.input(term_input(p)).str() + " have no gradient");
    }
    return wanted && p.term == term;
}

/// Scores that a finite number takes the place of pass no gradient: -0.0, which products skip.
Value without_filled(const GradientSite& site, Value ds) {
    SoftmaxParams p = site.params<SoftmaxParams>();
    if (!std::isfinite(p.fill) || !(p.mask || masks_causally(p))) {
        return ds;
    }
    p.scale = 1.0f;
    p.softcap = 0.0f;
    p.fill = -0.0f;
    p.term = kSoftmaxTermNone;
    p.output = kSoftmaxOutputScores;
    std::vector<Value> inputs{ds};
    if (p.mask) {
        inputs.push_back(site.input(1));
    }
    return add_op(kBiasedScores, inputs, p, ds.shape());
}

/// From the gradient of the scaled and capped scores to that of the scores.
Value through_scale(const GradientSite& site, Value ds) {
    const auto p = site.params<SoftmaxParams>();
    return p.scale == 1.0f && p.softcap == 0.0f
               ? ds
               : softmax_gradient({.of = kSoftmaxGradientScores, .scale = p.scale, .softcap = p.softcap}, ds, ds,
                                  site.input(0));
}

/// The node's op with another output.
Value with_output(const GradientSite& site, const OpType& op, uint output, const Shape& shape) {
    SoftmaxParams p = site.params<SoftmaxParams>();
    p.output = output;
    std::vector<Value> inputs;
    for (std::size_t i = 0; i < site.inputs(); ++i) {
        inputs.push_back(site.input(i));
    }
    return add_op(op, inputs, p, shape);
}

/// The weight of each row's sink itself: what is left of 1 beside the others' loses its digits.
Value sink_weight(const GradientSite& site) {
    Shape rows = site.input(0).shape();
    rows.pop_back();
    return with_output(site, kSinkWeight, kSoftmaxOutputSinkWeight, rows);
}

std::vector<Value> gradient_of_scores(const GradientSite& site) {
    std::vector<Value> out(site.inputs());
    const Value ds = without_filled(site, dense(site.gradient()));
    if (term_is_wanted(site, kSoftmaxTermBias)) {
        out[term_input(site.params<SoftmaxParams>())] = ds;
    }
    out[0] = through_scale(site, ds);
    return out;
}

std::vector<Value> gradient_of_weights(const GradientSite& site) {
    const auto p = site.params<SoftmaxParams>();
    std::vector<Value> out(site.inputs());
    const Value w = site.output(), dw = dense(site.gradient());
    if (term_is_wanted(site, kSoftmaxTermSinks)) {
        Shape rows = w.shape();
        rows.back() = Dim(1);
        out[term_input(p)] = reshape(softmax_gradient({.of = kSoftmaxGradientSink}, w, dw, sink_weight(site)), rows);
    }
    const Value ds = without_filled(site, softmax_gradient({.of = kSoftmaxGradientWeights}, w, dw, w));
    if (term_is_wanted(site, kSoftmaxTermBias)) {
        out[term_input(p)] = ds;
    }
    out[0] = through_scale(site, ds);
    return out;
}

std::vector<Value> gradient_of_log_sum_exp(const GradientSite& site) {
    const auto p = site.params<SoftmaxParams>();
    std::vector<Value> out(site.inputs());
    const Value w = with_output(site, kSoftmax, kSoftmaxOutputWeights, site.input(0).shape());
    const Value dy = dense(site.gradient());
    if (term_is_wanted(site, kSoftmaxTermSinks)) {
        Shape rows = w.shape();
        rows.back() = Dim(1);
        out[term_input(p)] = reshape(mul(sink_weight(site), dy), rows);
    }
    const Value ds = without_filled(site, softmax_gradient({.of = kSoftmaxGradientLogSumExp}, w, dy, w));
    if (term_is_wanted(site, kSoftmaxTermBias)) {
        out[term_input(p)] = ds;
    }
    out[0] = through_scale(site, ds);
    return out;
}

void check_options(const char* op, const Value& scores, const SoftmaxOptions& o) {
    require_dtype(op, scores, DType::f32);
    require(scores.rank() >= 1, op, scores.str() + " has no last dimension");
    require(o.mask.causal == Causal::none || scores.rank() >= 2, op,
            scores.str() + " has no queries for a causal mask");
    require_finite(op, "scale", o.scale);
    check_softcap(op, o.softcap);
    check_mask(op, o.mask);
    if (o.sinks) {
        require_dtype(op, o.sinks, DType::f32);
        require(o.sinks.rank() < 2 || o.sinks.shape().back() == Dim(1), op,
                "sinks " + o.sinks.str() + " have a number a key, not one a row");
    }
}

Value fit(const char* op, const char* what, const Value& tensor, const Value& scores) {
    try {
        return broadcast_to(tensor, scores.shape());
    } catch (const Error& e) {
        fail(op, std::string(what) + ": " + e.what());
    }
}

/// (H) as (H, 1, 1); wider tensors are the caller's own layout.
Value a_head_each(const Value& v) { return v.rank() == 1 ? reshape(v, {v.size(0), 1, 1}) : v; }

/// One node a term: the kernel has room for one more tensor than scores, mask and result. All terms
/// but the last are folded into the scores first.
Value add_softmax(const OpType& op, Value scores, const SoftmaxOptions& o, uint output, float smoothing = 0.0f,
                  bool unmasked = false) {
    check_options(op.name, scores, o);
    scores = dense(scores);
    struct Term {
        uint kind;
        Value tensor;
    };
    std::vector<Term> terms;
    if (o.mask.bias) {
        terms.push_back({kSoftmaxTermBias, fit(op.name, "bias", o.mask.bias, scores)});
    }
    if (o.mask.alibi_slopes) {
        terms.push_back({kSoftmaxTermSlopes, fit(op.name, "alibi_slopes", a_head_each(o.mask.alibi_slopes), scores)});
    }
    if (o.sinks) {
        terms.push_back({kSoftmaxTermSinks, fit(op.name, "sinks", a_head_each(o.sinks), scores)});
    }
    SoftmaxParams p{o.scale,         o.softcap, o.mask.fill,      o.mask.causal,       o.mask.window,
                    o.mask.polarity, false,     kSoftmaxTermNone, kSoftmaxOutputScores};
    p.unmasked = unmasked;
    for (; terms.size() > 1; terms.erase(terms.begin())) {
        p.term = terms.front().kind;
        scores = add_op(kBiasedScores, {scores, terms.front().tensor}, p, scores.shape());
        p.scale = 1.0f;
        p.softcap = 0.0f;
    }
    std::vector<Value> inputs{scores};
    if (o.mask.keys) {
        inputs.push_back(fit(op.name, "mask", o.mask.keys, scores));
        p.mask = true;
    }
    p.term = terms.empty() ? kSoftmaxTermNone : terms.front().kind;
    if (!terms.empty()) {
        inputs.push_back(terms.front().tensor);
    }
    p.output = output;
    p.smoothing = smoothing;
    Shape shape = scores.shape();
    if (of_rows(output)) {
        shape.pop_back();
    }
    if (output == kSoftmaxOutputLogSumExpParts || output == kSoftmaxOutputSmoothed) {
        shape.push_back(Dim(2));
    }
    return add_op(op, inputs, p, shape);
}

}  // namespace

Value softmax(Value scores, const SoftmaxOptions& options) {
    return add_softmax(kSoftmax, scores, options, kSoftmaxOutputWeights);
}

Value biased_scores(Value scores, const SoftmaxOptions& options) {
    SoftmaxOptions o = options;
    o.sinks = {};
    o.mask.keys = {};
    o.mask.window = 0;
    return add_softmax(kBiasedScores, scores, o, kSoftmaxOutputScores, 0.0f, true);
}

Value log_sum_exp(Value scores, const SoftmaxOptions& options) {
    return add_softmax(kLogSumExp, scores, options, kSoftmaxOutputLogSumExp);
}

Value support::smoothed_log_sum_exp(Value scores, float smoothing) {
    return add_softmax(kSmoothed, scores, {}, kSoftmaxOutputSmoothed, smoothing);
}

Value support::log_sum_exp_parts(Value scores, const SoftmaxOptions& options) {
    return add_softmax(kParts, scores, options, kSoftmaxOutputLogSumExpParts);
}

Value hard_max(Value scores, const SoftmaxOptions& options) {
    require(!options.sinks, kHardMax.name, "sinks have no meaning here");
    return add_softmax(kHardMax, scores, options, kSoftmaxOutputHard);
}

}  // namespace vkf
