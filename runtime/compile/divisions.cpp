// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile/divisions.h"

#include <bit>
#include <map>

#include "runtime/compile/spirv_module.h"

namespace vkf {

using namespace spv;

namespace {

/// The 32-bit integers among a module's constants, and those that are added to it.
class Integers {
public:
    Integers(const ModuleParts& module, std::uint32_t bound) : types_(bound), bound_(bound) {
        for (const Words i : module.head) {
            if (op_of(i) == kOpTypeInt && i.size() == 4 && i[2] == 32) {
                types_.insert(i[1]);
            } else if (op_of(i) == kOpConstant && i.size() == 4 && types_.contains(i[1])) {
                values_[i[2]] = i[3];
            }
        }
    }

    /// True where the instruction divides an integer by a constant power of two.
    bool divides_by_power(Words i) const {
        if ((op_of(i) != kOpUDiv && op_of(i) != kOpUMod) || i.size() != 5 || !types_.contains(i[1])) {
            return false;
        }
        const auto by = values_.find(i[4]);
        return by != values_.end() && std::has_single_bit(by->second);
    }

    /// Appends the shift, or the mask, that gives the same.
    void put_shift(Words i, std::vector<std::uint32_t>& out) {
        const std::uint32_t by = values_.at(i[4]);
        const bool divides = op_of(i) == kOpUDiv;
        const std::uint32_t operand = id_of(i[1], divides ? static_cast<std::uint32_t>(std::countr_zero(by)) : by - 1);
        put(out, {head(divides ? kOpShiftRightLogical : kOpBitwiseAnd, 5), i[1], i[2], i[3], operand});
    }

    const std::vector<std::uint32_t>& added() const { return added_; }
    std::uint32_t bound() const { return bound_; }

private:
    std::uint32_t id_of(std::uint32_t type, std::uint32_t value) {
        for (std::size_t at = 0; at < added_.size(); at += 4) {
            if (added_[at + 1] == type && added_[at + 3] == value) {
                return added_[at + 2];
            }
        }
        put(added_, {head(kOpConstant, 4), type, bound_, value});
        return bound_++;
    }

    Ids types_;
    std::map<std::uint32_t, std::uint32_t> values_;
    std::vector<std::uint32_t> added_;  ///< what defines those that are added
    std::uint32_t bound_;
};

}  // namespace

std::vector<std::uint32_t> shift_for_divisions(const std::vector<std::uint32_t>& code) {
    const auto module = split_module(code);
    if (!module) {
        return code;
    }
    Integers integers(*module, code[kHeaderBound]);
    std::vector<std::uint32_t> functions;
    for (const std::vector<Words>& function : module->functions) {
        for (const Words i : function) {
            if (integers.divides_by_power(i)) {
                integers.put_shift(i, functions);
            } else {
                put(functions, i);
            }
        }
    }
    if (integers.bound() > kMostIds) {
        return code;
    }
    std::vector<std::uint32_t> out(code.begin(), code.begin() + kHeaderWords);
    out[kHeaderBound] = integers.bound();
    for (const Words i : module->head) {
        put(out, i);
    }
    put(out, integers.added());
    put(out, functions);
    return out;
}

}  // namespace vkf
