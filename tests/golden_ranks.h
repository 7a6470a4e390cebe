// SPDX-License-Identifier: Apache-2.0
// Golden cases of layers that several ranks share, each on several numbers of ranks.
#pragma once

#include <string>
#include <vector>

#include "runtime/device/device.h"

namespace vkf::test {

struct RanksOptions {
    /// Ranks take turns at these; one at least.
    std::vector<const Device*> devices;
    /// Also fails where a system that ranks share has no case.
    bool every = false;
};

/// Computes each case on 2, 3 and 4 ranks, and on two of unlike speed, or sees that it is refused
/// with the numbers where there is less to share than ranks. A line a case. Gives how many failed.
int run_on_ranks(const std::vector<std::string>& files, const RanksOptions& options);

}  // namespace vkf::test
