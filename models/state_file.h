// SPDX-License-Identifier: Apache-2.0
// States in safetensors files: the key/value caches of a prompt that is used again, an optimizer's
// moments.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "../runtime/device/state.h"

namespace vkf {

/// Writes every state to a file, bit for bit. Of a state that `parts` names, only that part is
/// written, so the file is only as large as what is in use. The file appears whole or not at all.
/// Throws Error naming the file, or a state that is not there.
VKF_API void save_state(const std::filesystem::path& path, const State& state,
                        const std::map<std::string, StatePart>& parts = {});

/// Writes the contents of a file of save_state() back, each to the beginning of its state; the rest
/// of the state stays as it is. Throws Error naming the file and the state, before anything is
/// written, where one is missing on either side or has another type or another shape. Where the
/// device fails, or the file is cut short meanwhile, some states are written and others are not.
VKF_API void restore_state(const std::filesystem::path& path, State& state);

}  // namespace vkf
