// SPDX-License-Identifier: Apache-2.0
#include "ops/row_load.h"

#include "ops/tuned.h"

namespace vkf {

support::RowLoad support::row_load(const Lowering& l, bool fours, const Shader& wide) {
    const Capabilities& device = l.device();
    if (!fours || !device.cpu()) {
        return {};
    }
    const Tuned bytes = tuned(device, "row_load", 8);
    if (!device.int64 || device.leaves_out(wide.name)) {
        return {};
    }
    return {bytes.value == 8, ", " + std::to_string(bytes.value) + " bytes a load" + bytes.note};
}

}  // namespace vkf
