// SPDX-License-Identifier: Apache-2.0
#include "models/files/safetensors_writer.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <numeric>

#include "models/files/pending_file.h"
#include "models/files/safetensors_words.h"
#include "runtime/base/error.h"
#include "runtime/base/mapped_bytes.h"
#include "runtime/base/owned_json.h"
#include "runtime/graph/packed.h"

namespace vkf {

namespace {

constexpr std::size_t kAlignment = 8;  // alignment of the data; no element is wider

/// Indices of the tensors, widest elements first: with the data aligned, every tensor then is
/// aligned to its element.
std::vector<std::size_t> file_order(std::span<const HostTensor> tensors) {
    std::vector<std::size_t> order(tensors.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::sort(order, [&](std::size_t left, std::size_t right) {
        const HostTensor& a = tensors[left];
        const HostTensor& b = tensors[right];
        return size_of(a.dtype) != size_of(b.dtype) ? size_of(a.dtype) > size_of(b.dtype) : a.name < b.name;
    });
    return order;
}

std::string label_of(const HostTensor& tensor) { return "tensor \"" + tensor.name + "\": "; }

std::uint64_t bytes_of(const HostTensor& tensor, const std::string& file) {
    const std::optional<std::uint64_t> bytes = byte_size(tensor);
    if (!bytes) throw Error(label_of(tensor) + "shape is negative, overflows, or is none of a packed matrix", file);
    return *bytes;
}

/// `metadata`, and what it is to say of packed tensors.
std::map<std::string, std::string> with_packed(std::map<std::string, std::string> metadata,
                                               std::span<const HostTensor> tensors, const std::string& file) {
    for (const auto& [key, value] : metadata) {
        if (key.starts_with(kPackedKey)) throw Error("the metadata key \"" + key + "\" is reserved", file);
    }
    for (const HostTensor& tensor : tensors) {
        if (tensor.type == WeightType::f32) continue;
        bytes_of(tensor, file);
        metadata[kPackedKey] = kPackedVersion;
        metadata[kPackedTensorKey + tensor.name] =
            std::string(name_of(tensor.type)) + " " + std::to_string(tensor.shape[1]);
    }
    return metadata;
}

std::string header_of(std::span<const HostTensor> tensors, std::span<const std::size_t> order,
                      const std::map<std::string, std::string>& metadata, const std::string& file) {
    OwnedJson header = parse_owned("{}");
    for (const auto& [name, note] : metadata) {
        header[kMetadataKey][name] = note;
    }
    std::uint64_t offset = 0;
    for (const std::size_t index : order) {
        const HostTensor& tensor = tensors[index];
        if (const std::string fault = name_fault(tensor.name); !fault.empty())
            throw Error(label_of(tensor) + fault, file);
        const std::uint64_t end = offset + bytes_of(tensor, file);
        DType dtype = tensor.dtype;
        std::vector<std::int64_t> shape = tensor.shape;
        if (tensor.type != WeightType::f32) {
            dtype = DType::i32;
            shape[1] =
                static_cast<std::int64_t>(packed_row_words(tensor.type, static_cast<std::uint64_t>(tensor.shape[1])));
        }
        nlohmann::json& entry = header[tensor.name];
        if (!entry.is_null()) {
            throw Error(label_of(tensor) + "the name occurs twice", file);
        }
        entry["dtype"] = name_of(dtype);
        entry["shape"] = shape;
        entry["data_offsets"] = std::array{offset, end};
        offset = end;
    }
    try {
        std::string text = header.dump();
        text.append((kAlignment - text.size() % kAlignment) % kAlignment, ' ');
        return text;
    } catch (const nlohmann::json::type_error&) {
        throw Error("a metadata text is not UTF-8", file);
    }
}

}  // namespace

std::string name_fault(const std::string& name) {
    if (name == kMetadataKey) return "the name is reserved";
    try {
        (void)nlohmann::json(name).dump();
    } catch (const nlohmann::json::type_error&) {
        return "the name is not UTF-8";
    }
    return {};
}

void write_safetensors(const std::filesystem::path& path, std::span<const HostTensor> tensors, const TensorBytes& bytes,
                       const std::map<std::string, std::string>& metadata) {
    const std::string name = utf8_name(path);
    const std::vector<std::size_t> order = file_order(tensors);
    const std::string header = header_of(tensors, order, with_packed(metadata, tensors, name), name);
    PendingFile file(path);
    const std::uint64_t length = header.size();
    file.write(&length, sizeof length);
    file.write(header.data(), header.size());
    for (const std::size_t index : order) {
        const std::span<const std::byte> data = bytes(index);
        if (const std::uint64_t wanted = bytes_of(tensors[index], name); data.size() != wanted) {
            throw Error(label_of(tensors[index]) + "holds " + std::to_string(data.size()) +
                            " bytes, but dtype and shape need " + std::to_string(wanted),
                        name);
        }
        in_parts(data, 1, [&](std::span<const std::byte> part) { file.write(part.data(), part.size()); });
    }
    file.publish();
}

void save_safetensors(const std::filesystem::path& path, std::span<const HostTensor> tensors,
                      const std::map<std::string, std::string>& metadata) {
    write_safetensors(
        path, tensors, [&](std::size_t index) { return tensors[index].data; }, metadata);
}

}  // namespace vkf
