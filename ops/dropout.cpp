// SPDX-License-Identifier: Apache-2.0
#include "ops/dropout.h"

#include "ops/add_op.h"
#include "ops/checks.h"
#include "ops/elementwise.h"
#include "ops/gradient.h"
#include "shaders/elementwise.h"

namespace vkf {

namespace {

using namespace shader;
using namespace support;

struct DropoutParams {
    float p;
    Dim seed;
};

ElementwiseParams draw(float p) {
    return {.combine = kCombineDropout, .alpha = dropout_scale(p), .threshold = dropout_threshold(p)};
}

void prepare(const Operands& operands, Command& command) noexcept {
    const auto& params = operands.params<DropoutParams>();
    ElementwiseParams drawn = draw(params.p);
    drawn.seed = seed_of(operands, params.seed);
    prepare_elementwise(drawn, operands, command);
}

void lower(Lowering& l) {
    const auto& params = l.params<DropoutParams>();
    const ValueId x = l.input(0), y = l.output(0);
    lower_elementwise(l, draw(params.p), x, x, y, prepare);
}

/// The elements that were dropped pass nothing: the same draw again.
std::vector<Value> gradient(const GradientSite& site) {
    const auto& params = site.params<DropoutParams>();
    return {dropout(dense(site.gradient()), params.p, params.seed)};
}

constexpr OpType kDropout{.name = "dropout", .lower = lower, .can_read = can_read_any, .gradient = gradient};

}  // namespace

Value dropout(Value x, float p, Dim seed) {
    check_probability(kDropout.name, "p", p);
    if (p == 0.0f) {
        return x;
    }
    require_dtype(kDropout.name, x, DType::f32);
    require_symbols(kDropout.name, x.graph(), seed);
    return add_op(kDropout, {x}, DropoutParams{p, std::move(seed)}, x.shape());
}

}  // namespace vkf
