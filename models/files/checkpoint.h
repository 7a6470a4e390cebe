// SPDX-License-Identifier: Apache-2.0
// A Hugging Face folder: config.json, and the tensors of model.safetensors or of the shards that
// model.safetensors.index.json names.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "safetensors.h"

namespace vkf {

class VKF_API Checkpoint {
public:
    /// Maps the files. Throws Error naming the one that is missing, cut or damaged, or the tensor
    /// that the index promises and no shard holds.
    explicit Checkpoint(const std::filesystem::path& folder);

    /// The tensor of that name; null if no file holds it. The pointer is valid as long as this
    /// object or the one it is moved into.
    const HostTensor* find(std::string_view name) const noexcept;
    std::vector<std::string> names() const;
    /// The text of config.json, and its name for errors.
    const std::string& config() const noexcept { return config_; }
    const std::string& config_file() const noexcept { return config_file_; }
    const std::filesystem::path& folder() const noexcept { return folder_; }

private:
    void open_shards(const std::filesystem::path& index);

    std::filesystem::path folder_;
    std::string config_, config_file_;
    std::vector<Safetensors> files_;
    std::map<std::string_view, const HostTensor*> tensors_;  // names are those of files_
};

/// Reads a whole text file. Throws Error naming it.
VKF_API std::string read_text(const std::filesystem::path& path);

}  // namespace vkf
