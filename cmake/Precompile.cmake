# SPDX-License-Identifier: Apache-2.0
# vkformer_precompile(target [headers...]): the standard library's headers, and these of others,
# are read once for all files of the target; reading them is a third of what compiling a file costs.
# Each file includes what it uses all the same. Builds with VKFORMER_PRECOMPILE off show if one does not.
include_guard()
function(vkformer_precompile target)
    if(NOT VKFORMER_PRECOMPILE)
        return()
    endif()
    target_precompile_headers(${target} PRIVATE <algorithm> <array> <cmath> <cstdint> <cstring>
        <filesystem> <functional> <map> <memory> <optional> <span> <string> <string_view> <vector> ${ARGN})
endfunction()
