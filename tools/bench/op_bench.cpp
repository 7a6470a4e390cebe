// SPDX-License-Identifier: Apache-2.0
// Ops: one node a program, its result checked, then timed by the device's timestamps. The peer is
// timed on the host, from the call to the device's answer, less what it needs for next to no work;
// ours and the peer's runs alternate.
#include <algorithm>
#include <cstdio>

#include "benches.h"
#include "ceilings.h"
#include "op_program.h"
#include "split_times.h"

namespace {

double timed(PeerOp& op) {
    const auto start = Clock::now();
    op.run();
    return milliseconds_since(start);
}

/// Measures the time that the peer's submission and waiting take: the best of many runs of a copy
/// of 64 bytes.
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
    OpProgram ours = make_program(settings.device, op, data);
    vkf::Program& program = ours.program;
    program.run();
    check_result("vkformer", op, ours.kept, program.download("y"), tolerance_of(op));
    program.run();
    double expected = milliseconds_of(program.times());

    const bool ceiling = op.kind == OpKind::copy;  // nothing stands beside it
    PeerOp* peer = settings.peer && !ceiling ? settings.peer->prepare(op, data) : nullptr;
    double overhead = 0;
    if (peer) {
        settings.warm_up();
        overhead = peer_overhead(*settings.peer);
        peer->run();
        check_result(settings.peer->name(), op, peer->kept(), peer->result(), tolerance_of_peer(op));
        expected += timed(*peer);
    }
    settings.warm_up();
    const auto start = Clock::now();
    settings.prepare();
    expected += (peer ? 2 : 1) * milliseconds_since(start);
    const auto count = static_cast<std::size_t>(std::clamp(settings.seconds * 1e3 / expected, 5.0, 200.0));
    std::vector<double> peer_samples;
    const std::vector<double> samples = sample(op.name, count, [&] {
        if (peer) {
            settings.prepare();
            peer_samples.push_back(timed(*peer) - overhead);
        }
        settings.prepare();
        program.run();
        return milliseconds_of(program.times());
    });

    Row row;
    row.name = op.name;
    row.variant = kernels_of(program.times());
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
    if (ceiling) {
        // a ceiling is the best that was seen
        const double best = op.bytes() / *std::min_element(samples.begin(), samples.end()) * 1e-6;
        settings.ceilings.gbps = std::max(settings.ceilings.gbps, best);
    } else {
        const bool on_matrices =
            op.arithmetic == vkf::Arithmetic::f16 && row.variant.find("coopmat") != std::string::npos;
        const bool in_codes = row.variant.find("matmul_dot") != std::string::npos ||
                              row.variant.find("matmul_coopmat_int8") != std::string::npos;
        if (!in_codes) {  // of which no ceiling is measured
            row.ceiling_share = settings.ceilings.share(op.flops(), op.bytes(), *row.ms, on_matrices);
        }
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
        benches.push_back({op.name, [op](Settings& settings) { return measure_op(op, settings); },
                           [op](const vkf::Capabilities& device) { return op.lacking(device); }});
    }
    return benches;
}
