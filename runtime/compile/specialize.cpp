// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile/specialize.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "runtime/base/error.h"
#include "runtime/compile/spirv_words.h"

namespace vkf {

using namespace spv;

namespace {

/// The 32-bit integers and booleans (0 or 1) among a module's constants, and its composites of
/// them.
struct Known {
    std::map<std::uint32_t, std::uint32_t> values;
    std::map<std::uint32_t, std::vector<std::uint32_t>> composites;

    std::optional<std::uint32_t> value(std::uint32_t id) const {
        const auto found = values.find(id);
        return found == values.end() ? std::nullopt : std::optional(found->second);
    }

    std::optional<std::uint32_t> evaluate(std::uint32_t op, std::span<const std::uint32_t> operands) const;
};

std::optional<std::uint32_t> of_one(std::uint32_t op, std::uint32_t a) {
    switch (op) {
        case kOpLogicalNot: return a ^ 1u;
        case kOpNot: return ~a;
        default: return std::nullopt;
    }
}

std::optional<std::uint32_t> of_two(std::uint32_t op, std::uint32_t a, std::uint32_t b) {
    const auto signed_a = static_cast<std::int32_t>(a);
    const auto signed_b = static_cast<std::int32_t>(b);
    switch (op) {
        case kOpIAdd: return a + b;
        case kOpISub: return a - b;
        case kOpIMul: return a * b;
        case kOpUDiv: return b == 0 ? std::nullopt : std::optional(a / b);
        case kOpUMod: return b == 0 ? std::nullopt : std::optional(a % b);
        case kOpLogicalEqual:
        case kOpIEqual: return a == b;
        case kOpLogicalNotEqual:
        case kOpINotEqual: return a != b;
        case kOpLogicalOr:
        case kOpBitwiseOr: return a | b;
        case kOpLogicalAnd:
        case kOpBitwiseAnd: return a & b;
        case kOpBitwiseXor: return a ^ b;
        case kOpUGreaterThan: return a > b;
        case kOpSGreaterThan: return signed_a > signed_b;
        case kOpUGreaterThanEqual: return a >= b;
        case kOpSGreaterThanEqual: return signed_a >= signed_b;
        case kOpULessThan: return a < b;
        case kOpSLessThan: return signed_a < signed_b;
        case kOpULessThanEqual: return a <= b;
        case kOpSLessThanEqual: return signed_a <= signed_b;
        case kOpShiftRightLogical: return b > 31 ? std::nullopt : std::optional(a >> b);
        case kOpShiftLeftLogical: return b > 31 ? std::nullopt : std::optional(a << b);
        default: return std::nullopt;
    }
}

std::optional<std::uint32_t> Known::evaluate(std::uint32_t op, std::span<const std::uint32_t> operands) const {
    if (op == kOpCompositeExtract) {
        const auto composite = composites.find(operands[0]);
        if (operands.size() != 2 || composite == composites.end() || operands[1] >= composite->second.size()) {
            return std::nullopt;
        }
        return value(composite->second[operands[1]]);
    }
    std::vector<std::uint32_t> in;
    for (const std::uint32_t id : operands) {
        const auto known = value(id);
        if (!known) {
            return std::nullopt;
        }
        in.push_back(*known);
    }
    switch (in.size()) {
        case 1: return of_one(op, in[0]);
        case 2: return of_two(op, in[0], in[1]);
        case 3: return op == kOpSelect ? std::optional(in[0] != 0 ? in[1] : in[2]) : std::nullopt;
        default: return std::nullopt;
    }
}

}  // namespace

std::vector<std::uint32_t> specialize(std::span<const std::uint32_t> code, std::span<const std::uint32_t> constants,
                                      std::optional<std::pair<std::uint32_t, std::uint32_t>> constant) {
    std::vector<std::uint32_t> out;
    out.reserve(code.size());
    out.insert(out.end(), code.begin(),
               code.begin() + static_cast<std::ptrdiff_t>(std::min(kHeaderWords, code.size())));

    Known known;
    // result id -> number of the specialization constant
    std::map<std::uint32_t, std::uint32_t> spec_ids;
    std::set<std::uint32_t> bools;
    std::set<std::uint32_t> ints;
    // The place where the local size is told, ahead of the constants that it names.
    std::optional<std::size_t> local_size;
    const auto given = [&](std::uint32_t id) -> std::optional<std::uint32_t> {
        const auto spec = spec_ids.find(id);
        if (spec != spec_ids.end() && constant && constant->first == spec->second) {
            return constant->second;
        }
        return spec != spec_ids.end() && spec->second < constants.size() ? std::optional(constants[spec->second])
                                                                         : std::nullopt;
    };
    const auto chosen = [&](std::uint32_t id, std::uint32_t otherwise) { return given(id).value_or(otherwise); };
    const auto put_bool = [&](std::uint32_t type, std::uint32_t id, bool value) {
        out.insert(out.end(), {head(value ? kOpConstantTrue : kOpConstantFalse, 3), type, id});
        known.values[id] = value ? 1 : 0;
    };
    const auto put_word = [&](std::uint32_t type, std::uint32_t id, std::uint32_t value) {
        out.insert(out.end(), {head(kOpConstant, 4), type, id, value});
        known.values[id] = value;
    };

    for (std::size_t at = kHeaderWords; at < code.size();) {
        const std::uint32_t op = code[at] & 0xffff;
        const std::size_t words = code[at] >> 16;
        if (words == 0 || at + words > code.size()) {
            break;
        }
        const auto w = code.subspan(at, words);
        at += words;
        if (op == kOpDecorate && words == 4 && w[2] == kDecorationSpecId) {
            spec_ids[w[1]] = w[3];
            continue;
        }
        if ((op == kOpSpecConstantTrue || op == kOpSpecConstantFalse) && words == 3) {
            put_bool(w[1], w[2], chosen(w[2], op == kOpSpecConstantTrue) != 0);
            continue;
        }
        if (op == kOpSpecConstant && words == 4) {
            put_word(w[1], w[2], chosen(w[2], w[3]));
            continue;
        }
        if (op == kOpSpecConstant && words == 5) {
            if (const auto value = given(w[2])) {
                if (*value != 0) {
                    throw Error("specialization constant " + std::to_string(spec_ids[w[2]]) +
                                " has 64 bits: it can be given no number but 0");
                }
                out.insert(out.end(), {head(kOpConstant, 5), w[1], w[2], 0, 0});
                continue;
            }
        }
        if (op == kOpSpecConstantOp && words >= 5 && (bools.count(w[1]) != 0 || ints.count(w[1]) != 0)) {
            if (const auto value = known.evaluate(w[3], w.subspan(4))) {
                if (bools.count(w[1]) != 0) {
                    put_bool(w[1], w[2], *value != 0);
                } else {
                    put_word(w[1], w[2], *value);
                }
                continue;
            }
        }
        const std::size_t copied = out.size();
        out.insert(out.end(), w.begin(), w.end());
        if (op == kOpExecutionModeId && words == 6 && w[2] == kExecutionModeLocalSizeId) {
            local_size = copied;
        }
        if (op == kOpTypeBool && words == 2) {
            bools.insert(w[1]);
        } else if (op == kOpTypeInt && words == 4 && w[2] == 32) {
            ints.insert(w[1]);
        } else if ((op == kOpConstantTrue || op == kOpConstantFalse) && words == 3) {
            known.values[w[2]] = op == kOpConstantTrue ? 1 : 0;
        } else if (op == kOpConstant && words == 4 && ints.count(w[1]) != 0) {
            known.values[w[2]] = w[3];
        } else if ((op == kOpSpecConstantComposite || op == kOpConstantComposite) && words >= 4) {
            const auto parts = w.subspan(3);
            known.composites[w[2]].assign(parts.begin(), parts.end());
            if (std::all_of(parts.begin(), parts.end(),
                            [&](std::uint32_t id) { return known.value(id).has_value(); })) {
                out[copied] = head(kOpConstantComposite, words);
            }
        }
    }
    // Told by ids, the local size takes a feature, VK_KHR_maintenance4's, which nothing else here
    // needs.
    if (local_size) {
        std::uint32_t* const mode = out.data() + *local_size;
        const std::optional<std::uint32_t> size[] = {known.value(mode[3]), known.value(mode[4]), known.value(mode[5])};
        if (size[0] && size[1] && size[2]) {
            const std::uint32_t plain[] = {
                head(kOpExecutionMode, 6), mode[1], kExecutionModeLocalSize, *size[0], *size[1], *size[2]};
            std::copy(std::begin(plain), std::end(plain), mode);
        }
    }
    return out;
}

}  // namespace vkf
