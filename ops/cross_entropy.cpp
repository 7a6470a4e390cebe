// SPDX-License-Identifier: Apache-2.0
#include "shaders/cross_entropy.h"
#include "cross_entropy.spv.h"
#include "cross_entropy_gradient.spv.h"
#include "ops/add_op.h"
#include "ops/checks.h"
#include "ops/gradient.h"
#include "ops/softmax.h"
#include "runtime/base/numbers.h"
#include "runtime/compile/lowering.h"
#include "shaders/cross_entropy_gradient.h"

namespace vkf {

namespace {

using namespace shader;
using namespace support;

const Shader kShader{"cross_entropy", spirv::kCrossEntropySpirv};
const Shader kGradientShader{"cross_entropy_gradient", spirv::kCrossEntropyGradientSpirv};
constexpr const char* kName = "cross_entropy";
constexpr uint kLanes = 64;

void prepare(const Operands& operands, Command& command) noexcept {
    const auto& params = operands.params<CrossEntropyOptions>();
    const View& logits = operands[kCrossEntropyBindingLogits];
    CrossEntropyPush push{};
    push.rows = static_cast<uint>(logits.rows());
    push.width = logits.dim(0);
    push.logits_offset = logits.offset;
    push.labels_offset = operands[kCrossEntropyBindingLabels].offset;
    push.log_sum_exp_offset = operands[kCrossEntropyBindingLogSumExp].offset;
    push.loss_offset = operands[kCrossEntropyBindingLoss].offset;
    push.ignore_index = static_cast<int>(params.ignore_index);
    push.smoothing = params.label_smoothing;
    command.push(push);
    command.groups(1);
    command.cost(static_cast<double>(logits.elements()), static_cast<double>(logits.rows()) * 12);
}

void lower(Lowering& l) {
    std::int64_t rows = 1;
    for (const Dim& d : l.info(l.input(1)).shape) {
        rows *= l.max_of(d);
    }
    l.check_rounds(rows / kLanes + 1, std::to_string(rows) + " rows");
    l.dispatch({{&kShader, {kLanes, {{kCrossEntropySpecLanes, kLanes}}}, "one group, for one order of summation"}},
               {{l.input(0), Access::read},
                {l.input(1), Access::read},
                {l.input(2), Access::read},
                {l.output(0), Access::write}},
               prepare);
}

// --- the gradient --------------------------------------------------------------------------------

/// Words: the stage.
void prepare_gradient(const Operands& operands, Command& command) noexcept {
    const auto& params = operands.params<CrossEntropyOptions>();
    const bool first = operands.words[0] == 0;
    // the first stage binds one number in the place of the logits
    const View& labels = operands[kCrossEntropyGradientBindingLabels];
    CrossEntropyGradientPush push{};
    push.rows = static_cast<uint>(labels.elements());
    push.width = first ? 1 : operands[kCrossEntropyGradientBindingLogits].dim(0);
    push.logits_offset = operands[kCrossEntropyGradientBindingLogits].offset;
    push.labels_offset = labels.offset;
    push.rows_offset = operands[kCrossEntropyGradientBindingRows].offset;
    push.out_offset = operands[kCrossEntropyGradientBindingOut].offset;
    push.ignore_index = static_cast<int>(params.ignore_index);
    push.smoothing = params.label_smoothing;
    command.push(push);
    const std::uint64_t elements = std::uint64_t{push.rows} * push.width;
    command.groups(first ? 1 : divide_up(elements, kLanes));
    command.cost(static_cast<double>(elements) * 20, static_cast<double>(elements) * 8);
}

/// Inputs: logits, labels, log-sum-exp in two parts, the gradient of the loss.
void lower_gradient(Lowering& l) {
    const ValueId logits = l.input(0), labels = l.input(1), sums = l.input(2), dy = l.input(3);
    std::int64_t rows = 1;
    for (const Dim& d : l.info(labels).shape) {
        rows *= l.max_of(d);
    }
    l.check_rounds(rows / kLanes + 1, std::to_string(rows) + " rows");
    const ValueId table = l.scratch(DType::f32, {Dim(2) * elements(l.info(labels).shape) + Dim(1)});
    const auto stage = [](uint which) {
        return Constants(kLanes, {{kCrossEntropyGradientSpecStage, which},
                                  {kCrossEntropyGradientSpecLanes, which == 0 ? kLanes : 1u}});
    };
    l.dispatch({{&kGradientShader, stage(0), "one group counts the rows"}},
               {{dy, Access::read}, {labels, Access::read}, {table, Access::write}, {sums, Access::read}},
               prepare_gradient, {0});
    Dispatch& d = l.dispatch(
        {{&kGradientShader, stage(1), "an element an invocation"}},
        {{logits, Access::read}, {labels, Access::read}, {table, Access::read}, {l.output(0), Access::write}},
        prepare_gradient, {1});
    d.in_place_input = kCrossEntropyGradientBindingLogits;
    d.in_place_output = kCrossEntropyGradientBindingOut;
}

constexpr OpType kCrossEntropyGradient{.name = "cross_entropy_gradient", .lower = lower_gradient};

std::vector<Value> gradient(const GradientSite& site) {
    const auto options = site.params<CrossEntropyOptions>();
    const Value logits = site.input(0);
    // with label smoothing the third input is another
    const Value sums = options.label_smoothing == 0.0f ? site.input(2) : log_sum_exp_parts(logits, {});
    return {
        add_op(kCrossEntropyGradient, {logits, site.input(1), sums, dense(site.gradient())}, options, logits.shape())};
}

constexpr OpType kCrossEntropy{.name = kName, .lower = lower, .gradient = gradient};

}  // namespace

Value cross_entropy(Value logits, Value labels, const CrossEntropyOptions& options) {
    require_dtype(kName, logits, DType::f32);
    require_dtype(kName, labels, DType::i32);
    Shape rows = logits.shape();
    require(!rows.empty(), kName, logits.str() + " has no classes");
    rows.pop_back();
    require(rows == labels.shape(), kName, labels.str() + " must hold one label for each row of " + logits.str());
    check_probability(kName, "label_smoothing", options.label_smoothing);
    require(options.ignore_index >= std::numeric_limits<std::int32_t>::min() &&
                options.ignore_index <= std::numeric_limits<std::int32_t>::max(),
            kName, "ignore_index = " + std::to_string(options.ignore_index) + " is no 32-bit number");
    logits = dense(logits);
    return add_op(kCrossEntropy,
                  {logits, dense(labels),
                   options.label_smoothing == 0.0f ? log_sum_exp_parts(logits, {})
                                                   : smoothed_log_sum_exp(logits, options.label_smoothing)},
                  options, Shape{1});
}

}  // namespace vkf
