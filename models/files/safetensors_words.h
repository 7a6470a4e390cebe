// SPDX-License-Identifier: Apache-2.0
// The words of the safetensors format that reader and writer share.
#pragma once

namespace vkf {

inline constexpr const char* kMetadataKey = "__metadata__";

// A file says which of its tensors are packed in `__metadata__`, which other readers leave alone.
// Such a tensor is I32 of shape (rows, words of a row). docs/decoding.md describes the format.
/// The key of the format's version, which only files with packed tensors have.
inline constexpr const char* kPackedKey = "vkformer.packed";
inline constexpr const char* kPackedVersion = "1";  ///< the one version there is
/// The tensor's name follows this key. The text is its type and columns, "int4 2048".
inline constexpr const char* kPackedTensorKey = "vkformer.packed:";

}  // namespace vkf
