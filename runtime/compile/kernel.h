// SPDX-License-Identifier: Apache-2.0
// A shader, and a shader with its specialization constants.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "spirv_code.h"

namespace vkf {

/// One SPIR-V module: embedded in the library, or compiled at run time.
struct Shader {
    const char* name;
    SpirvCode code;
};

/// A module with its specialization constants: constant 0 is the local size, the others as the
/// shader's header numbers them.
struct Kernel {
    const Shader* shader = nullptr;
    std::vector<std::uint32_t> constants;
    std::string why;  ///< for explain(): what decided for this variant
    /// Keeps a shader that was compiled at run time alive, for as long as a pipeline made of it can
    /// be found by its address.
    std::shared_ptr<const Shader> owner = {};
    /// What it binds, where its constants, which decide it, leave it less than the shader declares:
    /// the buffers behind are never touched. 0: all. Set by Lowering::dispatch.
    std::uint32_t bindings = 0;
    /// Size that its subgroups must have, all of them full (Capabilities::matrix_subgroup_size); 0:
    /// whatever the device takes.
    std::uint32_t subgroup_size = 0;

    bool operator==(const Kernel& other) const { return shader == other.shader && constants == other.constants; }
};

}  // namespace vkf
