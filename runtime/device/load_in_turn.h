// SPDX-License-Identifier: Apache-2.0
// Device::load() of tensors that are made one after the other.
#pragma once

#include <cstddef>
#include <functional>

#include "runtime/device/device.h"

namespace vkf {

/// Uploads tensors 0 to count - 1 as Device::load() does with a layout. `tensor` gives each when
/// its turn comes; its bytes need only live until the next is asked for. One that is missing, comes
/// twice or does not fit is told when its turn comes: others are uploaded by then.
Weights load_in_turn(const Device& device, std::size_t count, const std::function<HostTensor(std::size_t)>& tensor,
                     const WeightLayout& layout, const LoadProgress& progress, PackOn pack_on);

}  // namespace vkf
