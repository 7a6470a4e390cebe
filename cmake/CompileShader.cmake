# SPDX-License-Identifier: Apache-2.0
# cmake -DGLSLANG= -DSHADER= -DINCLUDE= -DDEFINES= -DVULKAN= -DNAME= -DSPIRV= -DWERROR=
#     -P CompileShader.cmake
# Compiles SHADER to SPIRV, writes SPIRV.d (what it includes) and SPIRV.h (the words, deflated,
# for C++). No warning is lost.
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
file(SIZE "${SPIRV}" count)
math(EXPR count "${count} / 4")
# A gzip file (RFC 1952) has a header of 10 bytes, of which the fourth tells whether the name of the
# file follows; then what was deflated; then 8 bytes of checksum and length. These stay: the decoder
# reads ahead, and stb_image 2.27 takes an end within its last 16 bits for damage.
file(ARCHIVE_CREATE OUTPUT "${SPIRV}.gz" PATHS "${SPIRV}" FORMAT raw COMPRESSION GZip COMPRESSION_LEVEL 9)
file(READ "${SPIRV}.gz" code HEX)
string(SUBSTRING "${code}" 6 2 flags)
set(start 20)
if(flags STREQUAL "08")
    set(byte "")
    while(NOT byte STREQUAL "00")
        string(SUBSTRING "${code}" ${start} 2 byte)
        math(EXPR start "${start} + 2")
    endwhile()
elseif(NOT flags STREQUAL "00")
    message(FATAL_ERROR "${NAME}: the header of ${SPIRV}.gz has the flags ${flags}, which are not known here")
endif()
string(SUBSTRING "${code}" ${start} -1 code)
string(REGEX REPLACE "(................................)" "\\1\n" code "${code}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," code "${code}")
file(WRITE "${SPIRV}.h" "#pragma once
#include \"runtime/compile/spirv_code.h\"

namespace vkf::spirv {
inline constexpr std::uint8_t ${constant}Bytes[] = {
${code}
};
inline constexpr PackedSpirv ${constant}Spirv{${count}, ${constant}Bytes};
}  // namespace vkf::spirv
")
