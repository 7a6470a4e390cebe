// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile/capabilities.h"

#include <algorithm>

#include "runtime/base/text.h"
#include "runtime/compile/tuning_list.h"

namespace vkf {

void Capabilities::clamp_to_minimum() {
    const Capabilities floor;  // the defaults are the guarantees (Vulkan 1.1, "Required Limits")
    max_invocations = std::min(max_invocations, floor.max_invocations);
    for (std::size_t i = 0; i < 3; ++i) {
        max_group_size[i] = std::min(max_group_size[i], floor.max_group_size[i]);
        max_groups[i] = std::min(max_groups[i], floor.max_groups[i]);
    }
    shared_memory = std::min(shared_memory, floor.shared_memory);
    push_constants = std::min(push_constants, floor.push_constants);
    storage_buffers = std::min(storage_buffers, floor.storage_buffers);
    storage_alignment = std::max(storage_alignment, floor.storage_alignment);
    storage_range = std::min(storage_range, floor.storage_range);
    max_allocation = std::min(max_allocation, floor.max_allocation);
    subgroup_size = 0;
    exact_subgroup_size = 0;
    subgroup_shuffle = false;
    subgroup_arithmetic = false;
    subgroup_quad = false;
    storage_16bit = false;
    int64 = false;
    texel_buffers = false;
    float16 = rounds_alike = false;
    float_controls = keeps_special_f32 = keeps_special_f16 = keeps_subnormal_f16 = false;
    cooperative_matrix = cooperative_matrix_int8 = matrix_elements = matrix_elements_ext = false;
    matrix_shapes.clear();
    int8_matrix_shapes.clear();
    integer_dot = fast_integer_dot = false;
    storage_image_any_format = false;
    external_memory_fd = external_memory_host = external_memory_android = false;
    timeline_semaphore = false;
    unified_memory = false;
    minimum_profile = true;
}

std::optional<std::uint32_t> Capabilities::tuned(std::string_view name) const noexcept {
    return tuning_number(tuning, name);
}

bool Capabilities::asks_for(std::string_view variant) const noexcept {
    std::string_view rest = variants;
    while (!rest.empty()) {
        if (take_part(rest, ',') == variant) {
            return true;
        }
    }
    return false;
}

bool Capabilities::leaves_out(std::string_view kernel) const noexcept {
    return std::any_of(left_out.begin(), left_out.end(), [&](const LeftOut& k) { return k.kernel == kernel; });
}

std::string Capabilities::why_left_out(std::string_view kernel) const {
    for (const LeftOut& k : left_out) {
        if (k.kernel == kernel) {
            return k.kernel + " is left out: " + k.why;
        }
    }
    return {};
}

}  // namespace vkf
