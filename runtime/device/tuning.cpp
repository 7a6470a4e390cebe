// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/tuning.h"

#include "runtime/compile/asked_for.h"
#include "runtime/device/device_core.h"
#include "runtime/device/insides.h"
#include "runtime/device/tuning_store.h"

namespace vkf {

std::filesystem::path tuning_file(const Device& device) {
    return tuning_path(Insides::core(device).options.cache_folder, device.capabilities());
}

std::filesystem::path save_tuning(const Device& device, const std::string& choices) {
    const std::filesystem::path path = tuning_file(device);
    if (path.empty()) {
        throw Error("there is no cache folder to keep choices in; VKFORMER_CACHE_DIR names one", "save_tuning");
    }
    require_tuning(choices, "save_tuning");
    Capabilities asking = device.capabilities();
    asking.tuning = choices;
    asking.tuning_from = "save_tuning";
    asking.tuning_is_asked = true;
    check_asked_for(asking);
    write_tuning(path, choices);
    return path;
}

}  // namespace vkf
