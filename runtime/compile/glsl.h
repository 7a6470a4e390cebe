// SPDX-License-Identifier: Apache-2.0
// GLSL to SPIR-V at run time, for what a caller writes in GLSL. Needs no Vulkan. The compiler is,
// in this order, the libshaderc that VKFORMER_SHADERC names; the host's own; the glslang that is
// linked in (built with VKFORMER_RUNTIME_GLSLANG); a libshaderc that the operating system finds.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "../base/export.h"

namespace vkf {

/// From a compute shader's text to a module for Vulkan 1.1. `name` stands for the text in messages.
/// Throws vkf::Error with the compiler's text. Called by one thread at a time.
using GlslCompiler = std::function<std::vector<std::uint32_t>(const std::string& source, const std::string& name)>;

/// From now on a compiler of the host's is used; an empty one: it is not.
VKF_API void use_glsl_compiler(GlslCompiler compiler);

/// Which compiler there is; empty: none.
VKF_API std::string glsl_compiler();

/// Throws vkf::Error with the compiler's text, or where there is no compiler, saying what to do
/// about it. Threads may call it together and wait for each other.
VKF_API std::vector<std::uint32_t> compile_glsl(const std::string& source, const std::string& name);

}  // namespace vkf
