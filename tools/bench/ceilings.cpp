// SPDX-License-Identifier: Apache-2.0
#include "ceilings.h"

#include <algorithm>
#include <cmath>

#include "tools/rates/rates.h"

namespace {

constexpr std::int64_t kFlush = 16 << 20;  // floats

double run_fma(RateProgram& rate) {
    rate.program.run();
    return rate.program.times().front().ms;
}

Row measure_fma(Settings& settings) {
    RateProgram separate = fma_rate(settings.device, false);
    RateProgram fused = fma_rate(settings.device, true);
    settings.warm_up();
    RateProgram& faster = run_fma(fused) < run_fma(separate) ? fused : separate;
    Row row;
    row.name = "fma_f32";
    row.variant = faster.variant;
    const std::vector<double> samples = sample(row.name, 30, [&] { return run_fma(faster); });
    row.ms = median(samples);
    row.gflops = faster.flops / *row.ms * 1e-6;
    settings.ceilings.gflops = faster.flops / *std::min_element(samples.begin(), samples.end()) * 1e-6;
    return row;
}

vkf::Program compile_flush(const vkf::Device& device) {
    vkf::Graph g;
    g.output("y", contiguous(g.input("x", {kFlush})));
    return device.compile(g);
}

}  // namespace

Bench fma_ceiling() { return {"fma_f32", measure_fma}; }

Preparation::Preparation(const vkf::Device& device) : flush_(compile_flush(device)) {
    flush_.upload("x", std::vector<float>(kFlush));
    if (!device.capabilities().cpu()) {
        work_ = fma_rate(device, true);
    }
}

void Preparation::warm_up() {
    constexpr double kLeast = 200, kFirst = 1500, kMost = 5000;  // milliseconds
    const double least = std::isinf(best_ms_) ? kFirst : kLeast;
    const auto start = Clock::now();
    for (double ms = 0, passed = 0; work_ && passed < kMost && (passed < least || ms > 1.05 * best_ms_);
         passed = milliseconds_since(start)) {
        ms = run_fma(*work_);
        best_ms_ = std::min(best_ms_, ms);
    }
}

void Preparation::run() {
    constexpr double kBefore = 2;  // milliseconds
    const auto start = Clock::now();
    while (work_ && milliseconds_since(start) < kBefore) {
        run_fma(*work_);
    }
    flush_.run();
}
