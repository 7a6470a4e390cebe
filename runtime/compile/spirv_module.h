// SPDX-License-Identifier: Apache-2.0
// A SPIR-V module in its parts, and ids that take the place of others.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <vector>

#include "runtime/compile/spirv_instruction.h"

namespace vkf::spv {

/// Functions beyond which a module stays as it is: a chain of calls is followed by recursion.
inline constexpr std::size_t kMostFunctions = 1000;

struct ModuleParts {
    std::vector<Words> head;                    ///< all before the first function
    std::vector<std::vector<Words>> functions;  ///< each from OpFunction to OpFunctionEnd
};

/// The parts of a module, which must outlive them. None if an instruction ends behind the module, a
/// function does not end, something follows the functions, a result is not below the bound of ids,
/// or that bound is above what a module may have.
std::optional<ModuleParts> split_module(Words code);

/// True if nothing ahead of the functions speaks of what is inside them but names and decorations
/// of single ids: no debug information, no groups of decorations.
bool is_plain(const ModuleParts& module);

/// True if the operands of all instructions of a function are known.
bool has_known_operands(const std::vector<Words>& function);

/// True if the numbers of a function's cases have one word each, so that the labels of its switches
/// are where they are looked for.
bool has_short_cases(const std::vector<Words>& function);

/// True of names and decorations; their first operand is the id that they are about.
bool is_about(Words i);

/// An entry point without some of the variables that it names.
std::vector<std::uint32_t> without(Words entry, const Ids& ids);

/// Calls `visit` with each instruction of a row of them.
template <typename Visit>
void each_instruction(Words code, Visit visit) {
    for (std::size_t at = 0; at < code.size(); at += code[at] >> 16) {
        visit(code.subspan(at, code[at] >> 16));
    }
}

/// Appends words.
void put(std::vector<std::uint32_t>& out, Words words);
void put(std::vector<std::uint32_t>& out, std::initializer_list<std::uint32_t> words);

/// Ids, each of which may have another in its place, and that one again another.
class Replacements {
public:
    void set(std::uint32_t id, std::uint32_t by);
    std::uint32_t of(std::uint32_t id) const;
    /// Replaces the ids that the instructions from a word on name; their literals are known.
    void apply(std::vector<std::uint32_t>& code, std::size_t from) const;

private:
    std::vector<std::uint32_t> by_;  ///< 0: none
};

}  // namespace vkf::spv
