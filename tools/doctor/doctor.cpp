// SPDX-License-Identifier: Apache-2.0
#include "doctor.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "doctor/kernel_names.h"
#include "measure.h"
#include "report.h"

namespace {

using Clock = std::chrono::steady_clock;
using vkf::doctor::has;
using vkf::doctor::names_in;
using vkf::doctor::together;

/// A kernel that takes longer on inputs so small hangs.
constexpr double kHangs = 20;
/// Devices that are made anew after one was lost.
constexpr int kMostDevices = 6;

std::string today() {
    const std::time_t now = std::time(nullptr);
    char text[16];
    std::strftime(text, sizeof(text), "%Y-%m-%d", std::gmtime(&now));
    return text;
}

vkf::Device device_of(const DoctorOptions& options, const std::vector<vkf::LeftOut>& without) {
    std::string names;
    for (const vkf::LeftOut& k : without) {
        names += (names.empty() ? "" : ",") + k.kernel;
    }
    return vkf::Device::create({.select = options.device,
                                .cache_folder = options.cache_folder,
                                .wait_seconds = kHangs,
                                .canary = true,
                                .leave_out = names.empty() ? "0" : names,
                                .get_instance_proc_addr = options.get_instance_proc_addr});
}

void print_devices(const DoctorOptions& options, const Report& report) {
    std::fprintf(options.out, "devices:\n");
    for (std::size_t i = 0; i < report.devices.size(); ++i) {
        const vkf::Capabilities& c = report.devices[i];
        std::fprintf(options.out, "  %zu  %s, %s, %s, Vulkan %u.%u, %llu MiB\n", i, c.name.c_str(), name_of(c.type),
                     c.driver.c_str(), c.api_version >> 22, c.api_version >> 12 & 0x3ff,
                     static_cast<unsigned long long>(c.device_memory >> 20));
        std::fprintf(options.out,
                     "     f16 %s, cooperative matrices %s%s, integer dot products %s, subgroups of %u%s\n",
                     c.float16 ? "yes" : "no",
                     c.cooperative_matrix ? "yes"
                     : c.matrix_kernels   ? "no"
                                          : "not in this build",
                     c.cooperative_matrix_int8 ? " (int8 too)" : "",
                     c.fast_integer_dot ? "fast"
                     : c.integer_dot    ? "yes"
                                        : "no",
                     c.subgroup_size, c.unified_memory ? ", memory of the host" : "");
    }
    for (const std::string& why : report.broken) {
        std::fprintf(options.out, "  one cannot be asked: %s\n", why.c_str());
    }
}

void print(const DoctorOptions& options, const Report& report) {
    std::fprintf(options.out, "\n%-34s %7s %12s %10s\n", "kernel", "checks", "worst error", "ms");
    for (const KernelSummary& k : summaries(report.test)) {
        std::fprintf(options.out, "%-34s %7zu %11.3g%% %10.1f  %s\n", k.kernel.c_str(), k.checks, 100 * k.error, k.ms,
                     k.problem.empty() ? (k.chosen ? "chosen" : "") : ("FAILED: " + k.problem).c_str());
    }
    const vkf::FloatFacts& f = report.test.floats;
    if (knows_f32(report.test)) {
        std::fprintf(options.out, "fp32 keeps: NaN %s, infinity %s, -0.0 %s, denormals %s\n", f.nan ? "yes" : "no",
                     f.infinity ? "yes" : "no", f.minus_zero ? "yes" : "no", f.denormals ? "yes" : "no");
    }
    if (knows_f16(report.test)) {
        std::fprintf(options.out, "f16 keeps: denormals %s\n", f.f16_denormals ? "yes" : "no");
    }
    if (!report.ops.empty()) {
        std::fprintf(options.out, "\n%-42s %10s %9s %8s %8s\n", "measured", "ms", "GFLOP/s", "GB/s", "ceiling");
    }
    for (const auto* list : {&report.ceilings, &report.ops}) {
        for (const Measured& m : *list) {
            char share[16] = "";
            if (m.share > 0) {
                std::snprintf(share, sizeof(share), "%.0f %%", 100 * m.share);
            }
            std::fprintf(options.out, "%-42s %10.3f %9.1f %8.2f %8s  %s\n", m.name.c_str(), m.ms, m.gflops, m.gbps,
                         share, m.kernel.c_str());
        }
    }
    if (!report.not_measured.empty()) {
        std::fprintf(options.out, "not measured: %s\n", report.not_measured.c_str());
    }
}

bool is_lost(const vkf::Device& device) {
    try {
        device.memory_use();
        return false;
    } catch (const vkf::Error&) {
        return true;
    }
}

/// Makes the device anew where the last one was lost; false where the driver gives none any more,
/// which the report says then.
bool make_again(const DoctorOptions& options, Report& report, vkf::Device& device) {
    try {
        device = device_of(options, report.test.left_out);
        return true;
    } catch (const vkf::Error& e) {
        report.test.checks.push_back({.kernel = "device", .what = "another after one was lost", .problem = e.what()});
        report.test.verdict = vkf::Verdict::unusable;
        return false;
    }
}

/// Of kernels in whose run the device was lost the one to do without: the first that no check has
/// passed with, if possible one that was in the run before, which lost another device; or else the
/// first, which is the easiest to do without.
std::string suspect_of(const std::vector<std::string>& ran, const std::vector<std::string>& ran_before,
                       const vkf::SelfTest& test) {
    std::vector<std::string> suspects;
    std::copy_if(ran.begin(), ran.end(), std::back_inserter(suspects), [&](const std::string& kernel) {
        return std::none_of(test.checks.begin(), test.checks.end(), [&](const vkf::SelfCheck& c) {
            return c.problem.empty() && has(names_in(c.kernel), kernel);
        });
    });
    const auto common = std::find_if(suspects.begin(), suspects.end(),
                                     [&](const std::string& kernel) { return has(ran_before, kernel); });
    return common != suspects.end() ? *common : suspects.empty() ? ran.front() : suspects.front();
}

/// Examines the device; where a kernel makes it hang or be lost, goes on without that on a new one.
vkf::Device examine(const DoctorOptions& options, Report& report) {
    vkf::Device device = device_of(options, {});
    std::vector<vkf::LeftOut>& left_out = report.test.left_out;
    std::vector<std::string> ran_before;  // in the run that lost the device before this one
    vkf::SelfCheck blamed;                // for that run: the kernel alone
    const auto is_blamed = [&](const vkf::LeftOut& k) { return k.kernel == blamed.kernel; };
    for (int devices = 1;; ++devices) {
        report.device = device.capabilities();
        vkf::SelfTest found = device.self_test(
            {.thorough = !options.quick, .repeats = options.quick ? 2u : 3u, .seconds = 0, .progress = {}});
        const vkf::SelfCheck last = found.checks.empty() ? vkf::SelfCheck() : found.checks.back();
        put_behind(report.test, std::move(found));
        const std::vector<std::string> ran = names_in(last.kernel);
        if (!is_lost(device) || devices == kMostDevices || ran.empty() || ran.front() == "device" ||
            ran.front() == "submission") {
            return device;
        }
        const std::string kernel = suspect_of(ran, ran_before, report.test);
        if (has(ran_before, kernel)) {  // both runs had it: the one that was blamed is taken again
            std::erase_if(left_out, is_blamed);
            for (vkf::SelfCheck& c : report.test.checks) {
                c.kernel = c.kernel == blamed.kernel && c.what == blamed.what ? together(ran_before) : c.kernel;
            }
        }
        const auto before =
            std::find_if(left_out.begin(), left_out.end(), [&](const vkf::LeftOut& k) { return k.kernel == kernel; });
        // it ran all the same: nothing stands in for it
        if (before != left_out.end() || kernel == blamed.kernel) {
            std::erase_if(left_out, [&](const vkf::LeftOut& k) { return k.kernel == kernel; });
            return device;
        }
        left_out.push_back({kernel, last.problem});
        for (vkf::SelfCheck& c : report.test.checks) {
            c.kernel = c.kernel == last.kernel && c.what == last.what ? kernel : c.kernel;
        }
        blamed = {.kernel = kernel, .what = last.what};
        ran_before = ran;
        if (!make_again(options, report, device)) {
            return device;
        }
    }
}

/// Which of the devices that are listed was examined, as Device::create() chooses: that of the
/// index that was asked for, or the first of its name.
std::size_t examined_of(const DoctorOptions& options, const Report& report) {
    const auto same = [&](const vkf::Capabilities& c) {
        return c.name == report.device.name && c.driver == report.device.driver;
    };
    const char* variable = std::getenv("VKFORMER_DEVICE");
    const std::string asked = options.device.empty() && variable ? variable : options.device;
    const bool digits = !asked.empty() && asked.size() < 9 && asked.find_first_not_of("0123456789") == asked.npos;
    if (const std::size_t index = digits ? std::stoul(asked) : report.devices.size();
        index < report.devices.size() && same(report.devices[index])) {
        return index;
    }
    return static_cast<std::size_t>(std::find_if(report.devices.begin(), report.devices.end(), same) -
                                    report.devices.begin());
}

/// Says what went wrong with the report; true where nothing did.
bool tell(const DoctorOptions& options, const std::filesystem::path& path, bool good, const std::string& why) {
    if (!good) {
        std::fprintf(options.out, "the report cannot be written: %s: %s\n", vkf::utf8_name(path).c_str(), why.c_str());
    }
    return good;
}

bool make_folder(const DoctorOptions& options) {
    std::error_code wrong;
    if (!options.folder.empty()) {
        std::filesystem::create_directories(options.folder, wrong);
    }
    return tell(options, options.folder, !wrong, wrong.message());
}

bool write(const DoctorOptions& options, const char* name, const std::string& text) {
    const std::filesystem::path path = options.folder / name;
    std::ofstream out(path, std::ios::binary);
    out << text;
    const bool good = static_cast<bool>(out.flush());
    return tell(options, path, good, std::generic_category().message(errno));
}

bool write_report(const DoctorOptions& options, const Report& report) {
    if (options.folder.empty()) {
        return true;
    }
    const bool json = write(options, "report.json", json_of(report));
    const bool html = write(options, "report.html", html_of(report));
    if (json && html) {
        std::fprintf(options.out, "written: report.json, report.html in %s\n", vkf::utf8_name(options.folder).c_str());
    }
    return json && html;
}

/// What programs do without already.
KeptBefore kept_before(const DoctorOptions& options) {
    const vkf::Device device = vkf::Device::create({.select = options.device,
                                                    .cache_folder = options.cache_folder,
                                                    .get_instance_proc_addr = options.get_instance_proc_addr});
    return {device.left_out(), device.capabilities().left_out_damage};
}

/// Another program may have kept something meanwhile: the list is read again. `before` is what it
/// was, for where no device can be made any more.
void keep(const DoctorOptions& options, const vkf::Device& device, const Report& report, KeptBefore before) {
    if (!options.keep) {
        return;
    }
    try {
        before = kept_before(options);
    } catch (const vkf::Error&) {  // the report says so
    }
    Kept kept = kept_of(report, before);
    if (kept.list.empty() && vkf::left_out_file(device).empty()) {
        return;
    }
    try {
        if (!kept.leave_file) {
            vkf::save_left_out(device, kept.list);
        }
    } catch (const vkf::Error& e) {  // which is no reason to lose the report
        kept.said = std::string("what programs do without could not be kept: ") + e.what() + "\n";
    }
    std::fprintf(options.out, "%s", kept.said.c_str());
}

int forget(const DoctorOptions& options) {
    const vkf::Device device = device_of(options, {});
    vkf::save_left_out(device, {});
    std::fprintf(options.out, "forgotten: nothing is left out on %s\n", device.capabilities().name.c_str());
    return 0;
}

void refuse_variables() {
    for (const char* name : {"VKFORMER_VARIANT", "VKFORMER_LEAVE_OUT", "VKFORMER_TUNING"}) {
        const bool tunes = std::string_view(name) == "VKFORMER_TUNING";
        const char* decided = std::getenv(name);
        const bool nothing = !decided || *decided == 0 || (tunes && std::string_view(decided) == "0");
        if (!nothing) {
            throw vkf::Error("decides already; unset it", std::string(name) + "=" + decided);
        }
    }
}

}  // namespace

int run_doctor(const DoctorOptions& options) {
    refuse_variables();
    if (options.forget) {
        return forget(options);
    }
    const auto start = Clock::now();
    Report report;
    report.version = VKFORMER_PROJECT_VERSION;
    report.day = today();
    report.quick = options.quick;
    report.devices = vkf::Device::list(options.get_instance_proc_addr, &report.broken);
    print_devices(options, report);
    std::fflush(options.out);  // whatever becomes of the rest
    if (!make_folder(options)) {
        return kNoReport;
    }
    const KeptBefore before = options.keep ? kept_before(options) : KeptBefore();
    const vkf::Device device = examine(options, report);
    keep(options, device, report, before);  // whatever becomes of the rest
    report.examined = examined_of(options, report);
    std::fprintf(options.out, "examined: %s%s\n", report.device.name.c_str(),
                 report.device.minimum_profile ? ", minimum profile" : "");
    if (options.measure && report.test.verdict != vkf::Verdict::unusable) {
        try {
            measure(device, options.quick ? 0.1 : 1.0, report);
        } catch (const std::exception& e) {  // the device is lost, or multiplies wrong
            report.not_measured += (report.not_measured.empty() ? "" : "; ") + std::string(e.what());
            report.test.verdict = vkf::Verdict::unusable;
        }
    }
    report.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    print(options, report);
    const bool written = write_report(options, report);
    std::fprintf(options.out, "%s, after %.1f s%s\n", name_of(report.test.verdict), report.seconds,
                 report.test.complete ? "" : "; not everything was tested");
    const bool usable = report.test.verdict != vkf::Verdict::unusable;
    return usable && !written ? kNoReport : static_cast<int>(report.test.verdict);
}
