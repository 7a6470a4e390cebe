// SPDX-License-Identifier: Apache-2.0
#include "process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>

Process::Process(const std::vector<std::string>& command) {
    int ends[2];
    if (pipe(ends) != 0) {
        throw std::runtime_error("pipe");
    }
    std::vector<char*> words;
    for (const std::string& word : command) {
        words.push_back(const_cast<char*>(word.c_str()));
    }
    words.push_back(nullptr);
    pid_ = fork();
    if (pid_ < 0) {
        throw std::runtime_error("fork");
    }
    if (pid_ == 0) {
        signal(SIGINT, SIG_DFL);  // which whoever runs the tests in the background may ignore
        const int nothing = open("/dev/null", O_RDONLY);
        dup2(nothing, 0);
        dup2(ends[1], 1);
        dup2(ends[1], 2);
        close(ends[0]);
        close(ends[1]);
        execv(words[0], words.data());
        _exit(127);
    }
    close(ends[1]);
    out_ = ends[0];
}

Process::~Process() {
    if (pid_ > 0) {
        kill(pid_, SIGKILL);
        waitpid(pid_, nullptr, 0);
    }
    close(out_);
}

void Process::interrupt() const { kill(pid_, SIGINT); }

long Process::read_more(std::chrono::steady_clock::time_point end) {
    using std::chrono::steady_clock;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - steady_clock::now()).count();
    pollfd wanted{out_, POLLIN, 0};
    if (left <= 0 || poll(&wanted, 1, static_cast<int>(left)) == 0) {
        return -1;
    }
    char part[4096];
    const ssize_t count = read(out_, part, sizeof(part));
    output_.append(part, static_cast<std::size_t>(count > 0 ? count : 0));
    return count > 0 ? count : 0;
}

bool Process::wait_for(const std::string& part, int seconds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
    while (output_.find(part) == std::string::npos) {
        if (read_more(end) <= 0) {
            return false;
        }
    }
    return true;
}

Outcome Process::wait(int seconds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
    Outcome outcome;
    long count = 1;
    while (count > 0) {
        count = read_more(end);
    }
    if (count < 0) {
        outcome.hung = true;
        kill(pid_, SIGKILL);
    }
    outcome.output = output_;
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    outcome.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    return outcome;
}
