# SPDX-License-Identifier: Apache-2.0
# What vkformer is built with, as targets vkformer::volk, vkformer::json and so on: from a CMake
# package or from a folder of headers, the distribution's or a Vulkan SDK's (VULKAN_SDK).
include(GNUInstallDirs)

set(sdk_include "$ENV{VULKAN_SDK}/include" "$ENV{VULKAN_SDK}/Include")
if(NOT DEFINED ENV{VULKAN_SDK})
    set(sdk_include "")
endif()

# A cross compiler must not see all of the host's /usr/include, only these headers, which are the
# same for every target.
function(vkformer_share_with_cross_compiler folder out)
    set(shared "${PROJECT_BINARY_DIR}/host-headers")
    file(MAKE_DIRECTORY "${shared}")
    foreach(name ${ARGN})
        if(EXISTS "${folder}/${name}" AND NOT EXISTS "${shared}/${name}")
            file(CREATE_LINK "${folder}/${name}" "${shared}/${name}" COPY_ON_ERROR SYMBOLIC)
        endif()
    endforeach()
    set(${out} "${shared}" PARENT_SCOPE)
endfunction()

# vkformer_headers(name HEADER header PACKAGE debian-package ENTRIES files-and-folders...
#                  [TARGET imported-target FIND cmake-package] [SUFFIXES folders...])
# Makes vkformer::name. ENTRIES are what the header needs, beside itself, of the folder it lies in.
function(vkformer_headers name)
    cmake_parse_arguments(arg "" "HEADER;PACKAGE;TARGET;FIND" "ENTRIES;SUFFIXES" ${ARGN})
    if(TARGET vkformer::${name})
        return()
    endif()
    add_library(vkformer::${name} INTERFACE IMPORTED GLOBAL)
    if(arg_FIND AND NOT TARGET "${arg_TARGET}" AND NOT CMAKE_CROSSCOMPILING)
        find_package(${arg_FIND} CONFIG QUIET GLOBAL)
    endif()
    if(TARGET "${arg_TARGET}")
        target_link_libraries(vkformer::${name} INTERFACE ${arg_TARGET})
        return()
    endif()
    find_path(VKFORMER_${name}_INCLUDE "${arg_HEADER}" HINTS ${sdk_include} PATH_SUFFIXES ${arg_SUFFIXES}
        CMAKE_FIND_ROOT_PATH_BOTH)
    mark_as_advanced(VKFORMER_${name}_INCLUDE)
    set(folder "${VKFORMER_${name}_INCLUDE}")
    if(NOT folder)
        message(FATAL_ERROR "vkformer needs <${arg_HEADER}>: on Debian and Ubuntu it is in the package ${arg_PACKAGE}. "
            "A Vulkan SDK is searched when VULKAN_SDK names one; other places through CMAKE_PREFIX_PATH.")
    endif()
    if(CMAKE_CROSSCOMPILING)
        vkformer_share_with_cross_compiler("${folder}" folder ${arg_ENTRIES})
    endif()
    target_include_directories(vkformer::${name} SYSTEM INTERFACE "${folder}")
endfunction()

vkformer_headers(vulkan HEADER vulkan/vulkan.h PACKAGE libvulkan-dev ENTRIES vulkan vk_video)
vkformer_headers(volk HEADER volk.h PACKAGE libvulkan-volk-dev ENTRIES volk.h volk.c SUFFIXES Volk volk)
set_property(TARGET vkformer::volk APPEND PROPERTY INTERFACE_LINK_LIBRARIES vkformer::vulkan)
vkformer_headers(json HEADER nlohmann/json.hpp PACKAGE nlohmann-json3-dev ENTRIES nlohmann
    FIND nlohmann_json TARGET nlohmann_json::nlohmann_json)
vkformer_headers(stb HEADER stb_image.h PACKAGE libstb-dev ENTRIES stb_image.h SUFFIXES stb)
if(VKFORMER_BUILD_TESTS OR VKFORMER_BUILD_SAMPLES OR VKFORMER_BUILD_BENCH)
    vkformer_headers(cli HEADER CLI/CLI.hpp PACKAGE libcli11-dev ENTRIES CLI FIND CLI11 TARGET CLI11::CLI11)
endif()
if(VKFORMER_BUILD_TESTS)
    vkformer_headers(doctest HEADER doctest/doctest.h PACKAGE doctest-dev ENTRIES doctest
        FIND doctest TARGET doctest::doctest)
endif()

if(VKFORMER_BUILD_TEXT)
    include(TextDependencies)
endif()

find_program(VKFORMER_GLSLANG NAMES glslangValidator glslang HINTS "$ENV{VULKAN_SDK}/bin" "$ENV{VULKAN_SDK}/Bin"
    DOC "The glslang compiler")
if(NOT VKFORMER_GLSLANG)
    message(FATAL_ERROR "vkformer needs glslang (the program glslangValidator or glslang): on Debian and Ubuntu it is in the "
        "package glslang-tools; a Vulkan SDK is searched when VULKAN_SDK names one.")
endif()

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

# glslang as a library, for shaders that are compiled at run time. The tests take it too where it is
# there.
if(VKFORMER_RUNTIME_GLSLANG OR (VKFORMER_BUILD_TESTS AND NOT CMAKE_CROSSCOMPILING))
    find_package(SPIRV-Tools-opt CONFIG QUIET)
    find_package(glslang CONFIG QUIET)
    set(glslang_libraries glslang::SPIRV glslang::glslang-default-resource-limits glslang::glslang)
    if(TARGET SPIRV-Tools-opt AND TARGET glslang::SPIRV AND TARGET glslang::glslang-default-resource-limits)
        add_library(vkformer::glslang INTERFACE IMPORTED)
        target_link_libraries(vkformer::glslang INTERFACE ${glslang_libraries})
    elseif(VKFORMER_RUNTIME_GLSLANG)
        message(FATAL_ERROR "VKFORMER_RUNTIME_GLSLANG needs glslang and SPIRV-Tools with their CMake packages: on Debian and Ubuntu "
            "glslang-dev and spirv-tools. Without it libshaderc is opened at run time where it is there.")
    endif()
endif()
