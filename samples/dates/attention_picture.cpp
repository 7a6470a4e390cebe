// SPDX-License-Identifier: Apache-2.0
#include "attention_picture.h"

#include <vkformer/vkformer.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <locale>
#include <numbers>
#include <sstream>
#include <string_view>

#include "../arguments.h"

namespace {

constexpr double kCell = 22;
constexpr double kMargin = 40;
constexpr double kHeader = 112;  // title, subtitle and their air
constexpr double kTitleCharacter = 17;
constexpr double kSubtitleWidth = 640;
constexpr double kPanelTitle = 30;
constexpr double kLabelRoom = 26;   // from the cells to beyond a label of one character
constexpr double kWideLabel = 7.3;  // more for each character of a label that has several
constexpr double kAxisTitle = 22;
constexpr double kPanelGap = 34;
constexpr double kColorBar = 110;  // bar, ticks and the air before them
constexpr const char* kStyle = R"(
text { font-family: Inter, 'Segoe UI', 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif; fill: #1f2430 }
.title { font-size: 26px; font-weight: 600 }
.panel { font-size: 16px; font-weight: 600 }
.subtitle { font-size: 15px }
.axis { font-size: 13px }
.tick { font-size: 12px }
.subtitle, .axis, .tick { fill: #5b6472 }
.label, .wide { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace }
.label { font-size: 15px }
.wide { font-size: 12px }
.mark { stroke: #5b6472 }
)";

/// A point of the colour map in OKLCH, where equal steps look equal.
struct MapPoint {
    double lightness, chroma, hue;
};

/// Lightness falls evenly from paper to ink, so the order of two weights shows in grey, too.
constexpr std::array<MapPoint, 6> kColorMap{{{0.975, 0.012, 110},
                                             {0.835, 0.120, 135},
                                             {0.695, 0.125, 168},
                                             {0.555, 0.105, 220},
                                             {0.415, 0.130, 270},
                                             {0.275, 0.120, 300}}};

/// Linear light to the sRGB byte.
int srgb_byte(double linear) {
    const double clamped = std::clamp(linear, 0.0, 1.0);
    const double encoded = clamped <= 0.0031308 ? 12.92 * clamped : 1.055 * std::pow(clamped, 1 / 2.4) - 0.055;
    return static_cast<int>(std::lround(255 * encoded));
}

/// The colour at `share` of the map, 0 to 1. OKLab to sRGB after Björn Ottosson, "A perceptual
/// color space for image processing".
std::string color_at(double share) {
    const double position = std::clamp(share, 0.0, 1.0) * (kColorMap.size() - 1);
    const auto index = std::min(static_cast<std::size_t>(position), kColorMap.size() - 2);
    const double rest = position - static_cast<double>(index);
    const MapPoint& from = kColorMap[index];
    const MapPoint& to = kColorMap[index + 1];
    const double lightness = std::lerp(from.lightness, to.lightness, rest);
    const double chroma = std::lerp(from.chroma, to.chroma, rest);
    const double angle = std::lerp(from.hue, to.hue, rest) * std::numbers::pi / 180;
    const double a = chroma * std::cos(angle);
    const double b = chroma * std::sin(angle);
    const double l = std::pow(lightness + 0.3963377774 * a + 0.2158037573 * b, 3);
    const double m = std::pow(lightness - 0.1055613458 * a - 0.0638541728 * b, 3);
    const double s = std::pow(lightness - 0.0894841775 * a - 1.2914855480 * b, 3);
    std::array<char, 8> text{};
    std::snprintf(text.data(), text.size(), "#%02x%02x%02x",
                  srgb_byte(4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s),
                  srgb_byte(-1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s),
                  srgb_byte(-0.0041960863 * l - 0.7034186147 * m + 1.7076147010 * s));
    return text.data();
}

/// Text safe in XML content and attributes; control characters, which XML cannot hold, become the
/// replacement character.
std::string escaped(std::string_view text) {
    std::string result;
    for (const char c : text) {
        switch (c) {
            case '&': result += "&amp;"; break;
            case '<': result += "&lt;"; break;
            case '>': result += "&gt;"; break;
            case '\'': result += "&apos;"; break;
            default: result += static_cast<unsigned char>(c) < 0x20 ? std::string("\xEF\xBF\xBD") : std::string(1, c);
        }
    }
    return result;
}

std::size_t characters(std::string_view text) {
    return static_cast<std::size_t>(
        std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

bool is_wide(const std::string& label) { return characters(label) > 1; }

/// The label as drawn: a space would be nothing to look at.
std::string visible(const std::string& label) { return label == " " ? "\xE2\x90\xA3" : escaped(label); }

/// Room for an axis: its labels and its title.
double axis_room(const std::vector<std::string>& labels) {
    std::size_t longest = 0;
    for (const std::string& label : labels) longest = std::max(longest, characters(label));
    return std::max(kLabelRoom, 12 + static_cast<double>(longest) * kWideLabel) + kAxisTitle;
}

/// The sizes and places of all that is drawn, in pixels.
struct Layout {
    double cells_width, cells_height;  // of one panel
    double row_axis, column_axis;      // labels and axis title
    double header_width;               // an estimate: the font is the viewer's
    std::size_t columns, rows;         // panels in the grid

    explicit Layout(const AttentionPicture& picture)
        : cells_width(kCell * static_cast<double>(picture.source.size())),
          cells_height(kCell * static_cast<double>(picture.target.size())),
          row_axis(axis_room(picture.target)),
          column_axis(axis_room(picture.source)),
          header_width(std::max(kSubtitleWidth, kTitleCharacter * static_cast<double>(characters(picture.title)))) {
        const auto heads = static_cast<std::size_t>(picture.heads);
        columns = 1;
        while (columns < heads && panel_width() * static_cast<double>(columns + 1) <
                                      2.2 * panel_height() * std::ceil(static_cast<double>(heads) / (columns + 1.0))) {
            ++columns;
        }
        rows = (heads + columns - 1) / columns;
    }

    double panel_width() const { return row_axis + cells_width + kPanelGap; }
    double panel_height() const { return kPanelTitle + cells_height + column_axis + kPanelGap; }
    double grid_right() const { return kMargin + panel_width() * static_cast<double>(columns) - kPanelGap; }
    double grid_bottom() const { return kHeader + panel_height() * static_cast<double>(rows) - kPanelGap; }
    double width() const { return std::max(grid_right() + kColorBar, kMargin + header_width) + kMargin; }
    double height() const { return grid_bottom() + kMargin; }
};

void draw_panel(std::ostream& svg, const AttentionPicture& picture, const Layout& layout, std::size_t head,
                float scale) {
    const double left = kMargin + layout.panel_width() * static_cast<double>(head % layout.columns) + layout.row_axis;
    const double top = kHeader + layout.panel_height() * static_cast<double>(head / layout.columns) + kPanelTitle;
    svg << "<g transform='translate(" << left << ',' << top << ")'>\n"
        << "<text class='panel' y='-12'>Head " << head + 1 << "</text>\n"
        << "<rect x='-1' y='-1' width='" << layout.cells_width + 2 << "' height='" << layout.cells_height + 2
        << "' rx='3' fill='#e6e8eb'/>\n";
    const std::size_t columns = picture.source.size();
    for (std::size_t row = 0; row < picture.target.size(); ++row) {
        for (std::size_t column = 0; column < columns; ++column) {
            const float weight = picture.weights[(head * picture.target.size() + row) * columns + column];
            const std::string color = std::isfinite(weight) ? color_at(weight / scale) : "#e5484d";
            svg << "<rect x='" << kCell * static_cast<double>(column) + 0.5 << "' y='"
                << kCell * static_cast<double>(row) + 0.5 << "' width='" << kCell - 1 << "' height='" << kCell - 1
                << "' rx='2' fill='" << color << "'><title>" << visible(picture.target[row]) << " from "
                << visible(picture.source[column]) << ": " << weight << "</title></rect>\n";
        }
    }
    for (std::size_t row = 0; row < picture.target.size(); ++row) {
        const std::string& label = picture.target[row];
        svg << "<text class='" << (is_wide(label) ? "wide" : "label") << "' text-anchor='end' x='-9' y='"
            << kCell * (static_cast<double>(row) + 0.5) + 5 << "'>" << visible(label) << "</text>\n";
    }
    for (std::size_t column = 0; column < columns; ++column) {
        const std::string& label = picture.source[column];
        const double middle = kCell * (static_cast<double>(column) + 0.5);
        if (is_wide(label)) {
            svg << "<text class='wide' text-anchor='end' transform='translate(" << middle + 4 << ','
                << layout.cells_height + 8 << ") rotate(-90)'>" << visible(label) << "</text>\n";
        } else {
            svg << "<text class='label' text-anchor='middle' x='" << middle << "' y='" << layout.cells_height + 19
                << "'>" << visible(label) << "</text>\n";
        }
    }
    svg << "<text class='axis' text-anchor='middle' x='" << layout.cells_width / 2 << "' y='"
        << layout.cells_height + layout.column_axis - 8 << "'>source character</text>\n"
        << "<text class='axis' text-anchor='middle' transform='translate(" << 14 - layout.row_axis << ','
        << layout.cells_height / 2 << ") rotate(-90)'>output character</text>\n</g>\n";
}

void draw_color_bar(std::ostream& svg, const Layout& layout, float scale) {
    constexpr int kStops = 24;
    constexpr int kTicks = 5;
    constexpr double kWidth = 14;
    const double left = layout.grid_right() + 40;
    const double top = kHeader + kPanelTitle;
    const double height = layout.grid_bottom() - layout.column_axis - top;
    svg << "<defs><linearGradient id='map' x1='0' y1='1' x2='0' y2='0'>";
    for (int stop = 0; stop <= kStops; ++stop) {
        const double share = static_cast<double>(stop) / kStops;
        svg << "<stop offset='" << share << "' stop-color='" << color_at(share) << "'/>";
    }
    svg << "</linearGradient></defs>\n<text class='axis' text-anchor='middle' x='" << left + kWidth / 2 + 14 << "' y='"
        << top - 12 << "'>weight</text>\n<rect x='" << left << "' y='" << top << "' width='" << kWidth << "' height='"
        << height << "' rx='2' fill='url(#map)' stroke='#d5d8dd'/>\n";
    for (int tick = 0; tick <= kTicks; ++tick) {
        const double share = static_cast<double>(tick) / kTicks;
        const double y = top + height * (1 - share);
        svg << "<path d='M" << left + kWidth + 2 << ' ' << y << "h5' class='mark'/><text class='tick' x='"
            << left + kWidth + 11 << "' y='" << y + 4 << "'>" << share * scale << "</text>\n";
    }
}

/// The end of the colour bar: the largest weight, rounded up so that five ticks are short numbers.
float scale_of(const std::vector<float>& weights) {
    float largest = 0;
    for (const float weight : weights) {
        if (std::isfinite(weight)) largest = std::max(largest, weight);
    }
    for (const float step : {0.05f, 0.1f, 0.25f, 0.5f, 0.75f}) {
        if (largest <= step) return step;
    }
    return std::max(1.f, largest);
}

}  // namespace

void write_svg(const std::filesystem::path& path, const AttentionPicture& picture) {
    const std::size_t heads = picture.heads < 0 ? 0 : static_cast<std::size_t>(picture.heads);
    const std::size_t expected = heads * picture.target.size() * picture.source.size();
    if (expected == 0 || picture.weights.size() != expected) {
        throw vkf::Error("attention picture has " + std::to_string(picture.weights.size()) + " weights for " +
                         std::to_string(picture.heads) + " heads, " + std::to_string(picture.target.size()) +
                         " rows and " + std::to_string(picture.source.size()) + " columns");
    }
    const Layout layout(picture);
    const float scale = scale_of(picture.weights);
    std::ostringstream svg;
    svg.imbue(std::locale::classic());
    svg.precision(4);
    svg << "<svg xmlns='http://www.w3.org/2000/svg' width='" << layout.width() << "' height='" << layout.height()
        << "' viewBox='0 0 " << layout.width() << ' ' << layout.height() << "'>\n<title>" << escaped(picture.title)
        << "</title>\n<style>" << kStyle << "</style>\n<rect width='100%' height='100%' fill='#ffffff'/>\n"
        << "<text class='title' x='" << kMargin << "' y='54'>" << escaped(picture.title) << "</text>\n"
        << "<text class='subtitle' x='" << kMargin
        << "' y='82'>Cross-attention: where each output character (row) looks in the source (column)</text>\n";
    for (std::size_t head = 0; head < heads; ++head) draw_panel(svg, picture, layout, head, scale);
    draw_color_bar(svg, layout, scale);
    svg << "</svg>\n";
    write_file(path, svg.str());
}
