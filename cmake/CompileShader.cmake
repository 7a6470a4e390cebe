# SPDX-License-Identifier: Apache-2.0
# cmake -DGLSLANG= -DSHADER= -DINCLUDE= -DDEFINES= -DVULKAN= -DNAME= -DSPIRV= -DWERROR=
#     -P CompileShader.cmake
# Compiles SHADER to SPIRV, writes SPIRV.d (what it includes) and SPIRV.h (the words, packed, for
# C++). No warning is lost.
include("${CMAKE_CURRENT_LIST_DIR}/ShaderName.cmake")
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
# Packed as runtime/compile/spirv_code.h says. A word is 8 hexadecimal digits here, its lowest byte
# first, so its zeros are the last of them. A comma stands behind whole words alone.
file(READ "${SPIRV}" words HEX)
string(LENGTH "${words}" count)
math(EXPR count "${count} / 8")
string(REGEX REPLACE "(........)" "\\1," words "${words}")
set(lengths "${words}")
set(byte "[0-9a-f][0-9a-f]")
set(bytes "${byte}")
foreach(zeros 000000 0000 00 "")
    string(LENGTH "${zeros}" length)
    math(EXPR length "3 - ${length} / 2")
    string(REGEX REPLACE "${bytes}${zeros}," "${length}" lengths "${lengths}")
    string(REGEX REPLACE "(${bytes})${zeros}," "\\1" words "${words}")
    string(APPEND bytes "${byte}")
endforeach()
math(EXPR missing "(4 - ${count} % 4) % 4")
string(REPEAT 0 ${missing} missing)
string(REGEX REPLACE "(..)" "\\1," lengths "${lengths}${missing}")
foreach(digit RANGE 15)
    math(EXPR first "${digit} / 4")
    math(EXPR second "${digit} % 4")
    math(EXPR hexadecimal "${digit}" OUTPUT_FORMAT HEXADECIMAL)
    string(SUBSTRING "${hexadecimal}" 2 1 hexadecimal)
    string(REPLACE "${first}${second}," "${hexadecimal}" lengths "${lengths}")
endforeach()
string(REGEX REPLACE "(................................)" "\\1\n" code "${lengths}${words}")
string(REGEX REPLACE "(${byte})" "0x\\1," code "${code}")
file(WRITE "${SPIRV}.h" "#pragma once
#include \"runtime/compile/spirv_code.h\"

namespace vkf::spirv {
inline constexpr std::uint8_t ${constant}Bytes[] = {
${code}
};
inline constexpr PackedSpirv ${constant}Spirv{${count}, ${constant}Bytes};
}  // namespace vkf::spirv
")
