// SPDX-License-Identifier: Apache-2.0
#include "shaders/argmax.h"
#include "argmax.spv.h"
#include "ops/add_op.h"
#include "ops/checks.h"
#include "ops/gradient.h"
#include "ops/row_group.h"

namespace vkf {

namespace {

using namespace shader;
using namespace support;

const Shader kShader{"argmax", spirv::kArgmaxSpirv};
constexpr const char* kName = "argmax";

struct NoParams {};

void prepare(const Operands& operands, Command& command) noexcept {
    const View& x = operands[kArgmaxBindingX];
    ArgmaxPush push{};
    push.width = x.dim(0);
    push.rows = static_cast<uint>(x.rows());
    push.x_offset = x.offset;
    push.index_offset = operands[kArgmaxBindingIndex].offset;
    command.push(push);
    command.groups(RowGroup{operands.words[0], operands.words[1]}.groups(push.rows));
    command.cost(static_cast<double>(x.elements()) * 2, static_cast<double>(x.elements()) * 4);
}

void lower(Lowering& l) {
    const ValueId x = l.input(0);
    const RowGroup group = row_group(l, l.max_of(l.info(x).shape.back()));
    l.dispatch({{&kShader, {group.local_size, {{kArgmaxSpecLanes, group.lanes}}}, why_rows(l.device(), group)}},
               {{x, Access::read}, {l.output(0), Access::write}}, prepare, {group.local_size, group.lanes});
}

constexpr OpType kArgmax{.name = kName, .lower = lower, .gradient = no_gradient};

}  // namespace

Value argmax(Value x) {
    require_dtype(kName, x, DType::f32);
    require(x.rank() >= 1, kName, x.str() + " has no last dimension");
    Shape shape = x.shape();
    shape.pop_back();
    if (!x.size(-1).is_constant()) {
        x.graph().constrain(1, x.size(-1), std::string(kName) + ": elements needed of each row of " + x.str());
    }
    return add_op(kArgmax, {dense(x)}, NoParams{}, shape, DType::i32);
}

}  // namespace vkf
