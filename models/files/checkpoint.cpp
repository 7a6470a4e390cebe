// SPDX-License-Identifier: Apache-2.0
#include "models/files/checkpoint.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "models/files/config_reader.h"
#include "runtime/base/error.h"
#include "runtime/base/json_size.h"
#include "runtime/base/named_errors.h"
#include "runtime/base/owned_json.h"
#include "runtime/base/paths.h"

namespace vkf {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// Reads weight_map of an index: tensor -> file. Files are beside the index, never elsewhere. Its
/// entries are taken as they come, for there may be hundreds of thousands.
class IndexReader final : public nlohmann::json_sax<json> {
public:
    explicit IndexReader(const std::string& file) : file_(file) {}

    std::map<std::string, std::string> map;

    /// Throws where the text had no weight_map.
    void finish() const {
        if (!found_) {
            throw Error("it has no object weight_map", file_);
        }
    }
    bool null() override { return other(); }
    bool boolean(bool) override { return other(); }
    bool number_integer(number_integer_t) override { return other(); }
    bool number_unsigned(number_unsigned_t) override { return other(); }
    bool number_float(number_float_t, const string_t&) override { return other(); }
    bool binary(binary_t&) override { return other(); }
    bool string(string_t& shard) override {
        if (!(in_map_ && depth_ == 2)) {
            return other();
        }
        if (!is_file_name(shard)) {
            throw Error(quoted(shard) + " for tensor " + name_ + " is not a file's name", file_);
        }
        map[name_] = std::move(shard);
        if (map.size() * kEntry > kMostParsedBytes) {
            throw Error("it names more than " + std::to_string(map.size() - 1) + " tensors", file_);
        }
        return true;
    }
    bool start_object(std::size_t) override {
        if (depth_ > 0) {
            other();
        }
        if (++depth_ == 2 && name_ == "weight_map") {
            if (found_) {
                throw Error("it has weight_map twice", file_);
            }
            in_map_ = found_ = true;
        }
        return true;
    }
    bool start_array(std::size_t) override {
        other();
        ++depth_;
        return true;
    }
    bool end_object() override { return close(); }
    bool end_array() override { return close(); }
    bool key(string_t& name) override {
        if (depth_ <= 2) {
            name_ = std::move(name);
        }
        return true;
    }
    bool parse_error(std::size_t, const std::string&, const json::exception& error) override {
        throw Error(error.what(), file_);
    }

private:
    static constexpr std::uint64_t kEntry = 180;  // bytes that it takes here and in a Checkpoint

    /// char has no sign on Arm, where the bytes of UTF-8 beyond ASCII are not below 0.
    static bool is_control(char c) { return static_cast<unsigned char>(c) < ' '; }
    static bool is_file_name(const std::string& shard) {
        return !shard.empty() && std::none_of(shard.begin(), shard.end(), is_control) && shard != "." &&
               shard != ".." && fs::path(shard).filename() == fs::path(shard);
    }
    /// In quotes, without what would end a message.
    static std::string quoted(std::string text) {
        std::replace_if(text.begin(), text.end(), is_control, '?');
        return "\"" + text + "\"";
    }

    /// Takes a value that is no file's name. Throws where there must be one, or an object.
    bool other() const {
        if (depth_ == 0) {
            throw Error("it is not a JSON object", file_);
        }
        if (depth_ == 1 && name_ == "weight_map" && found_) {
            throw Error("it has weight_map twice", file_);
        }
        if (in_map_ && depth_ == 2) {
            throw Error("weight_map: " + name_ + " has no file's name", file_);
        }
        return true;
    }
    bool close() {
        --depth_;
        in_map_ = in_map_ && depth_ >= 2;
        return true;
    }

    const std::string& file_;
    std::string name_;
    int depth_ = 0;  ///< lists and objects that are open
    bool in_map_ = false, found_ = false;
};

std::map<std::string, std::string> read_index(const fs::path& index) {
    const std::string file = utf8_name(index);
    const std::string text = file_text(index, kMostConfigBytes);
    // for its depth and its texts alone: nothing of it is kept
    naming(file, [&] { parsed_bytes(text, kDeepestConfig); });
    IndexReader reader(file);
    read_json(text, reader);
    reader.finish();
    return std::move(reader.map);
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
