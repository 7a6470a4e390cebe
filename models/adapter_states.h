// SPDX-License-Identifier: Apache-2.0
// The names of the states in which Lora keeps its matrices.
#pragma once

#include <string>
#include <string_view>

namespace vkf {

inline constexpr std::string_view kLoraA = ".lora_A.weight";
inline constexpr std::string_view kLoraB = ".lora_B.weight";

/// The name of the layer whose A or B a state is; empty for other states.
inline std::string adapted_layer(std::string_view state) {
    for (const std::string_view suffix : {kLoraA, kLoraB}) {
        if (state.ends_with(suffix)) {
            return std::string(state.substr(0, state.size() - suffix.size()));
        }
    }
    return {};
}

}  // namespace vkf
