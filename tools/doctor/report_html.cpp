// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "report.h"

namespace {

template <class... Args>
std::string html_format(const char* pattern, Args... args) {
    std::string text(static_cast<std::size_t>(std::max(0, std::snprintf(nullptr, 0, pattern, args...))), '\0');
    std::snprintf(text.data(), text.size() + 1, pattern, args...);
    return text;
}

std::string html_escape(const std::string& text) {
    std::string out;
    for (const char c : text) {
        out += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : c == '"' ? "&quot;" : std::string(1, c);
    }
    return out;
}

constexpr double kLabels = 330, kWidth = 900, kRow = 18, kPlot = kWidth - kLabels - 60;

std::string svg(std::size_t rows, const std::string& inside, const char* title) {
    return html_format("<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"%s\">", kWidth,
                       kRow * static_cast<double>(rows) + 30, title) +
           inside + "</svg>\n";
}

std::string label(double y, const std::string& text) {
    return html_format("<text x=\"%.0f\" y=\"%.1f\" text-anchor=\"end\">%s</text>", kLabels - 8, y + 12,
                       html_escape(text).c_str());
}

/// Each op's share of the ceiling that binds it.
std::string shares_picture(const Report& report) {
    std::string in;
    std::vector<Measured> ops = report.ops;
    std::erase_if(ops, [](const Measured& m) { return m.share <= 0; });
    const double bottom = kRow * static_cast<double>(ops.size());
    for (const int percent : {0, 25, 50, 75, 100}) {
        const double x = kLabels + kPlot * percent / 100;
        in += html_format("<line x1=\"%.1f\" y1=\"0\" x2=\"%.1f\" y2=\"%.1f\" class=\"grid\"/>", x, x, bottom + 4);
        in += html_format("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%d %%</text>", x, bottom + 18, percent);
    }
    for (std::size_t i = 0; i < ops.size(); ++i) {
        const Measured& m = ops[i];
        const double y = kRow * static_cast<double>(i);
        in += label(y, m.name);
        in += html_format("<rect x=\"%.0f\" y=\"%.1f\" width=\"%.1f\" height=\"12\" class=\"bar\"/>", kLabels, y + 2,
                          kPlot * std::clamp(m.share, 0.0, 1.05));
    }
    return svg(ops.size(), in, "shares of the ceiling");
}

/// The largest error of each kernel beside what is allowed, on a logarithmic scale.
std::string errors_picture(const std::vector<KernelSummary>& kernels) {
    constexpr double kLeast = -6, kMost = 2;
    const auto x_of = [&](double power) {
        return kLabels + kPlot * (std::clamp(power, kLeast, kMost) - kLeast) / (kMost - kLeast);
    };
    std::string in;
    const double bottom = kRow * static_cast<double>(kernels.size());
    for (int power = static_cast<int>(kLeast); power <= static_cast<int>(kMost); power += 2) {
        in += html_format("<line x1=\"%.1f\" y1=\"0\" x2=\"%.1f\" y2=\"%.1f\" class=\"%s\"/>", x_of(power), x_of(power),
                          bottom + 4, power == 0 ? "limit" : "grid");
        in += html_format("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>", x_of(power), bottom + 18,
                          power == 0 ? "allowed" : html_format("1e%d", power).c_str());
    }
    for (std::size_t i = 0; i < kernels.size(); ++i) {
        const double y = kRow * static_cast<double>(i);
        const double error = kernels[i].problem.empty() ? kernels[i].error : std::max(kernels[i].error, 10.0);
        in += label(y, kernels[i].kernel);
        in += html_format("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"5\" class=\"%s\"/>",
                          x_of(error > 0 ? std::log10(error) : kLeast), y + 8,
                          kernels[i].problem.empty() ? "good" : "bad");
    }
    return svg(kernels.size(), in, "errors beside what is allowed");
}

std::string row(const char* cell, const std::vector<std::string>& cells) {
    std::string out = "<tr>";
    for (const std::string& text : cells) {
        out += html_format("<%s>", cell) + html_escape(text) + html_format("</%s>", cell);
    }
    return out + "</tr>\n";
}

std::string yes(bool there) { return there ? "yes" : "no"; }

std::string device_table(const Report& report) {
    std::string out = "<table>\n" + row("th", {"device", "kind", "driver", "Vulkan", "MiB", "f16", "matrices",
                                               "integer dots", "subgroups"});
    for (std::size_t i = 0; i < report.devices.size(); ++i) {
        const vkf::Capabilities& c = report.devices[i];
        out += row("td", {c.name + (i == report.examined ? " (examined)" : ""), name_of(c.type), c.driver,
                          html_format("%u.%u", c.api_version >> 22, c.api_version >> 12 & 0x3ff),
                          std::to_string(c.device_memory >> 20), yes(c.float16),
                          c.matrix_kernels ? yes(c.cooperative_matrix) : "not in this build",
                          c.fast_integer_dot ? "fast" : yes(c.integer_dot), std::to_string(c.subgroup_size)});
    }
    return out + "</table>\n";
}

std::string kernel_table(const std::vector<KernelSummary>& kernels) {
    std::string out = "<table>\n" + row("th", {"kernel", "checks", "worst error, of what is allowed", "chosen", ""});
    for (const KernelSummary& k : kernels) {
        out += row("td", {k.kernel, std::to_string(k.checks), html_format("%.3g %%", 100 * k.error), yes(k.chosen),
                          k.problem});
    }
    return out + "</table>\n";
}

std::string rate_table(const Report& report) {
    std::string out = "<table>\n" + row("th", {"measured", "ms", "GFLOP/s", "GB/s", "of the ceiling", "kernel"});
    for (const auto* list : {&report.ceilings, &report.ops}) {
        for (const Measured& m : *list) {
            out += row("td",
                       {m.name, html_format("%.3f", m.ms), html_format("%.1f", m.gflops), html_format("%.2f", m.gbps),
                        m.share > 0 ? html_format("%.0f %%", 100 * m.share) : "", m.kernel});
        }
    }
    return out + "</table>\n";
}

constexpr const char* kHead = R"(<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>vkformer-doctor</title><style>
body{font:14px sans-serif;max-width:960px;margin:2em auto;padding:0 1em;color:#222;background:#fff}
table{border-collapse:collapse;margin:1em 0;width:100%}td,th{border-bottom:1px solid #ddd;padding:3px 8px;text-align:left}
svg{width:100%;font:11px sans-serif}.grid{stroke:#ddd}.limit{stroke:#c33;stroke-dasharray:4}.bar{fill:#3b7dd8}
.good{fill:#2a9d55}.bad{fill:#c33}.healthy{color:#2a9d55}.degraded{color:#b7791f}.unusable{color:#c33}
</style></head><body>
)";

}  // namespace

std::string html_of(const Report& report) {
    const std::vector<KernelSummary> kernels = summaries(report.test);
    const char* verdict = name_of(report.test.verdict);
    std::string out = kHead;
    out += html_format("<h1>%s: <span class=\"%s\">%s</span></h1>\n", html_escape(report.device.name).c_str(), verdict,
                       verdict);
    out += html_format("<p>vkformer %s, %s, %s%s, %.1f s</p>\n", report.version.c_str(), report.day.c_str(),
                       report.quick ? "quick" : "whole", report.device.minimum_profile ? ", minimum profile" : "",
                       report.seconds);
    out += "<h2>Devices</h2>\n" + device_table(report);
    for (const std::string& why : report.broken) {
        out += "<p>One cannot be asked: " + html_escape(why) + "</p>\n";
    }
    out += "<h2>Errors of each kernel</h2>\n" + errors_picture(kernels) + kernel_table(kernels);
    for (const vkf::LeftOut& k : report.test.left_out) {
        out += "<p>Left out: " + html_escape(k.kernel + ": " + k.why) + "</p>\n";
    }
    const vkf::FloatFacts& f = report.test.floats;
    if (knows_f32(report.test)) {
        out += "<p>fp32 keeps NaN: " + yes(f.nan) + ", infinities: " + yes(f.infinity) +
               ", -0.0: " + yes(f.minus_zero) + ", denormals: " + yes(f.denormals) + ".</p>\n";
    }
    out += knows_f16(report.test) ? "<p>f16 keeps denormals: " + yes(f.f16_denormals) + ".</p>\n" : "";
    out += "<h2>Shares of what the device can do</h2>\n";
    if (!report.not_measured.empty()) {
        out += "<p>Not measured: " + html_escape(report.not_measured) + "</p>\n";
    }
    out += report.ops.empty() ? "" : shares_picture(report);
    out += report.ops.empty() && report.ceilings.empty() ? "" : rate_table(report);
    return out + "</body></html>\n";
}
