// SPDX-License-Identifier: Apache-2.0
// The types and constants of a SPIR-V module.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/compile/spirv_module.h"

namespace vkf::spv {

/// The most parts that a type is decomposed into.
inline constexpr std::size_t kMostParts = 4096;

/// What is declared ahead of the functions, by id.
class Declarations {
public:
    Declarations(const ModuleParts& module, std::size_t bound);

    /// The instruction that declares an id, or nothing.
    Words of(std::uint32_t id) const { return id < at_.size() ? at_[id] : Words(); }
    bool is(std::uint32_t id, std::uint32_t op) const { return !of(id).empty() && op_of(of(id)) == op; }

    /// True of a constant of 32 bits.
    bool is_number(std::uint32_t id) const { return is(id, kOpConstant) && of(id).size() == 4; }
    std::uint32_t number(std::uint32_t id) const { return of(id)[3]; }

    /// How many members a type is decomposed into; 0: it is not, or has too many. Vectors of
    /// numbers of 16 bits and less are not: several share a register.
    std::uint32_t members(std::uint32_t type) const;
    std::uint32_t member(std::uint32_t type, std::uint32_t k) const {
        return of(type)[is(type, kOpTypeStruct) ? 2 + k : 2];
    }

    /// How many parts a type has once its members are decomposed too; 0: too many, or there are
    /// others than numbers and booleans among them.
    std::size_t parts(std::uint32_t type, int nesting = 0) const;

private:
    std::vector<Words> at_;
};

}  // namespace vkf::spv
