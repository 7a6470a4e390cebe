// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <vector>

#include "runtime/compile/lowering.h"
#include "tools/rates/rates.h"
#include "tools/rates/shaders/matrix_rate.h"
#ifdef VKFORMER_GL_KHR_COOPERATIVE_MATRIX
#include "matrix_rate.spv.h"
#endif

namespace {

using namespace vkf::shader;

constexpr std::uint32_t kSteps = 128, kSame = 8;
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
    vkf::Kernel kernel{&kShader,
                       {subgroup,
                        {{kMatrixRateSpecRows, shape.m},
                         {kMatrixRateSpecColumns, shape.n},
                         {kMatrixRateSpecDepth, shape.k},
                         {kMatrixRateSpecSame, l.device().cpu() ? 1u : kSame}}},
                       "asked for"};
    kernel.subgroup_size = subgroup;
    l.dispatch({kernel}, {{l.input(0), vkf::Access::read}, {l.output(0), vkf::Access::write}}, prepare);
}

constexpr vkf::OpType kOp{"matrix_rate", lower};

}  // namespace

RateProgram matrix_rate(const vkf::Device& device, const vkf::MatrixShape& shape) {
    // some milliseconds on a processor as on a large GPU
    const std::int64_t groups = device.capabilities().cpu() ? 64 : 1 << 14;
    vkf::Graph g;
    const std::int64_t elements = groups * shape.m * shape.n;
    const vkf::Value x = g.input("x", {3});
    g.output("y", g.add_node(kOp, {x}, std::make_shared<const vkf::MatrixShape>(shape),
                             {{vkf::DType::f32, {elements}, {}, {}}})
                      .front());
    vkf::CompileOptions options;
    options.profile = device.capabilities().timestamp_period != 0;
    vkf::Program program = device.compile(g, {}, options);
    program.upload("x", std::vector<float>(std::begin(kX), std::end(kX)));
    program.run();
    constexpr std::uint32_t kTerms = kSteps * kMatrixRateChains * (kMatrixRateChains + 1) / 2;
    const float want = static_cast<float>(kTerms * shape.k) * kX[0] * kX[1];
    const std::vector<float> y = program.download("y");
    if (std::any_of(y.begin(), y.end(), [&](float v) { return v != want; })) {
        throw std::runtime_error("coopmat_f16 is wrong");
    }
    return {std::move(program), flops_of(shape) * static_cast<double>(groups),
            "matrices of " + std::to_string(shape.m) + "x" + std::to_string(shape.n) + "x" + std::to_string(shape.k) +
                ", sums in fp32"};
}
