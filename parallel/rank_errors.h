// SPDX-License-Identifier: Apache-2.0
// How long a rank waits for others, and what it says of one that does not answer or has ended.
#pragma once

#include <string>

#include "runtime/base/error.h"

namespace vkf {

/// At first, and at most.
constexpr double kLimitSeconds = 10, kMostSeconds = 1e9;

inline std::string name_of_rank(auto rank) { return "rank " + std::to_string(rank); }

/// `rank` has waited for `peer` for that long.
[[noreturn]] inline void throw_late(auto rank, auto peer, double seconds) {
    throw Error("did not answer " + name_of_rank(rank) + " within " + std::to_string(seconds) + " s",
                name_of_rank(peer));
}

/// `rank` waits for `peer`, which has ended for the sake of `blamed`: itself, this one, or another.
[[noreturn]] inline void throw_ended(auto rank, auto peer, auto blamed) {
    if (blamed == rank) {
        throw Error("has ended, for " + name_of_rank(rank) + " did not answer in time, or sent another size",
                    name_of_rank(peer));
    }
    throw Error(blamed == peer
                    ? "has ended, and " + name_of_rank(rank) + " waits for it"
                    : "has ended, and so has " + name_of_rank(peer) + ", for which " + name_of_rank(rank) + " waits",
                name_of_rank(blamed));
}

}  // namespace vkf
