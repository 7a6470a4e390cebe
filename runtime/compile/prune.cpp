// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile/prune.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "runtime/compile/spirv_words.h"

namespace vkf {

using namespace spv;

namespace {

using Words = std::span<const std::uint32_t>;

std::uint32_t op_of(Words instruction) { return instruction[0] & 0xffff; }

/// A set of ids that are below a bound.
class Ids {
public:
    explicit Ids(std::size_t bound) : in_(bound) {}
    void insert(std::uint32_t id) {
        if (id < in_.size()) {
            in_[id] = true;
        }
    }
    bool contains(std::uint32_t id) const { return id < in_.size() && in_[id]; }
    std::size_t bound() const { return in_.size(); }

private:
    std::vector<bool> in_;
};

/// Where an instruction has literals: from one word to before another. Of those that are not told
/// apart here all words may be ids.
std::pair<std::size_t, std::size_t> literals_of(Words i) {
    switch (op_of(i)) {
        case kOpCapability: return {1, i.size()};
        case kOpTypeInt:
        case kOpTypeFloat:
        case kOpSelectionMerge: return {2, i.size()};
        case kOpTypePointer: return {2, 3};
        case kOpConstant:
        case kOpSpecConstant:
        case kOpTypeVector:
        case kOpTypeMatrix:
        case kOpLoopMerge: return {3, i.size()};
        case kOpFunction:
        case kOpSpecConstantOp:
        case kOpVariable:
        case kOpStore: return {3, 4};  // behind the kind of access there may be ids of scopes
        case kOpCompositeExtract:
        case kOpBranchConditional: return {4, i.size()};
        case kOpLoad:
        case kOpExtInst: return {4, 5};
        case kOpVectorShuffle:
        case kOpCompositeInsert: return {5, i.size()};
        default: return {0, 0};
    }
}

/// Calls `visit` with each id that an instruction names from a word on. Literals that are not known
/// to be some count too: too much stays rather than too little.
template <typename Visit>
void each_id(Words i, std::size_t from, Visit visit) {
    const auto [begin, end] = literals_of(i);
    for (std::size_t at = from; at < i.size(); ++at) {
        const bool number_of_case = op_of(i) == kOpSwitch && at >= 3 && at % 2 == 1;
        if ((at < begin || at >= end) && !number_of_case) {
            visit(i[at]);
        }
    }
}

bool names_any(Words i, const Ids& ids) {
    bool found = false;
    each_id(i, 1, [&](std::uint32_t id) { found = found || ids.contains(id); });
    return found;
}

/// The id that an instruction of a function defines; 0: none.
std::uint32_t result_of(Words i) {
    switch (op_of(i)) {
        case kOpLabel: return i[1];
        case kOpNop:
        case kOpLine:
        case kOpNoLine:
        case kOpStore:
        case kOpCopyMemory:
        case kOpControlBarrier:
        case kOpMemoryBarrier:
        case kOpCooperativeMatrixStore:
        case kOpAtomicStore: return 0;
        default: return op_of(i) >= kOpLoopMerge && op_of(i) <= kOpUnreachable ? 0 : i.size() > 2 ? i[2] : 0;
    }
}

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
    explicit Function(std::vector<Words> instructions) : instructions_(std::move(instructions)) {
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

    std::uint32_t id() const { return instructions_.front()[2]; }

    /// `known` are the booleans known so far; those of the function's own are added. Blocks come
    /// after those that dominate them, so one pass suffices.
    void find_live(std::map<std::uint32_t, bool>& known) {
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
            const auto condition =
                op_of(b.terminator) == kOpBranchConditional ? known.find(b.terminator[1]) : known.end();
            const bool loop = !b.merge.empty() && op_of(b.merge) == kOpLoopMerge;
            if (condition != known.end() && !loop && !b.merge.empty()) {
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
                }
            }
        }
        join();
    }

    std::vector<std::uint32_t> called() const {
        std::vector<std::uint32_t> out;
        for (const Block& b : blocks_) {
            for (const Words i : b.body) {
                if (b.live && op_of(i) == kOpFunctionCall) {
                    out.push_back(i[3]);
                } else if (b.live && op_of(i) == kOpCooperativeMatrixPerElementOp) {
                    out.push_back(i[4]);
                }
            }
        }
        return out;
    }

    /// Appends what is left of the function, and to `gone` what is not.
    void write(std::vector<std::uint32_t>& out, Ids& gone) const {
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
        const auto put = [&](Words i) { out.insert(out.end(), i.begin(), i.end()); };
        for (const Words i : instructions_) {
            if (op_of(i) == kOpLabel) {
                break;
            }
            put(i);
        }
        for (const Block& b : blocks_) {
            if (joined_.count(b.label) != 0) {
                gone.insert(b.label);
                continue;
            }
            if (b.live) {
                out.insert(out.end(), {head(kOpLabel, 2), b.label});
                const Block* last = &b;
                for (const Block* part = &b; part != nullptr; part = part->next) {
                    last = part;
                    for (const Words i : part->body) {
                        if (op_of(i) == kOpVariable && !used.contains(i[2])) {
                            gone.insert(i[2]);
                        } else if (op_of(i) == kOpPhi) {
                            put_phi(i, part->label, out);
                        } else {
                            put(i);
                        }
                    }
                }
                if (last->taken) {
                    out.insert(out.end(), {head(kOpBranch, 2), *last->taken});
                } else {
                    put(last->merge);
                    put(last->terminator);
                }
                continue;
            }
            for (const Words i : b.body) {
                gone.insert(result_of(i));
            }
            if (const auto loop = continues_.find(b.label); loop != continues_.end()) {
                out.insert(out.end(), {head(kOpLabel, 2), b.label, head(kOpBranch, 2), loop->second});
            } else if (named_.count(b.label) != 0) {
                out.insert(out.end(), {head(kOpLabel, 2), b.label, head(kOpUnreachable, 1)});
            } else {
                gone.insert(b.label);
            }
        }
        put(instructions_.back());
    }

    void drop(Ids& gone) const {
        for (const Words i : instructions_) {
            gone.insert(result_of(i));
        }
    }

private:
    std::vector<std::uint32_t> successors(const Block& b) const {
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

    std::optional<bool> evaluate(Words i, std::uint32_t label, const std::map<std::uint32_t, bool>& known) const {
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

    void put_phi(Words i, std::uint32_t label, std::vector<std::uint32_t>& out) const {
        const std::size_t first = out.size();
        out.insert(out.end(), i.begin(), i.begin() + 3);
        for (std::size_t at = 3; at + 1 < i.size(); at += 2) {
            if (edges_.count({i[at + 1], label}) != 0) {
                std::uint32_t from = i[at + 1];
                for (auto to = joined_.find(from); to != joined_.end(); to = joined_.find(from)) {
                    from = to->second;
                }
                out.insert(out.end(), {i[at], from});
            }
        }
        out[first] = head(kOpPhi, out.size() - first);
    }

    /// Joins to each block the one that only it leads to, where nothing else names that one.
    void join() {
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

    std::vector<Words> instructions_;
    std::vector<Block> blocks_;
    std::set<std::pair<std::uint32_t, std::uint32_t>> edges_;  ///< from a live block to another
    std::set<std::uint32_t> visited_;
    std::set<std::uint32_t> named_;
    std::map<std::uint32_t, std::uint32_t> continues_;  ///< continue target -> its loop's header
    std::map<std::uint32_t, std::uint32_t> joined_;     ///< a block -> the one that it is a part of
};

/// Functions in order, from those that entry points name on along the calls of live blocks.
std::set<std::uint32_t> reachable(const std::vector<Function>& functions, std::vector<std::uint32_t> open) {
    std::set<std::uint32_t> found;
    while (!open.empty()) {
        const std::uint32_t id = open.back();
        open.pop_back();
        if (!found.insert(id).second) {
            continue;
        }
        for (const Function& f : functions) {
            if (f.id() == id) {
                const std::vector<std::uint32_t> called = f.called();
                open.insert(open.end(), called.begin(), called.end());
            }
        }
    }
    return found;
}

bool is_about(std::uint32_t op) {
    return op == kOpName || op == kOpMemberName || op == kOpDecorate || op == kOpMemberDecorate;
}

/// The id that an instruction ahead of the functions defines; 0: none.
std::uint32_t defined_by(Words i) {
    const std::uint32_t op = op_of(i);
    if (op >= kOpTypeVoid && op <= kOpTypeFunction) {
        return i[1];
    }
    return (op >= kOpConstantTrue && op <= kOpSpecConstantOp) || op == kOpVariable ? i[2] : 0;
}

/// Takes out what defines the ids, and what is said about them.
void drop(std::vector<Words>& module, const Ids& ids) {
    std::erase_if(module, [&](Words i) { return ids.contains(is_about(op_of(i)) ? i[1] : defined_by(i)); });
}

/// Takes out 64-bit integers and what is made of them, ahead of the functions, where these and the
/// entry points name nothing of that.
void drop_int64(std::vector<Words>& module, Words functions, std::size_t bound) {
    Ids wide(bound);
    bool any = false;
    for (const Words i : module) {
        const std::uint32_t id = defined_by(i);
        if (id != 0 && ((op_of(i) == kOpTypeInt && i[2] == 64) || names_any(i, wide))) {
            wide.insert(id);
            any = true;
        }
    }
    if (!any) {
        return;
    }
    for (const Words i : module) {
        if (op_of(i) == kOpEntryPoint && names_any(i, wide)) {
            return;
        }
    }
    for (std::size_t at = 0; at < functions.size(); at += functions[at] >> 16) {
        if (names_any(functions.subspan(at, functions[at] >> 16), wide)) {
            return;
        }
    }
    drop(module, wide);
    std::erase_if(module, [](Words i) { return op_of(i) == kOpCapability && i[1] == kCapabilityInt64; });
}

/// Takes out the numbers, booleans and variables of an invocation that nothing names.
void drop_unused(std::vector<Words>& module, Words functions, std::size_t bound) {
    Ids used(bound);
    const auto use = [&](std::uint32_t id) { used.insert(id); };
    for (const Words i : module) {
        if (!is_about(op_of(i))) {
            each_id(i, defined_by(i) == 0 || defined_by(i) == i[1] ? 2 : 3, use);
        }
    }
    for (std::size_t at = 0; at < functions.size(); at += functions[at] >> 16) {
        each_id(functions.subspan(at, functions[at] >> 16), 1, use);
    }
    Ids unused(bound);
    for (const Words i : module) {
        const std::uint32_t op = op_of(i);
        const bool constant = op == kOpConstant || op == kOpConstantTrue || op == kOpConstantFalse;
        const bool own = op == kOpVariable && i[3] == kStoragePrivate;
        if ((constant || own) && !used.contains(i[2])) {
            unused.insert(i[2]);
        }
    }
    drop(module, unused);
}

}  // namespace

std::vector<std::uint32_t> prune(const std::vector<std::uint32_t>& code) {
    if (code.size() < kHeaderWords || code[kHeaderBound] > kMostIds) {
        return code;
    }
    const std::size_t bound = code[kHeaderBound];
    std::vector<Words> module;  // all before the first function
    std::vector<Function> functions;
    std::vector<Words> current;
    std::map<std::uint32_t, bool> known;
    std::vector<std::uint32_t> entries;
    for (std::size_t at = kHeaderWords; at < code.size();) {
        const std::size_t words = code[at] >> 16;
        if (words == 0 || at + words > code.size()) {
            return code;
        }
        const Words i = Words(code).subspan(at, words);
        at += words;
        const std::uint32_t op = op_of(i);
        if (op == kOpFunction || !current.empty()) {
            current.push_back(i);
            if (op == kOpFunctionEnd) {
                functions.emplace_back(std::move(current));
                current.clear();
            }
            continue;
        }
        module.push_back(i);
        if (op == kOpEntryPoint) {
            entries.push_back(i[2]);
        } else if (op == kOpConstantTrue || op == kOpConstantFalse) {
            known[i[2]] = op == kOpConstantTrue;
        }
    }
    for (Function& f : functions) {
        f.find_live(known);
    }
    const std::set<std::uint32_t> kept = reachable(functions, std::move(entries));
    std::vector<std::uint32_t> bodies;
    Ids gone(bound);
    for (const Function& f : functions) {
        if (kept.count(f.id()) != 0) {
            f.write(bodies, gone);
        } else {
            f.drop(gone);
        }
    }
    drop_int64(module, bodies, bound);
    drop_unused(module, bodies, bound);
    std::vector<std::uint32_t> out(code.begin(), code.begin() + kHeaderWords);
    out.reserve(code.size());
    for (const Words i : module) {
        if (!is_about(op_of(i)) || !gone.contains(i[1])) {
            out.insert(out.end(), i.begin(), i.end());
        }
    }
    out.insert(out.end(), bodies.begin(), bodies.end());
    return out;
}

void keep_loops(std::vector<std::uint32_t>& code) {
    std::size_t words = 0;
    for (std::size_t at = kHeaderWords; at < code.size(); at += words) {
        words = code[at] >> 16;
        if (words == 0 || at + words > code.size()) {
            return;
        }
        if (op_of(Words(code).subspan(at, words)) == kOpLoopMerge && words > 3 && code[at + 3] == kLoopControlNone) {
            code[at + 3] = kLoopControlDontUnroll;
        }
    }
}

}  // namespace vkf
