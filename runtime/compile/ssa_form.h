// SPDX-License-Identifier: Apache-2.0
// A SPIR-V function's blocks, and the values that its variables have in them.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "runtime/compile/spirv_module.h"

namespace vkf::spv {

/// A function in static single assignment form (Braun et al. 2013, "Simple and Efficient
/// Construction of Static Single Assignment Form"). Parts of variables are numbers from 0 on.
/// Blocks are written in their order. What a part is at a block's beginning comes from the blocks
/// that lead to it, and is a phi where these differ or a loop is among them. Phis get their
/// operands when all blocks are written.
class SsaForm {
public:
    /// Makes new ids from a bound on, which it moves.
    explicit SsaForm(std::uint32_t& bound) : bound_(bound) {}

    /// Cuts a function into its blocks. False if one does not end, or leads out of the function.
    bool cut(const std::vector<Words>& function);

    std::size_t blocks() const { return blocks_.size(); }
    /// A block's instructions as they were.
    const std::vector<Words>& instructions(std::size_t block) const { return blocks_[block].instructions; }
    /// A block's instructions as they are now, but for its phis; to be appended to.
    std::vector<std::uint32_t>& code(std::size_t block) { return blocks_[block].code; }
    const std::vector<std::uint32_t>& code(std::size_t block) const { return blocks_[block].code; }

    /// Tells the type of each part.
    void set_parts(std::vector<std::uint32_t> types);

    /// The value that a part has so far, in a block that is being written.
    std::uint32_t read(std::size_t part, std::size_t block);
    void write(std::size_t part, std::size_t block, std::uint32_t value) { blocks_[block].values[part] = value; }
    /// A block is written to its end.
    void end(std::size_t block) { blocks_[block].written = true; }

    /// Gives phis their operands, once all blocks are written. Those that choose between one value
    /// and themselves are replaced by it; those that nothing uses are left out.
    void settle(Replacements& values);

    /// Appends a block.
    void put_block(std::vector<std::uint32_t>& out, std::size_t block) const;

    /// The values that nothing was written to, by their types.
    const std::map<std::uint32_t, std::uint32_t>& undefined() const { return undefined_; }

private:
    struct Block {
        std::uint32_t label = 0;
        std::vector<Words> instructions;
        std::vector<std::size_t> predecessors;  ///< blocks that lead to it
        bool written = false;
        std::vector<std::uint32_t> values;  ///< of each part, at its end; 0: not known
        std::vector<std::size_t> phis;
        std::vector<std::uint32_t> code;
    };
    struct Phi {
        std::uint32_t id = 0, type = 0;
        std::size_t block = 0, part = 0;
        /// a value, and the block it comes from
        std::vector<std::pair<std::uint32_t, std::uint32_t>> operands;
        bool gone = false, used = false;
    };

    std::uint32_t undefined(std::uint32_t type);
    /// The value that a part has at the end of all blocks that lead to one; 0 if they differ or a
    /// loop is among them.
    std::uint32_t same_in_all(std::size_t part, std::size_t block);
    void fill_phis();
    void replace_phis(Replacements& values);

    std::uint32_t& bound_;
    std::size_t nested_ = 0;  ///< reads within each other
    std::vector<Block> blocks_;
    std::vector<std::uint32_t> part_types_;
    std::vector<Phi> phis_;
    std::map<std::uint32_t, std::uint32_t> undefined_;
};

}  // namespace vkf::spv
