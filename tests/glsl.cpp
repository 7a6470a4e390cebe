// SPDX-License-Identifier: Apache-2.0
#include "tests/glsl.h"

#include "runtime/compile/glsl.h"
#include "tests/device.h"
#ifdef VKFORMER_TEST_GLSLANG
#include "runtime/compile/glsl_linked.h"
#endif

namespace vkf::test {

bool can_compile_glsl() {
#ifdef VKFORMER_TEST_GLSLANG
    if (glsl_compiler().empty()) {
        use_glsl_compiler(compile_glsl_linked);
    }
#endif
    const bool can = !glsl_compiler().empty();
    if (!can) {
        cannot_run("a GLSL compiler at run time");
    }
    return can;
}

}  // namespace vkf::test
