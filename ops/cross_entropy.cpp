// SPDX-License-Identifier: Apache-2.0
#include "shaders/cross_entropy.h"
#include "cross_entropy.spv.h"
#include "ops/add_op.h"
#include "ops/checks.h"
#include "ops/softmax.h"
#include "runtime/compile/lowering.h"

namespace vkf {

namespace {

using namespace shader;
using namespace support;

const Shader kShader{"cross_entropy", spirv::kCrossEntropySpirv};
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

constexpr OpType kCrossEntropy{kName, lower};

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
    return add_op(
        kCrossEntropy,
        {logits, dense(labels),
         options.label_smoothing == 0.0f ? log_sum_exp(logits) : smoothed_log_sum_exp(logits, options.label_smoothing)},
        options, Shape{1});
}

}  // namespace vkf
