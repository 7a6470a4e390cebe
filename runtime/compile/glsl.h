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

/// Compiles a compute shader's text to a SPIR-V module for Vulkan 1.1. `name` stands for the text
/// in messages. Throws vkf::Error with the compiler's text.
using GlslCompiler = std::function<std::vector<std::uint32_t>(const std::string& source, const std::string& name)>;

/// Sets a compiler of the host's, which is used from now on; an empty one removes it. Threads that
/// need it wait for each other, unless it may be called by several of them at once: then no lock
/// of the library's is held meanwhile, and it may wait for threads that wait for the library.
VKF_API void use_glsl_compiler(GlslCompiler compiler, bool several_threads = false);

/// Says which compiler is used; empty: there is none.
VKF_API std::string glsl_compiler();

/// Compiles `source` with that compiler; `name` stands for it in messages. Throws vkf::Error with
/// the compiler's text or, where there is no compiler, with what to do about it. Several threads
/// may call it; use_glsl_compiler() says whether they wait for each other.
VKF_API std::vector<std::uint32_t> compile_glsl(const std::string& source, const std::string& name);

}  // namespace vkf
