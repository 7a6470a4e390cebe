# SPDX-License-Identifier: Apache-2.0
if(TARGET vkformer::text)  # tokenizers; without them the sample knows ids alone
    target_link_libraries(${name} PRIVATE vkformer::text)
    target_compile_definitions(${name} PRIVATE SAMPLE_WITH_TEXT)
endif()
if(TARGET vkformer::mpi)  # several processes that answer together
    target_link_libraries(${name} PRIVATE vkformer::mpi)
    target_compile_definitions(${name} PRIVATE SAMPLE_WITH_MPI)
endif()
