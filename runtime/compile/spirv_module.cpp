// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile/spirv_module.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <string_view>

namespace vkf::spv {

std::optional<ModuleParts> split_module(Words code) {
    if (code.size() < kHeaderWords || code[kHeaderBound] > kMostIds) {
        return std::nullopt;
    }
    ModuleParts out;
    bool inside = false;
    for (std::size_t at = kHeaderWords; at < code.size();) {
        const std::size_t words = code[at] >> 16;
        if (words == 0 || at + words > code.size()) {
            return std::nullopt;
        }
        const Words i = code.subspan(at, words);
        at += words;
        if (op_of(i) == kOpFunction) {
            out.functions.emplace_back();
            inside = true;
        }
        if (inside ? result_of(i) >= code[kHeaderBound] : !out.functions.empty()) {
            return std::nullopt;
        }
        (inside ? out.functions.back() : out.head).push_back(i);
        inside = inside && op_of(i) != kOpFunctionEnd;
    }
    return inside ? std::nullopt : std::optional(std::move(out));
}

bool is_plain(const ModuleParts& module) {
    constexpr std::string_view kKnown = "GLSL.std.450";
    for (const Words i : module.head) {
        const std::uint32_t op = op_of(i);
        const auto text = std::as_bytes(i.subspan(std::min<std::size_t>(2, i.size())));
        const bool other_set = op == kOpExtInstImport && (text.size() <= kKnown.size() ||
                                                          std::memcmp(text.data(), kKnown.data(), kKnown.size()) != 0);
        if (other_set || op == kOpGroupDecorate || op == kOpDecorateId || op == kOpDecorateString) {
            return false;
        }
    }
    return true;
}

bool has_known_operands(const std::vector<Words>& function) {
    return std::all_of(function.begin(), function.end(), [](Words i) { return has_known_operands(i); }) &&
           has_short_cases(function);
}

bool has_short_cases(const std::vector<Words>& function) {
    std::set<std::uint32_t> labels;
    for (const Words i : function) {
        if (op_of(i) == kOpLabel) {
            labels.insert(i[1]);
        }
    }
    // of two words, they put something else where labels would be
    return std::all_of(function.begin(), function.end(), [&](Words i) {
        bool fits = op_of(i) != kOpSwitch || i.size() % 2 == 1;
        for (std::size_t at = 2; op_of(i) == kOpSwitch && at < i.size(); at += 2) {
            fits = fits && labels.count(i[at]) != 0;
        }
        return fits;
    });
}

bool is_about(Words i) {
    const std::uint32_t op = op_of(i);
    return op == kOpName || op == kOpMemberName || op == kOpDecorate || op == kOpMemberDecorate;
}

std::vector<std::uint32_t> without(Words entry, const Ids& ids) {
    std::size_t at = 3;  // its name, which ends within a word
    while (at + 1 < entry.size() && entry[at] >> 24 != 0) {
        ++at;
    }
    std::vector<std::uint32_t> out(entry.begin(), entry.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    for (const std::uint32_t id : entry.subspan(at + 1)) {
        if (!ids.contains(id)) {
            out.push_back(id);
        }
    }
    out[0] = head(kOpEntryPoint, out.size());
    return out;
}

void put(std::vector<std::uint32_t>& out, Words words) { out.insert(out.end(), words.begin(), words.end()); }

void put(std::vector<std::uint32_t>& out, std::initializer_list<std::uint32_t> words) {
    put(out, Words(words.begin(), words.size()));
}

void Replacements::set(std::uint32_t id, std::uint32_t by) {
    if (id >= by_.size()) {
        by_.resize(std::size_t{id} + 1 + id / 2);
    }
    by_[id] = by;
}

std::uint32_t Replacements::of(std::uint32_t id) const {
    while (id < by_.size() && by_[id] != 0 && by_[id] != id) {
        id = by_[id];
    }
    return id;
}

void Replacements::apply(std::vector<std::uint32_t>& code, std::size_t from) const {
    for (std::size_t at = from; at < code.size(); at += code[at] >> 16) {
        const Words i = Words(code).subspan(at, code[at] >> 16);
        each_place(i, 1, [&](std::size_t word) { code[at + word] = of(code[at + word]); });
    }
}

}  // namespace vkf::spv
