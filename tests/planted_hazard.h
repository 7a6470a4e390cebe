// SPDX-License-Identifier: Apache-2.0
// Mistakes made on purpose, for a validation layer to find. Command buffers are recorded, never
// submitted.
#pragma once

namespace vkf {
struct DeviceCore;
}

namespace vkf::test {

/// Records two fills of the same range without a barrier.
void plant_transfer_hazard(DeviceCore& device);
/// A dispatch that reads what one before it writes, without a barrier. (Two that write the same are
/// let pass by some layers: they may write different elements.)
void plant_dispatch_hazard(DeviceCore& device);

}  // namespace vkf::test
