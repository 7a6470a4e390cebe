// SPDX-License-Identifier: Apache-2.0
// One instruction of SPIR-V: what it is, and which ids it names.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/compile/spirv_words.h"

namespace vkf::spv {

using Words = std::span<const std::uint32_t>;

inline std::uint32_t op_of(Words instruction) { return instruction[0] & 0xffff; }

/// A set of ids that are below a bound.
class Ids {
public:
    explicit Ids(std::size_t bound) : in_(bound) {}
    void insert(std::uint32_t id) {
        if (id < in_.size()) {
            in_[id] = true;
        }
    }
    bool contains(std::uint32_t id) const { return id < in_.size() && in_[id]; }
    std::size_t bound() const { return in_.size(); }

private:
    std::vector<bool> in_;
};

/// Where an instruction has literals: from one word to before another. Of those that are not told
/// apart here all words may be ids.
std::pair<std::size_t, std::size_t> literals_of(Words i);

/// True if literals_of() tells each word of a function's instruction that is a literal, so that ids
/// may be replaced. Debug information is not known.
bool has_known_operands(Words i);

/// Calls `visit` with the number of each word, from one on, by which an instruction names an id.
/// Literals that are not known to be some count too: too much stays rather than too little.
template <typename Visit>
void each_place(Words i, std::size_t from, Visit visit) {
    const auto [begin, end] = literals_of(i);
    for (std::size_t at = from; at < i.size(); ++at) {
        const bool number_of_case = op_of(i) == kOpSwitch && at >= 3 && at % 2 == 1;
        if ((at < begin || at >= end) && !number_of_case) {
            visit(at);
        }
    }
}

/// Calls `visit` with each such id.
template <typename Visit>
void each_id(Words i, std::size_t from, Visit visit) {
    each_place(i, from, [&](std::size_t at) { visit(i[at]); });
}

/// True where an instruction names one of the ids.
bool names_any(Words i, const Ids& ids);

/// OpExtension with this name.
std::vector<std::uint32_t> extension_words(std::string_view name);
/// True of an OpExtension with this name.
bool is_extension(Words i, std::string_view name);

/// The id that an instruction of a function defines; 0: none.
std::uint32_t result_of(Words i);

}  // namespace vkf::spv
