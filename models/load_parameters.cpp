// SPDX-License-Identifier: Apache-2.0
#include "models/load_parameters.h"

#include <deque>

namespace vkf {

Weights load_parameters(const Device& device, const std::vector<Parameter>& parameters, const WeightLayout& layout,
                        const LoadProgress& progress, PackOn pack_on) {
    std::vector<HostTensor> tensors;
    std::deque<std::vector<float>> owned;  // numbers that were converted; tensors point into them
    for (const Parameter& p : parameters) {
        tensors.push_back(tensor_of(p, owned.emplace_back()));
    }
    return device.load(tensors, layout, progress, pack_on);
}

}  // namespace vkf
