// SPDX-License-Identifier: Apache-2.0
#include "report.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "doctor/kernel_names.h"

namespace {

/// The reason that explain() gives, on one line.
std::string why(const vkf::LeftOut& kernel, const std::string& day) {
    constexpr std::string_view kFound = "the self-test found it wrong: ";
    std::string problem = kernel.why.starts_with(kFound) ? kernel.why.substr(kFound.size()) : kernel.why;
    std::replace(problem.begin(), problem.end(), '\n', ' ');
    return "the doctor found it wrong on " + day + ": " + problem;
}

}  // namespace

const char* name_of(vkf::Verdict verdict) {
    switch (verdict) {
        case vkf::Verdict::healthy: return "healthy";
        case vkf::Verdict::degraded: return "degraded";
        case vkf::Verdict::unusable: return "unusable";
    }
    return "?";
}

const char* name_of(vkf::DeviceType type) {
    switch (type) {
        case vkf::DeviceType::integrated: return "integrated GPU";
        case vkf::DeviceType::discrete: return "discrete GPU";
        case vkf::DeviceType::virtual_gpu: return "virtual GPU";
        case vkf::DeviceType::cpu: return "processor";
        case vkf::DeviceType::other: break;
    }
    return "other";
}

bool knows_f32(const vkf::SelfTest& test) {
    return std::any_of(test.checks.begin(), test.checks.end(),
                       [](const vkf::SelfCheck& c) { return c.kernel == "submission" && c.problem.empty(); });
}

bool knows_f16(const vkf::SelfTest& test) { return test.complete && knows_f32(test); }

std::vector<KernelSummary> summaries(const vkf::SelfTest& test) {
    std::vector<KernelSummary> out;
    for (const vkf::SelfCheck& c : test.checks) {
        for (const std::string& kernel : vkf::doctor::names_in(c.kernel)) {
            auto at = std::find_if(out.begin(), out.end(), [&](const KernelSummary& k) { return k.kernel == kernel; });
            if (at == out.end()) {
                at = out.insert(out.end(), KernelSummary{kernel, {}, 0, 0, 0, false});
            }
            at->problem = at->problem.empty() && !c.problem.empty() ? c.what + ": " + c.problem : at->problem;
            ++at->checks;
            at->error = std::max(at->error, c.error);
            at->ms += c.ms;
            at->chosen = at->chosen || c.chosen;
        }
    }
    return out;
}

void put_behind(vkf::SelfTest& all, vkf::SelfTest more) {
    all.floats = knows_f32(more) ? more.floats : all.floats;
    const std::size_t before = all.checks.size();
    for (vkf::SelfCheck& c : more.checks) {
        const auto earlier = all.checks.begin() + static_cast<std::ptrdiff_t>(before);
        const auto same = std::find_if(all.checks.begin(), earlier, [&](const vkf::SelfCheck& other) {
            return other.kernel == c.kernel && other.what == c.what;
        });
        if (same == earlier) {
            all.checks.push_back(std::move(c));
        } else if (same->problem.empty()) {
            *same = std::move(c);
        }
    }
    all.left_out.insert(all.left_out.end(), more.left_out.begin(), more.left_out.end());
    all.complete = more.complete;
    all.verdict = std::max(all.left_out.empty() ? vkf::Verdict::healthy : vkf::Verdict::degraded, more.verdict);
}

Kept kept_of(const Report& report, const KeptBefore& before) {
    const bool whole = !report.quick && report.test.complete && report.test.verdict != vkf::Verdict::unusable;
    if (!before.damage.empty() && !whole) {
        const char* lost = report.test.left_out.empty() ? "" : "what programs do without could not be kept: ";
        return {before.list, lost + before.damage + "; only a whole examination replaces it\n", true};
    }
    Kept out;
    out.said = before.damage.empty() ? "" : before.damage + "; it is replaced\n";
    for (const vkf::LeftOut& k : report.test.left_out) {
        out.list.push_back({k.kernel, why(k, report.day)});
        out.said += "programs do without " + k.kernel + " from now on; vkformer-doctor --forget takes that back\n";
    }
    const std::vector<KernelSummary> ran = summaries(report.test);
    for (const vkf::LeftOut& k : before.list) {
        const auto same = [&](const auto& other) { return other.kernel == k.kernel; };
        if (std::any_of(out.list.begin(), out.list.end(), same)) {
            continue;
        }
        const auto result = std::find_if(ran.begin(), ran.end(), same);
        if (whole && result != ran.end() && result->problem.empty()) {
            out.said += "programs take " + k.kernel + " again: it was right\n";
            continue;
        }
        out.list.push_back(k);
        out.said += "programs go on without " + k.kernel + ": " +
                    (!whole                ? "only a whole examination takes it back"
                     : result == ran.end() ? "no check ran it"
                                           : "it was wrong again") +
                    "\n";
    }
    return out;
}
