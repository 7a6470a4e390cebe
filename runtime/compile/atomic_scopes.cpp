// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile/atomic_scopes.h"

#include <cstddef>
#include <map>
#include <optional>

#include "runtime/compile/spirv_module.h"

namespace vkf {

using namespace spv;

namespace {

/// The word by which an atomic names its pointer, ahead of its scope; 0: it is none.
std::size_t pointer_word(Words i) {
    const std::uint32_t op = op_of(i);
    const bool on_floats = op == kOpAtomicFMin || op == kOpAtomicFMax || op == kOpAtomicFAdd;
    if ((op < kOpAtomicLoad || op > kOpAtomicXor) && !on_floats) {
        return 0;
    }
    return op == kOpAtomicStore ? 1 : 3;
}

/// What the head of a module says that scopes and pointers stand on.
class Scopes {
public:
    Scopes(const ModuleParts& module, std::uint32_t bound) : integers_(bound), pointers_(bound), shared_(bound) {
        for (const Words i : module.head) {
            if (op_of(i) == kOpTypeInt && i.size() == 4 && i[2] == 32) {
                integers_.insert(i[1]);
            } else if (op_of(i) == kOpTypePointer && i.size() == 4 && i[2] == kStorageWorkgroup) {
                pointers_.insert(i[1]);
            } else if (op_of(i) == kOpConstant && i.size() == 4 && integers_.contains(i[1])) {
                constants_[i[2]] = {i[1], i[3]};
            } else if (op_of(i) == kOpVariable) {
                see(i);
            }
        }
    }

    /// Remembers what an instruction defines, if that points to what a work group shares.
    void see(Words i) {
        const std::uint32_t result = result_of(i);
        if (result != 0 && op_of(i) != kOpLabel && pointers_.contains(i[1])) {
            shared_.insert(result);
        }
    }

    /// True where an instruction is an atomic of scope Device on what a work group shares.
    bool is_too_wide(Words i) const {
        const std::size_t at = pointer_word(i);
        if (at == 0 || i.size() <= at + 1 || !shared_.contains(i[at])) {
            return false;
        }
        const auto scope = constants_.find(i[at + 1]);
        return scope != constants_.end() && scope->second.value == kScopeDevice;
    }

    std::uint32_t type_of(std::uint32_t constant) const { return constants_.at(constant).type; }

    std::optional<std::uint32_t> workgroup() const {
        for (const auto& [id, constant] : constants_) {
            if (constant.value == kScopeWorkgroup) {
                return id;
            }
        }
        return std::nullopt;
    }

private:
    struct Constant {
        std::uint32_t type = 0, value = 0;
    };
    Ids integers_, pointers_, shared_;
    std::map<std::uint32_t, Constant> constants_;
};

}  // namespace

std::vector<std::uint32_t> narrow_atomics(std::vector<std::uint32_t> code) {
    const auto module = split_module(code);
    if (!module) {
        return code;
    }
    Scopes scopes(*module, code[kHeaderBound]);
    std::vector<std::size_t> places;  // of the scopes
    for (const std::vector<Words>& function : module->functions) {
        for (const Words i : function) {
            scopes.see(i);
            if (scopes.is_too_wide(i)) {
                places.push_back(static_cast<std::size_t>(i.data() - code.data()) + pointer_word(i) + 1);
            }
        }
    }
    std::optional<std::uint32_t> workgroup = scopes.workgroup();
    if (places.empty() || (!workgroup && code[kHeaderBound] >= kMostIds)) {
        return code;
    }
    std::vector<std::uint32_t> added;
    if (!workgroup) {
        workgroup = code[kHeaderBound]++;
        put(added, {head(kOpConstant, 4), scopes.type_of(code[places.front()]), *workgroup, kScopeWorkgroup});
    }
    for (const std::size_t place : places) {
        code[place] = *workgroup;
    }
    const auto functions = module->functions.front().front().data() - code.data();
    code.insert(code.begin() + functions, added.begin(), added.end());
    return code;
}

}  // namespace vkf
