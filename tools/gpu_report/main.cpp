// SPDX-License-Identifier: Apache-2.0
// Prints, as JSON, what a device's compiler makes of the kernels that it would really take.
#include <vkformer/vkformer.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "capture.h"
#include "cases.h"

namespace {

using Json = nlohmann::ordered_json;

/// Dispatches of one kernel with the same statistics are one entry.
Json dispatches_of(const std::vector<Dispatch>& all) {
    Json out = Json::array();
    for (const Dispatch& d : all) {
        Json entry{{"kernel", d.kernel}, {"dispatches", 1}, {"groups", d.groups}, {"statistics", d.statistics}};
        bool known = false;
        for (Json& other : out) {
            if (other["kernel"] == entry["kernel"] && other["statistics"] == entry["statistics"]) {
                other["dispatches"] = other["dispatches"].get<int>() + 1;
                other["groups"] = other["groups"].get<std::uint64_t>() + d.groups;
                known = true;
            }
        }
        if (!known) {
            out.push_back(std::move(entry));
        }
    }
    return out;
}

Json report_case(const vkf::Device& device, const Case& c) {
    Json out{{"name", c.name}, {"flops", c.flops}, {"bytes", c.bytes}};
    try {
        Builder builder;
        c.describe(builder);
        vkf::Program program = builder.compile(device, c);
        Capture::take();  // weights may have been packed
        program.run();
        out["dispatches"] = dispatches_of(Capture::take());
    } catch (const vkf::Error& e) {
        out["error"] = e.what();
    }
    return out;
}

/// True where the device can take what was tuned for the case.
bool fits(const vkf::Capabilities& device, const Case& c) {
    return c.tunable.empty() || std::ranges::any_of(vkf::tunables(), [&](const vkf::Tunable& t) {
               const std::vector<std::uint32_t> values = t.values(device);
               return t.name == c.tunable && std::ranges::find(values, c.value) != values.end();
           });
}

/// A device that splits nothing by how long runs take, so that two reports can be compared.
vkf::Device make_device(const std::string& tuning) {
    return vkf::Device::create({.submit_budget = 0, .tuning = tuning, .get_instance_proc_addr = Capture::entry()});
}

Json report(const std::regex& only) {
    const vkf::Device device = make_device("0");
    const vkf::Capabilities& caps = device.capabilities();
    Json out{{"device", caps.name},
             {"driver", caps.driver},
             {"tells", Capture::tells()},
             {"subgroup_size", caps.subgroup_size},
             {"cooperative_matrix", caps.cooperative_matrix},
             {"cases", Json::array()}};
    for (const Case& c : cases()) {
        if (!std::regex_search(c.name, only) || !fits(caps, c)) {
            continue;
        }
        out["cases"].push_back(report_case(
            c.tunable.empty() ? device : make_device(std::string(c.tunable) + "=" + std::to_string(c.value)), c));
    }
    return out;
}

}  // namespace

int main(int argc, char** argv) {
    std::string only = ".*";
    CLI::App app("Prints what a Vulkan device's compiler tells of the kernels that it takes, as JSON");
    app.add_option("--only", only, "the cases whose names this regular expression finds");
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& e) {
        return app.exit(e) == 0 ? 0 : 1;
    }
    try {
        const Capture capture;
        std::printf("%s\n", report(std::regex(only)).dump(1).c_str());
        return 0;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "gpu_report: %s\n", e.what());
        return 1;
    }
}
