// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile/inline_calls.h"

#include <map>
#include <set>
#include <utility>

#include "runtime/compile/spirv_module.h"

namespace vkf {

using namespace spv;

namespace {

/// Words beyond which no more are copied: calls within calls grow exponentially.
constexpr std::size_t kMostWords = std::size_t{1} << 20;

/// A function with others copied into it.
struct Body {
    std::vector<std::uint32_t> header;  ///< all ahead of its first block
    std::vector<std::uint32_t> code;    ///< its blocks
    std::vector<std::uint32_t> parameters;
    std::uint32_t entry = 0;         ///< its first block
    std::uint32_t return_block = 0;  ///< the block that returns; 0: it may not be copied
    bool done = false;
};

/// The block that returns, if it is the only one and within no loop and no branch; else 0. Follows
/// merge blocks and unconditional branches from the entry block.
std::uint32_t only_return(const std::vector<std::uint32_t>& code) {
    // the merge block of a block's construct, else where its unconditional branch leads
    std::map<std::uint32_t, std::uint32_t> next;
    std::uint32_t label = 0, first = 0, returns = 0, count = 0, blocks = 0;
    each_instruction(code, [&](Words i) {
        switch (op_of(i)) {
            case kOpLabel:
                label = i[1];
                first = first == 0 ? label : first;
                ++blocks;
                break;
            case kOpLoopMerge:
            case kOpSelectionMerge: next[label] = i[1]; break;
            case kOpBranch: next.emplace(label, i[1]); break;
            case kOpReturn:
            case kOpReturnValue:
                returns = label;
                ++count;
                break;
            default: break;
        }
    });
    std::size_t steps = 0;
    for (label = first; label != returns && steps <= next.size(); ++steps) {
        const auto found = next.find(label);
        if (found == next.end()) {
            return 0;
        }
        label = found->second;
    }
    // a function that returns in its first block may hold others, which are never reached
    const bool alone = label != first || blocks == 1;
    return count == 1 && alone && label == returns ? returns : 0;
}

class Inliner {
public:
    Inliner(const ModuleParts& module, std::uint32_t bound) : bound_(bound) {
        for (const auto& f : module.functions) {
            functions_[f.front()[2]] = &f;
        }
        for (const Words i : module.head) {
            if (op_of(i) == kOpDecorate) {
                decorated_.insert(i[1]);
            }
        }
    }

    const Body& body(std::uint32_t function);

    std::uint32_t bound() const { return bound_; }
    /// Functions that are still called, or applied to the elements of a matrix.
    const std::set<std::uint32_t>& called() const { return called_; }
    /// Copies of decorated ids, by the original.
    const std::multimap<std::uint32_t, std::uint32_t>& decorated_as() const { return decorated_as_; }

private:
    /// A block that is being written, and the variables of the function.
    struct Writing {
        std::vector<std::uint32_t> code, variables;
        std::uint32_t block = 0;
        Replacements values;  ///< of the results of calls
        Replacements ends;    ///< of blocks by those in which they end now
    };

    void copy(const Body& from, Words call, Writing& to);
    std::uint32_t fresh(std::uint32_t id);
    std::uint32_t renamed(std::uint32_t id) const {
        return id < renames_.size() && renames_[id] != 0 ? renames_[id] : id;
    }

    std::uint32_t bound_;
    std::size_t words_ = 0;  ///< that were copied
    std::map<std::uint32_t, const std::vector<Words>*> functions_;
    std::map<std::uint32_t, Body> bodies_;
    std::set<std::uint32_t> called_, decorated_;
    std::multimap<std::uint32_t, std::uint32_t> decorated_as_;
    std::map<std::uint32_t, std::uint32_t> original_;  ///< of ids in decorated_as_
    std::vector<std::uint32_t> renames_;               ///< of the copied function's ids; 0: none
};

std::uint32_t Inliner::fresh(std::uint32_t id) {
    const auto copied = original_.find(id);
    const std::uint32_t original = copied == original_.end() ? id : copied->second;
    const std::uint32_t out = bound_++;
    if (decorated_.count(original) != 0) {
        original_[out] = original;
        decorated_as_.emplace(original, out);
    }
    return out;
}

void Inliner::copy(const Body& from, Words call, Writing& to) {
    renames_.resize(bound_);
    std::vector<std::uint32_t> named = from.parameters;
    for (std::size_t k = 0; k < named.size(); ++k) {
        renames_[named[k]] = call[4 + k];
    }
    each_instruction(from.code, [&](Words i) {
        if (const std::uint32_t id = result_of(i); id != 0 && id != from.entry) {
            renames_[id] = fresh(id);
            named.push_back(id);
        }
    });
    renames_[from.entry] = to.block;
    named.push_back(from.entry);
    // The block that returns comes last, whatever order they had: what is behind the call goes on
    // there.
    for (const bool last : {false, true}) {
        std::uint32_t block = 0;
        each_instruction(from.code, [&](Words i) {
            block = op_of(i) == kOpLabel ? i[1] : block;
            if ((block == from.return_block) != last) {
                return;
            }
            switch (op_of(i)) {
                case kOpVariable:
                    put(to.variables, {head(kOpVariable, 4), i[1], renamed(i[2]), i[3]});
                    if (i.size() > 4) {
                        put(to.code, {head(kOpStore, 3), renamed(i[2]), i[4]});
                    }
                    return;
                case kOpReturn: return;
                case kOpReturnValue: to.values.set(call[2], renamed(i[1])); return;
                case kOpLabel: to.block = renamed(block); break;
                default: break;
            }
            if (op_of(i) != kOpLabel || block != from.entry) {
                const std::size_t at = to.code.size();
                put(to.code, i);
                each_place(i, 1, [&](std::size_t word) { to.code[at + word] = renamed(i[word]); });
            }
        });
    }
    for (const std::uint32_t id : named) {
        renames_[id] = 0;
    }
}

const Body& Inliner::body(std::uint32_t function) {
    const auto [found, is_new] = bodies_.try_emplace(function);
    Body& out = found->second;
    if (!is_new) {
        return out;  // unfinished: a function that calls itself, which is not valid
    }
    const auto source = functions_.find(function);
    if (source == functions_.end()) {
        return out;
    }
    std::set<std::uint32_t> loops;
    std::uint32_t label = 0;
    const bool known = has_known_operands(*source->second);
    for (const Words i : *source->second) {
        label = op_of(i) == kOpLabel ? i[1] : label;
        if (op_of(i) == kOpLoopMerge) {
            loops.insert(label);
        }
    }
    Writing to;
    std::size_t after_variables = 0;
    // the function's own: phis of copied functions already name the new blocks
    std::vector<std::size_t> phis;
    std::uint32_t own = 0;  // the function's own block
    for (const Words i : *source->second) {
        if (op_of(i) == kOpFunctionParameter) {
            out.parameters.push_back(i[2]);
        }
        if (own == 0 && op_of(i) != kOpLabel) {
            put(out.header, i);
            continue;
        }
        switch (op_of(i)) {
            case kOpFunctionEnd: continue;
            case kOpLabel:
                own = to.block = i[1];
                out.entry = out.entry == 0 ? own : out.entry;
                break;
            case kOpFunctionCall: {
                const Body& callee = body(i[3]);
                // a loop's first block must stay the one that is led back to
                const bool fits = known && callee.done && callee.return_block != 0 &&
                                  i.size() == 4 + callee.parameters.size() &&
                                  (callee.return_block == callee.entry || loops.count(own) == 0) &&
                                  words_ + callee.code.size() < kMostWords;
                if (fits) {
                    words_ += callee.code.size();
                    copy(callee, i, to);
                    continue;
                }
                called_.insert(i[3]);
                break;
            }
            case kOpCooperativeMatrixPerElementOp:
            case kOpCooperativeMatrixReduce: {
                const std::uint32_t applied = i[op_of(i) == kOpCooperativeMatrixReduce ? 5 : 4];
                body(applied);
                called_.insert(applied);
                break;
            }
            default: break;
        }
        if (op_of(i) == kOpPhi) {
            phis.push_back(to.code.size());
        }
        put(to.code, i);
        if (own == out.entry && (op_of(i) == kOpVariable || op_of(i) == kOpLabel)) {
            after_variables = to.code.size();
        }
        if (op_of(i) >= kOpBranch && op_of(i) <= kOpUnreachable && to.block != own) {
            to.ends.set(own, to.block);
        }
    }
    for (const std::size_t at : phis) {
        for (std::size_t from = 4; from < to.code[at] >> 16; from += 2) {
            to.code[at + from] = to.ends.of(to.code[at + from]);
        }
    }
    to.code.insert(to.code.begin() + static_cast<std::ptrdiff_t>(after_variables), to.variables.begin(),
                   to.variables.end());
    out.code = std::move(to.code);
    to.values.apply(out.code, 0);
    const bool may_be_copied = known && (source->second->front()[3] & kFunctionControlDontInline) == 0;
    out.return_block = may_be_copied ? only_return(out.code) : 0;
    out.done = true;
    return out;
}

/// Appends what precedes the functions, without what is said of ids that are gone, and with what
/// holds of copies too.
void put_head(std::vector<std::uint32_t>& out, const std::vector<Words>& module, const Ids& gone,
              const std::multimap<std::uint32_t, std::uint32_t>& decorated_as) {
    for (const Words i : module) {
        const std::uint32_t op = op_of(i);
        if (op != kOpDecorate) {
            if (op != kOpName || !gone.contains(i[1])) {
                put(out, i);
            }
            continue;
        }
        if (!gone.contains(i[1])) {
            put(out, i);
        }
        const auto [begin, end] = decorated_as.equal_range(i[1]);
        for (auto copy = begin; copy != end; ++copy) {
            if (!gone.contains(copy->second)) {
                put(out, i);
                out[out.size() - i.size() + 1] = copy->second;
            }
        }
    }
}

}  // namespace

std::vector<std::uint32_t> inline_calls(const std::vector<std::uint32_t>& code) {
    const auto module = split_module(code);
    if (!module || !is_plain(*module) || module->functions.size() > kMostFunctions) {
        return code;
    }
    std::set<std::uint32_t> kept;
    Inliner inliner(*module, code[kHeaderBound]);
    for (const Words i : module->head) {
        if (op_of(i) == kOpEntryPoint) {
            kept.insert(i[2]);
            inliner.body(i[2]);
        }
    }
    kept.insert(inliner.called().begin(), inliner.called().end());
    if (inliner.bound() > kMostIds) {
        return code;
    }
    std::vector<std::uint32_t> functions;
    for (const std::vector<Words>& f : module->functions) {
        if (kept.count(f.front()[2]) == 0) {
            continue;
        }
        const Body& body = inliner.body(f.front()[2]);
        put(functions, body.header);
        put(functions, body.code);
        functions.push_back(head(kOpFunctionEnd, 1));
    }
    Ids left(inliner.bound()), gone(inliner.bound());
    each_instruction(functions, [&](Words i) { left.insert(result_of(i)); });
    for (const std::vector<Words>& f : module->functions) {
        for (const Words i : f) {
            if (!left.contains(result_of(i))) {
                gone.insert(result_of(i));
            }
        }
    }
    for (const auto& [original, copy] : inliner.decorated_as()) {
        if (!left.contains(copy)) {
            gone.insert(copy);
        }
    }
    std::vector<std::uint32_t> out(code.begin(), code.begin() + kHeaderWords);
    out[kHeaderBound] = inliner.bound();
    put_head(out, module->head, gone, inliner.decorated_as());
    put(out, functions);
    return out;
}

}  // namespace vkf
