# SPDX-License-Identifier: Apache-2.0
# Reading headers is a third of what compiling a file costs: those that most files include are read
# once. Each file includes what it uses all the same: tests/includes_test.py finds what is missing,
# but for headers of ours of which functions alone are used.
include_guard()

set(precompiled_headers <algorithm> <array> <cmath> <cstdint> <cstring> <filesystem> <functional> <map> <memory>
    <optional> <span> <string> <string_view> <vector>)

# vkformer_precompile(target [headers...]): the standard library's headers, and these, for the files
# of one target.
function(vkformer_precompile target)
    if(VKFORMER_PRECOMPILE)
        target_precompile_headers(${target} PRIVATE ${precompiled_headers} ${ARGN})
    endif()
endfunction()

# vkformer_compile_together(target): the files of a folder are much alike. They are compiled as one,
# and what they have in common once; names are then one file's, too. A file whose folder calls the
# same things by the same names sets SKIP_UNITY_BUILD_INCLUSION.
function(vkformer_compile_together target)
    if(NOT VKFORMER_PRECOMPILE)
        return()
    endif()
    get_target_property(files ${target} SOURCES)
    foreach(file ${files})
        get_filename_component(folder "${file}" DIRECTORY)
        string(MAKE_C_IDENTIFIER "${folder}" group)
        set_source_files_properties("${file}" PROPERTIES UNITY_GROUP "${group}")
    endforeach()
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endfunction()

# vkformer_compile_in_batches(target): up to 16 files at a time are compiled as one. What they use
# of the standard library and of ours is compiled once a batch: tests take half the time. What is in
# one file's unnamed namespace needs a name that no other file has.
function(vkformer_compile_in_batches target)
    if(VKFORMER_PRECOMPILE)
        set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 16)
    endif()
endfunction()

# vkformer_precompile_program(target): the same, compiled once for all programs together. What reads
# options and JSON stays out: with GCC it costs those that do not use it more than it saves the
# others. Sanitizers see as much in code that is compiled as written, in a third of the time.
function(vkformer_precompile_program target)
    if(VKFORMER_SANITIZE)
        target_compile_options(${target} PRIVATE -O0)
    endif()
    if(NOT VKFORMER_PRECOMPILE)
        return()
    endif()
    if(NOT TARGET program_headers)
        file(CONFIGURE OUTPUT program_headers.cpp CONTENT "")
        add_library(program_headers OBJECT "${CMAKE_CURRENT_BINARY_DIR}/program_headers.cpp")
        if(NOT WIN32)  # as programs are compiled, and objects that may go into a library are not
            target_compile_options(program_headers PRIVATE -fPIE)
        endif()
        if(VKFORMER_SANITIZE)
            target_compile_options(program_headers PRIVATE -O0)
        endif()
        vkformer_precompile(program_headers)
    endif()
    target_precompile_headers(${target} REUSE_FROM program_headers)
endfunction()

# vkformer_compile_once_run(source): code that runs once, as reading options does, is optimised
# little. Templates of options and JSON take most of the compiler's time otherwise.
function(vkformer_compile_once_run source)
    if(NOT MSVC)
        set_source_files_properties("${source}" PROPERTIES COMPILE_OPTIONS "$<$<CONFIG:Release>:-Og>"
            SKIP_PRECOMPILE_HEADERS ON)  # which are compiled with other options
    endif()
endfunction()
