# SPDX-License-Identifier: Apache-2.0
if(NOT TARGET vkformer::text)
    message(STATUS "The sample embed_text is left out: it needs vkformer::text, the tokenizers, which is not built")
    set_property(TARGET embed_text PROPERTY EXCLUDE_FROM_ALL ON)
    return()
endif()
target_link_libraries(embed_text PRIVATE vkformer::text)
