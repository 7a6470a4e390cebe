// SPDX-License-Identifier: Apache-2.0
// Measures vkformer on a Vulkan device, beside another library where asked.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <regex>
#include <stdexcept>
#include <utility>

#include "benches.h"
#include "ceilings.h"
#include "output_file.h"
#include "peer_ncnn.h"
#include "roofline.h"

namespace {

struct Options {
    std::string device;
    std::string filter;
    std::optional<std::string> first_result;
    std::filesystem::path json;
    std::filesystem::path roofline;
    double seconds = 2;
    bool peers = false;
    bool list = false;
};

std::vector<Bench> all_benches() {
    std::vector<Bench> all = {fma_ceiling(), matrix_ceiling()};
    const std::vector<Bench> ops = op_benches();  // the copy first
    all.insert(all.end(), ops.begin(), ops.end());
    for (const auto& more : {gradient_benches(), training_benches(), runtime_benches(), start_benches()}) {
        all.insert(all.end(), more.begin(), more.end());
    }
    return all;
}

/// The device's index. Throws where another has the same name.
std::size_t index_of(const std::string& device) {
    const std::vector<vkf::Capabilities> all = vkf::Device::list();
    const auto named = [&](const vkf::Capabilities& c) { return c.name == device; };
    const auto at = std::find_if(all.begin(), all.end(), named);
    if (std::count_if(all.begin(), all.end(), named) > 1) {
        throw std::runtime_error("several devices are called " + device + ", and a peer finds its device by name");
    }
    return static_cast<std::size_t>(at - all.begin());
}

/// ggml, named; null, and why, where it cannot be had and another peer can.
std::unique_ptr<Peer> peer_or_reason(const std::string& device, bool another) {
    const std::size_t index = index_of(device);
    try {
        std::unique_ptr<Peer> peer = make_peer(device, index);
        std::printf("peer: %s\n", peer->name().c_str());
        return peer;
    } catch (const std::runtime_error& e) {
        if (!another) {
            throw;
        }
        std::printf("without ggml: %s\n", e.what());
        return nullptr;
    }
}

int run(const Options& options) {
    const std::regex filter(options.filter, std::regex::ECMAScript);
    std::vector<Bench> benches = all_benches();
    std::erase_if(benches, [&](const Bench& b) { return !std::regex_search(b.name, filter); });
    if (options.list) {
        for (const Bench& b : benches) {
            std::printf("%s\n", b.name.c_str());
        }
        return 0;
    }
    if (benches.empty()) {
        throw std::runtime_error("no benchmark's name matches " + options.filter + "; --list prints them");
    }
    for (const std::filesystem::path& file : {options.json, options.roofline}) {
        if (!file.empty()) {
            require_writable(file);
        }
    }
    Settings settings{vkf::Device::create({.select = options.device}), options.device, options.seconds};
    const vkf::Capabilities& device = settings.device.capabilities();
    if (device.timestamp_period == 0) {
        throw std::runtime_error(device.name + " has no timestamps");
    }
    std::printf("device: %s, %s%s\n", device.name.c_str(), device.driver.c_str(),
                device.minimum_profile ? ", minimum profile" : "");
    const bool beside_ncnn = options.peers && has_ncnn();
    const std::unique_ptr<Peer> peer = options.peers ? peer_or_reason(device.name, beside_ncnn) : nullptr;
    settings.peer = peer.get();
    Preparation preparation(settings.device);
    settings.prepare = [&] { preparation.run(); };
    settings.warm_up = [&] { preparation.warm_up(); };
    std::erase_if(benches, [&](const Bench& b) {
        const std::string lacking = b.lacking(device);
        if (!lacking.empty()) {
            std::printf("left out: %s: %s\n", b.name.c_str(), lacking.c_str());
        }
        return !lacking.empty();
    });
    if (benches.empty()) {
        throw std::runtime_error("this device runs none of the benchmarks whose names match " + options.filter);
    }
    std::vector<Bench> ceilings{fma_ceiling(), matrix_ceiling()};
    for (Bench& op : op_benches()) {
        if (op.name.find("copy_") != std::string::npos) {
            ceilings.push_back(std::move(op));
        }
    }
    std::vector<Row> rows;
    int failures = 0;
    const auto measured = [&](const Bench& bench) -> std::optional<Row> {
        try {
            return bench.measure(settings);
        } catch (const std::exception& e) {
            std::printf("%-36s FAILED: %s\n", bench.name.c_str(), e.what());
            ++failures;
            return std::nullopt;
        }
    };
    for (const Bench& ceiling : ceilings) {
        if (ceiling.lacking(device).empty()) {
            (void)measured(ceiling);  // which the others are compared with
        }
    }
    // after each row: somebody may end it before the last
    const auto write = [&](bool last) {
        if (!options.json.empty() && (last || is_replaced(options.json))) {
            write_json(options.json, rows);
        }
        if (!options.roofline.empty() && (last || (rows.back().ceiling_share && is_replaced(options.roofline)))) {
            write_roofline(options.roofline, rows, settings.ceilings);
        }
    };
    std::printf("%s\n", table_head().c_str());
    for (const Bench& bench : benches) {
        if (std::optional<Row> row = measured(bench)) {
            row->device = device.name;
            std::printf("%s\n", table_line(*row).c_str());
            rows.push_back(std::move(*row));
            write(false);
        }
        std::fflush(stdout);
    }
    write(true);
    if (beside_ncnn) {
        run_beside_ncnn(device.name, options.filter, options.seconds);
    }
    return failures == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    CLI::App app("Measures vkformer on a Vulkan device: results of ops are checked; medians are printed");
    app.option_defaults()->always_capture_default();
    app.add_option("--device", options.device, "index or part of the name of the Vulkan device");
    app.add_option("--filter", options.filter, "a regular expression: only benchmarks whose names it finds");
    app.add_option("--json", options.json, "write the rows to this file");
    app.add_option("--roofline", options.roofline, "draw the rows beside the device's ceilings into this file (SVG)");
    app.add_option("--seconds", options.seconds, "time spent on each op")
        ->check(CLI::Range(0.01, 600.0))
        ->check([](const std::string& text) {  // which is in every range
            return std::isnan(std::strtod(text.c_str(), nullptr)) ? text + " is no number" : std::string();
        });
    app.add_flag("--peers", options.peers,
                 "measure ggml's Vulkan backend beside it, on the same device, and ncnn where Python has it");
    app.add_flag("--list", options.list, "print the names and end");
    app.add_option(
        "--first-result", options.first_result,
        "time one op, by name, from nothing to its first result, and end; with --peers the peer's, and --device "
        "is the whole name");
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& e) {
        return app.exit(e) == 0 ? 0 : 1;
    }
    try {
        if (options.first_result) {
            print_first_result(*options.first_result, options.device, options.peers);
            return 0;
        }
        return run(options);
    } catch (const std::exception& e) {
        std::fprintf(stderr, "bench: %s\n", e.what());
        return 1;
    }
}
