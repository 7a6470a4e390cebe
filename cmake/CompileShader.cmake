# SPDX-License-Identifier: Apache-2.0
# cmake -DGLSLANG= -DSHADER= -DINCLUDE= -DDEFINES= -DNAME= -DSPIRV= -DWERROR= -P CompileShader.cmake
# Compiles SHADER to SPIRV, writes SPIRV.d (what it includes) and SPIRV.h (the words, for C++). No warning is lost.
execute_process(
    COMMAND "${GLSLANG}" --quiet -V --target-env vulkan1.1 "-I${INCLUDE}" ${DEFINES} --depfile "${SPIRV}.d"
            -o "${SPIRV}" "${SHADER}"
    RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
string(STRIP "${output}" output)
if(NOT result EQUAL 0 OR (WERROR AND output MATCHES "WARNING:"))
    file(REMOVE "${SPIRV}" "${SPIRV}.h")
    message(FATAL_ERROR "${NAME} ${DEFINES}\n${output}")
elseif(output)
    message("${NAME}: ${output}")
endif()

string(REGEX REPLACE "(^|_)([^_]+)" "\\2;" words "${NAME}")
set(constant "k")
foreach(word ${words})
    string(SUBSTRING "${word}" 0 1 first)
    string(SUBSTRING "${word}" 1 -1 rest)
    string(TOUPPER "${first}" first)
    string(APPEND constant "${first}${rest}")
endforeach()

file(READ "${SPIRV}" hex HEX)
string(REGEX REPLACE "(..)(..)(..)(..)" "0x\\4\\3\\2\\1," code "${hex}")
string(REGEX REPLACE "(0x........,0x........,0x........,0x........,0x........,0x........,0x........,0x........,)" "\\1\n" code "${code}")
file(WRITE "${SPIRV}.h" "#pragma once
#include <cstdint>

namespace vkf::spirv {
inline constexpr std::uint32_t ${constant}Spirv[] = {
${code}
};
}  // namespace vkf::spirv
")
