// SPDX-License-Identifier: Apache-2.0
// What is measured, in three kinds: ops on the device, the runtime on the host, and whole programs from their start.
#pragma once

#include <vkformer/vkformer.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "op_case.h"
#include "peer.h"
#include "row.h"

struct Settings {
    vkf::Device device;
    std::string select;  ///< what the user called it, for child processes
    double seconds = 2;  ///< an op is repeated for about so long, its peer beside it
    Peer* peer = nullptr;
    double copy_gbps = 0;  ///< the best copy's, measured first; 0: not
};

/// A measurement by name. It throws when a result is wrong.
struct Bench {
    std::string name;
    std::function<Row(Settings&)> measure;
};

/// Runs `body`, which returns the milliseconds it measured, `count` times as a Google Benchmark of this name, with its own line
/// of output suppressed, and gives every sample.
std::vector<double> sample(const std::string& name, std::size_t count, const std::function<double()>& body);

std::vector<Bench> op_benches();
std::vector<Bench> runtime_benches();
std::vector<Bench> start_benches();
