// SPDX-License-Identifier: Apache-2.0
#include "measure.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tools/rates/rates.h"

namespace {

using Clock = std::chrono::steady_clock;

struct Timed {
    double ms = 0, flops = 0, bytes = 0;
    std::string kernel;
};

/// Medians; the device's clock where it has one. `flush` runs before each, so that nothing of it
/// lies in caches.
Timed timed(vkf::Program& program, double seconds, vkf::Program* flush) {
    constexpr std::size_t kFewest = 3, kMost = 200;
    program.run();  // warms up
    std::vector<double> samples;
    Timed out;
    const auto start = Clock::now();
    const auto over = [&] { return std::chrono::duration<double>(Clock::now() - start).count() > seconds; };
    while (samples.size() < kFewest || (samples.size() < kMost && !over())) {
        if (flush) {
            flush->run();
        }
        const auto begun = Clock::now();
        program.run();
        double ms = std::chrono::duration<double, std::milli>(Clock::now() - begun).count();
        double on_device = 0;
        out.flops = out.bytes = 0;
        for (const vkf::DispatchTime& t : program.times()) {
            on_device += t.ms;
            out.flops += t.flops;
            out.bytes += t.bytes;
            out.kernel = out.kernel.empty() ? t.kernel : out.kernel;
        }
        samples.push_back(on_device > 0 ? on_device : ms);
    }
    std::nth_element(samples.begin(), samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2), samples.end());
    out.ms = samples[samples.size() / 2];
    return out;
}

/// One op and what it computes with.
class Op {
public:
    explicit Op(std::string name) : name_(std::move(name)) {}

    vkf::Value input(const char* name, const std::vector<std::int64_t>& shape) {
        inputs_.emplace_back(name, shape);
        return graph.input(name, {shape.begin(), shape.end()});
    }
    vkf::Value weight(const std::vector<std::int64_t>& shape, vkf::WeightType type) {
        weight_ = shape;
        type_ = type;
        return graph.weight("weight", {shape.begin(), shape.end()});
    }

    const std::string& name() const { return name_; }

    std::optional<Measured> measure(const vkf::Device& device, double seconds, const Ceilings& ceilings,
                                    vkf::Program* flush) {
        vkf::CompileOptions options;
        options.name = name_;
        options.arithmetic = arithmetic;
        options.profile = device.capabilities().timestamp_period != 0;
        vkf::Weights weights;
        if (!weight_.empty()) {
            const std::vector<float> data = numbers(weight_);
            const vkf::HostTensor tensor{"weight", vkf::DType::f32, weight_, std::as_bytes(std::span(data))};
            vkf::LoadOptions load;
            load.matrices = type_;
            weights = device.load({&tensor, 1}, load);
        }
        vkf::Program program = device.compile(graph, weights, options);
        if (arithmetic != vkf::Arithmetic::f32 && program.arithmetic().used != arithmetic) {
            return std::nullopt;
        }
        for (const auto& [name, shape] : inputs_) {
            program.upload(name, numbers(shape));
        }
        const Timed t = timed(program, seconds, flush);
        Measured out{name_, t.kernel, t.ms, t.flops / t.ms * 1e-6, t.bytes / t.ms * 1e-6};
        out.share = share_of_ceiling(out, arithmetic, ceilings);
        return out;
    }

    vkf::Graph graph;
    vkf::Arithmetic arithmetic = vkf::Arithmetic::f32;

private:
    static std::vector<float> numbers(const std::vector<std::int64_t>& shape) {
        std::size_t count = 1;
        for (const std::int64_t size : shape) {
            count *= static_cast<std::size_t>(size);
        }
        std::vector<float> out(count);
        for (std::size_t i = 0; i < count; ++i) {
            out[i] = static_cast<float>((i * 2654435761u >> 8) % 1025) / 512.0f - 1.0f;
        }
        return out;
    }

    std::string name_;
    // shapes: the numbers are there while it is measured
    std::vector<std::pair<std::string, std::vector<std::int64_t>>> inputs_;
    std::vector<std::int64_t> weight_;
    vkf::WeightType type_ = vkf::WeightType::f32;
};

Measured rate(RateProgram made, const char* name, double seconds) {
    const Timed t = timed(made.program, seconds, nullptr);
    return {name, made.variant, t.ms, made.flops / t.ms * 1e-6};
}

std::string square(std::int64_t n) { return std::to_string(n) + " by " + std::to_string(n); }

/// linear() of `rows` by a matrix of n by n.
void make_product(Op& op, std::int64_t rows, std::int64_t n, vkf::WeightType type) {
    op.graph.output("y", linear(op.input("x", {rows, n}), op.weight({n, n}, type)));
}

void make_attention(Op& op, std::int64_t queries, std::int64_t keys) {
    const vkf::Value q = op.input("q", {1, 8, queries, 64}), k = op.input("k", {1, 8, keys, 64}),
                     v = op.input("v", {1, 8, keys, 64});
    op.graph.output("y", merge_heads(scaled_dot_product_attention(q, k, v).y));
}

void not_measured(Report& report, const std::string& name, const std::exception& why) {
    report.not_measured += (report.not_measured.empty() ? "" : "; ") + name + ": " + why.what();
}

/// Measures one thing. What cannot be measured is told, and the others are; throws where the device
/// is lost, or what it multiplied is wrong.
template <class Measure>
void try_to(Report& report, const std::string& name, Measure measure) {
    try {
        measure();
    } catch (const vkf::Error& e) {
        constexpr int kTimeout = 2, kDeviceLost = -4;  // of VkResult
        if (e.result() == kTimeout || e.result() == kDeviceLost) {
            throw;
        }
        not_measured(report, name, e);
    } catch (const std::bad_alloc& e) {
        not_measured(report, name, e);
    }
}

/// Cooperative matrices multiply right, as far as is known.
bool has_matrices(const vkf::Device& device) {
    const std::vector<vkf::LeftOut> out = device.left_out();
    return device.capabilities().cooperative_matrix &&
           std::none_of(out.begin(), out.end(), [](const vkf::LeftOut& k) { return k.kernel == "matmul_coopmat"; });
}

}  // namespace

double share_of_ceiling(const Measured& op, vkf::Arithmetic arithmetic, const Ceilings& ceilings) {
    const bool matrices = op.kernel.find("coopmat") != std::string::npos && ceilings.matrix_gflops > 0;
    const double most = matrices ? ceilings.matrix_gflops : ceilings.gflops;
    // what the device can do in int8, or in f16 without matrices, is not measured
    const bool known = arithmetic == vkf::Arithmetic::f32 || (arithmetic == vkf::Arithmetic::f16 && matrices);
    return known && most > 0 && ceilings.gbps > 0 ? std::max(op.gflops / most, op.gbps / ceilings.gbps) : 0;
}

namespace {

void measure_all(const vkf::Device& device, double seconds, Report& report) {
    const bool cpu = device.capabilities().cpu();
    Ceilings ceilings;
    for (const bool fused : {false, true}) {
        try_to(report, "multiply-adds in fp32", [&] {
            Measured m = rate(fma_rate(device, fused), "multiply-adds in fp32", seconds);
            if (m.gflops > ceilings.gflops) {
                ceilings.gflops = m.gflops;
                report.ceilings = {std::move(m)};
            }
        });
    }
    std::optional<Measured> best;
    for (const vkf::MatrixShape& shape : device.capabilities().matrix_shapes) {
        if (!has_matrices(device)) {
            break;
        }
        try_to(report, "cooperative matrices of f16", [&] {
            Measured m = rate(matrix_rate(device, shape), "cooperative matrices of f16", seconds / 2);
            if (m.gflops > ceilings.matrix_gflops) {
                ceilings.matrix_gflops = m.gflops;
                best = std::move(m);
            }
        });
    }
    if (best) {
        report.ceilings.push_back(*best);
    }
    constexpr std::int64_t kCopied = 16 << 20;  // floats
    Op copy("copy of 64 MiB");
    copy.graph.output("y", contiguous(copy.input("x", {kCopied})));
    std::optional<vkf::Program> flush;  // another copy of as much, as tools/bench does
    try_to(report, copy.name(), [&] {
        vkf::Graph other;
        other.output("y", contiguous(other.input("x", {kCopied})));
        vkf::Program made = device.compile(other);
        made.upload("x", std::vector<float>(kCopied));
        flush = std::move(made);
        const std::optional<Measured> copied = copy.measure(device, seconds, {}, &*flush);
        ceilings.gbps = copied->gbps;
        report.ceilings.push_back(*copied);
    });

    const auto add = [&](Op& op) {
        try_to(report, op.name(), [&] {
            if (auto m = op.measure(device, seconds, ceilings, flush ? &*flush : nullptr)) {
                report.ops.push_back(*m);
            }
        });
    };
    const std::int64_t n = cpu ? 512 : 2048, large = cpu ? 2048 : 4096;
    using vkf::Arithmetic, vkf::WeightType;
    const struct {
        const char* in;
        Arithmetic arithmetic;
        WeightType type;
    } products[] = {{"fp32", Arithmetic::f32, WeightType::f32},
                    {"fp32, weights kept as int4", Arithmetic::f32, WeightType::int4},
                    {"f16", Arithmetic::f16, WeightType::f16},
                    {"int8", Arithmetic::int8, WeightType::int8}};
    for (const auto& p : products) {
        Op op("product of " + square(n) + " in " + p.in);
        op.arithmetic = p.arithmetic;
        make_product(op, n, n, p.type);
        add(op);
    }
    for (const WeightType type : {WeightType::f32, WeightType::int4}) {
        Op op("one row by " + square(large) + (type == WeightType::f32 ? "" : ", kept as int4"));
        make_product(op, 1, large, type);
        add(op);
    }
    const std::int64_t rows = cpu ? 2048 : 8192;
    Op normed("layer_norm of " + std::to_string(rows) + " rows of 1024");
    normed.graph.output("y", layer_norm(normed.input("x", {rows, 1024}), normed.input("w", {1024}), {}));
    add(normed);
    Op weighed("softmax of " + std::to_string(rows) + " rows of 1024");
    weighed.graph.output("y", softmax(weighed.input("x", {rows, 1024})));
    add(weighed);
    Op prompt("attention of 512 queries, 8 heads of 64");
    make_attention(prompt, 512, 512);
    add(prompt);
    Op step("decoding behind 8192 keys, 8 heads of 64");
    make_attention(step, 1, 8192);
    add(step);
}

}  // namespace

void measure(const vkf::Device& device, double seconds, Report& report) {
    try {
        measure_all(device, seconds, report);
    } catch (const std::bad_alloc& e) {  // between two of them
        not_measured(report, "the rest", e);
    }
}
