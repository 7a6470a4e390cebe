// SPDX-License-Identifier: Apache-2.0
// JSON that can be let go of where there is no memory left. nlohmann's destructor makes a list of
// what lies below, and where that cannot be allocated the process ends.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "error.h"

namespace vkf {

/// Empties lists and objects from the innermost on, whose destructors then allocate nothing. Calls
/// itself for each level: parsed_bytes() has counted them.
inline void take_apart(nlohmann::json& value) noexcept {
    if (auto* list = value.get_ptr<nlohmann::json::array_t*>()) {
        for (nlohmann::json& element : *list) {
            take_apart(element);
        }
        list->clear();
    } else if (auto* object = value.get_ptr<nlohmann::json::object_t*>()) {
        for (auto& [name, member] : *object) {
            take_apart(member);
        }
        object->clear();
    }
}

/// A parsed text.
class OwnedJson : public nlohmann::json {
public:
    OwnedJson() = default;
    OwnedJson(OwnedJson&& other) noexcept : nlohmann::json(std::move(static_cast<nlohmann::json&>(other))) {}
    OwnedJson& operator=(OwnedJson&& other) noexcept {
        take_apart(*this);
        swap(other);
        return *this;
    }
    ~OwnedJson() { take_apart(*this); }
};

/// What a text is refused with that is no JSON.
class NotJson : public Error {
public:
    using Error::Error;
};

/// Puts the events of a parser together. What there is when one throws is the root's.
class JsonBuilder final : public nlohmann::json_sax<nlohmann::json> {
public:
    explicit JsonBuilder(nlohmann::json& root) : root_(root) {}

    bool null() override { return put(nullptr); }
    bool boolean(bool value) override { return put(value); }
    bool number_integer(number_integer_t value) override { return put(value); }
    bool number_unsigned(number_unsigned_t value) override { return put(value); }
    bool number_float(number_float_t value, const string_t&) override { return put(value); }
    bool string(string_t& value) override { return put(std::move(value)); }
    bool binary(binary_t&) override { return false; }
    bool start_object(std::size_t) override { return open(nlohmann::json::value_t::object); }
    bool start_array(std::size_t) override { return open(nlohmann::json::value_t::array); }
    bool end_object() override { return close(); }
    bool end_array() override { return close(); }
    bool key(string_t& name) override {
        key_ = std::move(name);
        return true;
    }
    bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception& error) override {
        throw NotJson(error.what());
    }

private:
    bool put(nlohmann::json value) {
        nlohmann::json& place = next();
        place.swap(value);
        return true;
    }
    bool open(nlohmann::json::value_t type) {
        nlohmann::json& place = next();
        place = nlohmann::json(type);
        open_.push_back(&place);
        return true;
    }
    bool close() {
        open_.pop_back();
        return true;
    }
    nlohmann::json& next() {
        if (open_.empty()) {
            return root_;
        }
        if (auto* list = open_.back()->get_ptr<nlohmann::json::array_t*>()) {
            return list->emplace_back();
        }
        nlohmann::json& member = (*open_.back())[key_];
        take_apart(member);  // of a name that comes again the last is taken
        return member;
    }

    nlohmann::json& root_;
    std::vector<nlohmann::json*> open_;  ///< each is in the one before, which does not grow then
    std::string key_;
};

/// Tells `events` what is in a text. Its type is the same for all readers, so that there is one
/// parser for them. This is what json::sax_parse() does with text: that brings the readers of CBOR,
/// BSON, MessagePack and UBJSON with it, 37 kB that nothing calls.
inline void read_json(std::string_view text, nlohmann::json_sax<nlohmann::json>& events) {
    auto input = nlohmann::detail::input_adapter(text.data(), text.data() + text.size());
    using Parser = nlohmann::detail::parser<nlohmann::json, decltype(input)>;
    Parser(std::move(input), nullptr, true).sax_parse(&events, true);
}

/// Throws NotJson where the text is none.
inline OwnedJson parse_owned(std::string_view text) {
    OwnedJson root;
    JsonBuilder builder(root);
    read_json(text, builder);
    return root;
}

}  // namespace vkf
