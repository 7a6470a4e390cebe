// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile/inline_calls.h"

#include <map>
#include <set>
#include <utility>

#include "runtime/compile/spirv_module.h"

namespace vkf {

using namespace spv;

namespace {

/// Words beyond which a function takes in no other: calls within calls grow exponentially.
constexpr std::size_t kMostWords = std::size_t{1} << 20;
/// Functions beyond which a module stays as it is: a chain of calls is followed by recursion.
constexpr std::size_t kMostFunctions = 1000;

/// A function with others copied into it.
struct Body {
    std::vector<std::uint32_t> code;  ///< its blocks alone
    std::vector<std::uint32_t> parameters;
    std::uint32_t entry = 0;   ///< its first block
    std::uint32_t leaves = 0;  ///< the block that returns; 0: it may not be copied
    bool done = false;
};

/// The block by which a function returns, if that is the only one and within no loop and no branch:
/// on the way from construct to construct that begins with the function.
std::uint32_t only_return(const std::vector<std::uint32_t>& code) {
    // where a construct ends, or an unconditional branch leads
    std::map<std::uint32_t, std::uint32_t> next;
    std::uint32_t label = 0, first = 0, returns = 0, count = 0, blocks = 0;
    bool known = true;
    each_instruction(code, [&](Words i) {
        known = known && has_known_operands(i);
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
    // no block behind the return that is never reached
    const bool alone = label != first || blocks == 1;
    return known && count == 1 && alone && label == returns ? returns : 0;
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
    /// Ids that are decorated as others are, behind those.
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
    std::map<std::uint32_t, const std::vector<Words>*> functions_;
    std::map<std::uint32_t, Body> bodies_;
    std::set<std::uint32_t> called_, decorated_;
    std::multimap<std::uint32_t, std::uint32_t> decorated_as_;
    std::map<std::uint32_t, std::uint32_t> original_;  ///< of ids in decorated_as_
    std::vector<std::uint32_t> renames_;               ///< of the function that is being copied; 0: itself
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
            if ((block == from.leaves) != last) {
                return;
            }
            switch (op_of(i)) {
                case kOpVariable:
                    to.variables.insert(to.variables.end(), {head(kOpVariable, 4), i[1], renamed(i[2]), i[3]});
                    if (i.size() > 4) {
                        to.code.insert(to.code.end(), {head(kOpStore, 3), renamed(i[2]), i[4]});
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
    bool known = true;
    for (const Words i : *source->second) {
        known = known && has_known_operands(i);
        label = op_of(i) == kOpLabel ? i[1] : label;
        if (op_of(i) == kOpLoopMerge) {
            loops.insert(label);
        }
    }
    Writing to;
    std::size_t after_variables = 0;
    std::vector<std::size_t> phis;  // the function's own; those of others name blocks as they are
    std::uint32_t own = 0;          // the function's own block
    for (const Words i : *source->second) {
        switch (op_of(i)) {
            case kOpFunction:
            case kOpFunctionEnd: continue;
            case kOpFunctionParameter: out.parameters.push_back(i[2]); continue;
            case kOpLabel:
                own = to.block = i[1];
                out.entry = out.entry == 0 ? own : out.entry;
                break;
            case kOpFunctionCall: {
                const Body& callee = body(i[3]);
                // a loop's first block must stay the one that is led back to
                const bool fits = known && callee.done && callee.leaves != 0 &&
                                  i.size() == 4 + callee.parameters.size() &&
                                  (callee.leaves == callee.entry || loops.count(own) == 0) &&
                                  to.code.size() + callee.code.size() < kMostWords;
                if (fits) {
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
    out.leaves = only_return(out.code);
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
    if (!module || module->functions.size() > kMostFunctions) {
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
        for (std::size_t n = 0; n < f.size() && (op_of(f[n]) == kOpFunction || op_of(f[n]) == kOpFunctionParameter);
             ++n) {
            put(functions, f[n]);
        }
        const Body& body = inliner.body(f.front()[2]);
        functions.insert(functions.end(), body.code.begin(), body.code.end());
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
    out.insert(out.end(), functions.begin(), functions.end());
    return out;
}

}  // namespace vkf
