// SPDX-License-Identifier: Apache-2.0
#include "loss_curve.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "../arguments.h"

namespace {

/// The power of ten of a loss; a loss that is 0 is as low as the curve goes.
double power_of(double loss) { return std::log10(std::max(loss, 1e-8)); }

}  // namespace

void write_loss_curve(const std::filesystem::path& path, const std::vector<CurvePoint>& points) {
    constexpr double kWidth = 720, kHeight = 360, kLeft = 60, kBottom = 40, kTop = 20, kRight = 20;
    double low = 0, high = 1, last = 1;  // powers of ten
    for (const CurvePoint& p : points) {
        low = std::min(low, std::floor(power_of(p.loss)));
        high = std::max(high, std::ceil(power_of(p.loss)));
        last = std::max(last, p.step);
    }
    const auto x = [&](double step) { return kLeft + (kWidth - kLeft - kRight) * step / last; };
    const auto y = [&](double loss) {
        return kTop + (kHeight - kTop - kBottom) * (high - power_of(loss)) / (high - low);
    };
    std::ostringstream out;
    out << "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" << kWidth << "\" height=\"" << kHeight
        << "\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
    for (double power = low; power <= high; ++power) {
        const double at = y(std::pow(10.0, power));
        out << "<line x1=\"" << kLeft << "\" x2=\"" << kWidth - kRight << "\" y1=\"" << at << "\" y2=\"" << at
            << "\" stroke=\"#ddd\"/>\n<text x=\"" << kLeft - 8 << "\" y=\"" << at + 4 << "\" text-anchor=\"end\">"
            << std::pow(10.0, power) << "</text>\n";
    }
    for (int i = 0; i <= 4; ++i) {
        const double step = last * i / 4;
        out << "<text x=\"" << x(step) << "\" y=\"" << kHeight - kBottom + 20 << "\" text-anchor=\"middle\">"
            << std::llround(step) << "</text>\n";
    }
    out << "<text x=\"" << kWidth / 2 << "\" y=\"" << kHeight - 6 << "\" text-anchor=\"middle\">step</text>\n"
        << "<text x=\"14\" y=\"" << kHeight / 2 << "\" text-anchor=\"middle\" transform=\"rotate(-90 14 " << kHeight / 2
        << ")\">cross-entropy</text>\n<polyline fill=\"none\" stroke=\"#3366cc\" stroke-width=\"1.5\" points=\"";
    for (const CurvePoint& p : points) {
        out << x(p.step) << ',' << y(p.loss) << ' ';
    }
    out << "\"/>\n</svg>\n";
    write_file(path, out.str());
}
