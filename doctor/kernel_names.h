// SPDX-License-Identifier: Apache-2.0
// Names of kernels that a check ran, and the text that SelfCheck::kernel has of them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace vkf::doctor {

/// "one + another".
inline std::string together(const std::vector<std::string>& names) {
    std::string out;
    for (const std::string& name : names) {
        out += (out.empty() ? "" : " + ") + name;
    }
    return out;
}

/// The names in "one + another".
inline std::vector<std::string> names_in(std::string_view kernels) {
    std::vector<std::string> out;
    while (!kernels.empty()) {
        const std::size_t end = std::min(kernels.find(" + "), kernels.size());
        out.emplace_back(kernels.substr(0, end));
        kernels.remove_prefix(std::min(end + 3, kernels.size()));
    }
    return out;
}

inline bool has(const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace vkf::doctor
