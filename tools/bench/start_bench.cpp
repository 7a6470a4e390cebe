// SPDX-License-Identifier: Apache-2.0
// Whole programs: how soon an op gives its first result and a trained model its first answer, and how large the library is.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>
#include <stdexcept>

#include "benches.h"
#include "child.h"
#include "op_program.h"

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kRuns = 5;

double milliseconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

/// The number after "first ... after", which the dates sample and this program's --first-result print.
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

Starter op_starter(const Settings& settings, const std::string& op, bool peer) {
    Starter s{own_program(), {"--first-result", op, "--device", settings.device.capabilities().name}};
    if (peer) {
        s.arguments.emplace_back("--peers");
    }
    return s;
}

std::vector<std::string> caches(bool warm, const fs::path& folder) {
    if (warm) {
        return {"XDG_CACHE_HOME=" + folder.string(), "MESA_SHADER_CACHE_DISABLE=false"};
    }
    return {"MESA_SHADER_CACHE_DISABLE=true", "VKFORMER_PIPELINE_CACHE=0"};
}

/// Starts ours and the peer's in turn, without any cache or with caches that a first start filled. Adds to the variant what ours took as a
/// whole process.
void measure_start(Row& row, bool warm, const Starter& ours, const std::optional<Starter>& peer) {
    const TemporaryFolder folder;
    const std::vector<std::string> environment = caches(warm, folder.path());
    const auto start = [&](const Starter& s) { return run_child(environment, s.program, s.arguments); };
    if (warm) {
        start(ours);
        if (peer) {
            start(*peer);
        }
    }
    std::vector<double> whole, peer_first;
    row.ms = median(sample(row.name, kRuns, [&] {
        if (peer) {
            peer_first.push_back(first_result_ms(start(*peer).output));
        }
        const ChildResult child = start(ours);
        whole.push_back(child.ms);
        return first_result_ms(child.output);
    }));
    char text[64];
    std::snprintf(text, sizeof(text), "; whole process %.0f ms", median(whole));
    row.variant += text;
    if (peer) {
        row.peer_ms = median(peer_first);
        row.ratio = *row.peer_ms / *row.ms;
    }
}

/// An op alone, from nothing to its result.
Row op_start(Settings& settings, const std::string& name, const std::string& op, bool warm, double target_ms) {
    Row row;
    row.name = name;
    row.target_ms = target_ms;
    row.variant = op;
    std::optional<Starter> peer;
    if (settings.peer) {
        row.peer = settings.peer->name();
        peer = op_starter(settings, op, true);
    }
    measure_start(row, warm, op_starter(settings, op, false), peer);
    return row;
}

constexpr const char* kSmallProduct = "matmul_f32_512";
constexpr const char* kSmallAttention = "attention_prefill_d64_512";

Row dates_start(Settings& settings, bool warm) {
    Row row;
    row.name = warm ? "dates_warm_start" : "dates_cold_start";
    row.target_ms = warm ? 200 : 1000;
#if defined(DATES_PROGRAM)
    row.variant = "first answer";
    const TemporaryFolder folder;
    Starter dates{DATES_PROGRAM, {"--picture", (folder.path() / "picture.svg").string()}};
    if (!settings.select.empty()) {
        dates.arguments.insert(dates.arguments.end(), {"--device", settings.select});
    }
    std::optional<Starter> peer;
    if (settings.peer) {
        row.peer = settings.peer->name() + ", one product of 512x512 matrices";
        peer = op_starter(settings, kSmallProduct, true);
    }
    measure_start(row, warm, dates, peer);
#else
    (void)settings;
    throw std::runtime_error("the dates sample was not built");
#endif
    return row;
}

/// A static library is weighed by what a shared one made of all its objects weighs: an archive holds much that no link keeps.
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
        throw std::runtime_error("no op is called " + name + "; --list prints their names");
    }
    const OpData data = make_data(*op);
    double ms = 0;
    const auto start = std::chrono::steady_clock::now();
    if (of_peer) {
        const auto peer = make_peer(device, 0);
        PeerOp* theirs = peer->prepare(*op, data);
        if (!theirs) {
            throw std::runtime_error(peer->name() + " has no " + name);
        }
        theirs->run();
        const std::vector<float> result = theirs->result();
        ms = milliseconds_since(start);
        check_result(peer->name(), *op, theirs->kept(), result, tolerance_of_peer(*op));
    } else {
        OpProgram ours = make_program(vkf::Device::create({.select = device}), *op, data);
        ours.program.run();
        const std::vector<float> result = ours.program.download("y");
        ms = milliseconds_since(start);
        check_result("vkformer", *op, ours.kept, result, tolerance_of(*op));
    }
    std::printf("first result after %.1f ms\n", ms);
}

std::vector<Bench> start_benches() {
    const auto of_op = [](const char* name, const char* op, bool warm, double target_ms) {
        return Bench{name, [=](Settings& s) { return op_start(s, name, op, warm, target_ms); }};
    };
    return {of_op("matmul_cold_start", kSmallProduct, false, 0),
            of_op("matmul_warm_start", kSmallProduct, true, 60),
            of_op("attention_cold_start", kSmallAttention, false, 1000),
            of_op("attention_warm_start", kSmallAttention, true, 60),
            {"dates_cold_start", [](Settings& s) { return dates_start(s, false); }},
            {"dates_warm_start", [](Settings& s) { return dates_start(s, true); }},
            {"library_size", library_size}};
}
