// SPDX-License-Identifier: Apache-2.0
// What the readers of tokenizer.json's parts share.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/base/error.h"

namespace vkf::text {

using Json = nlohmann::json;

/// The name of a part's kind, its "type"; empty where the part is null or missing.
inline std::string type_of(const Json& part) {
    return part.is_null() ? std::string() : part.at("type").get<std::string>();
}

[[noreturn]] inline void refuse(const std::string& kind, const std::string& name) {
    throw Error(kind + " " + name + " is not supported", "tokenizer");
}

/// A member, or what holds where it is missing or null.
template <class T>
T member_or(const Json& object, const char* name, T otherwise) {
    const auto found = object.find(name);
    return found == object.end() || found->is_null() ? otherwise : found->get<T>();
}

/// Counts sequences inside sequences: a file cannot exhaust the stack.
class Nested {
public:
    Nested() {
        if (++depth() > 32) {
            --depth();
            refuse("a Sequence", "inside more than 32 others");
        }
    }
    ~Nested() { --depth(); }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;

private:
    static int& depth() {
        thread_local int value = 0;
        return value;
    }
};

/// The parts of a Sequence: its member `name`, each made by `make`.
template <class Make>
auto sequence_of(const Json& part, const char* name, Make make) {
    const Nested nested;
    std::vector<decltype(make(part))> all;
    for (const Json& one : part.at(name)) {
        all.push_back(make(one));
    }
    return all;
}

}  // namespace vkf::text
