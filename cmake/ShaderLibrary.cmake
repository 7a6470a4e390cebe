# SPDX-License-Identifier: Apache-2.0
# vkformer_add_shaders(target folder): compiles every folder/NAME.comp and gives the target the
# header "NAME.spv.h", which defines
#     namespace vkf::spirv { inline constexpr PackedSpirv k<Name>Spirv{...}; }
# Lines `//! variant NAME2 -DFOO -DBAR=2` in a shader make it several headers instead, one for each
# line. A line `//! source` gives "NAME.glsl.h" beside them: the text, includes resolved, for
# compiling it with a caller's score_mod.glsl at run time:
#     namespace vkf::glsl { inline constexpr std::string_view k<Name>Glsl = ...; }
# A line `//! needs GL_SOME_extension` leaves the shader out, which is said, where the compiler does
# not know that extension of GLSL; where it does, the target is compiled with
# VKFORMER_GL_SOME_EXTENSION. `//! variant NAME2 -DFOO needs GL_SOME_extension vulkan1.3` does so
# for one header, whose shader is for that Vulkan, not for 1.1.
#
# VKFORMER_SHADERS_FROM names the folder of another build of the same source by the same shader
# compiler: its headers are taken, and nothing is compiled again. vkformer_shaders is the folder of
# the headers.
include_guard()
set(VKFORMER_SHADERS_FROM "" CACHE PATH "Another build of the same source, whose compiled shaders are taken")
set(VKFORMER_COMPILE_SHADER "${CMAKE_CURRENT_LIST_DIR}/CompileShader.cmake")
set(VKFORMER_SHADER_TEXT "${CMAKE_CURRENT_LIST_DIR}/ShaderText.cmake")
set(VKFORMER_SHADER_PARTS "${CMAKE_CURRENT_LIST_DIR}/Deflate.cmake" "${CMAKE_CURRENT_LIST_DIR}/ShaderName.cmake"
    "${CMAKE_CURRENT_LIST_DIR}/SpirvNumbers.cmake")  # what these include

# vkformer_check_extension(extension vulkan out): whether the shader compiler knows it for that
# Vulkan; asked once.
function(vkformer_check_extension extension vulkan out)
    string(TOUPPER "VKFORMER_${extension}" known)
    if(NOT "${${known}_ASKED}" STREQUAL "${VKFORMER_GLSLANG} ${vulkan}")
        set(probe "${CMAKE_CURRENT_BINARY_DIR}/probe-${extension}-${vulkan}.comp")
        file(WRITE "${probe}" "#version 450\n#extension ${extension} : require\nvoid main() {}\n")
        execute_process(COMMAND "${VKFORMER_GLSLANG}" -V --target-env ${vulkan} -o "${probe}.spv" "${probe}"
            RESULT_VARIABLE result OUTPUT_QUIET ERROR_QUIET)
        if(result EQUAL 0)
            set(${known} ON CACHE INTERNAL "")
        else()
            set(${known} OFF CACHE INTERNAL "")
        endif()
        set(${known}_ASKED "${VKFORMER_GLSLANG} ${vulkan}" CACHE INTERNAL "")
    endif()
    set(${out} "${${known}}" PARENT_SCOPE)
endfunction()

# vkformer_check_made(header shader): that the other build has the header, of this shader.
function(vkformer_check_made header shader)
    if("${shader}" IS_NEWER_THAN "${header}")  # or there is none
        message(FATAL_ERROR "VKFORMER_SHADERS_FROM: ${header} is missing or older than ${shader}; build there first")
    endif()
endfunction()

function(vkformer_add_shaders target folder)
    set(root "${CMAKE_CURRENT_SOURCE_DIR}/${folder}")
    set(made "${CMAKE_CURRENT_BINARY_DIR}/${folder}")
    if(VKFORMER_SHADERS_FROM)
        file(RELATIVE_PATH made "${PROJECT_BINARY_DIR}" "${made}")
        get_filename_component(made "${made}" ABSOLUTE BASE_DIR "${VKFORMER_SHADERS_FROM}")
    else()
        file(MAKE_DIRECTORY "${made}")
    endif()
    set(vkformer_shaders "${made}" PARENT_SCOPE)
    file(GLOB shaders CONFIGURE_DEPENDS "${root}/*.comp")
    # their variant lines are read here
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${shaders})
    foreach(shader ${shaders})
        get_filename_component(shader_name "${shader}" NAME_WE)
        file(STRINGS "${shader}" extension REGEX "^//! needs ")
        if(extension)
            string(REPLACE "//! needs " "" extension "${extension}")
            vkformer_check_extension(${extension} vulkan1.1 known)
            if(NOT known)
                message(STATUS "vkformer: without the kernel ${shader_name}, for ${VKFORMER_GLSLANG} does not know ${extension}")
                continue()
            endif()
            string(TOUPPER "VKFORMER_${extension}" define)
            target_compile_definitions(${target} PUBLIC ${define})
        endif()
        file(STRINGS "${shader}" source REGEX "^//! source$")
        if(source)
            set(header "${made}/${shader_name}.glsl.h")
            if(VKFORMER_SHADERS_FROM)
                vkformer_check_made("${header}" "${shader}")
            else()
                add_custom_command(
                    OUTPUT "${header}"
                    COMMAND "${CMAKE_COMMAND}" "-DSHADER=${shader}" "-DINCLUDE=${root}" "-DNAME=${shader_name}" "-DHEADER=${header}"
                            -DMARKER=score_mod.glsl -P "${VKFORMER_SHADER_TEXT}"
                    DEPENDS "${shader}" "${VKFORMER_SHADER_TEXT}" ${VKFORMER_SHADER_PARTS}
                    DEPFILE "${header}.d"
                    COMMENT "Embedding the text of shader ${shader_name}"
                    VERBATIM)
            endif()
            target_sources(${target} PRIVATE "${header}")
        endif()
        file(STRINGS "${shader}" variants REGEX "^//! variant ")
        if(NOT variants)
            set(variants "${shader_name}")
        endif()
        foreach(variant ${variants})
            string(REPLACE "//! variant " "" variant "${variant}")
            separate_arguments(defines UNIX_COMMAND "${variant}")
            list(POP_FRONT defines name)
            set(vulkan vulkan1.1)
            list(FIND defines needs needs)
            if(NOT needs EQUAL -1)
                list(SUBLIST defines ${needs} -1 needed)
                if(NOT "${needed}" MATCHES "^needs;GL_[A-Za-z0-9_]+;vulkan1\\.[0-9]$")
                    message(FATAL_ERROR "${shader}: \"//! variant ${variant}\" needs an extension and then a Vulkan version, "
                        "as in \"needs GL_SOME_extension vulkan1.3\"")
                endif()
                list(GET needed 1 extension)
                list(GET needed 2 vulkan)
                list(SUBLIST defines 0 ${needs} defines)
                vkformer_check_extension(${extension} ${vulkan} known)
                if(NOT known)
                    message(STATUS "vkformer: without the kernel ${name}, for ${VKFORMER_GLSLANG} does not know ${extension}")
                    continue()
                endif()
                string(TOUPPER "VKFORMER_${extension}" define)
                target_compile_definitions(${target} PUBLIC ${define})
            endif()
            set(spirv "${made}/${name}.spv")
            if(VKFORMER_SHADERS_FROM)
                vkformer_check_made("${spirv}.h" "${shader}")
            else()
                add_custom_command(
                    OUTPUT "${spirv}" "${spirv}.h"
                    COMMAND "${CMAKE_COMMAND}" "-DGLSLANG=${VKFORMER_GLSLANG}" "-DSHADER=${shader}" "-DINCLUDE=${root}"
                            "-DDEFINES=${defines}" "-DVULKAN=${vulkan}" "-DNAME=${name}" "-DSPIRV=${spirv}" "-DWERROR=${VKFORMER_WERROR}"
                            -P "${VKFORMER_COMPILE_SHADER}"
                    DEPENDS "${shader}" "${VKFORMER_COMPILE_SHADER}" ${VKFORMER_SHADER_PARTS}
                    DEPFILE "${spirv}.d"
                    COMMENT "Compiling shader ${name}"
                    VERBATIM)
            endif()
            target_sources(${target} PRIVATE "${spirv}.h")
        endforeach()
    endforeach()
    target_include_directories(${target} PUBLIC "${made}")
endfunction()
