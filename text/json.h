// SPDX-License-Identifier: Apache-2.0
// What the readers of tokenizer.json's parts share.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/json_size.h"
#include "runtime/base/map_file.h"
#include "runtime/base/named_errors.h"
#include "runtime/base/owned_json.h"

namespace vkf::text {

using Json = nlohmann::json;

/// Levels of lists and objects.
inline constexpr int kDeepest = 256;

/// Parses JSON of at most 256 levels that takes at most 64 MiB. Throws where it is no such JSON.
inline OwnedJson parse_json(std::string_view text) {
    require_parsed_bytes(parsed_bytes(text, kDeepest));
    return parse_owned(text);
}

/// The object that a file holds. Throws, naming the file, where it holds something else.
inline OwnedJson read_object(const std::filesystem::path& file) {
    return naming(utf8_name(file), [&] {
        constexpr std::uint64_t kMostBytes = std::uint64_t{64} << 20;
        try {
            OwnedJson read = parse_json(file_text(file, kMostBytes));
            if (!read.is_object()) {
                throw Error("it is not a JSON object");
            }
            return read;
        } catch (const NotJson& error) {
            throw Error(std::string("it is not a JSON object: ") + error.what());
        }
    });
}

/// The name of a part's kind, its "type"; empty where the part is null or missing.
inline std::string type_of(const Json& part) {
    return part.is_null() ? std::string() : part.at("type").get<std::string>();
}

[[noreturn]] inline void refuse(const std::string& kind, const std::string& name) {
    throw Error(kind + " " + name + " is not supported", "tokenizer");
}

/// A whole number that T holds. Throws for another, which JSON's reader would cut in silence.
template <class T>
T whole_number(const Json& value) {
    const bool fits = value.is_number_unsigned()
                          ? std::in_range<T>(value.get<std::uint64_t>())
                          : value.is_number_integer() && std::in_range<T>(value.get<std::int64_t>());
    if (!fits) {
        throw Error("a whole number was expected" + (value.is_number()
                                                         ? ", of another size than " + value.dump()
                                                         : ", and there is " + std::string(value.type_name())));
    }
    return value.get<T>();
}

/// A token's id: one more can be counted. Throws for another number.
inline std::int32_t checked_token_id(std::int32_t id) {
    if (id < 0 || id == std::numeric_limits<std::int32_t>::max()) {
        throw Error("a token has the id " + std::to_string(id));
    }
    return id;
}
inline std::int32_t token_id(const Json& value) { return checked_token_id(whole_number<std::int32_t>(value)); }

/// A member, or what holds where it is missing or null.
template <class T>
T member_or(const Json& object, const char* name, T otherwise) {
    const auto found = object.find(name);
    if (found == object.end() || found->is_null()) {
        return otherwise;
    }
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
        return whole_number<T>(*found);
    } else {
        return found->template get<T>();
    }
}

/// A member, or null where it is missing. What it gives is the object's, or lasts for ever.
inline const Json& part_of(const Json& object, const char* name) {
    static const Json none;
    const auto found = object.find(name);
    return found == object.end() ? none : *found;
}

/// Counts sequences inside sequences, and the parts of all: a file cannot exhaust the stack, nor
/// ask for thousands of steps with each text.
class Nested {
public:
    explicit Nested(std::size_t parts) {
        count().parts = count().depth == 0 ? 0 : count().parts;
        if (count().depth == 32) {
            refuse("a Sequence", "inside more than 32 others");
        }
        count().parts += parts;
        if (count().parts > 256) {
            refuse("a Sequence", "of more than 256 parts");
        }
        ++count().depth;
    }
    ~Nested() { --count().depth; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;

private:
    struct Count {
        int depth = 0;
        std::size_t parts = 0;
    };
    static Count& count() {
        thread_local Count value;
        return value;
    }
};

/// The parts of a Sequence: its member `name`, each made by `make`.
template <class Make>
auto sequence_of(const Json& part, const char* name, Make make) {
    const Json& parts = part.at(name);
    const Nested nested(parts.size());
    std::vector<decltype(make(part))> all;
    for (const Json& one : parts) {
        all.push_back(make(one));
    }
    return all;
}

}  // namespace vkf::text
