// SPDX-License-Identifier: Apache-2.0
#include "models/state_file.h"

#include <algorithm>
#include <vector>

#include "models/state_tensors.h"
#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/device/corner.h"

namespace vkf {

namespace {

/// The part that a tensor of this shape is of a state: they may differ in one dimension.
StatePart part_of(const HostTensor& saved, const StoredTensor& state, const std::string& file) {
    StatePart part;
    bool fits = saved.dtype == state.dtype && saved.type == WeightType::f32 && saved.shape.size() == state.shape.size();
    for (std::size_t i = 0; fits && i < state.shape.size(); ++i) {
        if (saved.shape[i] != state.shape[i]) {
            fits = part.length < 0 && saved.shape[i] < state.shape[i];
            part = {i, saved.shape[i]};
        }
    }
    if (!fits) {
        throw Error("state " + state.name + " is " + shape_text(state.shape) + " " + std::string(name_of(state.dtype)) +
                        ", the file has " + saved_text(saved),
                    file);
    }
    return part;
}

}  // namespace

void save_state(const std::filesystem::path& path, const State& state, const std::map<std::string, StatePart>& parts) {
    for (const auto& [name, part] : parts) {
        if (!state.find(name)) {
            throw Error("there is no state " + name + " to save a part of", utf8_name(path));
        }
    }
    std::vector<HostTensor> corners;
    for (const StoredTensor& t : state.layout().tensors()) {
        const auto found = parts.find(t.name);
        const StatePart part = found == parts.end() ? StatePart{} : found->second;
        corners.push_back({t.name, t.dtype, corner_of(t, part.dim, part.length), {}});
    }
    write_states(path, state, corners);
}

StateFile::StateFile(const std::filesystem::path& path, const State& state, std::span<const std::string> left_out)
    : file_(path) {
    for (const HostTensor& t : file_.tensors()) {
        const StoredTensor* s = state.find(t.name);
        if (!s) {
            throw Error("has a state " + t.name + ", which is not among those to restore", file_.file());
        }
        parts_.push_back(part_of(t, *s, file_.file()));
    }
    for (const StoredTensor& s : state.layout().tensors()) {
        const bool asked = std::find(left_out.begin(), left_out.end(), s.name) == left_out.end();
        if (asked && !file_.find(s.name)) {
            throw Error("has no state " + s.name, file_.file());
        }
    }
}

void StateFile::write(State& state) const {
    for (std::size_t i = 0; i < parts_.size(); ++i) {
        state.write(file_.tensors()[i].name, file_.tensors()[i].data, parts_[i]);
    }
}

void restore_state(const std::filesystem::path& path, State& state) { StateFile(path, state).write(state); }

}  // namespace vkf
