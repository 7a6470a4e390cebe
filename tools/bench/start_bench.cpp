// SPDX-License-Identifier: Apache-2.0
// Whole programs: how soon an op gives its first result and a trained model its first answer, and
// how large the library is.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <stdexcept>

#include "benches.h"
#include "child.h"
#include "op_program.h"

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kRuns = 5;
constexpr const char* kSmallProduct = "linear_f32_512";
constexpr const char* kSmallAttention = "attention_prefill_d64_512";

enum class Caches : std::uint8_t { none, filled };

/// The number after "first ... after", which the dates sample and this program's --first-result
/// print.
double first_result_ms(const std::string& output) {
    double ms = 0;
    const std::size_t at = output.find(" after ");
    if (at == std::string::npos || std::sscanf(output.c_str() + at, " after %lf ms", &ms) != 1) {
        throw std::runtime_error("no time of the first result in: " + output);
    }
    return ms;
}

/// A program that prints when its first result was there.
struct Starter {
    fs::path program;
    std::vector<std::string> arguments;
};

std::vector<std::string> environment(Caches caches, const fs::path& folder) {
    std::vector<std::string> variables;
    for (const char* name :
         {"XDG_CACHE_HOME", "VKFORMER_CACHE_DIR", "MESA_SHADER_CACHE_DIR", "__GL_SHADER_DISK_CACHE_PATH"}) {
        variables.push_back(std::string(name) + "=" + folder.string());
    }
    const bool filled = caches == Caches::filled;
    variables.emplace_back(filled ? "MESA_SHADER_CACHE_DISABLE=false" : "MESA_SHADER_CACHE_DISABLE=true");
    variables.emplace_back(filled ? "__GL_SHADER_DISK_CACHE=1" : "__GL_SHADER_DISK_CACHE=0");
    variables.emplace_back(filled ? "VKFORMER_PIPELINE_CACHE=1" : "VKFORMER_PIPELINE_CACHE=0");
    return variables;
}

struct Start {
    double first = 0, whole = 0;  ///< medians, ms
    std::optional<double> peer_first;
};

/// Starts the peer and ours in turns, without any cache, or with caches that a start of each has
/// filled.
Start measure_start(const std::string& name, Caches caches, const Starter& ours, const std::optional<Starter>& peer) {
    const TemporaryFolder folder;
    const std::vector<std::string> variables = environment(caches, folder.path());
    const auto start = [&](const Starter& s) { return run_child(variables, s.program, s.arguments); };
    if (caches == Caches::filled) {
        start(ours);
        if (peer) {
            start(*peer);
        }
    }
    std::vector<double> whole, peer_first;
    const std::vector<double> first = sample(name, kRuns, [&] {
        if (peer) {
            peer_first.push_back(first_result_ms(start(*peer).output));
        }
        const ChildResult child = start(ours);
        whole.push_back(child.ms);
        return first_result_ms(child.output);
    });
    return {median(first), median(whole), peer ? std::optional(median(peer_first)) : std::nullopt};
}

/// An op alone, in a process that print_first_result() makes.
Row op_start(Settings& settings, const std::string& name, const std::string& op, Caches caches) {
    Starter ours{own_program(), {"--first-result", op}};
    if (!settings.select.empty()) {
        ours.arguments.insert(ours.arguments.end(), {"--device", settings.select});
    }
    std::optional<Starter> peer;
    if (settings.peer) {
        const std::string device = settings.device.capabilities().name;
        peer = {own_program(), {"--first-result", op, "--peers", "--device", device}};
    }
    const Start start = measure_start(name, caches, ours, peer);
    Row row;
    row.name = name;
    row.variant = op;
    row.ms = start.first;
    if (peer) {
        row.peer = settings.peer->name();
        row.peer_ms = start.peer_first;
        row.ratio = *row.peer_ms / *row.ms;
    }
    return row;
}

/// Makes a bench whose target was set with lavapipe.
Bench op_start_bench(const std::string& name, const char* op, Caches caches, double target_ms) {
    return {name, [=](Settings& settings) {
                Row row = op_start(settings, name, op, caches);
                row.target_ms = target_ms;
                return row;
            }};
}

Row dates_start(Settings& settings, const std::string& name, Caches caches) {
    Row row;
    row.name = name;
    row.target_ms = caches == Caches::filled ? 200 : 1000;
#if defined(DATES_PROGRAM)
    const TemporaryFolder folder;
    Starter dates{DATES_PROGRAM, {"--picture", (folder.path() / "picture.svg").string()}};
    if (!settings.select.empty()) {
        dates.arguments.insert(dates.arguments.end(), {"--device", settings.select});
    }
    const Start start = measure_start(name, caches, dates, std::nullopt);
    row.ms = start.first;
    char text[96];
    std::snprintf(text, sizeof(text), "first answer; whole process %.0f ms", start.whole);
    row.variant = text;
#else
    (void)settings;
    throw std::runtime_error("the dates sample was not built");
#endif
    return row;
}

/// A static library is weighed by what a shared one made of all its objects weighs: an archive
/// holds much that no link keeps.
Row library_size(Settings&) {
    Row row;
    row.name = "library_size";
    const TemporaryFolder folder;
    fs::path library = VKFORMER_LIBRARY;
    row.variant = library.filename().string() + ", stripped";
    if (library.extension() == ".a") {
        const fs::path shared = folder.path() / "shared";
        run_child(
            {}, VKFORMER_COMPILER,
            {"-shared", "-o", shared.string(), "-Wl,--whole-archive", library.string(), "-Wl,--no-whole-archive"});
        library = shared;
        row.variant = "shared library, stripped";
    }
    const fs::path stripped = folder.path() / "stripped";
    run_child({}, "strip", {"--strip-unneeded", "-o", stripped.string(), library.string()});
    row.bytes = static_cast<double>(fs::file_size(stripped));
    return row;
}

}  // namespace

void print_first_result(const std::string& name, const std::string& device, bool of_peer) {
    const std::vector<OpCase> ops = op_cases();
    const auto op = std::find_if(ops.begin(), ops.end(), [&](const OpCase& o) { return o.name == name; });
    if (op == ops.end()) {
        throw std::runtime_error("--first-result takes the name of an op, as --list prints it, not '" + name + "'");
    }
    if (of_peer && device.empty()) {
        throw std::runtime_error("--first-result with --peers needs the device's whole name as --device");
    }
    const OpData data = make_data(*op);
    std::unique_ptr<Peer> peer;
    std::optional<OpProgram> ours;
    PeerOp* theirs = nullptr;
    std::vector<float> result;
    const auto start = std::chrono::steady_clock::now();
    if (of_peer) {
        // or where its own variable, which a process that asked before sets, says
        peer = make_peer(device, 0);
        theirs = peer->prepare(*op, data);
        if (!theirs) {
            throw std::runtime_error(peer->name() + " has no " + name);
        }
        theirs->run();
        result = theirs->result();
    } else {
        ours = make_program(vkf::Device::create({.select = device}), *op, data);
        ours->program.run();
        result = ours->program.download("y");
    }
    const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    if (of_peer) {
        check_result(peer->name(), *op, theirs->kept(), result, tolerance_of_peer(*op));
    } else {
        check_result("vkformer", *op, ours->kept, result, tolerance_of(*op));
    }
    std::printf("first result after %.1f ms\n", ms);
}

std::vector<Bench> start_benches() {
    return {op_start_bench("matmul_cold_start", kSmallProduct, Caches::none, /*target_ms=*/0),
            op_start_bench("matmul_warm_start", kSmallProduct, Caches::filled, /*target_ms=*/60),
            op_start_bench("attention_cold_start", kSmallAttention, Caches::none, /*target_ms=*/1000),
            op_start_bench("attention_warm_start", kSmallAttention, Caches::filled, /*target_ms=*/60),
            {"dates_cold_start", [](Settings& s) { return dates_start(s, "dates_cold_start", Caches::none); }},
            {"dates_warm_start", [](Settings& s) { return dates_start(s, "dates_warm_start", Caches::filled); }},
            {"library_size", library_size}};
}
