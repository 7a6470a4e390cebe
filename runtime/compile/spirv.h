// SPDX-License-Identifier: Apache-2.0
// What a SPIR-V module says of itself: the shader is the truth about its bindings and push
// constants.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/graph/graph.h"

namespace vkf {

struct ShaderInterface {
    bool has_main = false;       ///< an entry point for compute of that name
    std::uint32_t bindings = 0;  ///< storage buffers, set 0, bindings 0..bindings-1
    /// one past the last of them that a function touches: fewer after prune()
    std::uint32_t reached = 0;
    ImageAccess image = ImageAccess::none;  ///< the image that binding 0 is instead of a buffer
    std::uint32_t push_constant_bytes = 0;
    /// literal sizes; where a specialization constant gives it, its default
    std::uint32_t local_size[3] = {1, 1, 1};
    /// specialization constant id of the x size, -1: literal
    int local_size_id = -1;
    std::vector<std::uint32_t> constant_ids;  ///< specialization constants the module declares
    bool uses_16bit_storage = false;
    bool uses_float16 = false;  ///< arithmetic
    bool uses_int8 = false;
    bool uses_int64 = false;
    bool uses_subgroups = false;  ///< more of them than Vulkan 1.1 guarantees, but arithmetic
    bool uses_subgroup_arithmetic = false;
    bool uses_subgroup_quad = false;
    bool uses_cooperative_matrices = false;
    bool uses_matrix_elements = false;
    bool uses_integer_dot = false;
    bool uses_memory_model = false;  ///< Vulkan's
    /// numbers of the capabilities that the runtime enables on no device
    std::vector<std::uint32_t> other_capabilities;
};

/// Reads a compute module. Throws vkf::Error naming `name` for what is not SPIR-V, or uses what the
/// runtime does not bind (other sets, uniform blocks, arrays of buffers, samplers, an image
/// elsewhere than at binding 0, gaps between bindings).
ShaderInterface reflect(std::span<const std::uint32_t> code, const std::string& name);

}  // namespace vkf
