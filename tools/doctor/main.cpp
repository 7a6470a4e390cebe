// SPDX-License-Identifier: Apache-2.0
// Tells whether a Vulkan device computes right, and how fast, and keeps programs off the kernels
// that do not.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "doctor.h"

int main(int argc, char** argv) {
    DoctorOptions options;
    std::string folder = "vkformer-doctor";
    bool no_report = false, no_measure = false, dry_run = false;
    CLI::App app(
        "Runs every kernel that a Vulkan device can take on small inputs, compares with double precision, and "
        "measures. "
        "Kernels that fail are left out of later programs. Exit code: 0 healthy, 1 degraded (others stand in for what "
        "failed), 2 unusable, or unknown options, 3 the report cannot be written of a device that can be "
        "used");
    app.add_option("--device", options.device, "index or part of the name of the Vulkan device");
    CLI::Option* quick =
        app.add_flag("--quick", options.quick, "the kernels that the device chooses, in under 30 seconds");
    CLI::Option* out =
        app.add_option("--output", folder, "folder of report.json and report.html")->capture_default_str();
    CLI::Option* none = app.add_flag("--no-report", no_report, "write neither");
    app.add_flag("--no-measure", no_measure, "check alone, and measure nothing");
    CLI::Option* dry = app.add_flag("--dry-run", dry_run, "keep no list of kernels that failed");
    CLI::Option* forget = app.add_flag("--forget", options.forget, "remove the list that was kept, and end");
    forget->excludes(quick)->excludes(dry)->excludes(out)->excludes(none);
    none->excludes(out);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& e) {
        return app.exit(e) == 0 ? 0 : 2;
    }
    if (folder.empty()) {
        std::fprintf(stderr, "vkformer-doctor: --output names no folder; --no-report writes no report\n");
        return 2;
    }
    options.measure = !no_measure;
    options.keep = !dry_run;
    options.folder = no_report ? "" : folder;
    try {
        return run_doctor(options);
    } catch (const std::exception& e) {
        std::fprintf(stderr, "vkformer-doctor: %s\n", e.what());
        return 2;
    }
}
