// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile/prune.h"

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <utility>

#include "runtime/compile/prune_function.h"
#include "runtime/compile/spirv_module.h"

namespace vkf {

using namespace spv;

namespace {

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
    std::erase_if(module, [&](Words i) { return ids.contains(is_about(i) ? i[1] : defined_by(i)); });
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

/// Asks for subgroups alone, not for arithmetic of theirs or for exchanges within quads, where the
/// functions have none of these.
void drop_operations(std::vector<Words>& module, Words functions) {
    static constexpr std::uint32_t kAlone[] = {2u << 16 | kOpCapability, kCapabilityGroupNonUniform};
    bool arithmetic = false, quads = false;
    for (std::size_t at = 0; at < functions.size(); at += functions[at] >> 16) {
        const std::uint32_t op = functions[at] & 0xffff;
        arithmetic = arithmetic || (op >= kOpGroupNonUniformIAdd && op <= kOpGroupNonUniformLogicalXor);
        quads = quads || op == kOpGroupNonUniformQuadBroadcast || op == kOpGroupNonUniformQuadSwap;
    }
    bool alone = std::any_of(module.begin(), module.end(),
                             [](Words i) { return op_of(i) == kOpCapability && i[1] == kCapabilityGroupNonUniform; });
    for (Words& i : module) {
        if (op_of(i) == kOpCapability && ((i[1] == kCapabilityGroupNonUniformArithmetic && !arithmetic) ||
                                          (i[1] == kCapabilityGroupNonUniformQuad && !quads))) {
            i = std::exchange(alone, true) ? Words() : Words(kAlone);  // they implied it
        }
    }
    std::erase_if(module, [](Words i) { return i.empty(); });
}

/// Takes out what tells of subgroups, ahead of the functions, where these have nothing of that.
/// `made` keeps instructions that are new.
void drop_subgroups(std::vector<Words>& module, Words functions, std::size_t bound,
                    std::deque<std::vector<std::uint32_t>>& made) {
    const auto of_subgroups = [](Words i) {
        return op_of(i) == kOpCapability && i[1] >= kCapabilityGroupNonUniform &&
               i[1] <= kCapabilityGroupNonUniformQuad;
    };
    if (std::none_of(module.begin(), module.end(), of_subgroups)) {
        return;
    }
    const auto tells = [](std::uint32_t built_in) {
        return (built_in >= kBuiltInSubgroupSize && built_in <= kBuiltInSubgroupLocalInvocationId) ||
               (built_in >= kBuiltInSubgroupEqMask && built_in <= kBuiltInSubgroupLtMask);
    };
    Ids told(bound);  // variables that tell of an invocation's subgroup
    for (const Words i : module) {
        if (op_of(i) == kOpDecorate && i[2] == kDecorationBuiltIn && tells(i[3])) {
            told.insert(i[1]);
        }
    }
    for (std::size_t at = 0; at < functions.size(); at += functions[at] >> 16) {
        const Words i = functions.subspan(at, functions[at] >> 16);
        if ((op_of(i) >= kOpGroupNonUniformElect && op_of(i) <= kOpGroupNonUniformQuadSwap) || names_any(i, told)) {
            return;
        }
    }
    for (Words& i : module) {
        if (op_of(i) == kOpEntryPoint) {
            i = made.emplace_back(without(i, told));
        }
    }
    drop(module, told);
    std::erase_if(module, of_subgroups);
}

/// Takes out numbers, booleans and the variables of an invocation or a group that nothing names.
void drop_unused(std::vector<Words>& module, Words functions, std::size_t bound) {
    Ids used(bound);
    const auto use = [&](std::uint32_t id) { used.insert(id); };
    for (const Words i : module) {
        if (!is_about(i)) {
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
        const bool own = op == kOpVariable && (i[3] == kStoragePrivate || i[3] == kStorageWorkgroup);
        if ((constant || own) && !used.contains(i[2])) {
            unused.insert(i[2]);
        }
    }
    drop(module, unused);
}

}  // namespace

std::vector<std::uint32_t> prune(const std::vector<std::uint32_t>& code) {
    auto parts = split_module(code);
    if (!parts) {
        return code;
    }
    const std::size_t bound = code[kHeaderBound];
    std::vector<Words>& module = parts->head;
    std::vector<Function> functions;
    for (std::vector<Words>& f : parts->functions) {
        functions.emplace_back(std::move(f));
    }
    std::map<std::uint32_t, bool> known;
    std::vector<std::uint32_t> entries;
    for (const Words i : module) {
        const std::uint32_t op = op_of(i);
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
    std::deque<std::vector<std::uint32_t>> made;
    drop_int64(module, bodies, bound);
    drop_operations(module, bodies);
    drop_subgroups(module, bodies, bound, made);
    drop_unused(module, bodies, bound);
    std::vector<std::uint32_t> out(code.begin(), code.begin() + kHeaderWords);
    out.reserve(code.size());
    for (const Words i : module) {
        if (!is_about(i) || !gone.contains(i[1])) {
            out.insert(out.end(), i.begin(), i.end());
        }
    }
    out.insert(out.end(), bodies.begin(), bodies.end());
    return out;
}

void keep_loops(std::vector<std::uint32_t>& code, Loops loops) {
    if (loops == Loops::as_written) {
        return;
    }
    std::size_t words = 0;
    for (std::size_t at = kHeaderWords; at < code.size(); at += words) {
        words = code[at] >> 16;
        if (words == 0 || at + words > code.size()) {
            return;
        }
        if (op_of(Words(code).subspan(at, words)) != kOpLoopMerge || words <= 3) {
            continue;
        }
        std::uint32_t& control = code[at + 3];
        if (control == kLoopControlNone || (control == kLoopControlUnroll && loops == Loops::all_kept)) {
            control = kLoopControlDontUnroll;
        }
    }
}

}  // namespace vkf
