// SPDX-License-Identifier: Apache-2.0
#include "row.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "output_file.h"

namespace {

std::string cell(const std::optional<double>& value, const char* format, double factor = 1.0) {
    if (!value) {
        return "-";
    }
    char text[32];
    std::snprintf(text, sizeof(text), format, *value * factor);
    return text;
}

const char* time_format(const std::optional<double>& ms) { return ms && *ms < 1 ? "%.4f" : "%.2f"; }

std::string line(const std::string& name, const std::string& ms, const std::string& gflops, const std::string& gbps,
                 const std::string& share, const std::string& peer_ms, const std::string& ratio,
                 const std::string& variant) {
    char text[256];
    std::snprintf(text, sizeof(text), "%-36s %10s %9s %8s %8s %10s %7s  ", name.c_str(), ms.c_str(), gflops.c_str(),
                  gbps.c_str(), share.c_str(), peer_ms.c_str(), ratio.c_str());
    return text + variant;
}

nlohmann::json number(const std::optional<double>& value) { return value ? nlohmann::json(*value) : nlohmann::json(); }

}  // namespace

double median(std::vector<double> samples) {
    if (samples.empty()) {
        throw std::invalid_argument("no sample to take a median of");
    }
    std::sort(samples.begin(), samples.end());
    const std::size_t half = samples.size() / 2;
    return samples.size() % 2 == 1 ? samples[half] : 0.5 * (samples[half - 1] + samples[half]);
}

std::string table_head() { return line("", "ms", "GFLOP/s", "GB/s", "of most", "peer ms", "ratio", "variant"); }

std::string table_line(const Row& row) {
    if (row.bytes) {
        return line(row.name, cell(row.bytes, "%.0f KiB", 1.0 / 1024), "-", "-", "-", "-", "-", row.variant);
    }
    std::string variant = row.variant;
    if (row.target_ms > 0) {
        variant += " (target " + cell(row.target_ms, "%g") +
                   " ms: " + (row.ms && *row.ms < row.target_ms ? "met" : "missed") + ")";
    }
    for (const Figure& f : row.figures) {
        variant += (variant.empty() ? "" : "; ") + std::string(f.name) + " " + cell(f.value, "%.4g");
        if (f.target > 0) {
            variant += " (target " + cell(f.target, "%g") + ": " + (f.value <= f.target ? "met" : "missed") + ")";
        }
    }
    return line(row.name, cell(row.ms, time_format(row.ms)), cell(row.gflops, "%.2f"), cell(row.gbps, "%.2f"),
                cell(row.ceiling_share, "%.0f %%", 100.0), cell(row.peer_ms, time_format(row.peer_ms)),
                cell(row.ratio, "%.2f"), variant);
}

void write_json(const std::filesystem::path& path, const std::vector<Row>& rows) {
    nlohmann::json all = nlohmann::json::array();
    for (const Row& row : rows) {
        nlohmann::json j{{"name", row.name},
                         {"device", row.device},
                         {"variant", row.variant},
                         {"ms", number(row.ms)},
                         {"gflops", number(row.gflops)},
                         {"gbps", number(row.gbps)},
                         {"ceiling_share", number(row.ceiling_share)},
                         {"peer", row.peer.empty() ? nlohmann::json() : nlohmann::json(row.peer)},
                         {"peer_ms", number(row.peer_ms)},
                         {"ratio", number(row.ratio)}};
        if (row.bytes) {
            j["bytes"] = *row.bytes;
        }
        for (const Figure& f : row.figures) {
            j[f.name] = f.value;
        }
        all.push_back(std::move(j));
    }
    // a driver's name for its device need not be UTF-8
    write_file(path, all.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}
