// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer_lists.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "runtime/base/owned_json.h"

namespace vkf::text {

namespace {

/// Walks over JSON without reading it. Where it is none, npos: whoever parses it says why.
class Walk {
public:
    explicit Walk(std::string_view text) : text_(text) {}

    std::size_t after_space(std::size_t at) const {
        return std::min(text_.find_first_not_of(" \t\r\n", at), text_.size());
    }

    /// Behind the quote that ends the text whose first quote is here.
    std::size_t after_text(std::size_t at) const {
        for (++at; at < text_.size() && text_[at] != '"'; ++at) {
            at += text_[at] == '\\' ? 1 : 0;
        }
        return at < text_.size() ? at + 1 : npos;
    }

    /// Behind the value that begins here; its commas outside of what it holds are counted.
    std::size_t after_value(std::size_t at, std::size_t& commas) const {
        int depth = 0;
        while (at < text_.size()) {
            const char c = text_[at];
            if (depth == 0 && (c == ',' || c == ']' || c == '}')) {
                return at;
            }
            commas += depth == 1 && c == ',' ? 1 : 0;
            depth += c == '[' || c == '{' ? 1 : c == ']' || c == '}' ? -1 : 0;
            at = c == '"' ? after_text(at) : at + 1;
            if (depth == 0 && (c == ']' || c == '}' || c == '"')) {
                return at;
            }
        }
        return at == npos ? npos : text_.size();
    }

    /// Calls f(name, begin, end, commas) for each member of the object that begins here.
    template <class F>
    void members(std::size_t at, F f) const {
        if (!is('{', at)) {
            return;
        }
        while (true) {
            const std::size_t name = after_space(at + 1);
            const std::size_t name_end = is('"', name) ? after_text(name) : npos;
            const std::size_t colon = name_end == npos ? npos : after_space(name_end);
            if (!is(':', colon)) {
                return;
            }
            const std::size_t begin = after_space(colon + 1);
            std::size_t commas = 0;
            const std::size_t end = after_value(begin, commas);
            if (end == npos) {
                return;
            }
            std::string plain;
            f(plain_name(text_.substr(name, name_end - name), plain), begin, end, commas);
            at = after_space(end);
            if (!is(',', at)) {
                return;
            }
        }
    }

    bool is(char c, std::size_t at) const { return at < text_.size() && text_[at] == c; }

    static constexpr std::size_t npos = std::string_view::npos;

private:
    /// A member's name without its quotes; `plain` holds it where it has escapes. Those stay in a
    /// name that is longer than any that is asked for, or no JSON: whoever parses it says so.
    static std::string_view plain_name(std::string_view quoted, std::string& plain) {
        constexpr std::size_t kMostBytes = 80;  // of "added_tokens", every character escaped
        if (quoted.size() <= kMostBytes && quoted.find('\\') != npos) {
            try {
                return plain = parse_owned(quoted).get<std::string>();
            } catch (const NotJson&) {
            }
        }
        return quoted.substr(1, quoted.size() - 2);
    }

    std::string_view text_;
};

/// Gives for_each_entry() its entries.
class EntryReader final : public nlohmann::json_sax<Json> {
public:
    explicit EntryReader(const std::function<void(ListEntry&)>& f) : f_(f) {}

    bool null() override { refuse_value("null"); }
    bool boolean(bool) override { refuse_value("true or false"); }
    bool binary(binary_t&) override { refuse_value("binary data"); }
    bool number_integer(number_integer_t value) override { return number(value); }
    bool number_unsigned(number_unsigned_t value) override { return number(value); }
    bool number_float(number_float_t value, const string_t&) override { return number(value); }

    bool string(string_t& value) override {
        entry_.texts.push_back(std::move(value));
        if (entry_.texts.size() > 2 || in_object_) {
            refuse_value("a text");
        }
        return depth_ == 1 ? finish() : true;
    }

    bool key(string_t& name) override {
        entry_.texts.push_back(std::move(name));
        return true;
    }

    bool start_object(std::size_t) override {
        in_object_ = true;
        return depth_++ == 0 ? true : refuse_value("an object");
    }
    bool start_array(std::size_t) override { return depth_++ < (in_object_ ? 0 : 2) ? true : refuse_value("a list"); }
    bool end_object() override { return true; }
    bool end_array() override { return --depth_ == 1 ? finish() : true; }

    bool parse_error(std::size_t at, const std::string&, const nlohmann::json::exception&) override {
        throw Error("a list of its tokens is no JSON at byte " + std::to_string(at));
    }

private:
    template <class T>
    bool number(T value) {
        if (!entry_.number.is_null()) {
            refuse_value("a second number");
        }
        entry_.number = value;
        return depth_ == 1 ? finish() : true;
    }

    bool finish() {
        f_(entry_);
        entry_.texts.clear();
        entry_.number = nullptr;
        return true;
    }

    [[noreturn]] bool refuse_value(const char* found) const {
        throw Error(std::string("a list of its tokens has ") + found + " where a token or a merge is expected");
    }

    const std::function<void(ListEntry&)>& f_;
    ListEntry entry_;
    int depth_ = 0;
    bool in_object_ = false;
};

/// Throws where the member is there, and something else than a list or null.
void require_list(const Json& part, const char* name) {
    if (!part.is_object()) {
        return;
    }
    if (const auto found = part.find(name); found != part.end() && !found->is_array() && !found->is_null()) {
        throw Error(std::string("its ") + name + " are " + found->type_name() + ", and no list");
    }
}

/// The text without the lists, which are in its order.
std::string without(std::string_view text, std::vector<LongList*> lists) {
    std::erase_if(lists, [](const LongList* l) { return l->json.empty(); });
    std::sort(lists.begin(), lists.end(),
              [](const LongList* a, const LongList* b) { return a->json.data() < b->json.data(); });
    std::string rest;
    std::size_t done = 0;
    for (const LongList* l : lists) {
        const auto begin = static_cast<std::size_t>(l->json.data() - text.data());
        rest += text.substr(done, begin - done);
        rest += {l->json.front(), l->json.back()};
        done = begin + l->json.size();
    }
    return rest += text.substr(done);
}

}  // namespace

TokenizerJson cut_tokenizer(std::string_view text) {
    // Of an entry: what it takes in text/model.h, text/bpe.cpp and text/added_tokens.h.
    constexpr std::uint64_t kToken = 64, kMerge = 32, kAdded = 400;
    parsed_bytes(text, kDeepest);  // of which only the levels are asked
    TokenizerJson cut;
    const Walk walk(text);
    const auto take = [&](LongList& list, std::size_t begin, std::size_t end, std::size_t commas) {
        if (!list.json.empty()) {
            throw Error("a list of its tokens is there twice");
        }
        if (walk.is('[', begin) || walk.is('{', begin)) {
            list = {text.substr(begin, end - begin), commas + 1};
        }
    };
    walk.members(
        walk.after_space(0), [&](std::string_view name, std::size_t begin, std::size_t end, std::size_t commas) {
            if (name == "added_tokens") {
                take(cut.added_tokens, begin, end, commas);
            } else if (name == "model") {
                walk.members(begin, [&](std::string_view of, std::size_t first, std::size_t last, std::size_t count) {
                    if (of == "vocab" || of == "merges") {
                        take(of == "vocab" ? cut.vocab : cut.merges, first, last, count);
                    }
                });
            }
        });
    const std::string rest = without(text, {&cut.vocab, &cut.merges, &cut.added_tokens});
    require_parsed_bytes(cut.vocab.entries * kToken + cut.merges.entries * kMerge + cut.added_tokens.entries * kAdded +
                         parsed_bytes(rest, kDeepest));
    cut.rest = parse_json(rest);
    require_list(cut.rest, "added_tokens");
    if (const auto model = cut.rest.find("model"); model != cut.rest.end()) {
        require_list(*model, "merges");
    }
    return cut;
}

void for_each_entry(const LongList& list, const std::function<void(ListEntry&)>& f) {
    if (list.json.empty()) {
        throw Error("a list of its tokens is missing");
    }
    EntryReader reader(f);
    read_json(list.json, reader);
}

void for_each_object(const LongList& list, const std::function<void(const Json&)>& f) {
    if (list.json.empty()) {
        return;
    }
    const auto broken = [] { return Error("its added_tokens are no list of objects"); };
    const Walk walk(list.json);
    if (!walk.is('[', 0)) {
        throw broken();
    }
    std::size_t at = walk.after_space(1);
    while (!walk.is(']', at)) {
        std::size_t commas = 0;
        const std::size_t end = walk.after_value(at, commas);
        const std::size_t next = end == Walk::npos ? end : walk.after_space(end);
        const bool more = walk.is(',', next);
        const std::size_t after = more ? walk.after_space(next + 1) : next;
        if (more == walk.is(']', after)) {
            throw broken();
        }
        f(parse_json(list.json.substr(at, end - at)));
        at = after;
    }
}

}  // namespace vkf::text
