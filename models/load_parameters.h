// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "models/files/parameters.h"
#include "runtime/device/device.h"

namespace vkf {

/// Uploads a model's parameters under the graph's names, converted where the graph wants them
/// otherwise than the files have them. `layout` is layout_of() them. Throws Error as Device::load()
/// does.
Weights load_parameters(const Device& device, const std::vector<Parameter>& parameters, const WeightLayout& layout,
                        const LoadProgress& progress = {}, PackOn pack_on = PackOn::by_device);

}  // namespace vkf
