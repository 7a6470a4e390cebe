// SPDX-License-Identifier: Apache-2.0
// The times of a profiled run by what the dispatches are for.
#pragma once

#include <vkformer/vkformer.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

using DispatchTimes = std::vector<vkf::DispatchTime>;

/// True for what gradients() added: it labels its nodes so.
inline bool is_backward(const vkf::DispatchTime& t) { return t.label.find("gradient") != std::string::npos; }
inline bool is_product(const vkf::DispatchTime& t) {
    return t.kernel.starts_with("matmul") || t.kernel.starts_with("matvec");
}
inline bool is_attention(const vkf::DispatchTime& t) { return t.kernel.starts_with("attention"); }
inline bool is_any(const vkf::DispatchTime&) { return true; }

/// Adds up the times of those dispatches that `counts` is true for.
template <class Counts = bool (*)(const vkf::DispatchTime&)>
double milliseconds_of(const DispatchTimes& times, Counts counts = is_any) {
    double ms = 0;
    for (const vkf::DispatchTime& t : times) {
        ms += counts(t) ? t.ms : 0;
    }
    return ms;
}

/// Lists each kernel once, in order, with how often it ran.
template <class Counts = bool (*)(const vkf::DispatchTime&)>
std::string kernels_of(const DispatchTimes& times, Counts counts = is_any) {
    std::vector<std::pair<std::string, int>> found;
    for (const vkf::DispatchTime& t : times) {
        if (!counts(t)) {
            continue;
        }
        const auto at = std::find_if(found.begin(), found.end(), [&](const auto& f) { return f.first == t.kernel; });
        if (at == found.end()) {
            found.emplace_back(t.kernel, 1);
        } else {
            ++at->second;
        }
    }
    std::string names;
    for (const auto& [kernel, count] : found) {
        names += (names.empty() ? "" : " + ") + (count > 1 ? std::to_string(count) + " " : "") + kernel;
    }
    return names;
}
