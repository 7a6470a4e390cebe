// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <stdexcept>

#include "ceilings.h"
#include "runtime/compile/lowering.h"
#include "tools/bench/shaders/matrix_rate.h"
#ifdef VKFORMER_GL_KHR_COOPERATIVE_MATRIX
#include "matrix_rate.spv.h"
#endif

namespace {

using namespace vkf::shader;

constexpr const char* kName = "coopmat_f16";
constexpr std::uint32_t kSteps = 128;
/// The result's elements, which are exact.
constexpr float kX[] = {0.5f, 0.125f, 1.0f};

#ifdef VKFORMER_GL_KHR_COOPERATIVE_MATRIX
const vkf::Shader kShader{"matrix_rate", vkf::spirv::kMatrixRateSpirv};
#else
const vkf::Shader kShader{"matrix_rate", {}};
#endif

/// Multiplications and additions of a group, which is a subgroup.
double flops_of(const vkf::MatrixShape& s) { return 2.0 * s.m * s.n * s.k * kMatrixRateChains * kSteps; }

void prepare(const vkf::Operands& operands, vkf::Command& command) noexcept {
    const auto& shape = operands.params<vkf::MatrixShape>();
    MatrixRatePush push{};
    push.steps = kSteps;
    const std::uint64_t groups = operands[kMatrixRateBindingY].elements() / (shape.m * shape.n);
    command.push(push);
    command.groups(groups);
    command.cost(flops_of(shape) * static_cast<double>(groups), 0);
}

void lower(vkf::Lowering& l) {
    const auto& shape = l.params<vkf::MatrixShape>();
    const std::uint32_t subgroup = l.device().matrix_subgroup_size;
    vkf::Kernel kernel{
        &kShader,
        {subgroup,
         {{kMatrixRateSpecRows, shape.m}, {kMatrixRateSpecColumns, shape.n}, {kMatrixRateSpecDepth, shape.k}}},
        "asked for"};
    kernel.subgroup_size = subgroup;
    l.dispatch({kernel}, {{l.input(0), vkf::Access::read}, {l.output(0), vkf::Access::write}}, prepare);
}

constexpr vkf::OpType kOp{"matrix_rate", lower};

vkf::Program compile(const vkf::Device& device, const vkf::MatrixShape& shape, std::int64_t groups) {
    vkf::Graph g;
    const std::int64_t elements = groups * shape.m * shape.n;
    const vkf::Value x = g.input("x", {3});
    g.output("y", g.add_node(kOp, {x}, std::make_shared<const vkf::MatrixShape>(shape),
                             {{vkf::DType::f32, {elements}, {}, {}}})
                      .front());
    vkf::CompileOptions options;
    options.profile = true;
    vkf::Program program = device.compile(g, {}, options);
    program.upload("x", std::vector<float>(std::begin(kX), std::end(kX)));
    program.run();
    constexpr std::uint32_t kTerms = kSteps * kMatrixRateChains * (kMatrixRateChains + 1) / 2;
    const float want = static_cast<float>(kTerms * shape.k) * kX[0] * kX[1];
    const std::vector<float> y = program.download("y");
    if (std::any_of(y.begin(), y.end(), [&](float v) { return v != want; })) {
        throw std::runtime_error(std::string(kName) + " is wrong");
    }
    return program;
}

Row measure(Settings& settings) {
    const vkf::Capabilities& device = settings.device.capabilities();
    const std::int64_t groups = device.cpu() ? 64 : 1 << 14;  // some milliseconds on either
    Row best;
    double best_rate = 0;
    for (const vkf::MatrixShape& shape : device.matrix_shapes) {
        vkf::Program program = compile(settings.device, shape, groups);
        const std::vector<double> samples = sample(kName, 30, [&] {
            program.run();
            return program.times().front().ms;
        });
        const double flops = flops_of(shape) * static_cast<double>(groups);
        const double rate = flops / *std::min_element(samples.begin(), samples.end()) * 1e-6;
        settings.ceilings.matrix_gflops = std::max(settings.ceilings.matrix_gflops, rate);
        if (rate <= best_rate) {
            continue;
        }
        best_rate = rate;
        best.ms = median(samples);
        best.gflops = flops / *best.ms * 1e-6;
        best.variant = "matrices of " + std::to_string(shape.m) + "x" + std::to_string(shape.n) + "x" +
                       std::to_string(shape.k) + ", sums in fp32";
    }
    best.name = kName;
    return best;
}

}  // namespace

Bench matrix_ceiling() {
    return {kName, measure, [](const vkf::Capabilities& device) {
                return device.cooperative_matrix ? "" : "no cooperative matrices here";
            }};
}
