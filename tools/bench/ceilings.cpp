// SPDX-License-Identifier: Apache-2.0
#include "ceilings.h"

#include <algorithm>
#include <stdexcept>

#include "fma.spv.h"
#include "runtime/compile/lowering.h"
#include "tools/bench/shaders/fma.h"

namespace {

using vkf::shader::kFmaBindingX;
using vkf::shader::kFmaBindingY;
using vkf::shader::kFmaChains;
using vkf::shader::kFmaSpecFused;
using vkf::shader::kFmaUnrolled;

constexpr std::uint32_t kLocalSize = 64;
constexpr std::uint32_t kSteps = 64;
constexpr std::int64_t kFlush = 16 << 20;  // floats

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

vkf::Program compile_fma(const vkf::Device& device, std::int64_t count, std::uint32_t fused) {
    vkf::Graph g;
    const vkf::Value x = g.input("x", {2});
    g.output("y",
             g.add_node(kOp, {x}, std::make_shared<const std::uint32_t>(fused), {{vkf::DType::f32, {count}, {}, {}}})
                 .front());
    vkf::CompileOptions options;
    options.profile = true;
    vkf::Program program = device.compile(g, {}, options);
    program.upload("x", std::vector<float>{0.5f, 0.5f});
    program.run();
    const std::vector<float> y = program.download("y");
    if (std::any_of(y.begin(), y.end(), [](float v) { return v != kFmaChains; })) {
        throw std::runtime_error("fma_f32 is wrong");
    }
    return program;
}

double run_fma(vkf::Program& program) {
    program.run();
    return program.times().front().ms;
}

Row measure_fma(Settings& settings) {
    // some milliseconds on a processor as on a large GPU
    const std::int64_t count = settings.device.capabilities().cpu() ? 1 << 13 : 1 << 20;
    vkf::Program separate = compile_fma(settings.device, count, 0);
    vkf::Program fused = compile_fma(settings.device, count, 1);
    const bool use_fused = run_fma(fused) < run_fma(separate);
    Row row;
    row.name = "fma_f32";
    row.variant = use_fused ? "fma() of registers" : "products and sums of registers";
    const std::vector<double> samples = sample(row.name, 30, [&] { return run_fma(use_fused ? fused : separate); });
    row.ms = median(samples);
    const double flops = flops_of(static_cast<std::uint64_t>(count));
    row.gflops = flops / *row.ms * 1e-6;
    settings.ceilings.gflops = flops / *std::min_element(samples.begin(), samples.end()) * 1e-6;
    return row;
}

vkf::Program compile_flush(const vkf::Device& device) {
    vkf::Graph g;
    g.output("y", contiguous(g.input("x", {kFlush})));
    return device.compile(g);
}

}  // namespace

Bench fma_ceiling() { return {"fma_f32", measure_fma}; }

CacheFlush::CacheFlush(const vkf::Device& device) : program_(compile_flush(device)) {
    program_.upload("x", std::vector<float>(kFlush));
}
