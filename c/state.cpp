// SPDX-License-Identifier: Apache-2.0
#include <map>

#include "c/device.h"
#include "models/state_file.h"

namespace {

using namespace vkf;
using namespace vkf::c;

StatePart part_of(const vkf_state_part& part) { return {static_cast<std::size_t>(part.dim), part.length}; }

}  // namespace

vkf_result vkf_state_create(vkf_device* device, uint32_t count, const vkf_graph* const* graphs, vkf_state** state) {
    return make(__func__, state, [&] {
        std::vector<const Graph*> list;
        for (std::uint32_t i = 0; i < count; ++i) {
            list.push_back(&need((&need(graphs, "graphs"))[i], "a graph"));
        }
        return new vkf_state{need(device, "device").device.make_state(list)};
    });
}

void vkf_state_destroy(vkf_state* state) {
    if (state && state->lent) {
        fail(VKF_ERROR, "%s: the state is its trainer's own", __func__);
        return;
    }
    delete state;
}

vkf_result vkf_state_clear(vkf_state* state) {
    return guard(__func__, [&] { need(state, "state").clear(); });
}

vkf_result vkf_state_tensors(const vkf_state* state, vkf_stored_tensor* tensors, uint32_t* count) {
    return guard(__func__, [&] { give_tensors(need(state, "state").layout(), tensors, count); });
}

vkf_result vkf_state_bytes(const vkf_state* state, uint64_t* bytes) {
    return give(__func__, bytes, [&] { return need(state, "state").bytes(); });
}

vkf_result vkf_state_read(const vkf_state* state, const vkf_state_part* part, void* bytes, uint64_t capacity,
                          uint64_t* count) {
    return guard(__func__, [&] {
        const vkf_state_part& p = need(part, "part");
        const std::string name = text(p.name, "the part's name");
        give_numbers<std::byte>("state " + name, need(state, "state").read(name, part_of(p)),
                                static_cast<std::byte*>(bytes), capacity, count);
    });
}

vkf_result vkf_state_write(vkf_state* state, const vkf_state_part* part, const void* bytes, uint64_t count) {
    return guard(__func__, [&] {
        const vkf_state_part& p = need(part, "part");
        const auto* from = static_cast<const std::byte*>(bytes);
        need(state, "state")
            .write(text(p.name, "the part's name"), {count == 0 ? from : &need(from, "bytes"), count}, part_of(p));
    });
}

vkf_result vkf_state_save(const vkf_state* state, const char* path, uint32_t count, const vkf_state_part* parts) {
    return guard(__func__, [&] {
        std::map<std::string, StatePart> some;
        for (std::uint32_t i = 0; i < count; ++i) {
            const vkf_state_part& p = (&need(parts, "parts"))[i];
            const std::string name = text(p.name, "a part's name");
            if (!some.emplace(name, part_of(p)).second) {
                throw Error("is given twice", name);
            }
        }
        save_state(path_of(text(path, "path")), need(state, "state"), some);
    });
}

vkf_result vkf_state_restore(vkf_state* state, const char* path) {
    return guard(__func__, [&] { restore_state(path_of(text(path, "path")), need(state, "state")); });
}
