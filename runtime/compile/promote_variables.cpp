// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile/promote_variables.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "runtime/compile/spirv_declarations.h"
#include "runtime/compile/spirv_module.h"

namespace vkf {

using namespace spv;

namespace {

/// Beyond these a function keeps its variables: its blocks are walked by recursion, and each may
/// have a value of each part.
constexpr std::size_t kMostBlocks = 1024, kMostValues = std::size_t{1} << 22;

/// A variable, or a part of one, that a pointer points to.
struct Place {
    std::size_t variable = 0;
    std::uint32_t type = 0;
    std::size_t part = 0;  ///< the first of the variable's parts that it has
    /// id of the component's index, if this is a component of a vector that is not decomposed or
    /// whose index is no constant; else 0
    std::uint32_t component = 0;
};

struct Variable {
    std::uint32_t id = 0, type = 0, initial = 0;
    bool stays = false;
    std::size_t first = 0;  ///< its first part among those of all variables
};

struct SsaBlock {
    std::uint32_t label = 0;
    std::vector<Words> instructions;
    std::vector<std::size_t> predecessors;  ///< blocks that lead to it
    std::vector<std::size_t> successors;
    bool written = false, sealed = false;  ///< sealed: all that lead to it are written
    std::vector<std::uint32_t> values;     ///< of each part at its end; 0: not known
    std::vector<std::size_t> phis;         ///< those of parts of variables
    std::vector<std::size_t> incomplete;   ///< of these, those that have no operands yet
    std::vector<std::uint32_t> code;
};

struct Phi {
    std::uint32_t id = 0, type = 0;
    std::size_t block = 0, part = 0;
    /// a value, and the block it comes from
    std::vector<std::pair<std::uint32_t, std::uint32_t>> operands;
    bool used = false;
};

/// One function's variables.
class Promotion {
public:
    Promotion(const Declarations& declared, const std::vector<Words>& function, std::uint32_t& bound)
        : declared_(declared), function_(function), bound_(bound), place_of_(bound) {}

    /// A variable that may become a value.
    void offer(Words variable);

    /// Finds what stays. False where nothing is left to be done.
    bool find();

    /// Appends the function.
    void write(std::vector<std::uint32_t>& out);

    /// Adds what is no more: variables that are values now, pointers to them and what was loaded.
    void list_gone(Ids& gone) const;

private:
    Variable* variable_at(std::uint32_t pointer) {
        const std::size_t place = pointer < place_of_.size() ? place_of_[pointer] : 0;
        return place == 0 ? nullptr : &variables_[places_[place].variable];
    }
    void put_at(std::uint32_t pointer, const Place& place) {
        if (pointer < place_of_.size()) {
            place_of_[pointer] = places_.size();
            places_.push_back(place);
        }
    }
    void look_at(Words i);
    bool step_into(Words chain, Place& place) const;
    bool cut();
    void write_block(std::size_t number);
    void load(SsaBlock& b, std::size_t number, Words i);
    void store(SsaBlock& b, std::size_t number, const Place& place, std::uint32_t value);
    std::uint32_t read(std::size_t part, std::size_t block);
    void new_phi(std::size_t part, std::size_t block);
    void fill(std::size_t phi);
    void seal(std::size_t block);
    void settle_phis();

    void list_parts(std::uint32_t type);
    std::uint32_t compose(SsaBlock& b, std::size_t number, std::uint32_t type, std::size_t& part);
    void decompose(SsaBlock& b, std::uint32_t type, std::uint32_t value, std::size_t& part);
    std::uint32_t undefined(std::uint32_t type);

    const Declarations& declared_;
    const std::vector<Words>& function_;
    std::uint32_t& bound_;
    std::vector<Variable> variables_;
    std::vector<std::size_t> place_of_;  ///< by pointer; 0: none
    std::vector<Place> places_{1};
    std::vector<SsaBlock> blocks_;
    std::map<std::uint32_t, std::size_t> numbers_;  ///< of blocks, by label
    std::vector<std::uint32_t> part_types_;
    std::vector<Phi> phis_;
    std::map<std::uint32_t, std::uint32_t> undefined_;  ///< by type
    /// the members of composites
    std::map<std::uint32_t, std::vector<std::uint32_t>> constructed_;
    Replacements values_;
};

void Promotion::offer(Words variable) {
    const Words pointer = declared_.of(variable[1]);
    if (pointer.size() == 4 && op_of(pointer) == kOpTypePointer && declared_.parts(pointer[3]) != 0) {
        put_at(variable[2], {variables_.size(), pointer[3]});
        variables_.push_back({variable[2], pointer[3], variable.size() > 4 ? variable[4] : 0});
    }
}

bool Promotion::step_into(Words chain, Place& place) const {
    for (std::size_t at = 4; at < chain.size(); ++at) {
        const std::uint32_t index = chain[at];
        if (place.component != 0) {
            return false;
        }
        const std::uint32_t count = declared_.members(place.type);
        const bool constant = declared_.is_number(index);
        if (declared_.is(place.type, kOpTypeVector) && (count == 0 || !constant)) {
            if (constant && declared_.number(index) >= declared_.of(place.type)[3]) {
                return false;
            }
            place.component = index;
            continue;
        }
        if (!constant || declared_.number(index) >= count) {
            return false;
        }
        if (declared_.is(place.type, kOpTypeStruct)) {
            for (std::uint32_t k = 0; k < declared_.number(index); ++k) {
                place.part += declared_.parts(declared_.member(place.type, k));
            }
        } else {
            place.part += declared_.number(index) * declared_.parts(declared_.member(place.type, 0));
        }
        place.type = declared_.member(place.type, declared_.number(index));
    }
    return true;
}

void Promotion::look_at(Words i) {
    const std::uint32_t op = op_of(i);
    if (op == kOpVariable) {
        offer(i);
        return;
    }
    std::size_t from = 1;
    if (op == kOpAccessChain || op == kOpInBoundsAccessChain) {
        if (Variable* v = variable_at(i[3])) {
            Place place = places_[place_of_[i[3]]];
            v->stays = !step_into(i, place) || v->stays;
            put_at(i[2], place);
        }
        from = 4;
    } else if (op == kOpLoad) {
        if (Variable* v = variable_at(i[3])) {
            v->stays = v->stays || i.size() > 4;
        }
        return;
    } else if (op == kOpStore) {
        if (Variable* v = variable_at(i[1])) {
            v->stays = v->stays || i.size() > 3;
        }
        from = 2;
    }
    each_id(i, from, [&](std::uint32_t id) {
        if (Variable* v = variable_at(id)) {
            v->stays = true;
        }
    });
}

bool Promotion::find() {
    if (!has_known_operands(function_)) {
        return false;
    }
    for (const Words i : function_) {
        look_at(i);
    }
    std::size_t parts = 0;
    for (Variable& v : variables_) {
        if (!v.stays) {
            v.first = parts;
            parts += declared_.parts(v.type);
        }
    }
    return parts != 0 && parts <= kMostParts && cut() && blocks_.size() * parts <= kMostValues;
}

/// Cuts the function into its blocks.
bool Promotion::cut() {
    for (const Words i : function_) {
        if (op_of(i) == kOpLabel) {
            numbers_[i[1]] = blocks_.size();
            blocks_.emplace_back().label = i[1];
        } else if (!blocks_.empty() && op_of(i) != kOpFunctionEnd) {
            blocks_.back().instructions.push_back(i);
        }
    }
    if (blocks_.empty() || blocks_.size() > kMostBlocks) {
        return false;
    }
    for (std::size_t n = 0; n < blocks_.size(); ++n) {
        if (blocks_[n].instructions.empty()) {
            return false;
        }
        const Words end = blocks_[n].instructions.back();
        if (op_of(end) < kOpBranch || op_of(end) > kOpUnreachable) {
            return false;
        }
        std::set<std::uint32_t> labels;
        if (op_of(end) == kOpBranch) {
            labels = {end[1]};
        } else if (op_of(end) == kOpBranchConditional) {
            labels = {end[2], end[3]};
        } else if (op_of(end) == kOpSwitch) {
            for (std::size_t at = 2; at < end.size(); at += 2) {
                labels.insert(end[at]);
            }
        }
        for (const std::uint32_t label : labels) {
            const auto to = numbers_.find(label);
            if (to == numbers_.end()) {
                return false;
            }
            blocks_[n].successors.push_back(to->second);
            blocks_[to->second].predecessors.push_back(n);
        }
    }
    return true;
}

std::uint32_t Promotion::undefined(std::uint32_t type) {
    std::uint32_t& id = undefined_[type];
    if (id == 0) {
        id = bound_++;
    }
    return id;
}

void Promotion::new_phi(std::size_t part, std::size_t block) {
    blocks_[block].phis.push_back(phis_.size());
    phis_.push_back({bound_++, part_types_[part], block, part, {}, false});
    blocks_[block].values[part] = phis_.back().id;
}

std::uint32_t Promotion::read(std::size_t part, std::size_t block) {
    // up the blocks that have one predecessor, which may be a ring that is never reached
    std::size_t at = block, steps = 0;
    const auto leads_up = [&](const SsaBlock& b) {
        return b.values[part] == 0 && b.sealed && b.predecessors.size() == 1;
    };
    for (; leads_up(blocks_[at]) && steps < blocks_.size(); ++steps) {
        at = blocks_[at].predecessors.front();
    }
    SsaBlock& top = blocks_[at];
    if (top.values[part] == 0 && top.sealed && top.predecessors.size() <= 1) {
        top.values[part] = undefined(part_types_[part]);
    } else if (top.values[part] == 0) {
        new_phi(part, at);
        if (top.sealed) {
            fill(phis_.size() - 1);
        } else {
            top.incomplete.push_back(phis_.size() - 1);
        }
    }
    const std::uint32_t value = top.values[part];
    for (at = block; steps > 0; --steps) {
        blocks_[at].values[part] = value;
        at = blocks_[at].predecessors.front();
    }
    return value;
}

void Promotion::fill(std::size_t phi) {
    const std::size_t part = phis_[phi].part;
    for (const std::size_t from : blocks_[phis_[phi].block].predecessors) {
        const std::uint32_t value = read(part, from);  // which may add phis
        phis_[phi].operands.emplace_back(value, blocks_[from].label);
    }
}

void Promotion::seal(std::size_t block) {
    SsaBlock& b = blocks_[block];
    const bool all =
        std::all_of(b.predecessors.begin(), b.predecessors.end(), [&](std::size_t n) { return blocks_[n].written; });
    if (b.sealed || !all) {
        return;
    }
    b.sealed = true;
    for (const std::size_t phi : std::exchange(b.incomplete, {})) {
        fill(phi);
    }
}

/// The value of a type whose parts begin at one; moves behind them.
std::uint32_t Promotion::compose(SsaBlock& b, std::size_t number, std::uint32_t type, std::size_t& part) {
    const std::uint32_t count = declared_.members(type);
    if (count == 0) {
        return read(part++, number);
    }
    std::vector<std::uint32_t> members;
    for (std::uint32_t k = 0; k < count; ++k) {
        members.push_back(compose(b, number, declared_.member(type, k), part));
    }
    const std::uint32_t id = bound_++;
    put(b.code, {head(kOpCompositeConstruct, 3 + count), type, id});
    put(b.code, members);
    constructed_[id] = std::move(members);
    return id;
}

/// Writes the parts of a value of a type from one on; moves behind them.
void Promotion::decompose(SsaBlock& b, std::uint32_t type, std::uint32_t value, std::size_t& part) {
    const std::uint32_t count = declared_.members(type);
    if (count == 0) {
        b.values[part++] = value;
        return;
    }
    const auto known = constructed_.find(value);
    const bool constant = declared_.is(value, kOpConstantComposite);
    for (std::uint32_t k = 0; k < count; ++k) {
        const std::uint32_t member = declared_.member(type, k);
        std::uint32_t id = 0;
        if (known != constructed_.end()) {
            id = values_.of(known->second[k]);
        } else if (constant) {
            id = declared_.of(value)[3 + k];
        } else {
            id = bound_++;
            put(b.code, {head(kOpCompositeExtract, 5), member, id, value, k});
        }
        decompose(b, member, id, part);
    }
}

void Promotion::load(SsaBlock& b, std::size_t number, Words i) {
    const Place& place = places_[place_of_[i[3]]];
    std::size_t part = variables_[place.variable].first + place.part;
    const std::uint32_t value = compose(b, number, place.type, part);
    if (place.component == 0) {
        values_.set(i[2], value);
    } else if (declared_.is_number(place.component)) {
        put(b.code, {head(kOpCompositeExtract, 5), i[1], i[2], value, declared_.number(place.component)});
    } else {
        put(b.code, {head(kOpVectorExtractDynamic, 5), i[1], i[2], value, place.component});
    }
}

void Promotion::store(SsaBlock& b, std::size_t number, const Place& place, std::uint32_t value) {
    const std::size_t first = variables_[place.variable].first + place.part;
    std::size_t part = first;
    value = values_.of(value);
    if (place.component != 0) {
        const std::uint32_t vector = compose(b, number, place.type, part), id = bound_++;
        part = first;
        if (declared_.is_number(place.component)) {
            put(b.code,
                {head(kOpCompositeInsert, 6), place.type, id, value, vector, declared_.number(place.component)});
        } else {
            put(b.code, {head(kOpVectorInsertDynamic, 6), place.type, id, vector, value, place.component});
        }
        value = id;
    }
    decompose(b, place.type, value, part);
}

void Promotion::write_block(std::size_t number) {
    SsaBlock& b = blocks_[number];
    seal(number);
    for (const Words i : b.instructions) {
        const std::uint32_t op = op_of(i);
        const std::uint32_t pointer = op == kOpStore                                                              ? i[1]
                                      : op == kOpLoad                                                             ? i[3]
                                      : op == kOpAccessChain || op == kOpInBoundsAccessChain || op == kOpVariable ? i[2]
                                                                                                                  : 0;
        const Variable* v = pointer == 0 ? nullptr : variable_at(pointer);
        if (v == nullptr || v->stays) {
            if (op == kOpCompositeConstruct && declared_.members(i[1]) == i.size() - 3) {
                constructed_[i[2]].assign(i.begin() + 3, i.end());
            }
            put(b.code, i);
        } else if (op == kOpLoad) {
            load(b, number, i);
        } else if (op == kOpStore) {
            store(b, number, places_[place_of_[i[1]]], i[2]);
        }
    }
    b.written = true;
    for (const std::size_t n : b.successors) {
        seal(n);
    }
}

/// Phis that choose between one value and themselves are that value. Those that are left are used
/// where an instruction names them, or a phi that is used.
void Promotion::settle_phis() {
    std::vector<bool> gone(phis_.size());
    for (bool again = true; again;) {
        again = false;
        for (std::size_t n = 0; n < phis_.size(); ++n) {
            std::uint32_t only = 0;
            bool several = gone[n];
            for (const auto& operand : phis_[n].operands) {
                const std::uint32_t value = values_.of(operand.first);
                several = several || (value != phis_[n].id && only != 0 && value != only);
                only = value != phis_[n].id ? value : only;
            }
            if (!several) {
                values_.set(phis_[n].id, only != 0 ? only : undefined(phis_[n].type));
                gone[n] = again = true;
            }
        }
    }
    std::map<std::uint32_t, std::size_t> by_id;
    for (std::size_t n = 0; n < phis_.size(); ++n) {
        if (!gone[n]) {
            by_id[phis_[n].id] = n;
        }
    }
    std::vector<std::size_t> open;
    const auto use = [&](std::uint32_t id) {
        const auto found = by_id.find(values_.of(id));
        if (found != by_id.end() && !std::exchange(phis_[found->second].used, true)) {
            open.push_back(found->second);
        }
    };
    for (const SsaBlock& b : blocks_) {
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

void Promotion::list_gone(Ids& gone) const {
    for (const Variable& v : variables_) {
        if (!v.stays) {
            gone.insert(v.id);
        }
    }
    Ids left(gone.bound());
    for (const SsaBlock& b : blocks_) {
        each_instruction(b.code, [&](Words i) { left.insert(result_of(i)); });
    }
    for (const SsaBlock& b : blocks_) {
        for (const Words i : b.instructions) {
            if (!left.contains(result_of(i))) {
                gone.insert(result_of(i));
            }
        }
    }
}

/// The types of parts, in their order.
void Promotion::list_parts(std::uint32_t type) {
    const std::uint32_t count = declared_.members(type);
    if (count == 0) {
        part_types_.push_back(type);
    }
    for (std::uint32_t k = 0; k < count; ++k) {
        list_parts(declared_.member(type, k));
    }
}

void Promotion::write(std::vector<std::uint32_t>& out) {
    for (const Variable& v : variables_) {
        if (!v.stays) {
            list_parts(v.type);
        }
    }
    for (SsaBlock& b : blocks_) {
        b.values.resize(part_types_.size());
    }
    for (std::size_t n = 0; n < variables_.size(); ++n) {
        if (!variables_[n].stays && variables_[n].initial != 0) {
            store(blocks_.front(), 0, {n, variables_[n].type}, variables_[n].initial);
        }
    }
    // takes initial values apart
    std::vector<std::uint32_t> begin = std::exchange(blocks_.front().code, {});
    for (std::size_t n = 0; n < blocks_.size(); ++n) {
        write_block(n);
    }
    settle_phis();
    for (const auto& [type, id] : undefined_) {
        put(begin, {head(kOpUndef, 3), type, id});
    }
    std::vector<std::uint32_t>& entry = blocks_.front().code;
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
    for (const SsaBlock& b : blocks_) {
        put(out, {head(kOpLabel, 2), b.label});
        for (const std::size_t n : b.phis) {
            const Phi& phi = phis_[n];
            if (phi.used) {
                put(out, {head(kOpPhi, 3 + 2 * phi.operands.size()), phi.type, phi.id});
                for (const auto& [value, before] : phi.operands) {
                    put(out, {value, before});
                }
            }
        }
        put(out, b.code);
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
