// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/declarations.h"

#include <doctest/doctest.h>

#include <cctype>
#include <iterator>
#include <regex>

#include "tests/unit/text.h"

namespace vkf::test {

namespace {

namespace fs = std::filesystem;

struct Token {
    std::string text;
    std::string comment;  ///< the documentation before it
};

bool is_word(const std::string& text) {
    return !text.empty() && (std::isalpha(static_cast<unsigned char>(text[0])) != 0 || text[0] == '_');
}

std::vector<Token> tokens_of(const std::string& text) {
    // documentation before a declaration; other comments and directives; what is code
    static const std::regex token(
        R"((///(?!<)[^\n]*)|//[^\n]*|#(?:\\\n|[^\n])*|("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[A-Za-z_]\w*|\d[\w.+]*|::|->|<<|[<>=!]=|[^\s]))");
    std::vector<Token> out;
    std::string comment;
    for (std::sregex_iterator i(text.begin(), text.end(), token), end; i != end; ++i) {
        if ((*i)[1].matched) {
            comment += (*i)[1].str().substr(3);
        } else {
            if ((*i)[2].matched) {
                out.push_back({(*i)[2].str(), comment});
            }
            comment.clear();
        }
    }
    return out;
}

using Range = std::vector<Token>;

/// Cuts at commas that no bracket encloses.
std::vector<Range> parts_of(const Range& list) {
    std::vector<Range> out(1);
    int depth = 0;
    for (const Token& t : list) {
        depth += t.text.find_first_of("(<{[") == 0 && t.text.size() == 1 ? 1 : 0;
        depth -= t.text.find_first_of(")>}]") == 0 && t.text.size() == 1 ? 1 : 0;
        if (depth == 0 && t.text == ",") {
            out.emplace_back();
        } else {
            out.back().push_back(t);
        }
    }
    if (out.back().empty()) {
        out.pop_back();
    }
    return out;
}

/// Reads type and name of a parameter, a member, or one that follows another after a comma.
Parameter named(const Range& declaration, bool may_lack_a_name) {
    Parameter out;
    std::string last;
    std::size_t words = 0;
    int depth = 0;
    for (std::size_t i = 0; i < declaration.size(); ++i) {
        const std::string& text = declaration[i].text;
        if (depth == 0 && (text == "=" || text == "{" || text == "[")) {
            break;
        }
        if (depth == 0 && text == "(") {  // (*name)(...)
            for (; i < declaration.size() && declaration[i].text != "="; ++i) {
                const bool is_name = out.name.empty() && is_word(declaration[i].text);
                (is_name ? out.name : out.type) += (is_name ? "" : " ") + declaration[i].text;
            }
            return out;
        }
        depth += text == "<" ? 1 : text == ">" ? -1 : 0;
        words += is_word(text) && text != "const" && text != "struct" && (i == 0 || declaration[i - 1].text != "::");
        last = text;
        out.type += (out.type.empty() ? "" : " ") + text;
    }
    if (is_word(last) && (!may_lack_a_name || words > 1)) {
        out.name = last;
        out.type.resize(out.type.size() - last.size());
    }
    return out;
}

class Reader {
public:
    Reader(const Range& tokens, Declarations& out) : tokens_(tokens), out_(out) {}

    void scope(const std::string& owner, bool open, Struct* members) {
        while (i_ < tokens_.size()) {
            const std::string& text = tokens_[i_].text;
            if (text == "}") {
                ++i_;
                return;
            } else if (text == ";") {
                ++i_;
            } else if ((text == "public" || text == "private" || text == "protected") && at(1) == ":") {
                open = text == "public";
                i_ += 2;
            } else if (text == "namespace" || text == "extern") {
                nested_scope(owner, open);
            } else if (text == "template") {
                ++i_;
                skip_angles();
            } else if (text == "using" || text == "friend" || text == "static_assert") {
                skip_declaration();
            } else if (text == "typedef") {
                type_definition(owner);
            } else if (text == "enum") {
                enumeration(owner, open, members);
            } else if ((text == "struct" || text == "class") && record(owner, open)) {
            } else {
                declaration(owner, open, members);
            }
        }
    }

private:
    const std::string& at(std::size_t ahead) const {
        static const std::string none;
        return i_ + ahead < tokens_.size() ? tokens_[i_ + ahead].text : none;
    }

    static std::string inside(const std::string& owner, const std::string& name) {
        return owner.empty() ? name : owner + "::" + name;
    }

    void nested_scope(const std::string& owner, bool open) {
        std::string name = owner;
        for (++i_; at(0) != "{"; ++i_) {
            REQUIRE(i_ < tokens_.size());
            if (is_word(at(0)) && at(0) != "vkf") {
                name = inside(name, at(0));
            }
        }
        ++i_;
        scope(name, open, nullptr);
    }

    void skip_angles() {
        int depth = 0;
        do {
            depth += at(0) == "<" ? 1 : at(0) == ">" ? -1 : 0;
            ++i_;
        } while (depth != 0 && i_ < tokens_.size());
    }

    /// Skips to behind the bracket that closes the one here.
    Range skip_brackets() {
        const std::size_t begin = i_ + 1;
        int depth = 0;
        do {
            const std::string& text = at(0);
            depth += text == "(" || text == "{" ? 1 : text == ")" || text == "}" ? -1 : 0;
            ++i_;
        } while (depth != 0 && i_ < tokens_.size());
        return {tokens_.begin() + static_cast<std::ptrdiff_t>(begin),
                tokens_.begin() + static_cast<std::ptrdiff_t>(i_ - 1)};
    }

    void skip_declaration() {
        while (i_ < tokens_.size() && at(0) != ";") {
            if (at(0) == "{" || at(0) == "(") {
                skip_brackets();
            } else {
                ++i_;
            }
        }
        ++i_;
    }

    void type_definition(const std::string& owner) {
        const std::string comment = tokens_[i_].comment;
        ++i_;
        if (at(0) == "struct" && at(2) == "{") {
            Struct members{{}, comment};
            const std::string name = at(1);
            i_ += 3;
            scope(inside(owner, name), true, &members);
            out_.structs[name] = members;
        } else if (at(2) == ";") {
            typedef_ = {{}, comment};
            typedef_name_ = at(1);
        }
        skip_declaration();
    }

    void enumeration(const std::string& owner, bool open, Struct* members) {
        Enum found{{}, tokens_[i_].comment};
        i_ += at(1) == "class" ? 2 : 1;
        std::string name = at(0) == "{" ? "" : at(0);
        while (at(0) != "{") {
            ++i_;
        }
        for (const Range& one : parts_of(skip_brackets())) {
            found.enumerators.push_back(one.front().text);
        }
        if (name.empty()) {
            name = typedef_name_.empty() ? found.enumerators.front() : typedef_name_;
            found.comment += typedef_.comment;
        }
        typedef_name_.clear();
        typedef_.comment.clear();
        if (open) {
            out_.enums[inside(owner, name)] = found;
        }
        if (at(0) != ";") {
            declaration(owner, open, members);
        }
    }

    /// False for one that is only named, in a declaration of something else.
    bool record(const std::string& owner, bool open) {
        const bool all_open = at(0) == "struct";
        const std::size_t name = at(1) == "VKF_API" ? 2 : 1;
        if (at(name + 1) == ";") {
            skip_declaration();
            return true;
        }
        if (at(name + 1) != "{" && at(name + 1) != ":") {
            return false;
        }
        Struct members{{}, tokens_[i_].comment};
        const std::string full = inside(owner, at(name));
        while (at(0) != "{") {
            ++i_;
        }
        if (!open) {
            skip_brackets();
        } else {
            ++i_;
            scope(full, all_open, &members);
            if (!members.members.empty()) {
                out_.structs[full] = members;
            }
        }
        skip_declaration();
        return true;
    }

    void declaration(const std::string& owner, bool open, Struct* members) {
        Range text;
        int angles = 0;
        bool is_variable = false;  // a pointer to a function, or one with a value
        for (; i_ < tokens_.size(); ++i_) {
            const std::string& t = at(0);
            if (t == "operator") {
                Token name = tokens_[i_];
                while (at(1) != "(" || name.text == "operator") {
                    ++i_;
                    name.text += at(0);
                }
                text.push_back(name);
                continue;
            }
            angles += t == "<" ? 1 : t == ">" ? -1 : 0;
            is_variable = is_variable || t == "=" || (t == "(" && at(1) == "*");
            if (angles == 0 && (t == ";" || (t == "(" && !is_variable))) {
                break;
            }
            if (t == "(" || t == "{") {
                const std::size_t begin = i_;
                skip_brackets();
                text.insert(text.end(), tokens_.begin() + static_cast<std::ptrdiff_t>(begin),
                            tokens_.begin() + static_cast<std::ptrdiff_t>(i_));
                --i_;
            } else {
                text.push_back(tokens_[i_]);
            }
        }
        if (at(0) == "(") {
            function(owner, open, text);
            return;
        }
        skip_declaration();
        if (!members || !open || (!text.empty() && text.front().text == "static")) {
            return;
        }
        std::string type;
        for (const Range& one : parts_of(text)) {
            Parameter member = named(one, false);
            type = member.type.empty() ? type : member.type;
            members->members.push_back({type, member.name});
        }
    }

    void function(const std::string& owner, bool open, const Range& before) {
        const std::string name = before.back().text;
        Function found{inside(owner, name), {}};
        bool copies = false;
        for (const Range& one : parts_of(skip_brackets())) {
            if (one.size() == 1 && one[0].text == "void") {
                continue;
            }
            found.parameters.push_back(named(one, true));
            copies = copies || found.parameters.back().name.empty() || one[0].text == name;
        }
        bool deleted = false;
        while (i_ < tokens_.size() && at(0) != ";" && at(0) != "{") {
            deleted = deleted || at(0) == "delete";
            if (at(0) == "(") {
                skip_brackets();
            } else {
                ++i_;
            }
        }
        if (at(0) == "{") {
            skip_brackets();
        } else {
            ++i_;
        }
        const bool destroys = before.size() > 1 && before[before.size() - 2].text == "~";
        const bool converts = !owner.empty() && name.starts_with("operator");
        if (open && !deleted && !destroys && !copies && !converts) {
            out_.functions.push_back(found);
        }
    }

    const Range& tokens_;
    Declarations& out_;
    std::size_t i_ = 0;
    std::string typedef_name_;  // of the last one that names a number
    Enum typedef_;
};

}  // namespace

std::vector<std::string> stands_for(const std::string& comment) {
    std::smatch all;
    std::vector<std::string> out;
    if (std::regex_search(comment, all, std::regex(R"(\bC\+\+: ([\w:]+(?:, [\w:]+)*)\.)"))) {
        const std::string list = all[1];
        const std::regex name(R"([\w:]+)");
        for (std::sregex_iterator i(list.begin(), list.end(), name), end; i != end; ++i) {
            out.push_back(i->str());
        }
    }
    return out;
}

std::set<std::string> words(const std::string& type) {
    std::set<std::string> out;
    const std::regex word(R"(\w+)");
    for (std::sregex_iterator i(type.begin(), type.end(), word), end; i != end; ++i) {
        out.insert(i->str());
    }
    return out;
}

void read_declarations(const fs::path& header, Declarations& out) {
    const Range tokens = tokens_of(whole(header));
    Reader(tokens, out).scope("", true, nullptr);
}

Declarations public_declarations() {
    const fs::path root = VKFORMER_SOURCE_DIR;
    const std::string cmake = whole(root / "cmake/Headers.cmake");
    const std::size_t begin = cmake.find("set(public_headers");
    REQUIRE(begin != std::string::npos);
    const std::string list = cmake.substr(begin, cmake.find(')', begin) - begin);
    const std::regex header(R"([\w/]+\.h)");
    Declarations out;
    for (std::sregex_iterator i(list.begin(), list.end(), header), end; i != end; ++i) {
        read_declarations(root / i->str(), out);
    }
    return out;
}

Declarations declarations_of_c() {
    Declarations out;
    read_declarations(fs::path(VKFORMER_SOURCE_DIR) / "c/vkformer_c.h", out);
    return out;
}

}  // namespace vkf::test
