# SPDX-License-Identifier: Apache-2.0
# What vkformer_text links to, as targets vkformer::pcre2 and vkformer::utf8proc, and
# vkformer::sentencepiece, which it can do without; there are none where a library is not found.
# Used by the build and by the installed package.
function(vkformer_text_library name header library)
    if(TARGET vkformer::${name})
        return()
    endif()
    find_path(VKFORMER_${name}_INCLUDE ${header})
    find_library(VKFORMER_${name}_LIBRARY ${library})
    mark_as_advanced(VKFORMER_${name}_INCLUDE VKFORMER_${name}_LIBRARY)
    if(VKFORMER_${name}_INCLUDE AND VKFORMER_${name}_LIBRARY)
        add_library(vkformer::${name} UNKNOWN IMPORTED GLOBAL)
        set_target_properties(vkformer::${name} PROPERTIES
            IMPORTED_LOCATION "${VKFORMER_${name}_LIBRARY}"
            INTERFACE_INCLUDE_DIRECTORIES "${VKFORMER_${name}_INCLUDE}")
    endif()
endfunction()
vkformer_text_library(pcre2 pcre2.h pcre2-8)
vkformer_text_library(utf8proc utf8proc.h utf8proc)

# Its newer versions want Abseil's headers, which their package does not bring along: what cannot be
# compiled and linked is not here.
function(vkformer_sentencepiece)
    vkformer_text_library(sentencepiece_alone sentencepiece_processor.h sentencepiece)
    if(TARGET vkformer::sentencepiece OR NOT TARGET vkformer::sentencepiece_alone)
        return()
    endif()
    set(libraries vkformer::sentencepiece_alone)
    if(CMAKE_CXX_COMPILER)
        include(CheckCXXSourceCompiles)
        set(CMAKE_REQUIRED_QUIET ON)
        set(CMAKE_REQUIRED_FLAGS "${CMAKE_CXX17_STANDARD_COMPILE_OPTION}")
        set(CMAKE_CXX_STANDARD 17)  # a project of an older standard may ask
        set(CMAKE_REQUIRED_LIBRARIES ${libraries})
        set(program "#include <sentencepiece_processor.h>
            int main() { return sentencepiece::SentencePieceProcessor().Load(\"x\").ToString().empty(); }")
        check_cxx_source_compiles("${program}" VKFORMER_sentencepiece_compiles)
        if(NOT VKFORMER_sentencepiece_compiles)
            find_package(absl CONFIG QUIET)
            if(NOT TARGET absl::status)
                return()
            endif()
            list(APPEND libraries absl::status absl::strings)
            set(CMAKE_REQUIRED_LIBRARIES ${libraries})
            check_cxx_source_compiles("${program}" VKFORMER_sentencepiece_compiles_with_absl)
            if(NOT VKFORMER_sentencepiece_compiles_with_absl)
                return()
            endif()
        endif()
    endif()
    add_library(vkformer::sentencepiece INTERFACE IMPORTED GLOBAL)
    target_link_libraries(vkformer::sentencepiece INTERFACE ${libraries})
endfunction()
vkformer_sentencepiece()
