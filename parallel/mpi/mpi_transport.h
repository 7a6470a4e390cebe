// SPDX-License-Identifier: Apache-2.0
// Ranks that are processes, on one machine or several: those that mpirun started. A library of its
// own, vkformer_mpi, which is built where MPI is found (CMake: vkformer::mpi).
#pragma once

#include <memory>

#include "../transport.h"

namespace vkf {

/// Joins all processes of MPI_COMM_WORLD. All of them call it, as often as each other. MPI is
/// initialized where it is not yet, and is then finalized as the process ends; where an exchange
/// has failed it is aborted then, since MPI cannot be finalized without the others. mpirun's own
/// way with a process that dies is to end the rest. Each transport has a communicator of MPI's
/// until the process ends, of which there are thousands at most. Throws Error where there is none
/// left, and where MPI allows no calls of more than one thread, one at a time.
VKF_API std::unique_ptr<Transport> mpi_transport();

}  // namespace vkf
