// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile/spirv_declarations.h"

#include <algorithm>

namespace vkf::spv {

namespace {

constexpr int kMostNesting = 8;

}  // namespace

Declarations::Declarations(const ModuleParts& module, std::size_t bound) : at_(bound) {
    for (const Words i : module.head) {
        const std::uint32_t op = op_of(i);
        const bool type = op >= kOpTypeVoid && op <= kOpTypeFunction;
        const bool constant = op >= kOpConstantTrue && op <= kOpSpecConstantOp;
        const std::size_t result = type ? 1 : 2;
        if ((type || constant) && i.size() > result && i[result] < bound) {
            at_[i[result]] = i;
        }
    }
}

std::uint32_t Declarations::members(std::uint32_t type) const {
    const Words i = of(type);
    switch (i.empty() ? 0 : op_of(i)) {
        case kOpTypeStruct: return static_cast<std::uint32_t>(i.size() - 2);
        case kOpTypeMatrix: return i[3];
        case kOpTypeVector: {
            const Words component = of(i[2]);
            return !component.empty() && (op_of(component) == kOpTypeBool || component[2] >= 32) ? i[3] : 0;
        }
        case kOpTypeArray: return is_number(i[3]) && number(i[3]) <= kMostParts ? number(i[3]) : 0;
        default: return 0;
    }
}

std::size_t Declarations::parts(std::uint32_t type, int nesting) const {
    const std::uint32_t count = members(type);
    if (is(type, kOpTypeBool) || is(type, kOpTypeInt) || is(type, kOpTypeFloat) ||
        (is(type, kOpTypeVector) && count == 0)) {
        return 1;
    }
    if (nesting == kMostNesting) {
        return 0;
    }
    const bool alike = !is(type, kOpTypeStruct);
    std::size_t sum = 0;
    for (std::uint32_t k = 0; k < (alike ? std::min(count, 1u) : count); ++k) {
        const std::size_t more = parts(member(type, k), nesting + 1) * (alike ? count : 1);
        if (more == 0 || sum + more > kMostParts) {
            return 0;
        }
        sum += more;
    }
    return sum;
}

}  // namespace vkf::spv
