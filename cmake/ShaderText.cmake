# SPDX-License-Identifier: Apache-2.0
# cmake -DSHADER= -DINCLUDE= -DNAME= -DHEADER= -DMARKER= -P ShaderText.cmake
# Writes HEADER, which holds SHADER's text, deflated, for C++ with every #include "..." resolved,
# but for that of the file MARKER: what stands there is decided at run time. HEADER.d says what was
# read.
cmake_minimum_required(VERSION 3.22)
include("${CMAKE_CURRENT_LIST_DIR}/Deflate.cmake")
include("${CMAKE_CURRENT_LIST_DIR}/ShaderName.cmake")
set_property(GLOBAL PROPERTY files "")

# Include guards stay in the text, so a file may appear in it several times.
function(flatten file out)
    set_property(GLOBAL APPEND PROPERTY files "${file}")
    get_filename_component(folder "${file}" DIRECTORY)
    file(READ "${file}" rest)
    set(text "")
    while("${rest}" MATCHES "(^|\n)[ \t]*#[ \t]*include[ \t]+\"([^\"\n]+)\"")
        set(line "${CMAKE_MATCH_0}")
        set(newline "${CMAKE_MATCH_1}")
        set(name "${CMAKE_MATCH_2}")
        string(FIND "${rest}" "${line}" at)
        string(LENGTH "${line}" length)
        string(SUBSTRING "${rest}" 0 ${at} before)
        math(EXPR at "${at} + ${length}")
        string(SUBSTRING "${rest}" ${at} -1 rest)
        if(name STREQUAL MARKER)
            set(included "#include \"${name}\"")
        elseif(EXISTS "${folder}/${name}")
            flatten("${folder}/${name}" included)
        elseif(EXISTS "${INCLUDE}/${name}")
            flatten("${INCLUDE}/${name}" included)
        else()
            message(FATAL_ERROR "${file} includes ${name}, which is not there")
        endif()
        string(APPEND text "${before}${newline}${included}")
    endwhile()
    set(${out} "${text}${rest}" PARENT_SCOPE)
endfunction()

flatten("${SHADER}" text)
# Comments, indentation and empty lines are of no use to a compiler and a third of the text.
string(REGEX REPLACE "[ \t]*//[^\n\\]*\n" "\n" text "${text}")
string(REGEX REPLACE "\n[ \t\n]+" "\n" text "${text}")
shader_constant_name("${NAME}" constant)
file(WRITE "${HEADER}.txt" "${text}")
file(SIZE "${HEADER}.txt" size)
deflate("${HEADER}.txt" bytes)
file(WRITE "${HEADER}" "#pragma once
#include \"runtime/compile/inflate.h\"

namespace vkf::glsl {
inline constexpr std::uint8_t ${constant}Bytes[] = {
${bytes}
};
inline constexpr PackedText ${constant}Glsl{${size}, ${constant}Bytes};
}  // namespace vkf::glsl
")
get_property(files GLOBAL PROPERTY files)
list(REMOVE_DUPLICATES files)
string(REPLACE " " "\\ " files "${files}")
string(REPLACE ";" " " files "${files}")
string(REPLACE " " "\\ " target "${HEADER}")
file(WRITE "${HEADER}.d" "${target}: ${files}\n")
