// SPDX-License-Identifier: Apache-2.0
// The child of a fork(), in a test.
#pragma once

#if defined(__unix__)
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/device/device.h"

namespace vkf::test {

/// Gives every device up in a child of this process, and calls `work` there. False where that does
/// not come to its end.
template <class Work>
bool ends_in_child(Work&& work) {
    constexpr unsigned kSeconds = 20;
    const pid_t child = fork();
    if (child == 0) {
        signal(SIGALRM, SIG_DFL);
        alarm(kSeconds);
        Device::give_up_all();
        work();
        _exit(0);
    }
    int status = -1;
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace vkf::test
#endif
