// SPDX-License-Identifier: Apache-2.0
// A config.json that is read field by field; what was not read, and is not known to be harmless, is
// refused.
#pragma once

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>

#include "ops/ops.h"
#include "runtime/base/owned_json.h"

namespace vkf {

/// The largest config.json, and the like, that is read: such files have a few kilobytes, and an
/// index of shards some megabytes.
inline constexpr std::uint64_t kMostConfigBytes = std::uint64_t{64} << 20;

/// Levels of lists and objects in such a file.
inline constexpr int kDeepestConfig = 64;

class ConfigReader {
public:
    ConfigReader(const nlohmann::json& root, std::string file, std::string below = {})
        : root_(root), file_(std::move(file)), below_(std::move(below)) {
        if (!root_.is_object()) {
            throw Error((below_.empty() ? "" : below_.substr(0, below_.size() - 1) + " ") + "is not an object", file_);
        }
    }

    [[noreturn]] void fail(const std::string& name, const std::string& what) const {
        throw Error(below_ + name + " = " + text_of(name) + ": " + what, file_);
    }

    bool has(const std::string& name) const { return root_.contains(name) && !root_.at(name).is_null(); }

    /// Null, which says "none", where a missing field stands for a default.
    bool is_null(const std::string& name) const { return root_.contains(name) && root_.at(name).is_null(); }

    /// Null when the field is missing or null.
    const nlohmann::json* find(const std::string& name) {
        read_.insert(name);
        return has(name) ? &root_.at(name) : nullptr;
    }

    std::int64_t integer(const std::string& name, std::int64_t otherwise, std::int64_t least = 0) {
        const nlohmann::json* value = find(name);
        const std::int64_t number =
            value != nullptr && value->is_number_integer() ? value->get<std::int64_t>() : otherwise;
        constexpr std::int64_t kMost = (std::int64_t{1} << 31) - 1;
        if ((value != nullptr && !value->is_number_integer()) || number < least || number > kMost) {
            fail(name, "must be a whole number from " + std::to_string(least) + " to " + std::to_string(kMost));
        }
        return number;
    }
    /// Throws where the field is missing or null.
    void need(const std::string& name) const {
        if (!has(name)) {
            fail(name, "is needed");
        }
    }
    /// A size that must be there.
    std::int64_t size(const std::string& name) { return integer(name, -1, 1); }
    /// A number of layers, which must be there. A graph is described for each, so that a number
    /// beyond any model's is refused before.
    std::int64_t layers(const std::string& name) {
        const std::int64_t count = size(name);
        if (count > kMostLayers) {
            fail(name, "is more than " + std::to_string(kMostLayers));
        }
        return count;
    }

    double number(const std::string& name, double otherwise) {
        const nlohmann::json* value = find(name);
        if (value != nullptr && (!value->is_number() || !std::isfinite(value->get<double>()))) {
            fail(name, "must be a number");
        }
        return value != nullptr ? value->get<double>() : otherwise;
    }

    bool flag(const std::string& name, bool otherwise) {
        const nlohmann::json* value = find(name);
        if (value != nullptr && !value->is_boolean()) {
            fail(name, "must be true or false");
        }
        return value != nullptr ? value->get<bool>() : otherwise;
    }

    std::string text(const std::string& name, const std::string& otherwise) {
        const nlohmann::json* value = find(name);
        if (value != nullptr && !value->is_string()) {
            fail(name, "must be text");
        }
        return value != nullptr ? value->get<std::string>() : otherwise;
    }

    /// A field that may be there with this value only.
    template <class T>
    void only(const std::string& name, const T& value) {
        const nlohmann::json* found = find(name);
        if (found != nullptr && *found != nlohmann::json(value)) {
            fail(name, "is not supported");
        }
    }

    /// Throws for a field that was neither read nor says nothing about the numbers of inference.
    void finish() const;

    const std::string& file() const { return file_; }

private:
    static constexpr std::int64_t kMostLayers = 4096;

    /// The field as the file has it; the beginning of a long one.
    std::string text_of(const std::string& name) const;

    const nlohmann::json& root_;
    std::string file_, below_;
    std::set<std::string> read_;
};

/// Throws Error, its where() being `file`, for what is no JSON, or is nested deeper than 64 levels.
OwnedJson parse_config(std::string_view text, const std::string& file);
/// Reads an activation by the name that transformers gives it.
Activation read_activation(ConfigReader& reader, const std::string& field, const std::string& otherwise);

}  // namespace vkf
