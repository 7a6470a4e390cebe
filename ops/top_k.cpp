// SPDX-License-Identifier: Apache-2.0
#include "shaders/top_k.h"

#include "ops/add_op.h"
#include "ops/checks.h"
#include "ops/gradient.h"
#include "runtime/compile/lowering.h"
#include "top_k.spv.h"

namespace vkf {

namespace {

using namespace shader;
using namespace support;

const Shader kShader{"top_k", spirv::kTopKSpirv};
constexpr const char* kName = "top_k";

struct TopKParams {
    uint k;
};

void prepare(const Operands& operands, Command& command) noexcept {
    const View& x = operands[kTopKBindingX];
    TopKPush push{};
    push.width = x.dim(0);
    push.k = operands.params<TopKParams>().k;
    push.x_offset = x.offset;
    push.values_offset = operands[kTopKBindingValues].offset;
    push.indices_offset = operands[kTopKBindingIndices].offset;
    command.push(push);
    command.groups(x.rows());
    command.cost(static_cast<double>(x.elements()) * 12, static_cast<double>(x.elements()) * 20);
}

void lower(Lowering& l) {
    constexpr std::int64_t kPasses = 6;
    const std::int64_t width = l.max_of(l.info(l.input(0)).shape.back());
    l.check_rounds(width / kTopKMost * kPasses, "a row of " + std::to_string(width) + " elements");
    l.dispatch({{&kShader, {}, "a group a row"}},
               {{l.input(0), Access::read}, {l.output(0), Access::write}, {l.output(1), Access::write}}, prepare, {});
}

constexpr OpType kTopK{.name = kName, .lower = lower, .gradient = no_gradient};

}  // namespace

TopK top_k(Value x, std::int64_t k) {
    require_dtype(kName, x, DType::f32);
    require(x.rank() >= 1 && x.size(-1).is_constant(), kName, x.str() + " has no last dimension of a fixed size");
    const std::int64_t most = std::min<std::int64_t>(kTopKMost, x.size(-1).constant());
    require(k >= 1 && k <= most, kName,
            "k = " + std::to_string(k) + " of " + x.str() + " is outside 1.." + std::to_string(most));
    Shape shape = x.shape();
    shape.back() = k;
    const std::vector<Value> out = x.graph().add_node(kTopK, {dense(x)}, params(TopKParams{static_cast<uint>(k)}),
                                                      {{DType::f32, shape, {}, {}}, {DType::i32, shape, {}, {}}});
    return {out[0], out[1]};
}

}  // namespace vkf
