// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "ceilings.h"
#include "tools/rates/rates.h"

namespace {

constexpr const char* kName = "coopmat_f16";

Row measure(Settings& settings) {
    Row best;
    double best_rate = 0;
    for (const vkf::MatrixShape& shape : settings.device.capabilities().matrix_shapes) {
        RateProgram matrices = matrix_rate(settings.device, shape);
        settings.warm_up();
        const std::vector<double> samples = sample(kName, 30, [&] {
            matrices.program.run();
            return matrices.program.times().front().ms;
        });
        const double rate = matrices.flops / *std::min_element(samples.begin(), samples.end()) * 1e-6;
        settings.ceilings.matrix_gflops = std::max(settings.ceilings.matrix_gflops, rate);
        if (rate <= best_rate) {
            continue;
        }
        best_rate = rate;
        best.ms = median(samples);
        best.gflops = matrices.flops / *best.ms * 1e-6;
        best.variant = matrices.variant;
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
