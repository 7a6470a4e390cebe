// SPDX-License-Identifier: Apache-2.0
#include "models/load_parameters.h"

#include <cstddef>

#include "runtime/device/load_in_turn.h"

namespace vkf {

Weights load_parameters(const Device& device, const std::vector<Parameter>& parameters, const WeightLayout& layout,
                        const LoadProgress& progress, PackOn pack_on) {
    // the numbers of one that were converted or cut out; its tensor points into them
    std::vector<float> owned;
    const auto tensor = [&](std::size_t i) {
        owned = {};
        return tensor_of(parameters[i], owned);
    };
    return load_in_turn(device, parameters.size(), tensor, layout, progress, pack_on);
}

}  // namespace vkf
