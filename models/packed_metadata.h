// SPDX-License-Identifier: Apache-2.0
// How a safetensors file says which tensors are packed: in `__metadata__`, which other readers leave alone. Such a tensor is I32 of shape
// (rows, words of a row).
#pragma once

namespace vkf {

inline constexpr const char* kPackedKey = "vkformer.packed";  ///< the version of the format; with packed tensors only
inline constexpr const char* kPackedVersion = "1";            ///< as docs/decoding.md has it
inline constexpr const char* kPackedTensorKey =
    "vkformer.packed:";  ///< and the tensor's name: its type and columns, "int4 2048"

}  // namespace vkf
