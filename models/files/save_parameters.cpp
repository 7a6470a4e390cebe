// SPDX-License-Identifier: Apache-2.0
#include "models/files/parameters.h"
#include "models/files/safetensors_writer.h"
#include "runtime/base/paths.h"
#include "runtime/graph/packed.h"

namespace vkf {

namespace {

namespace fs = std::filesystem;

/// The files that a folder has beside its tensors, config.json among them.
constexpr const char* kCompanions[] = {"config.json",         "generation_config.json",
                                       "tokenizer.json",      "tokenizer_config.json",
                                       "tokenizer.model",     "special_tokens_map.json",
                                       "added_tokens.json",   "vocab.json",
                                       "vocab.txt",           "merges.txt",
                                       "chat_template.jinja", "chat_template.json"};

void copy_companions(const fs::path& from, const fs::path& to) {
    for (const char* name : kCompanions) {
        std::error_code code;
        if (fs::exists(from / name, code)) {
            fs::copy_file(from / name, to / name, fs::copy_options::overwrite_existing, code);
        }
        if (code) {
            throw Error("cannot copy file: " + code.message(), utf8_name(to / name));
        }
    }
}

/// The tensor as the file is to have it; the bytes come later.
HostTensor described(const Parameter& p) {
    if (p.source.type != WeightType::f32) {
        return p.source;
    }
    return p.kept.type == WeightType::f32 ? HostTensor{p.source.name, DType::f32, p.source.shape, {}}
                                          : HostTensor{p.source.name, DType::f32, p.kept.shape, {}, p.kept.type};
}

/// Holds the bytes of one parameter at a time.
class Bytes {
public:
    std::span<const std::byte> of(const Parameter& p) {
        if (p.source.type != WeightType::f32 || (p.kept.type == WeightType::f32 && p.source.dtype == DType::f32)) {
            return p.source.data;
        }
        if (p.kept.type == WeightType::f32) {
            numbers_.resize(p.source.data.size() / size_of(p.source.dtype));
            widen(p.source, 0, numbers_);
            return std::as_bytes(std::span(numbers_));
        }
        const HostTensor tensor = tensor_of(p, numbers_);
        words_.resize(p.kept.bytes / sizeof(std::uint32_t));
        pack_rows(tensor, p.kept.type, 0, words_);
        return std::as_bytes(std::span(words_));
    }

private:
    std::vector<float> numbers_;
    std::vector<std::uint32_t> words_;
};

}  // namespace

void save_parameters(const fs::path& folder, const Checkpoint& checkpoint, const std::vector<Parameter>& parameters,
                     const LoadProgress& progress) {
    std::error_code code;
    fs::create_directories(folder, code);
    if (code) {
        throw Error("cannot make the folder: " + code.message(), utf8_name(folder));
    }
    const fs::path file = folder / "model.safetensors";
    for (const char* name : {"model.safetensors", "model.safetensors.index.json", "config.json"}) {
        if (is_there(folder / name)) {
            throw Error("has a model already", utf8_name(folder));
        }
    }
    std::vector<HostTensor> tensors;
    std::uint64_t all = 0;
    for (const Parameter& p : parameters) {
        tensors.push_back(described(p));
        all += p.kept.bytes;
    }
    Bytes bytes;
    std::uint64_t done = 0;
    const auto next = [&](std::size_t index) {
        const std::span<const std::byte> data = bytes.of(parameters[index]);
        done += data.size();
        if (progress) {
            progress(done, all);
        }
        return data;
    };
    write_safetensors(file, tensors, next, {{"format", "pt"}});
    try {
        copy_companions(checkpoint.folder(), folder);
    } catch (...) {  // half a model would be in the way of the next attempt
        fs::remove(file, code);
        fs::remove(folder / "config.json", code);
        throw;
    }
}

}  // namespace vkf
