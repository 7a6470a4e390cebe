// SPDX-License-Identifier: Apache-2.0
// What is measured: ops on the device, their gradients, steps of training, the runtime on the host,
// and whole programs from their start.
#pragma once

#include <vkformer/vkformer.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "op_case.h"
#include "peer.h"
#include "row.h"

/// The host's clock.
using Clock = std::chrono::steady_clock;

/// Gives the milliseconds that have passed since `start`.
inline double milliseconds_since(Clock::time_point start) {
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

/// The best that the device did, measured first; 0: not measured.
struct Ceilings {
    double gbps = 0;           ///< GB/s of a copy
    double gflops = 0;         ///< GFLOPS of fp32 multiply-adds
    double matrix_gflops = 0;  ///< GFLOPS of cooperative matrices

    /// The least time for so much work over the time it took: 1 is the ceiling.
    std::optional<double> share(double flops, double bytes, double ms, bool on_matrices) const {
        const double most = on_matrices ? matrix_gflops : gflops;
        if (gbps == 0 || most == 0) {
            return std::nullopt;
        }
        return std::max(flops / most, bytes / gbps) * 1e-6 / ms;
    }
};

struct Settings {
    vkf::Device device;
    std::string select;  ///< the name that the user called it, for child processes
    double seconds = 2;  ///< an op is repeated for about so long, its peer beside it
    Peer* peer = nullptr;
    Ceilings ceilings = {};
    /// Makes the device ready for a timed run: see Preparation.
    std::function<void()> prepare = {};
    /// Before the first of several timed runs.
    std::function<void()> warm_up = {};
};

/// A measurement by name. It throws when a result is wrong.
struct Bench {
    std::string name;
    std::function<Row(Settings&)> measure;
    /// Says why this device does not run the bench; empty: it does.
    std::function<std::string(const vkf::Capabilities&)> lacking = [](const vkf::Capabilities&) { return ""; };
};

/// Runs `body`, which returns the milliseconds it measured, `count` times as a Google Benchmark of
/// this name, with its own line of output suppressed, and gives every sample.
std::vector<double> sample(const std::string& name, std::size_t count, const std::function<double()>& body);

std::vector<Bench> op_benches();
std::vector<Bench> gradient_benches();
std::vector<Bench> training_benches();
std::vector<Bench> runtime_benches();
std::vector<Bench> start_benches();

/// Computes one op of op_cases(), ours or the peer's, and prints "first result after X ms": from
/// before its device is made until the result is on the host; inputs are made before and the result
/// is checked after. For a process of its own. `device` as --device takes it, for the peer the
/// whole name. Throws std::runtime_error when there is no such op or device, or the result is
/// wrong.
void print_first_result(const std::string& op, const std::string& device, bool of_peer);
