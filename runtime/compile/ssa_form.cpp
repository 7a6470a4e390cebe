// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile/ssa_form.h"

#include <algorithm>
#include <set>
#include <utility>

namespace vkf::spv {

namespace {

/// Reads of one part within each other, which take room on the stack.
constexpr std::size_t kMostNested = 64;

/// The blocks that one leads to by its last instruction.
std::set<std::uint32_t> successors(Words end) {
    switch (op_of(end)) {
        case kOpBranch: return {end[1]};
        case kOpBranchConditional: return {end[2], end[3]};
        case kOpSwitch: {
            std::set<std::uint32_t> labels;
            for (std::size_t at = 2; at < end.size(); at += 2) {
                labels.insert(end[at]);
            }
            return labels;
        }
        default: return {};
    }
}

}  // namespace

bool SsaForm::cut(const std::vector<Words>& function) {
    std::map<std::uint32_t, std::size_t> numbers;  // of blocks, by label
    for (const Words i : function) {
        if (op_of(i) == kOpLabel) {
            numbers[i[1]] = blocks_.size();
            blocks_.emplace_back().label = i[1];
        } else if (!blocks_.empty() && op_of(i) != kOpFunctionEnd) {
            blocks_.back().instructions.push_back(i);
        }
    }
    for (std::size_t n = 0; n < blocks_.size(); ++n) {
        if (blocks_[n].instructions.empty()) {
            return false;
        }
        const Words end = blocks_[n].instructions.back();
        if (op_of(end) < kOpBranch || op_of(end) > kOpUnreachable) {
            return false;
        }
        for (const std::uint32_t label : successors(end)) {
            const auto to = numbers.find(label);
            if (to == numbers.end()) {
                return false;
            }
            blocks_[to->second].predecessors.push_back(n);
        }
    }
    return !blocks_.empty();
}

void SsaForm::set_parts(std::vector<std::uint32_t> types) {
    part_types_ = std::move(types);
    for (Block& b : blocks_) {
        b.values.resize(part_types_.size());
    }
}

std::uint32_t SsaForm::undefined(std::uint32_t type) {
    std::uint32_t& id = undefined_[type];
    if (id == 0) {
        id = bound_++;
    }
    return id;
}

std::uint32_t SsaForm::same_in_all(std::size_t part, std::size_t block) {
    const std::vector<std::size_t>& before = blocks_[block].predecessors;
    const auto leads_back = [&](std::size_t from) { return from >= block; };
    if (nested_ == kMostNested || std::any_of(before.begin(), before.end(), leads_back)) {
        return 0;
    }
    ++nested_;
    const std::uint32_t value = read(part, before.front());
    const auto has_it = [&](std::size_t from) { return read(part, from) == value; };
    const bool same = std::all_of(before.begin() + 1, before.end(), has_it);
    --nested_;
    return same ? value : 0;
}

std::uint32_t SsaForm::read(std::size_t part, std::size_t block) {
    // up the blocks that have one predecessor, which may be a ring that is never reached
    const auto leads_up = [&](const Block& b) {
        return b.values[part] == 0 && b.predecessors.size() == 1 && blocks_[b.predecessors.front()].written;
    };
    std::size_t at = block, steps = 0;
    for (; steps < blocks_.size() && leads_up(blocks_[at]); ++steps) {
        at = blocks_[at].predecessors.front();
    }
    Block& top = blocks_[at];
    std::uint32_t value = top.values[part];
    if (value == 0 && (top.predecessors.empty() || leads_up(top))) {
        value = undefined(part_types_[part]);
    } else if (value == 0 && (value = same_in_all(part, at)) == 0) {
        value = bound_++;
        top.phis.push_back(phis_.size());
        phis_.push_back({value, part_types_[part], at, part, {}});
    }
    top.values[part] = value;
    for (at = block; steps > 0; --steps) {
        blocks_[at].values[part] = value;
        at = blocks_[at].predecessors.front();
    }
    return value;
}

void SsaForm::fill_phis() {
    for (std::size_t n = 0; n < phis_.size(); ++n) {
        const std::size_t block = phis_[n].block, part = phis_[n].part;
        for (const std::size_t from : blocks_[block].predecessors) {
            const std::uint32_t value = read(part, from);  // which may add phis
            phis_[n].operands.emplace_back(value, blocks_[from].label);
        }
    }
}

void SsaForm::replace_phis(Replacements& values) {
    const auto replace = [&](Phi& phi) {
        std::uint32_t only = 0;
        for (const auto& operand : phi.operands) {
            const std::uint32_t value = values.of(operand.first);
            if (value != phi.id && only != 0 && value != only) {
                return false;
            }
            only = value != phi.id ? value : only;
        }
        values.set(phi.id, only != 0 ? only : undefined(phi.type));
        phi.gone = true;
        return true;
    };
    // there and back, for the one that decides may be made before or after
    for (bool again = true, back = true; again; back = !back) {
        again = false;
        for (std::size_t i = 0; i < phis_.size(); ++i) {
            Phi& phi = phis_[back ? phis_.size() - 1 - i : i];
            again = (!phi.gone && replace(phi)) || again;
        }
    }
}

void SsaForm::settle(Replacements& values) {
    fill_phis();
    replace_phis(values);
    std::map<std::uint32_t, std::size_t> left;  // numbers, by id
    for (std::size_t n = 0; n < phis_.size(); ++n) {
        if (!phis_[n].gone) {
            left[phis_[n].id] = n;
        }
    }
    // those that are used by an instruction, or by a phi that is used
    std::vector<std::size_t> open;
    const auto use = [&](std::uint32_t id) {
        const auto found = left.find(values.of(id));
        if (found != left.end() && !std::exchange(phis_[found->second].used, true)) {
            open.push_back(found->second);
        }
    };
    for (const Block& b : blocks_) {
        each_instruction(b.code, [&](Words i) { each_id(i, 1, use); });
    }
    while (!open.empty()) {
        const std::size_t n = open.back();
        open.pop_back();
        for (const auto& operand : phis_[n].operands) {
            use(operand.first);
        }
    }
}

void SsaForm::put_block(std::vector<std::uint32_t>& out, std::size_t block) const {
    const Block& b = blocks_[block];
    put(out, {head(kOpLabel, 2), b.label});
    for (const std::size_t n : b.phis) {
        const Phi& phi = phis_[n];
        if (phi.used) {
            put(out, {head(kOpPhi, 3 + 2 * phi.operands.size()), phi.type, phi.id});
            for (const auto& [value, from] : phi.operands) {
                put(out, {value, from});
            }
        }
    }
    put(out, b.code);
}

}  // namespace vkf::spv
