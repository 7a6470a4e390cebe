// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile/aliases.h"

#include <map>

#include "runtime/compile/spirv_module.h"

namespace vkf {

using namespace spv;

namespace {

/// What is said of a module's buffers ahead of its functions.
class Buffers {
public:
    explicit Buffers(const std::vector<Words>& head) {
        std::map<std::uint32_t, std::size_t> members, read_members, own_members;  // by struct
        std::map<std::uint32_t, std::uint32_t> pointees;
        for (const Words i : head) {
            const std::uint32_t op = op_of(i);
            if (op == kOpDecorate) {
                decorations_[i[1]][i[2]] = i.size() > 3 ? i[3] : 0;
            } else if (op == kOpMemberDecorate && i[3] == kDecorationNonWritable) {
                ++read_members[i[1]];
            } else if (op == kOpMemberDecorate && i[3] == kDecorationRestrict) {
                ++own_members[i[1]];
            } else if (op == kOpTypeStruct) {
                members[i[1]] = i.size() - 2;
            } else if (op == kOpTypePointer) {
                pointees[i[1]] = i[3];
            } else if (op == kOpVariable && (i[3] == kStorageStorageBuffer || i[3] == kStorageUniform)) {
                const std::uint32_t block = pointees[i[1]];
                variables_[i[2]] =
                    !has(i[2], kDecorationNonWritable) && (members[block] == 0 || read_members[block] < members[block]);
                if (members[block] != 0 && own_members[block] == members[block]) {
                    decorations_[i[2]][kDecorationRestrict] = 0;
                }
            }
        }
    }

    bool has(std::uint32_t id, std::uint32_t decoration) const {
        const auto found = decorations_.find(id);
        return found != decorations_.end() && found->second.contains(decoration);
    }

    /// Those that must be marked, of the touched ones.
    std::vector<std::uint32_t> shared(const Ids& touched, std::size_t bound) const {
        std::map<std::uint64_t, std::vector<std::uint32_t>> places;
        Ids written(bound);
        for (const auto& [id, writable] : variables_) {
            if (touched.contains(id) && has(id, kDecorationBinding)) {
                const auto& said = decorations_.at(id);
                const auto set = said.find(kDecorationDescriptorSet);
                const std::uint64_t high = set != said.end() ? set->second : 0;
                places[high << 32 | said.at(kDecorationBinding)].push_back(id);
                if (writable) {
                    written.insert(id);
                }
            }
        }
        std::vector<std::uint32_t> out;
        for (const auto& [place, ids] : places) {
            bool any = false;
            for (const std::uint32_t id : ids) {
                any = any || written.contains(id);
            }
            for (const std::uint32_t id : ids) {
                if (any && ids.size() > 1 && !has(id, kDecorationAliased) && !has(id, kDecorationRestrict)) {
                    out.push_back(id);
                }
            }
        }
        return out;
    }

private:
    /// Of each id, with their first operands.
    std::map<std::uint32_t, std::map<std::uint32_t, std::uint32_t>> decorations_;
    std::map<std::uint32_t, bool> variables_;  ///< whether they may be written
};

}  // namespace

std::vector<std::uint32_t> mark_aliases(const std::vector<std::uint32_t>& code) {
    const auto parts = split_module(code);
    if (!parts) {
        return code;
    }
    const std::size_t bound = code[kHeaderBound];
    Ids touched(bound);
    std::size_t words = 0;  // of the functions
    for (const std::vector<Words>& function : parts->functions) {
        for (const Words i : function) {
            words += i.size();
            each_id(i, 1, [&](std::uint32_t id) { touched.insert(id); });
        }
    }
    const std::vector<std::uint32_t> shared = Buffers(parts->head).shared(touched, bound);
    if (shared.empty()) {
        return code;
    }
    std::vector<std::uint32_t> out(code.begin(), code.begin() + kHeaderWords);
    out.reserve(code.size() + 3 * shared.size());
    bool marked = false;
    for (const Words i : parts->head) {
        put(out, i);
        if (op_of(i) == kOpDecorate && !marked) {
            for (const std::uint32_t id : shared) {
                put(out, {head(kOpDecorate, 3), id, kDecorationAliased});
            }
            marked = true;
        }
    }
    out.insert(out.end(), code.end() - static_cast<std::ptrdiff_t>(words), code.end());
    return out;
}

}  // namespace vkf
