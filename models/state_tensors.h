// SPDX-License-Identifier: Apache-2.0
// States as tensors of a file: a corner each, the first so many elements along each dimension.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "models/files/safetensors.h"
#include "runtime/device/state.h"

namespace vkf {

/// Writes a corner of each of these states, under the state's name and of the shape given, and
/// `beside`, whose data is in host memory. Throws Error as save_safetensors() and State::read() do.
void write_states(const std::filesystem::path& path, const State& state, std::span<const HostTensor> corners,
                  std::span<const HostTensor> beside = {}, const std::map<std::string, std::string>& metadata = {});

/// A file of save_state() that fits the states.
class StateFile {
public:
    /// Maps the file. States that `left_out` names are not of it. Throws as restore_state() does
    /// before anything is written.
    StateFile(const std::filesystem::path& path, const State& state, std::span<const std::string> left_out = {});

    const Safetensors& tensors() const noexcept { return file_; }
    /// Writes the contents. Where it throws, some states are written and others are not.
    void write(State& state) const;

private:
    Safetensors file_;
    std::vector<StatePart> parts_;  ///< the part that each tensor is of its state
};

/// What a file has a tensor as: "(2, 16) F32", or "(2, 16) int8" where its numbers are packed.
std::string saved_text(const HostTensor& saved);

}  // namespace vkf
