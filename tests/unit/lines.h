// SPDX-License-Identifier: Apache-2.0
// Findings of a test that reads the sources, for its message.
#pragma once

#include <string>
#include <vector>

namespace vkf::test {

inline std::string lines(const std::vector<std::string>& all) {
    std::string out;
    for (const std::string& line : all) {
        out += "\n  " + line;
    }
    return out;
}

}  // namespace vkf::test
