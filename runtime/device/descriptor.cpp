// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/descriptor.h"

#if defined(__unix__) || defined(__APPLE__)
#include <fcntl.h>
#include <unistd.h>
#endif

namespace vkf {

#if defined(__unix__) || defined(__APPLE__)

int duplicate_descriptor(int descriptor) noexcept { return fcntl(descriptor, F_DUPFD_CLOEXEC, 0); }

void close_descriptor(int descriptor) noexcept { close(descriptor); }

#else

int duplicate_descriptor(int) noexcept { return -1; }

void close_descriptor(int) noexcept {}

#endif

}  // namespace vkf
