// SPDX-License-Identifier: Apache-2.0
// A function of a SPIR-V module that is pruned.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "runtime/compile/spirv_instruction.h"

namespace vkf::spv {

/// A basic block.
struct Block {
    std::uint32_t label = 0;
    std::vector<Words> body;  ///< instructions without label, merge and terminator
    Words merge, terminator;
    bool live = false;
    std::optional<std::uint32_t> taken;  ///< the only way on, where a constant settles it
    const Block* next = nullptr;         ///< what is joined to it
};

/// One function: its blocks, and which of them can run.
class Function {
public:
    explicit Function(std::vector<Words> instructions);

    std::uint32_t id() const { return instructions_.front()[2]; }

    /// `known` are the booleans known so far; those of the function's own are added. One pass:
    /// where a block comes ahead of one that leads to it, but for a loop's header, all stays. So it
    /// does where the numbers of cases have two words.
    void find_live(std::map<std::uint32_t, bool>& known);

    std::vector<std::uint32_t> called() const;

    /// Appends what is left of the function, and to `gone` what is not.
    void write(std::vector<std::uint32_t>& out, Ids& gone) const;

    void drop(Ids& gone) const;

private:
    /// True if blocks come after all that lead to them, but for headers of loops.
    bool follows_control() const;

    std::vector<std::uint32_t> successors(const Block& b) const;

    std::optional<bool> evaluate(Words i, std::uint32_t label, const std::map<std::uint32_t, bool>& known) const;

    void put_phi(Words i, std::uint32_t label, std::vector<std::uint32_t>& out) const;

    /// Joins to each block the one that only it leads to, where nothing else names that one.
    void join();

    std::vector<Words> instructions_;
    std::vector<Block> blocks_;
    std::set<std::pair<std::uint32_t, std::uint32_t>> edges_;  ///< from a live block to another
    bool whole_ = false;                                       ///< all stays
    std::set<std::uint32_t> visited_;
    std::set<std::uint32_t> named_;
    std::map<std::uint32_t, std::uint32_t> continues_;  ///< continue target -> its loop's header
    /// header -> its continue target, where nothing that lives leads there
    std::map<std::uint32_t, std::uint32_t> idle_continues_;
    std::map<std::uint32_t, std::uint32_t> joined_;  ///< a block -> the one that it is a part of
};

}  // namespace vkf::spv
