// SPDX-License-Identifier: Apache-2.0
// Measures which kernels a device is faster with, and keeps that for later programs on it.
#include <vkformer/vkformer.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include "search.h"
#include "workload.h"

namespace {

struct Options {
    std::string device;
    double seconds = 0.3;
    bool dry_run = false, forget = false, show = false;
};

/// Adds "name=number" behind what is settled already.
std::string with(const std::string& settled, std::string_view name, std::uint32_t value) {
    return settled + (settled.empty() ? "" : ",") + std::string(name) + "=" + std::to_string(value);
}

/// A device with what is settled, whatever was kept before.
vkf::Device device_with(const Options& options, const std::string& tuning) {
    return vkf::Device::create({.select = options.device, .tuning = tuning.empty() ? "0" : tuning});
}

/// One choice that is tried: what capabilities suggest, then each number.
struct Candidate {
    std::string tuning, name;
    Workload workload;
    Rounds rounds;
};

std::vector<Candidate> candidates(const Options& options, const vkf::Tunable& tunable,
                                  const std::vector<std::uint32_t>& values, const std::string& settled) {
    std::vector<Candidate> out;
    const auto add = [&](const std::string& tuning, const std::string& name) {
        out.push_back({tuning, name, make_workload(device_with(options, tuning), tunable.name), {}});
    };
    add(settled, "usual");
    for (const std::uint32_t value : values) {
        add(with(settled, tunable.name, value), std::to_string(value));
    }
    return out;
}

/// Settles this tunable, and gives all choices that are settled then.
std::string settle(const Options& options, const vkf::Tunable& tunable, const std::vector<std::uint32_t>& values,
                   const std::string& settled) {
    using Clock = std::chrono::steady_clock;
    std::vector<Candidate> all = candidates(options, tunable, values, settled);
    for (Candidate& c : all) {
        run(c.workload);  // compiles, and warms up
    }
    const auto start = Clock::now();
    const std::chrono::duration<double> time(options.seconds * static_cast<double>(all.size()));
    constexpr std::size_t kFewest = 5, kMost = 200;
    for (std::size_t round = 0; round < kFewest || (round < kMost && Clock::now() - start < time); ++round) {
        for (Candidate& c : all) {
            c.rounds.push_back(run(c.workload));
        }
    }
    std::vector<Rounds> rounds;
    for (const Candidate& c : all) {
        rounds.push_back(c.rounds);
    }
    const std::size_t best = best_of(rounds, 0);
    std::printf("%s: %s; %s, ms:", std::string(tunable.name).c_str(), std::string(tunable.what).c_str(),
                all.front().workload.what.c_str());
    for (std::size_t i = 0; i < all.size(); ++i) {
        std::printf(" %s %.3g%s", all[i].name.c_str(), median(rounds[i]), i == best ? " *" : "");
    }
    std::printf("\n");
    std::fflush(stdout);
    return all[best].tuning;
}

void search(const Options& options) {
    for (const char* name : {"VKFORMER_TUNING", "VKFORMER_VARIANT", "VKFORMER_LEAVE_OUT"}) {
        if (const char* decided = std::getenv(name); decided && *decided != 0) {
            throw vkf::Error("decides already; unset it", std::string(name) + "=" + decided);
        }
    }
    const vkf::Device device = device_with(options, {});
    const vkf::Capabilities& c = device.capabilities();
    std::printf("device: %s, %s%s\n", c.name.c_str(), c.driver.c_str(), c.minimum_profile ? ", minimum profile" : "");
    if (!options.dry_run && vkf::tuning_file(device).empty()) {
        throw vkf::Error("there is no cache folder to keep choices in; VKFORMER_CACHE_DIR names one");
    }
    std::string settled;
    for (const vkf::Tunable& tunable : vkf::tunables()) {
        const std::vector<std::uint32_t> values = tunable.values(c);
        if (values.size() > 1) {
            settled = settle(options, tunable, values, settled);
        }
    }
    std::printf("chosen: %s\n", settled.empty() ? "nothing: what capabilities suggest is best" : settled.c_str());
    if (!options.dry_run) {
        std::printf("%s %s\n", settled.empty() ? "no need of" : "kept in",
                    vkf::utf8_name(vkf::save_tuning(device, settled)).c_str());
    }
}

void show(const Options& options) {
    const vkf::Device device = vkf::Device::create({.select = options.device});
    const vkf::Capabilities& c = device.capabilities();
    std::printf("device: %s\n", c.name.c_str());
    std::printf("tuning: %s%s%s\n", c.tuning.empty() ? "none" : c.tuning.c_str(), c.tuning_from.empty() ? "" : ", of ",
                c.tuning_from.c_str());
    for (const vkf::Tunable& t : vkf::tunables()) {
        std::string values;
        for (const std::uint32_t v : t.values(c)) {
            values += " " + std::to_string(v);
        }
        std::printf("%-16s %s:%s\n", std::string(t.name).c_str(), std::string(t.what).c_str(),
                    values.empty() ? " not here" : values.c_str());
    }
}

void run(const Options& options) {
    if (options.show) {
        show(options);
    } else if (options.forget) {
        const vkf::Device device = device_with(options, {});
        std::printf("forgotten: %s\n", vkf::utf8_name(vkf::save_tuning(device, {})).c_str());
    } else {
        search(options);
    }
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    CLI::App app(
        "Measures which kernels a Vulkan device is faster with, and keeps that beside the pipeline cache for later "
        "programs on it");
    app.option_defaults()->always_capture_default();
    app.add_option("--device", options.device, "index or part of the name of the Vulkan device");
    app.add_option("--seconds", options.seconds, "time spent on each number that is tried")
        ->check(CLI::Range(0.001, 60.0))
        ->check([](const std::string& text) {  // which is in every range
            return std::isnan(std::strtod(text.c_str(), nullptr)) ? text + " is no number" : std::string();
        });
    CLI::Option* dry_run = app.add_flag("--dry-run", options.dry_run, "keep nothing");
    CLI::Option* forget = app.add_flag("--forget", options.forget, "remove what was kept, and end");
    CLI::Option* show = app.add_flag("--show", options.show, "print what is kept and what can be chosen, and end");
    forget->excludes(dry_run)->excludes(show);
    show->excludes(dry_run);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& e) {
        return app.exit(e) == 0 ? 0 : 1;
    }
    try {
        run(options);
        return 0;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "vkformer-tune: %s\n", e.what());
        return 1;
    }
}
