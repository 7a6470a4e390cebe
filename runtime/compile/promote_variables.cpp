// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile/promote_variables.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "runtime/compile/spirv_variables.h"
#include "runtime/compile/ssa_form.h"

namespace vkf {

using namespace spv;

namespace {

/// Each part may have a value in each block; a function with more of them keeps its variables.
constexpr std::size_t kMostValues = std::size_t{1} << 22;

/// One function's variables become values.
class Promotion {
public:
    Promotion(const Declarations& declared, const std::vector<Words>& function, std::uint32_t& bound)
        : declared_(declared), function_(function), bound_(bound), variables_(declared, bound), ssa_(bound) {}

    /// A variable of an invocation, not of the function.
    void offer(Words variable) { variables_.offer(variable); }

    /// Finds what becomes a value. False where nothing does.
    bool find();

    /// Appends the function.
    void write(std::vector<std::uint32_t>& out);

    /// Adds what is no more: variables that are values now, pointers to them and what was loaded.
    void list_gone(Ids& gone) const;

private:
    void write_block(std::size_t block);
    void load(std::size_t block, const Place& place, Words i);
    void store(std::size_t block, const Place& place, std::uint32_t value);
    std::uint32_t compose(std::size_t block, std::uint32_t type, std::size_t& part);
    void decompose(std::size_t block, std::uint32_t type, std::uint32_t value, std::size_t& part);
    void note_composite(std::uint32_t id, std::size_t block);
    /// The members of a composite that this function constructs; none of another value.
    Words constructed(std::uint32_t id) const;

    const Declarations& declared_;
    const std::vector<Words>& function_;
    std::uint32_t& bound_;
    Variables variables_;
    SsaForm ssa_;
    std::vector<std::uint64_t> composites_;  ///< by id: block and place in its code, 0: none
    Replacements values_;
};

bool Promotion::find() {
    if (!has_known_operands(function_)) {
        return false;
    }
    for (const Words i : function_) {
        variables_.look_at(i);
    }
    const std::size_t parts = variables_.parts();
    if (parts == 0 || parts > kMostValues || !ssa_.cut(function_) || ssa_.blocks() * parts > kMostValues) {
        return false;
    }
    ssa_.set_parts(variables_.number_parts());
    return true;
}

/// The composite is written next.
void Promotion::note_composite(std::uint32_t id, std::size_t block) {
    composites_.resize(std::max<std::size_t>(composites_.size(), id + 1));
    composites_[id] = std::uint64_t{block} << 32 | (ssa_.code(block).size() + 1);
}

Words Promotion::constructed(std::uint32_t id) const {
    const std::uint64_t at = id < composites_.size() ? composites_[id] : 0;
    if (at == 0) {
        return {};
    }
    const std::vector<std::uint32_t>& code = ssa_.code(at >> 32);
    const std::size_t place = (at & 0xffffffff) - 1;
    return Words(code).subspan(place + 3, (code[place] >> 16) - 3);
}

/// The value of a type whose parts begin at one; moves behind them.
std::uint32_t Promotion::compose(std::size_t block, std::uint32_t type, std::size_t& part) {
    const std::uint32_t count = declared_.members(type);
    if (count == 0) {
        return ssa_.read(part++, block);
    }
    std::vector<std::uint32_t> members;
    for (std::uint32_t k = 0; k < count; ++k) {
        members.push_back(compose(block, declared_.member(type, k), part));
    }
    const std::uint32_t id = bound_++;
    note_composite(id, block);
    put(ssa_.code(block), {head(kOpCompositeConstruct, 3 + count), type, id});
    put(ssa_.code(block), members);
    return id;
}

/// Writes the parts of a value of a type from one on; moves behind them.
void Promotion::decompose(std::size_t block, std::uint32_t type, std::uint32_t value, std::size_t& part) {
    const std::uint32_t count = declared_.members(type);
    if (count == 0) {
        ssa_.write(part++, block, value);
        return;
    }
    const bool known = !constructed(value).empty();
    const bool constant = declared_.is(value, kOpConstantComposite);
    for (std::uint32_t k = 0; k < count; ++k) {
        const std::uint32_t member = declared_.member(type, k);
        std::uint32_t id = 0;
        if (known) {
            id = values_.of(constructed(value)[k]);
        } else if (constant) {
            id = declared_.of(value)[3 + k];
        } else {
            id = bound_++;
            put(ssa_.code(block), {head(kOpCompositeExtract, 5), member, id, value, k});
        }
        decompose(block, member, id, part);
    }
}

void Promotion::load(std::size_t block, const Place& place, Words i) {
    std::size_t part = variables_.part(place);
    const std::uint32_t value = compose(block, place.type, part);
    std::vector<std::uint32_t>& code = ssa_.code(block);
    if (place.component == 0) {
        values_.set(i[2], value);
    } else if (declared_.is_number(place.component)) {
        put(code, {head(kOpCompositeExtract, 5), i[1], i[2], value, declared_.number(place.component)});
    } else {
        put(code, {head(kOpVectorExtractDynamic, 5), i[1], i[2], value, place.component});
    }
}

void Promotion::store(std::size_t block, const Place& place, std::uint32_t value) {
    std::size_t part = variables_.part(place);
    value = values_.of(value);
    if (place.component != 0) {
        std::size_t first = part;
        const std::uint32_t vector = compose(block, place.type, first), id = bound_++;
        std::vector<std::uint32_t>& code = ssa_.code(block);
        if (declared_.is_number(place.component)) {
            put(code, {head(kOpCompositeInsert, 6), place.type, id, value, vector, declared_.number(place.component)});
        } else {
            put(code, {head(kOpVectorInsertDynamic, 6), place.type, id, vector, value, place.component});
        }
        value = id;
    }
    decompose(block, place.type, value, part);
}

void Promotion::write_block(std::size_t block) {
    for (const Words i : ssa_.instructions(block)) {
        const Place* place = variables_.place_of(i);
        if (place == nullptr) {
            if (op_of(i) == kOpCompositeConstruct && declared_.members(i[1]) == i.size() - 3) {
                note_composite(i[2], block);
            }
            put(ssa_.code(block), i);
        } else if (op_of(i) == kOpLoad) {
            load(block, *place, i);
        } else if (op_of(i) == kOpStore) {
            store(block, *place, i[2]);
        }
    }
    ssa_.end(block);
}

void Promotion::list_gone(Ids& gone) const {
    for (const Variable& v : variables_.all()) {
        if (!v.stays) {
            gone.insert(v.id);
        }
    }
    Ids left(gone.bound());
    for (std::size_t n = 0; n < ssa_.blocks(); ++n) {
        each_instruction(ssa_.code(n), [&](Words i) { left.insert(result_of(i)); });
    }
    for (std::size_t n = 0; n < ssa_.blocks(); ++n) {
        for (const Words i : ssa_.instructions(n)) {
            if (!left.contains(result_of(i))) {
                gone.insert(result_of(i));
            }
        }
    }
}

void Promotion::write(std::vector<std::uint32_t>& out) {
    for (std::size_t n = 0; n < variables_.all().size(); ++n) {
        const Variable& v = variables_.all()[n];
        if (!v.stays && v.initial != 0) {
            store(0, {n, v.type}, v.initial);
        }
    }
    // takes initial values apart
    std::vector<std::uint32_t> begin = std::exchange(ssa_.code(0), {});
    for (std::size_t n = 0; n < ssa_.blocks(); ++n) {
        write_block(n);
    }
    ssa_.settle(values_);
    for (const auto& [type, id] : ssa_.undefined()) {
        put(begin, {head(kOpUndef, 3), type, id});
    }
    std::vector<std::uint32_t>& entry = ssa_.code(0);
    std::size_t variables = 0;
    while ((entry[variables] & 0xffff) == kOpVariable) {
        variables += entry[variables] >> 16;
    }
    entry.insert(entry.begin() + static_cast<std::ptrdiff_t>(variables), begin.begin(), begin.end());

    for (const Words i : function_) {
        if (op_of(i) == kOpLabel) {
            break;
        }
        put(out, i);
    }
    const std::size_t from = out.size();
    for (std::size_t n = 0; n < ssa_.blocks(); ++n) {
        ssa_.put_block(out, n);
    }
    values_.apply(out, from);
    out.push_back(head(kOpFunctionEnd, 1));
}

}  // namespace

std::vector<std::uint32_t> promote_variables(const std::vector<std::uint32_t>& code) {
    const auto module = split_module(code);
    if (!module || !is_plain(*module) || module->functions.size() > kMostFunctions) {
        return code;
    }
    std::uint32_t bound = code[kHeaderBound];
    const Declarations declared(*module, bound);
    constexpr std::size_t kNone = ~std::size_t{0}, kSeveral = kNone - 1;
    std::vector<Words> privates;                    // variables of the storage class Private
    std::map<std::uint32_t, std::size_t> named_by;  // each of them, the number of a function
    std::set<std::uint32_t> entries;
    for (const Words i : module->head) {
        if (op_of(i) == kOpEntryPoint) {
            entries.insert(i[2]);
        } else if (op_of(i) == kOpVariable && i[3] == kStoragePrivate) {
            privates.push_back(i);
            named_by[i[2]] = kNone;
        }
    }
    Ids sought(bound);
    for (const Words i : privates) {
        sought.insert(i[2]);
    }
    for (std::size_t n = 0; !privates.empty() && n < module->functions.size(); ++n) {
        for (const Words i : module->functions[n]) {
            each_id(i, 1, [&](std::uint32_t id) {
                if (sought.contains(id)) {
                    std::size_t& by = named_by[id];
                    by = by == kNone || by == n ? n : kSeveral;
                }
            });
        }
    }
    std::vector<std::uint32_t> functions;
    Ids gone(bound);
    for (std::size_t n = 0; n < module->functions.size(); ++n) {
        Promotion promotion(declared, module->functions[n], bound);
        // those of a function that is called keep their values from call to call
        if (entries.count(module->functions[n].front()[2]) != 0) {
            for (const Words variable : privates) {
                if (named_by[variable[2]] == n) {
                    promotion.offer(variable);
                }
            }
        }
        if (promotion.find()) {
            promotion.write(functions);
            promotion.list_gone(gone);
        } else {
            for (const Words i : module->functions[n]) {
                put(functions, i);
            }
        }
    }
    if (bound > kMostIds) {
        return code;
    }
    std::vector<std::uint32_t> out(code.begin(), code.begin() + kHeaderWords);
    out[kHeaderBound] = bound;
    for (const Words i : module->head) {
        if (op_of(i) == kOpEntryPoint) {
            put(out, without(i, gone));
        } else if (!gone.contains(is_about(i) ? i[1] : op_of(i) == kOpVariable ? i[2] : 0)) {
            put(out, i);
        }
    }
    put(out, functions);
    return out;
}

}  // namespace vkf
