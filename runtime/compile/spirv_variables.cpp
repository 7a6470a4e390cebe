// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile/spirv_variables.h"

namespace vkf::spv {

namespace {

bool is_chain(std::uint32_t op) { return op == kOpAccessChain || op == kOpInBoundsAccessChain; }

}  // namespace

Variable* Variables::variable_at(std::uint32_t pointer) {
    const std::size_t place = pointer < place_of_.size() ? place_of_[pointer] : 0;
    return place == 0 ? nullptr : &variables_[places_[place].variable];
}

void Variables::put_at(std::uint32_t pointer, const Place& place) {
    if (pointer < place_of_.size()) {
        place_of_[pointer] = static_cast<std::uint32_t>(places_.size());
        places_.push_back(place);
    }
}

void Variables::offer(Words variable) {
    const Words pointer = declared_.of(variable[1]);
    if (pointer.size() == 4 && op_of(pointer) == kOpTypePointer && declared_.parts(pointer[3]) != 0) {
        put_at(variable[2], {variables_.size(), pointer[3]});
        variables_.push_back({variable[2], pointer[3], variable.size() > 4 ? variable[4] : 0});
    }
}

bool Variables::step_into(Words chain, Place& place) const {
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

void Variables::look_at(Words i) {
    const std::uint32_t op = op_of(i);
    if (op == kOpVariable) {
        offer(i);
        return;
    }
    std::size_t from = 1;
    if (is_chain(op)) {
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

void Variables::list_parts(std::uint32_t type, std::vector<std::uint32_t>& types) const {
    const std::uint32_t count = declared_.members(type);
    if (count == 0) {
        types.push_back(type);
    }
    for (std::uint32_t k = 0; k < count; ++k) {
        list_parts(declared_.member(type, k), types);
    }
}

std::size_t Variables::parts() const {
    std::size_t sum = 0;
    for (const Variable& v : variables_) {
        sum += v.stays ? 0 : declared_.parts(v.type);
    }
    return sum;
}

std::vector<std::uint32_t> Variables::number_parts() {
    std::vector<std::uint32_t> types;
    for (Variable& v : variables_) {
        if (!v.stays) {
            v.first = types.size();
            list_parts(v.type, types);
        }
    }
    return types;
}

const Place* Variables::place_of(Words i) const {
    std::uint32_t pointer = 0;
    switch (op_of(i)) {
        case kOpStore: pointer = i[1]; break;
        case kOpLoad: pointer = i[3]; break;
        case kOpAccessChain:
        case kOpInBoundsAccessChain:
        case kOpVariable: pointer = i[2]; break;
        default: break;
    }
    const std::size_t at = pointer < place_of_.size() ? place_of_[pointer] : 0;
    return at == 0 || variables_[places_[at].variable].stays ? nullptr : &places_[at];
}

}  // namespace vkf::spv
