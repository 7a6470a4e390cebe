// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>
#include <stdexcept>
#include <vector>

#include "fma.spv.h"
#include "runtime/compile/lowering.h"
#include "tools/rates/rates.h"
#include "tools/rates/shaders/fma.h"

namespace {

using vkf::shader::kFmaBindingX;
using vkf::shader::kFmaBindingY;
using vkf::shader::kFmaChains;
using vkf::shader::kFmaSpecFused;
using vkf::shader::kFmaUnrolled;

constexpr std::uint32_t kLocalSize = 64;
constexpr std::uint32_t kSteps = 64;

const vkf::Shader kFma{"fma", vkf::spirv::kFmaSpirv};

double flops_of(std::uint64_t invocations) {
    return 2.0 * kFmaChains * kFmaUnrolled * kSteps * static_cast<double>(invocations);
}

void prepare(const vkf::Operands& operands, vkf::Command& command) noexcept {
    vkf::shader::FmaPush push{};
    push.count = static_cast<std::uint32_t>(operands[kFmaBindingY].elements());
    push.steps = kSteps;
    command.push(push);
    command.groups((push.count + kLocalSize - 1) / kLocalSize);
    command.cost(flops_of(push.count), 4.0 * push.count);
}

void lower(vkf::Lowering& l) {
    l.dispatch({{&kFma, {kLocalSize, {{kFmaSpecFused, l.params<std::uint32_t>()}}}, "asked for"}},
               {{l.input(0), vkf::Access::read}, {l.output(0), vkf::Access::write}}, prepare);
}

constexpr vkf::OpType kOp{"fma", lower};

}  // namespace

RateProgram fma_rate(const vkf::Device& device, bool fused) {
    // some milliseconds on a processor as on a large GPU
    const std::int64_t count = device.capabilities().cpu() ? 1 << 13 : 1 << 20;
    vkf::Graph g;
    const vkf::Value x = g.input("x", {2});
    g.output("y", g.add_node(kOp, {x}, std::make_shared<const std::uint32_t>(fused ? 1 : 0),
                             {{vkf::DType::f32, {count}, {}, {}}})
                      .front());
    vkf::CompileOptions options;
    options.profile = device.capabilities().timestamp_period != 0;
    vkf::Program program = device.compile(g, {}, options);
    program.upload("x", std::vector<float>{0.5f, 0.5f});
    program.run();
    const std::vector<float> y = program.download("y");
    if (std::any_of(y.begin(), y.end(), [](float v) { return v != kFmaChains; })) {
        throw std::runtime_error("fma_f32 is wrong");
    }
    return {std::move(program), flops_of(static_cast<std::uint64_t>(count)),
            fused ? "fma() of registers" : "products and sums of registers"};
}
