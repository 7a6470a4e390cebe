// SPDX-License-Identifier: Apache-2.0
// One measured figure, as it is printed and as it is written for machines.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

/// A number beside a row's time.
struct Figure {
    const char* name;
    double value;
    double target = 0;  ///< the most that it should be, printed beside; 0: none
};

struct Row {
    std::string name;
    std::string device;
    std::string variant;       ///< kernels that ran, or what was measured
    std::optional<double> ms;  ///< median
    std::optional<double> gflops, gbps;
    /// share of what the binding ceiling allows: copy rate or multiply-adds
    std::optional<double> ceiling_share;
    std::string peer;                      ///< empty: none was asked
    std::optional<double> peer_ms, ratio;  ///< ratio: peer's time over ours
    std::optional<double> bytes;           ///< the figure, where it is a size and not a time
    double target_ms = 0;                  ///< printed beside; 0: none
    std::vector<Figure> figures;           ///< printed behind the variant
};

double median(std::vector<double> samples);

std::string table_head();
std::string table_line(const Row& row);

/// An array of objects; what was not measured is null, and what is not UTF-8 becomes U+FFFD. Throws
/// when the file cannot be written.
void write_json(const std::filesystem::path& path, const std::vector<Row>& rows);
