// SPDX-License-Identifier: Apache-2.0
// The processes that answer together, where mpirun started several.
#pragma once

#include <vkformer/vkformer.h>

#include <cstdint>
#include <memory>
#include <string>

/// The ranks of a run: one that draws and prints, and others that do what it does.
class Ranks {
public:
    /// One rank, or with `parallel` those that mpirun started. Throws vkf::Error in a build without
    /// MPI.
    explicit Ranks(bool parallel);

    /// Null where there are no others to speak with.
    const std::shared_ptr<vkf::Communicator>& communicator() const { return communicator_; }
    /// Whether this one prints.
    bool first() const { return !communicator_ || communicator_->rank() == 0; }
    /// "rank 1 of 2: ", empty where there is one only.
    std::string name() const;

    struct Next {
        std::int32_t token;
        std::int32_t stop;  ///< 1: this rank was interrupted
    };
    /// Gives the first rank's token, and stops where any of them does.
    Next agreed(Next mine) const;

private:
    std::shared_ptr<vkf::Communicator> communicator_;
};
