// SPDX-License-Identifier: Apache-2.0
// Reads and writes the safetensors format: 8 bytes of little-endian header length, a JSON header,
// then the tensors' bytes.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "../../runtime/base/export.h"
#include "../../runtime/base/map_file.h"
#include "../../runtime/graph/host_tensor.h"

namespace vkf {

/// A checked safetensors file. Matrices that save_safetensors() wrote packed come back packed:
/// HostTensor::type says how, and shape and dtype are those of their numbers. Nothing in the header
/// is trusted: every claim is compared with the bytes that are there, and the tensors must fill the
/// data without overlap or gap. Errors name the file and the tensor.
class VKF_API Safetensors {
public:
    /// Maps the file. Tensors point into the mapping and live as long as this object or the one it
    /// is moved into.
    explicit Safetensors(const std::filesystem::path& path);

    /// Checks a file already in memory, which must outlive the result. `name` stands for the file
    /// in errors.
    static Safetensors parse(std::span<const std::byte> bytes, std::string name);

    Safetensors(Safetensors&&) noexcept = default;
    Safetensors& operator=(Safetensors&&) noexcept = default;

    /// All tensors, in the order of the file's data. Their bytes may be unaligned: the format
    /// promises no alignment.
    std::span<const HostTensor> tensors() const noexcept { return tensors_; }
    operator std::span<const HostTensor>() const noexcept { return tensors_; }

    /// The tensor of that name; null if there is none.
    const HostTensor* find(std::string_view name) const noexcept;

    /// Throws Error, naming file and tensor, if there is no such tensor.
    const HostTensor& at(std::string_view name) const;

    /// The header's `__metadata__` without the entries about packed tensors; empty if there are
    /// none.
    const std::map<std::string, std::string>& metadata() const noexcept { return metadata_; }

    const std::string& file() const noexcept { return file_; }

private:
    Safetensors() = default;
    void read(std::span<const std::byte> bytes);
    void read_packed();

    std::string file_;
    MappedFile mapping_;
    std::vector<HostTensor> tensors_;
    std::vector<std::size_t> by_name_;  // indices into tensors_, sorted by name
    std::map<std::string, std::string> metadata_;
};

/// Writes a file that other readers accept: widest elements first, then by name, data starting at a
/// multiple of 8 bytes, so every tensor is aligned to its element. Packed matrices are written as
/// they are; docs/decoding.md describes the format. The file appears whole or not at all: it is
/// written beside `path`, or the file behind it where it is a link, and renamed. Throws Error on a
/// duplicate or reserved name or key, a size that does not fit the shape, text that is not UTF-8,
/// what is no regular file at `path`, or a failed write.
VKF_API void save_safetensors(const std::filesystem::path& path, std::span<const HostTensor> tensors,
                              const std::map<std::string, std::string>& metadata = {});

}  // namespace vkf
