// SPDX-License-Identifier: Apache-2.0
// save_safetensors() for tensors that are made one by one.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "models/files/safetensors.h"

namespace vkf {

/// Says why no file can have a tensor of that name; empty: one can.
std::string name_fault(const std::string& name);

/// The bytes of one of the tensors, asked for in the order of the file. They may go when the next
/// are asked for.
using TensorBytes = std::function<std::span<const std::byte>(std::size_t index)>;

/// Writes as save_safetensors() does, but not the tensors' own `data`.
void write_safetensors(const std::filesystem::path& path, std::span<const HostTensor> tensors, const TensorBytes& bytes,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace vkf
