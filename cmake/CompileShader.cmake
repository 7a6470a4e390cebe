# SPDX-License-Identifier: Apache-2.0
# cmake -DGLSLANG= -DSHADER= -DINCLUDE= -DDEFINES= -DVULKAN= -DNAME= -DSPIRV= -DWERROR=
#     -P CompileShader.cmake
# Compiles SHADER to SPIRV, writes SPIRV.d (what it includes) and SPIRV.h (the words, packed, for
# C++). No warning is lost.
cmake_minimum_required(VERSION 3.22)
include("${CMAKE_CURRENT_LIST_DIR}/Deflate.cmake")
include("${CMAKE_CURRENT_LIST_DIR}/ShaderName.cmake")
include("${CMAKE_CURRENT_LIST_DIR}/SpirvNumbers.cmake")
execute_process(
    COMMAND "${GLSLANG}" --quiet -V -g0 --target-env ${VULKAN} "-I${INCLUDE}" ${DEFINES} --depfile "${SPIRV}.d"
            -o "${SPIRV}" "${SHADER}"
    RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
string(STRIP "${output}" output)
if(NOT result EQUAL 0 OR (WERROR AND output MATCHES "WARNING:"))
    file(REMOVE "${SPIRV}" "${SPIRV}.h")
    message(FATAL_ERROR "${NAME} ${DEFINES}\n${output}")
elseif(output)
    message("${NAME}: ${output}")
endif()

shader_constant_name("${NAME}" constant)
file(SIZE "${SPIRV}" count)
math(EXPR count "${count} / 4")
spirv_numbers("${SPIRV}" numbers)
file(WRITE "${SPIRV}.numbers" "${numbers}")
string(LENGTH "${numbers}" characters)
deflate("${SPIRV}.numbers" code)
file(WRITE "${SPIRV}.h" "#pragma once
#include \"runtime/compile/spirv_code.h\"

namespace vkf::spirv {
inline constexpr std::uint8_t ${constant}Bytes[] = {
${code}
};
inline constexpr PackedSpirv ${constant}Spirv{${count}, ${characters}, ${constant}Bytes};
}  // namespace vkf::spirv
")
