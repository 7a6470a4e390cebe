// SPDX-License-Identifier: Apache-2.0
// A program run by a test, and what became of it.
#pragma once

#include <chrono>
#include <string>
#include <vector>

struct Outcome {
    int code = -1;   ///< what it returned; -1 where it did not
    int signal = 0;  ///< what ended it
    bool hung = false;
    std::string output;  ///< of both streams
};

/// Starts it, and can wait for it or interrupt it.
class Process {
public:
    explicit Process(const std::vector<std::string>& command);
    ~Process();
    Process(const Process&) = delete;
    Process& operator=(const Process&) = delete;

    void interrupt() const;  ///< SIGINT
    /// Waits until it has written this; false where it ended before, or did not for so long.
    bool wait_for(const std::string& part, int seconds);
    /// Waits for its end; after `seconds` it is killed, and has hung.
    Outcome wait(int seconds);

private:
    /// Reads more of its output; 0: there is no more, below 0: none came in time.
    long read_more(std::chrono::steady_clock::time_point end);

    int pid_ = -1;
    int out_ = -1;
    std::string output_;
};
