// SPDX-License-Identifier: Apache-2.0
// Writes a model's folder: its tensors, and the files that stood beside those it came from.
#pragma once

#include <filesystem>
#include <span>

#include "models/files/safetensors_writer.h"

namespace vkf {

/// Throws Error where the folder has no config.json, without which a model cannot be written anew.
void check_config_is_there(const std::filesystem::path& from);

/// Makes a folder where there is none. Throws Error naming it.
void make_folder(const std::filesystem::path& folder);

/// Makes the folder, and throws Error where that fails or where it has a model already.
void make_model_folder(const std::filesystem::path& folder);

/// Writes model.safetensors (write_safetensors()), and copies config.json, the tokenizer's files
/// and their like from the folder `from`. What is there is replaced. Throws Error naming the file
/// that cannot be written.
void write_model_folder(const std::filesystem::path& folder, const std::filesystem::path& from,
                        std::span<const HostTensor> tensors, const TensorBytes& bytes);

/// Writes a text file, which appears whole or not at all. Throws Error naming it.
void write_text(const std::filesystem::path& path, const std::string& text);

}  // namespace vkf
