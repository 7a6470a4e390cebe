// SPDX-License-Identifier: Apache-2.0
// The GlslCompiler that a linked glslang is. Its .cpp is built with VKFORMER_RUNTIME_GLSLANG only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace vkf {

std::vector<std::uint32_t> compile_glsl_linked(const std::string& source, const std::string& name);

}  // namespace vkf
