# SPDX-License-Identifier: Apache-2.0
# shader_constant_name(name out): "layer_norm" -> "kLayerNorm".
function(shader_constant_name name out)
    string(REGEX REPLACE "(^|_)([^_]+)" "\\2;" words "${name}")
    set(constant "k")
    foreach(word ${words})
        string(SUBSTRING "${word}" 0 1 first)
        string(SUBSTRING "${word}" 1 -1 rest)
        string(TOUPPER "${first}" first)
        string(APPEND constant "${first}${rest}")
    endforeach()
    set(${out} "${constant}" PARENT_SCOPE)
endfunction()
