// SPDX-License-Identifier: Apache-2.0
// A GLSL compiler for the tests of what is compiled at run time.
#pragma once

namespace vkf::test {

/// True when GLSL can be compiled: the library's own way where it has one, else by the glslang that
/// the tests are linked with. False, and counted as a check that was not run, where there is
/// neither.
bool can_compile_glsl();

}  // namespace vkf::test
