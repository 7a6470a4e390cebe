// SPDX-License-Identifier: Apache-2.0
// The variables of a SPIR-V function that can become values, and the pointers to them.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/compile/spirv_declarations.h"

namespace vkf::spv {

/// A variable, or a part of one, that a pointer points to.
struct Place {
    std::size_t variable = 0;
    std::uint32_t type = 0;
    std::size_t part = 0;  ///< the first of the variable's parts that it has
    /// id of the component's index, if this is a component of a vector that is not decomposed or
    /// whose index is no constant; else 0
    std::uint32_t component = 0;
};

struct Variable {
    std::uint32_t id = 0, type = 0, initial = 0;
    bool stays = false;
    std::size_t first = 0;  ///< its first part among those of all variables
};

class Variables {
public:
    /// The declarations must outlive it. Pointers are ids below the bound.
    Variables(const Declarations& declared, std::size_t bound) : declared_(declared), place_of_(bound) {}

    /// A variable that may become a value, if its type can be decomposed.
    void offer(Words variable);

    /// Follows an instruction of the function; all are to be looked at, in their order. A variable
    /// stays if it is indexed by what is no constant, or its address is used by anything but
    /// loads, stores and access chains.
    void look_at(Words i);

    /// How many parts the variables have that become values.
    std::size_t parts() const;
    /// Numbers these parts, and gives the type of each.
    std::vector<std::uint32_t> number_parts();

    const std::vector<Variable>& all() const { return variables_; }

    /// Where an instruction loads, stores, points to or declares; none if that is no variable that
    /// becomes a value.
    const Place* place_of(Words i) const;

    /// The first part of a place among those of all variables.
    std::size_t part(const Place& place) const { return variables_[place.variable].first + place.part; }

private:
    Variable* variable_at(std::uint32_t pointer);
    void put_at(std::uint32_t pointer, const Place& place);
    bool step_into(Words chain, Place& place) const;
    void list_parts(std::uint32_t type, std::vector<std::uint32_t>& types) const;

    const Declarations& declared_;
    std::vector<Variable> variables_;
    std::vector<std::uint32_t> place_of_;  ///< by pointer; 0: none
    std::vector<Place> places_{1};
};

}  // namespace vkf::spv
