// SPDX-License-Identifier: Apache-2.0
#include "roofline.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <sstream>
#include <stdexcept>
#include <string_view>

#include "output_file.h"

namespace {

constexpr double kMargin = 40, kHeader = 84, kChart = 600, kGap = 70;
constexpr double kLine = 17, kNames = 300, kBars = 260;  // sizes of the picture of shares
constexpr const char* kStyle = R"(
text { font-family: Inter, 'Segoe UI', 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif; fill: #1f2430; font-size: 13px }
.title { font-size: 24px; font-weight: 600 }
.subtitle, .tick { fill: #5b6472 }
.name { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace; font-size: 12px }
.roof { fill: none; stroke: #1f2430; stroke-width: 2 }
.grid { stroke: #e6e8eb }
)";

struct Family {
    const char* prefix;
    const char* name;
    const char* color;
};

constexpr std::array<Family, 8> kFamilies{{{"matvec", "mat-vec", "#d9730d"},
                                           {"skinny", "2 to 16 rows", "#b59500"},
                                           {"matmul", "products", "#c4314b"},
                                           {"linear", "products", "#c4314b"},
                                           {"attention_decode", "decode attention", "#2b8a5e"},
                                           {"attention", "prefill attention", "#1f6fb2"},
                                           {"decoder_layer", "decoder layer", "#7a4fb5"},
                                           {"", "row ops", "#5b6472"}}};

const Family& family_of(const std::string& name) {
    return *std::find_if(kFamilies.begin(), kFamilies.end(),
                         [&](const Family& f) { return name.starts_with(f.prefix); });
}

std::string short_number(double value) {
    char text[32];
    std::snprintf(text, sizeof(text), "%.4g", value);
    return text;
}

/// The text as SVG has it between tags.
std::string escaped(const std::string& text) {
    std::string out;
    for (const char c : text) {
        switch (c) {
            case '&': out += "&amp;"; break;
            case '<': out += "&lt;"; break;
            case '>': out += "&gt;"; break;
            case '\'': out += "&apos;"; break;
            case '"': out += "&quot;"; break;
            default: out += c;
        }
    }
    return out;
}

/// A logarithmic axis from 10^first to 10^last.
struct Axis {
    double first, last;
    double at(double value) const { return (std::log10(value) - first) / (last - first) * kChart; }
};

Axis axis_over(double least, double most) { return {std::floor(std::log10(least)), std::ceil(std::log10(most))}; }

bool has_point(const Row& row) { return row.gflops && row.gbps && row.ceiling_share; }

void draw_axes(std::ostream& svg, const Axis& x, const Axis& y) {
    for (double e = x.first; e <= x.last; ++e) {
        const double at = x.at(std::pow(10, e));
        svg << "<line class='grid' x1='" << at << "' x2='" << at << "' y1='0' y2='" << kChart
            << "'/>\n<text class='tick' text-anchor='middle' x='" << at << "' y='" << kChart + 20 << "'>"
            << short_number(std::pow(10, e)) << "</text>\n";
    }
    for (double e = y.first; e <= y.last; ++e) {
        const double at = kChart - y.at(std::pow(10, e));
        svg << "<line class='grid' x1='0' x2='" << kChart << "' y1='" << at << "' y2='" << at
            << "'/>\n<text class='tick' text-anchor='end' x='-8' y='" << at + 4 << "'>" << short_number(std::pow(10, e))
            << "</text>\n";
    }
    svg << "<text text-anchor='middle' x='" << kChart / 2 << "' y='" << kChart + 44 << "'>flops a byte</text>\n"
        << "<text text-anchor='middle' transform='translate(-46," << kChart / 2 << ") rotate(-90)'>GFLOP/s</text>\n";
}

/// The roof of one kind of arithmetic.
void draw_roof(std::ostream& svg, const Axis& x, const Axis& y, double gbps, double gflops, std::string_view what) {
    const double ridge = gflops / gbps;
    const double left = std::max(std::pow(10, x.first), std::pow(10, y.first) / gbps);
    svg << "<polyline class='roof' points='" << x.at(left) << ',' << kChart - y.at(left * gbps) << ' ' << x.at(ridge)
        << ',' << kChart - y.at(gflops) << ' ' << kChart << ',' << kChart - y.at(gflops) << "'/>\n"
        << "<text x='" << kChart - 6 << "' text-anchor='end' y='" << kChart - y.at(gflops) - 8 << "'>"
        << short_number(gflops) << " GFLOP/s " << what << "</text>\n"
        << "<text x='" << x.at(left) + 30 << "' y='" << kChart - y.at(left * gbps) - 8 << "'>" << short_number(gbps)
        << " GB/s copy</text>\n";
}

void draw_chart(std::ostream& svg, const std::vector<Row>& rows, const Ceilings& ceilings) {
    double least_x = ceilings.gflops / ceilings.gbps, most_x = least_x, least_y = ceilings.gflops;
    for (const Row& row : rows) {
        if (has_point(row)) {
            least_x = std::min(least_x, *row.gflops / *row.gbps);
            most_x = std::max(most_x, *row.gflops / *row.gbps);
            least_y = std::min(least_y, *row.gflops);
        }
    }
    most_x = std::max(most_x, ceilings.matrix_gflops / ceilings.gbps);
    const Axis x = axis_over(least_x, most_x);
    const Axis y = axis_over(least_y, std::max(ceilings.gflops, ceilings.matrix_gflops) * 1.01);
    draw_axes(svg, x, y);
    draw_roof(svg, x, y, ceilings.gbps, ceilings.gflops, "fp32 multiply-add");
    if (ceilings.matrix_gflops > 0) {
        draw_roof(svg, x, y, ceilings.gbps, ceilings.matrix_gflops, "cooperative matrices");
    }
    for (const Row& row : rows) {
        if (has_point(row)) {
            svg << "<circle r='5' cx='" << x.at(*row.gflops / *row.gbps) << "' cy='" << kChart - y.at(*row.gflops)
                << "' fill='" << family_of(row.name).color << "'><title>" << escaped(row.name) << ": "
                << short_number(*row.gflops) << " GFLOP/s</title></circle>\n";
        }
    }
    double line = kChart - 20;
    std::string_view drawn;
    for (auto f = kFamilies.rbegin(); f != kFamilies.rend(); ++f) {
        if (f->name != drawn && *f->prefix != '\0') {
            svg << "<circle r='5' cx='" << kChart - 140 << "' cy='" << line - 4 << "' fill='" << f->color
                << "'/><text x='" << kChart - 128 << "' y='" << line << "'>" << f->name << "</text>\n";
            line -= 20;
        }
        drawn = f->name;
    }
}

void draw_shares(std::ostream& svg, const std::vector<Row>& rows) {
    double line = 0;
    for (const Row& row : rows) {
        if (row.ceiling_share) {
            svg << "<text class='name' text-anchor='end' x='" << kNames - 8 << "' y='" << line + 12 << "'>"
                << escaped(row.name) << "</text><rect x='" << kNames << "' y='" << line + 2 << "' width='"
                << std::min(*row.ceiling_share, 1.2) * kBars / 1.2 << "' height='" << kLine - 4 << "' fill='"
                << family_of(row.name).color << "'/><text x='" << kNames + kBars + 8 << "' y='" << line + 12 << "'>"
                << short_number(std::round(*row.ceiling_share * 100)) << " %</text>\n";
            line += kLine;
        }
    }
    svg << "<line class='roof' x1='" << kNames + kBars / 1.2 << "' x2='" << kNames + kBars / 1.2 << "' y1='0' y2='"
        << line << "'/>\n";
}

}  // namespace

void write_roofline(const std::filesystem::path& path, const std::vector<Row>& rows, const Ceilings& ceilings) {
    const auto shares =
        std::count_if(rows.begin(), rows.end(), [](const Row& r) { return r.ceiling_share.has_value(); });
    if (shares == 0) {
        throw std::runtime_error("no row of this run has a ceiling: nothing to draw in " + path.string());
    }
    const double height = kHeader + std::max(kChart + 60, kLine * static_cast<double>(shares)) + kMargin;
    const double width = kMargin + 50 + kChart + kGap + kNames + kBars + 60 + kMargin;
    std::ostringstream svg;
    svg << "<svg xmlns='http://www.w3.org/2000/svg' width='" << width << "' height='" << height << "' viewBox='0 0 "
        << width << ' ' << height << "'>\n<style>" << kStyle
        << "</style>\n<rect width='100%' height='100%' fill='#fff'/>\n"
        << "<text class='title' x='" << kMargin << "' y='44'>Measured beside the device's ceilings</text>\n"
        << "<text class='subtitle' x='" << kMargin << "' y='66'>" << escaped(rows.front().device)
        << "; right: share of the ceiling that binds</text>\n<g transform='translate(" << kMargin + 50 << ',' << kHeader
        << ")'>\n";
    draw_chart(svg, rows, ceilings);
    svg << "</g>\n<g transform='translate(" << kMargin + 50 + kChart + kGap << ',' << kHeader << ")'>\n";
    draw_shares(svg, rows);
    svg << "</g>\n</svg>\n";
    write_file(path, svg.str());
}
