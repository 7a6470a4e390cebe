// SPDX-License-Identifier: Apache-2.0
#include "models/files/model_folder.h"

#include <system_error>

#include "models/files/checkpoint.h"
#include "models/files/pending_file.h"
#include "runtime/base/paths.h"

namespace vkf {

namespace {

namespace fs = std::filesystem;

constexpr const char* kTensors = "model.safetensors";

/// The files that a folder has beside its tensors, config.json among them.
constexpr const char* kCompanions[] = {"config.json",         "generation_config.json",
                                       "tokenizer.json",      "tokenizer_config.json",
                                       "tokenizer.model",     "special_tokens_map.json",
                                       "added_tokens.json",   "vocab.json",
                                       "vocab.txt",           "merges.txt",
                                       "chat_template.jinja", "chat_template.json"};

/// Copies what is not there alike; files appear whole or not at all.
void copy_companions(const fs::path& from, const fs::path& to) {
    for (const char* name : kCompanions) {
        if (!is_there(from / name)) {
            continue;
        }
        try {
            const std::string text = read_text(from / name);
            if (!is_there(to / name) || read_text(to / name) != text) {
                write_text(to / name, text);
            }
        } catch (const Error& error) {
            throw Error(std::string("cannot copy file: ") + error.what(), utf8_name(to / name));
        }
    }
}

}  // namespace

void check_config_is_there(const fs::path& from) {
    if (!is_there(from / "config.json")) {
        throw Error("is not there any more, and the model cannot be saved without it", utf8_name(from / "config.json"));
    }
}

void make_folder(const fs::path& folder) {
    std::error_code code;
    fs::create_directories(folder, code);
    if (code) {
        throw Error("cannot make the folder: " + code.message(), utf8_name(folder));
    }
}

void make_model_folder(const fs::path& folder) {
    make_folder(folder);
    for (const char* name : {kTensors, "model.safetensors.index.json", "config.json"}) {
        if (is_there(folder / name)) {
            throw Error("has a model already", utf8_name(folder));
        }
    }
}

void write_model_folder(const fs::path& folder, const fs::path& from, std::span<const HostTensor> tensors,
                        const TensorBytes& bytes) {
    const bool replaces = is_there(folder / kTensors), had_config = is_there(folder / "config.json");
    write_safetensors(folder / kTensors, tensors, bytes, {{"format", "pt"}});
    try {
        copy_companions(from, folder);
    } catch (...) {
        if (!replaces) {  // half a model would be in the way of the next attempt
            std::error_code code;
            fs::remove(folder / kTensors, code);
            if (!had_config) {
                fs::remove(folder / "config.json", code);
            }
        }
        throw;
    }
}

void write_text(const fs::path& path, const std::string& text) {
    PendingFile file(path);
    file.write(text.data(), text.size());
    file.publish();
}

}  // namespace vkf
