// SPDX-License-Identifier: Apache-2.0
// Whole programs: how soon a trained model gives its first answer, and how large the library is.
#include <cstdio>
#include <stdexcept>

#include "benches.h"
#include "child.h"

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kRuns = 5;

/// The number after "first ... after", which the dates sample and this program's --first-result print.
double first_result_ms(const std::string& output) {
    double ms = 0;
    const std::size_t at = output.find(" after ");
    if (at == std::string::npos || std::sscanf(output.c_str() + at, " after %lf ms", &ms) != 1) {
        throw std::runtime_error("no time of the first result in: " + output);
    }
    return ms;
}

struct Start {
    double first = 0, whole = 0;  ///< medians, ms
};

std::vector<std::string> caches(bool warm, const fs::path& folder) {
    if (warm) {
        return {"XDG_CACHE_HOME=" + folder.string(), "MESA_SHADER_CACHE_DISABLE=false"};
    }
    return {"MESA_SHADER_CACHE_DISABLE=true", "VKFORMER_PIPELINE_CACHE=0"};
}

[[maybe_unused]] Start start_of(const std::string& name, bool warm, const fs::path& program,
                                std::vector<std::string> arguments) {
    const TemporaryFolder folder;
    if (program != own_program()) {
        arguments.insert(arguments.end(), {"--picture", (folder.path() / "picture.svg").string()});
    }
    const std::vector<std::string> environment = caches(warm, folder.path());
    if (warm) {
        run_child(environment, program, arguments);  // fills the caches
    }
    std::vector<double> whole;
    const std::vector<double> first = sample(name, kRuns, [&] {
        const ChildResult child = run_child(environment, program, arguments);
        whole.push_back(child.ms);
        return first_result_ms(child.output);
    });
    return {median(first), median(whole)};
}

Row dates_start(Settings& settings, bool warm) {
    Row row;
    row.name = warm ? "dates_warm_start" : "dates_cold_start";
    row.target_ms = warm ? 200 : 1000;
#if defined(DATES_PROGRAM)
    std::vector<std::string> arguments;
    if (!settings.select.empty()) {
        arguments = {"--device", settings.select};
    }
    const Start ours = start_of(row.name, warm, DATES_PROGRAM, arguments);
    row.ms = ours.first;
    char text[96];
    std::snprintf(text, sizeof(text), "first answer; whole process %.0f ms", ours.whole);
    row.variant = text;
    if (settings.peer) {
        row.peer = settings.peer->name() + ", one product of 512x512 matrices";
        row.peer_ms =
            start_of(row.name, warm, own_program(), {"--first-result", "--device", settings.device.capabilities().name})
                .first;
        row.ratio = *row.peer_ms / *row.ms;
    }
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

std::vector<Bench> start_benches() {
    return {{"dates_cold_start", [](Settings& s) { return dates_start(s, false); }},
            {"dates_warm_start", [](Settings& s) { return dates_start(s, true); }},
            {"library_size", library_size}};
}
