// SPDX-License-Identifier: Apache-2.0
// Gradients: the backward pass of a product and of attention beside their forward pass, both parts
// of one program, which is checked and then timed by the device's timestamps.
#include <algorithm>
#include <cstdio>
#include <string_view>

#include "benches.h"
#include "gradient_case.h"
#include "runtime/compile/plan.h"
#include "split_times.h"

namespace {

constexpr double kMostOfForwardAttention = 3, kMostOfForwardProduct = 2.2, kMostOfComposedScratch = 0.1;

/// Times of runs of one program. Both directions of a run share what slows the machine meanwhile.
struct Directions {
    std::vector<double> forward, backward, ratio;
};

/// `counts` says which dispatches are of the op and its gradient; the others are copies to outputs.
template <class Counts>
Directions time_directions(const std::string& name, vkf::Program& program, Counts counts, Settings& settings) {
    program.run();
    const double expected = milliseconds_of(program.times());
    const auto count = static_cast<std::size_t>(std::clamp(settings.seconds * 1e3 / expected, 3.0, 100.0));
    Directions out;
    settings.warm_up();
    sample(name, count, [&] {
        settings.prepare();
        program.run();
        const double both = milliseconds_of(program.times(), counts);
        const double backward =
            milliseconds_of(program.times(), [&](const vkf::DispatchTime& t) { return counts(t) && is_backward(t); });
        const double forward = both - backward;
        out.forward.push_back(forward);
        out.backward.push_back(backward);
        out.ratio.push_back(backward / forward);
        return backward;
    });
    return out;
}

Row row_of(const std::string& name, const Directions& times, double flops, double target) {
    Row row;
    row.name = name;
    row.ms = median(times.backward);
    row.gflops = flops / *row.ms * 1e-6;
    row.figures = {{"forward_ms", median(times.forward)}, {"backward_over_forward", median(times.ratio), target}};
    return row;
}

/// The scratch of the same graph where attention is composed, as if one storage buffer may have
/// any size.
double composed_scratch(const GradientCase& c, const vkf::Device& device) {
    vkf::Capabilities composed = device.capabilities();
    composed.variants = "attention_composed";
    composed.storage_range = std::uint64_t{1} << 32;
    vkf::Graph g;
    describe_gradient(g, c);
    return static_cast<double>(vkf::make_plan(g, composed).memory.scratch);
}

Row measure_gradient(const GradientCase& c, Settings& settings) {
    const GradientData data = make_gradient_data(c);
    vkf::Program program = compile_gradient(settings.device, c, data);
    program.run();
    check_gradient(c, data, program);
    const auto is_copy = [](const vkf::DispatchTime& t) { return t.label.starts_with("contiguous"); };
    const Directions times = time_directions(
        c.name, program, [&](const vkf::DispatchTime& t) { return !is_copy(t); }, settings);
    Row row = row_of(c.name, times, c.backward_flops(), c.attention ? kMostOfForwardAttention : kMostOfForwardProduct);
    row.variant = kernels_of(program.times(), is_backward);
    if (c.attention) {
        constexpr double kMiB = 1024 * 1024;
        const auto scratch = static_cast<double>(program.memory().scratch);
        const double composed = composed_scratch(c, settings.device);
        row.figures.push_back({"scratch_mib", scratch / kMiB});
        row.figures.push_back({"composed_scratch_mib", composed / kMiB});
        row.figures.push_back({"scratch_share", scratch / composed, c.rows >= 4096 ? kMostOfComposedScratch : 0});
    }
    return row;
}

}  // namespace

std::vector<Bench> gradient_benches() {
    std::vector<Bench> benches;
    for (const GradientCase& c : gradient_cases()) {
        benches.push_back({c.name, [c](Settings& settings) { return measure_gradient(c, settings); }});
    }
    return benches;
}
