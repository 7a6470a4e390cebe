// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile/prune_function.h"

#include "runtime/compile/spirv_module.h"

namespace vkf::spv {

Function::Function(std::vector<Words> instructions) : instructions_(std::move(instructions)) {
    for (const Words i : instructions_) {
        if (op_of(i) == kOpLabel) {
            blocks_.emplace_back().label = i[1];
        } else if (blocks_.empty() || op_of(i) == kOpFunctionEnd) {
            continue;
        } else if (op_of(i) == kOpLoopMerge || op_of(i) == kOpSelectionMerge) {
            blocks_.back().merge = i;
        } else if (op_of(i) >= kOpBranch && op_of(i) <= kOpUnreachable) {
            blocks_.back().terminator = i;
        } else {
            blocks_.back().body.push_back(i);
        }
    }
}

bool Function::follows_control() const {
    std::map<std::uint32_t, bool> headers;  // of loops, among the blocks so far
    for (const Block& b : blocks_) {
        headers[b.label] = !b.merge.empty() && op_of(b.merge) == kOpLoopMerge;
        for (const std::uint32_t to : successors(b)) {
            const auto back = headers.find(to);
            if (back != headers.end() && !back->second) {
                return false;
            }
        }
    }
    return true;
}

void Function::find_live(std::map<std::uint32_t, bool>& known) {
    if (!has_short_cases(instructions_) || !follows_control()) {
        whole_ = true;
        for (Block& b : blocks_) {
            b.live = true;
        }
        return;
    }
    // Where branches without a merge lead to: such a one may leave a selection for its merge block,
    // and is valid inside it alone.
    std::set<std::uint32_t> left_for;
    for (const Block& b : blocks_) {
        if (b.merge.empty() && op_of(b.terminator) == kOpBranchConditional) {
            left_for.insert(b.terminator[2]);
            left_for.insert(b.terminator[3]);
        }
    }
    std::set<std::uint32_t> reached;
    for (Block& b : blocks_) {
        if (&b != &blocks_.front() && reached.count(b.label) == 0) {
            visited_.insert(b.label);
            continue;
        }
        b.live = true;
        for (const Words i : b.body) {
            if (const auto value = evaluate(i, b.label, known)) {
                known[i[2]] = *value;
            }
        }
        const auto condition = op_of(b.terminator) == kOpBranchConditional ? known.find(b.terminator[1]) : known.end();
        const bool loop = !b.merge.empty() && op_of(b.merge) == kOpLoopMerge;
        if (condition != known.end() && !loop && !b.merge.empty() && left_for.count(b.merge[1]) == 0) {
            b.taken = b.terminator[condition->second ? 2 : 3];
        }
        for (const std::uint32_t to : successors(b)) {
            reached.insert(to);
            edges_.insert({b.label, to});
        }
        visited_.insert(b.label);
    }
    // The block at which a construct that stays is said to end must be there.
    for (const Block& b : blocks_) {
        if (b.live && !b.taken && !b.merge.empty()) {
            named_.insert(b.merge[1]);
            if (op_of(b.merge) == kOpLoopMerge) {
                continues_[b.merge[2]] = b.label;
                edges_.insert({b.merge[2], b.label});
                if (reached.count(b.merge[2]) == 0) {
                    idle_continues_[b.label] = b.merge[2];
                }
            }
        }
    }
    join();
}

std::vector<std::uint32_t> Function::called() const {
    std::vector<std::uint32_t> out;
    for (const Block& b : blocks_) {
        for (const Words i : b.body) {
            if (b.live && op_of(i) == kOpFunctionCall) {
                out.push_back(i[3]);
            } else if (b.live && op_of(i) == kOpCooperativeMatrixPerElementOp) {
                out.push_back(i[4]);
            } else if (b.live && op_of(i) == kOpCooperativeMatrixReduce) {
                out.push_back(i[5]);
            }
        }
    }
    return out;
}

void Function::write(std::vector<std::uint32_t>& out, Ids& gone) const {
    Ids used(gone.bound());
    const auto use = [&](std::uint32_t id) { used.insert(id); };
    for (const Block& b : blocks_) {
        for (const Words i : b.body) {
            if (b.live) {
                each_id(i, op_of(i) == kOpVariable ? 3 : 1, use);
            }
        }
        each_id(b.terminator, 1, use);
    }
    for (const Words i : instructions_) {
        if (op_of(i) == kOpLabel) {
            break;
        }
        put(out, i);
    }
    for (const Block& b : blocks_) {
        if (joined_.count(b.label) != 0) {
            gone.insert(b.label);
            continue;
        }
        if (b.live) {
            put(out, {head(kOpLabel, 2), b.label});
            const Block* last = &b;
            for (const Block* part = &b; part != nullptr; part = part->next) {
                last = part;
                for (const Words i : part->body) {
                    if (op_of(i) == kOpVariable && !used.contains(i[2])) {
                        gone.insert(i[2]);
                    } else if (op_of(i) == kOpPhi) {
                        put_phi(i, part->label, out);
                    } else {
                        put(out, i);
                    }
                }
            }
            if (last->taken) {
                put(out, {head(kOpBranch, 2), *last->taken});
            } else {
                put(out, last->merge);
                put(out, last->terminator);
            }
            continue;
        }
        for (const Words i : b.body) {
            gone.insert(result_of(i));
        }
        if (const auto loop = continues_.find(b.label); loop != continues_.end()) {
            put(out, {head(kOpLabel, 2), b.label, head(kOpBranch, 2), loop->second});
        } else if (named_.count(b.label) != 0) {
            put(out, {head(kOpLabel, 2), b.label, head(kOpUnreachable, 1)});
        } else {
            gone.insert(b.label);
        }
    }
    put(out, instructions_.back());
}

void Function::drop(Ids& gone) const {
    for (const Words i : instructions_) {
        gone.insert(result_of(i));
    }
}

std::vector<std::uint32_t> Function::successors(const Block& b) const {
    const Words t = b.terminator;
    if (b.taken) {
        return {*b.taken};
    }
    switch (op_of(t)) {
        case kOpBranch: return {t[1]};
        case kOpBranchConditional: return {t[2], t[3]};
        case kOpSwitch: {  // the default's label, then pairs of a 32-bit literal and a label
            std::vector<std::uint32_t> out;
            for (std::size_t i = 2; i < t.size(); i += 2) {
                out.push_back(t[i]);
            }
            return out;
        }
        default: return {};
    }
}

std::optional<bool> Function::evaluate(Words i, std::uint32_t label, const std::map<std::uint32_t, bool>& known) const {
    const auto value = [&](std::uint32_t id) -> std::optional<bool> {
        const auto found = known.find(id);
        return found == known.end() ? std::nullopt : std::optional(found->second);
    };
    switch (op_of(i)) {
        case kOpLogicalNot: return value(i[3]) ? std::optional(!*value(i[3])) : std::nullopt;
        case kOpLogicalAnd:
        case kOpLogicalOr: {
            // either operand, when it has this value
            const bool settles = op_of(i) == kOpLogicalOr;
            if (value(i[3]) == settles || value(i[4]) == settles) {
                return settles;
            }
            return value(i[3]) && value(i[4]) ? std::optional(!settles) : std::nullopt;
        }
        case kOpPhi: {
            std::optional<bool> common;
            for (std::size_t at = 3; at + 1 < i.size(); at += 2) {
                if (visited_.count(i[at + 1]) == 0) {
                    return std::nullopt;  // a loop's way back
                }
                if (edges_.count({i[at + 1], label}) == 0) {
                    continue;
                }
                const auto v = value(i[at]);
                if (!v || (common && *common != *v)) {
                    return std::nullopt;
                }
                common = v;
            }
            return common;
        }
        default: return std::nullopt;
    }
}

void Function::put_phi(Words i, std::uint32_t label, std::vector<std::uint32_t>& out) const {
    const std::size_t first = out.size();
    out.insert(out.end(), i.begin(), i.begin() + 3);
    const auto idle = idle_continues_.find(label);
    for (std::size_t at = 3; at + 1 < i.size(); at += 2) {
        if (idle != idle_continues_.end() && i[at + 1] == idle->second) {
            continue;
        }
        if (whole_ || edges_.count({i[at + 1], label}) != 0) {
            std::uint32_t from = i[at + 1];
            for (auto to = joined_.find(from); to != joined_.end(); to = joined_.find(from)) {
                from = to->second;
            }
            put(out, {i[at], from});
        }
    }
    if (idle != idle_continues_.end()) {
        put(out, {result_of(i), idle->second});  // nobody comes that way; its own id is there
    }
    out[first] = head(kOpPhi, out.size() - first);
}

void Function::join() {
    std::map<std::uint32_t, Block*> by_label;
    std::map<std::uint32_t, std::size_t> ways;
    for (Block& b : blocks_) {
        by_label[b.label] = &b;
    }
    for (const auto& [from, to] : edges_) {
        ++ways[to];
    }
    for (Block& b : blocks_) {
        const bool straight = b.taken || (b.merge.empty() && op_of(b.terminator) == kOpBranch);
        if (!b.live || !straight) {
            continue;
        }
        const std::uint32_t to = successors(b).front();
        Block* const next = by_label[to];
        const bool phi = next != nullptr && !next->body.empty() && op_of(next->body.front()) == kOpPhi;
        if (next != nullptr && !phi && ways[to] == 1 && named_.count(to) == 0 && continues_.count(to) == 0) {
            b.next = next;
            joined_[to] = b.label;
        }
    }
}

}  // namespace vkf::spv
