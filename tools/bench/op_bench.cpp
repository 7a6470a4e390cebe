// SPDX-License-Identifier: Apache-2.0
// Ops: one node a program, its result checked, then timed by the device's timestamps. The peer is timed on the host, from the call
// to the device's answer, less what it needs for next to no work; ours and the peer's runs alternate.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <stdexcept>

#include "benches.h"

namespace {

using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point start) {
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

vkf::Value build_attention(vkf::Graph& g, const OpCase& op) {
    const vkf::Value q = g.input("x", {1, kHeads, op.rows, op.columns});
    const vkf::Value k = g.input("weight", {1, kKvHeads, op.inner, op.columns});
    const vkf::Value v = g.input("bias", {1, kKvHeads, op.inner, op.columns});
    vkf::AttentionOptions options;
    options.mask.causal = op.causal ? vkf::Causal::bottom_right : vkf::Causal::none;
    options.mask.window = op.window;
    const vkf::AttentionResult attention = vkf::scaled_dot_product_attention(q, k, v, options);
    if (op.kind == OpKind::attention) {
        return merge_heads(attention.y);
    }
    const vkf::Value weights =
        reshape(attention.weights, {1, kKvHeads, kHeads / kKvHeads, op.rows, op.inner});  // y, then unused, is dropped
    const vkf::Value y = matmul(weights, reshape(v, {1, kKvHeads, 1, op.inner, op.columns}),
                                {.masked_weights = true, .heads_last = true});
    return merge_heads(reshape(y, {1, kHeads, op.rows, op.columns}));
}

vkf::Value build(vkf::Graph& g, const OpCase& op) {
    switch (op.kind) {
        case OpKind::attention:
        case OpKind::composed_attention: return build_attention(g, op);
        case OpKind::matmul:
            return matmul(g.input("x", {op.rows, op.inner}), g.input("weight", {op.inner, op.columns}));
        case OpKind::linear:
            return linear(g.input("x", {op.rows, op.inner}), g.input("weight", {op.columns, op.inner}));
        case OpKind::rope: {
            vkf::Rope rope;
            rope.theta = kRopeTheta;
            rope.max_positions = op.inner;
            return vkf::rope(g.input("x", {op.rows, op.inner, op.columns}), rope);
        }
        default: break;
    }
    const vkf::Value x = g.input("x", {op.rows, op.columns});
    switch (op.kind) {
        case OpKind::softmax: return softmax(x);
        case OpKind::layer_norm:
            return layer_norm(x, g.input("weight", {op.columns}), g.input("bias", {op.columns}), kNormEps);
        case OpKind::rms_norm: return rms_norm(x, g.input("weight", {op.columns}), kNormEps);
        default: return contiguous(x);
    }
}

vkf::Program compile(const vkf::Device& device, const OpCase& op, const OpData& data) {
    vkf::Graph g;
    g.output("y", build(g, op));
    vkf::CompileOptions options;
    options.name = op.name;
    options.profile = true;
    vkf::Program program = device.compile(g, {}, options);
    program.upload("x", data.x);
    if (!data.weight.empty()) {
        program.upload("weight", data.weight);
    }
    if (op.kind == OpKind::layer_norm || op.is_attention()) {
        program.upload("bias", data.bias);
    }
    return program;
}

double device_ms(const vkf::Program& program) {
    double ms = 0;
    for (const vkf::DispatchTime& t : program.times()) {
        ms += t.ms;
    }
    return ms;
}

std::string kernels(const vkf::Program& program) {
    std::string names;
    for (const vkf::DispatchTime& t : program.times()) {
        names += (names.empty() ? "" : " + ") + t.kernel;
    }
    return names;
}

void check(const std::string& who, const OpCase& op, const OpData& data, const std::vector<float>& result,
           double tolerance) {
    const double worst = worst_error(op, data, result, tolerance);
    if (!(worst <= 1.0)) {
        throw std::runtime_error(op.name + ": " + who + " is wrong, worst error " + std::to_string(worst) +
                                 " of the tolerance");
    }
}

double timed(PeerOp& op) {
    const auto start = Clock::now();
    op.run();
    return milliseconds_since(start);
}

/// What the peer's submission and waiting take: the best of many runs of a copy of 64 bytes.
double peer_overhead(Peer& peer) {
    const OpCase tiny{"tiny", OpKind::copy, 1, 1, 16};
    PeerOp* op = peer.prepare(tiny, make_data(tiny));
    double best = timed(*op);
    for (int i = 0; i < 50; ++i) {
        best = std::min(best, timed(*op));
    }
    return best;
}

Row measure_op(const OpCase& op, Settings& settings) {
    const OpData data = make_data(op);
    vkf::Program program = compile(settings.device, op, data);
    program.run();
    check("vkformer", op, data, program.download("y"), 1e-4);
    program.run();
    double expected = device_ms(program);

    PeerOp* peer = settings.peer ? settings.peer->prepare(op, data) : nullptr;
    double overhead = 0;
    if (peer) {
        overhead = peer_overhead(*settings.peer);
        peer->run();
        check(settings.peer->name(), op, data, peer->result(), 1e-2);
        expected += timed(*peer);
    }
    const double wanted = settings.seconds * 1e3 / std::max(expected, 1e-3);
    const auto count = static_cast<std::size_t>(std::clamp(wanted, 3.0, 200.0));
    std::vector<double> peer_samples;
    const std::vector<double> samples = sample(op.name, count, [&] {
        if (peer) {
            peer_samples.push_back(timed(*peer) - overhead);
        }
        program.run();
        return device_ms(program);
    });

    Row row;
    row.name = op.name;
    row.variant = kernels(program);
    if (op.is_attention()) {
        char scratch[48];
        std::snprintf(scratch, sizeof(scratch), ", %.2f MiB scratch",
                      static_cast<double>(program.memory().scratch) / (1024 * 1024));
        row.variant += scratch;
    }
    row.ms = median(samples);
    if (op.flops() > 0) {
        row.gflops = op.flops() / *row.ms * 1e-6;
    }
    row.gbps = op.bytes() / *row.ms * 1e-6;
    if (op.kind == OpKind::copy) {
        // a ceiling is the best that was seen
        settings.copy_gbps = op.bytes() / *std::min_element(samples.begin(), samples.end()) * 1e-6;
    } else if (op.bound_by_copy() && settings.copy_gbps > 0) {
        row.ceiling_share = *row.gbps / settings.copy_gbps;
    }
    if (peer) {
        row.peer = settings.peer->name();
        row.peer_ms = median(peer_samples);
        row.ratio = *row.peer_ms / *row.ms;
    }
    return row;
}

}  // namespace

std::vector<Bench> op_benches() {
    std::vector<Bench> benches;
    for (const OpCase& op : op_cases()) {
        benches.push_back({op.name, [op](Settings& settings) { return measure_op(op, settings); }});
    }
    return benches;
}
