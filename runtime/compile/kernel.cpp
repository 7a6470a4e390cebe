// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile/kernel.h"

#include <algorithm>

namespace vkf {

Constants::Constants(std::uint32_t local_size, std::initializer_list<Named> named) {
    set(0, local_size);
    for (const auto& [id, value] : named) {
        set(id, value);
    }
}

void Constants::set(std::uint32_t id, std::uint32_t value) {
    values_.resize(std::max<std::size_t>(values_.size(), id + std::size_t{1}), 0);
    values_[id] = value;
}

}  // namespace vkf
