// SPDX-License-Identifier: Apache-2.0
#include "ranks.h"

#include <span>
#include <vector>

#ifdef SAMPLE_WITH_MPI
#include <vkformer/mpi.h>
#endif

Ranks::Ranks(bool parallel) {
    if (!parallel) {
        return;
    }
#ifdef SAMPLE_WITH_MPI
    communicator_ = std::make_shared<vkf::Communicator>(vkf::mpi_transport());
#else
    throw vkf::Error("this build has no MPI (Debian and Ubuntu: libopenmpi-dev)", "--tensor-parallel");
#endif
}

std::string Ranks::name() const {
    return communicator_ ? "rank " + std::to_string(communicator_->rank()) + " of " +
                               std::to_string(communicator_->ranks()) + ": "
                         : "";
}

Ranks::Next Ranks::agreed(Next mine) const {
    if (!communicator_) {
        return mine;
    }
    std::vector<Next> all(static_cast<std::size_t>(communicator_->ranks()));
    all[static_cast<std::size_t>(communicator_->rank())] = mine;
    const std::vector<std::uint64_t> bytes(all.size(), sizeof(Next));
    communicator_->all_gather(std::as_writable_bytes(std::span(all)), bytes);
    Next next{all.front().token, 0};
    for (const Next& n : all) {
        next.stop |= n.stop;
    }
    return next;
}
