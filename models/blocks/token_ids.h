// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "runtime/base/error.h"

namespace vkf {

/// Throws vkf::Error, in the name of `who`, for a token that is none of 0..vocabulary-1.
inline void check_token(std::int32_t id, std::int64_t vocabulary, const char* who) {
    if (id < 0 || id >= vocabulary) {
        throw Error("token " + std::to_string(id) + " is outside the vocabulary of " + std::to_string(vocabulary), who);
    }
}

}  // namespace vkf
