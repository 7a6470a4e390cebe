// SPDX-License-Identifier: Apache-2.0
#include "models/files/checkpoint.h"

#include <nlohmann/json.hpp>

#include "models/files/config_reader.h"
#include "runtime/base/error.h"
#include "runtime/base/json_size.h"
#include "runtime/base/paths.h"

namespace vkf {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// weight_map of an index: tensor -> file. Files are beside the index, never elsewhere. Its entries
/// are taken as they come, for there may be hundreds of thousands.
std::map<std::string, std::string> read_index(const fs::path& index) {
    constexpr std::uint64_t kEntry = 180;  // bytes that it takes here and in a Checkpoint
    const std::string file = utf8_name(index);
    std::map<std::string, std::string> map;
    std::string name, member;
    const json::parser_callback_t take = [&](int depth, json::parse_event_t event, json& parsed) {
        if (event == json::parse_event_t::key) {
            (depth == 1 ? member : name) = parsed.get<std::string>();
            return depth == 1;
        }
        if (event != json::parse_event_t::value || depth != 2 || member != "weight_map") {
            return true;
        }
        if (!parsed.is_string()) {
            throw Error("weight_map: " + name + " has no file's name", file);
        }
        const std::string& shard = map[name] = parsed.get<std::string>();
        if (shard.empty() || fs::path(shard).filename() != fs::path(shard)) {
            throw Error("\"" + shard + "\" for tensor " + name + " is not a file's name", file);
        }
        if (map.size() * kEntry > kMostParsedBytes) {
            throw Error("it names more than " + std::to_string(map.size() - 1) + " tensors", file);
        }
        return true;
    };
    try {
        const std::string text = file_text(index, kMostConfigBytes);
        parsed_bytes(text, kDeepestConfig);
        if (!json::parse(text, take).at("weight_map").is_object()) {
            throw Error("weight_map is no object", file);
        }
    } catch (const json::exception& error) {
        throw Error(error.what(), file);
    }
    return map;
}

}  // namespace

std::string read_text(const fs::path& path) { return file_text(path); }

Checkpoint::Checkpoint(const fs::path& folder) : folder_(folder), config_file_(utf8_name(folder / "config.json")) {
    if (!is_folder(folder)) {
        throw Error("is not a folder", utf8_name(folder));
    }
    config_ = file_text(folder / "config.json", kMostConfigBytes);
    const fs::path whole = folder / "model.safetensors";
    const fs::path index = folder / "model.safetensors.index.json";
    if (is_there(whole) || !is_there(index)) {
        files_.emplace_back(whole);
        for (const HostTensor& t : files_.front().tensors()) {
            tensors_.emplace(t.name, &t);
        }
    } else {
        open_shards(index);
    }
}

void Checkpoint::open_shards(const fs::path& index) {
    const std::map<std::string, std::string> map = read_index(index);
    std::map<std::string, std::size_t> opened;
    for (const auto& [tensor, shard] : map) {
        if (opened.emplace(shard, files_.size()).second) {
            files_.emplace_back(folder_ / shard);
        }
    }
    for (const auto& [tensor, shard] : map) {
        const HostTensor& found = files_[opened.at(shard)].at(tensor);
        tensors_.emplace(found.name, &found);
    }
}

const HostTensor* Checkpoint::find(std::string_view name) const noexcept {
    const auto found = tensors_.find(name);
    return found == tensors_.end() ? nullptr : found->second;
}

std::vector<std::string> Checkpoint::names() const {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : tensors_) {
        names.emplace_back(name);
    }
    return names;
}

}  // namespace vkf
