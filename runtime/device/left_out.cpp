// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/left_out.h"

#include "runtime/device/device_core.h"
#include "runtime/device/insides.h"
#include "runtime/device/left_out_store.h"

namespace vkf {

std::filesystem::path left_out_file(const Device& device) {
    const DeviceCore& core = Insides::core(device);
    return left_out_path(core.options.cache_folder, device.capabilities(), core.uuid);
}

std::filesystem::path save_left_out(const Device& device, std::span<const LeftOut> kernels) {
    const std::filesystem::path path = left_out_file(device);
    if (path.empty()) {
        throw Error("there is no cache folder to keep a list in; VKFORMER_CACHE_DIR names one", "save_left_out");
    }
    write_left_out(path, kernels);
    return path;
}

}  // namespace vkf
