// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace vkf {

struct HeadSizes {
    std::int64_t heads = 1, kv_heads = 1, head_dim = 1;
};

}  // namespace vkf
