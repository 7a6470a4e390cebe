// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <vector>

struct CurvePoint {
    double step, loss;
};

/// Draws the losses over the steps, on a logarithmic scale, as SVG. Throws std::runtime_error
/// naming the file.
void write_loss_curve(const std::filesystem::path& path, const std::vector<CurvePoint>& points);
