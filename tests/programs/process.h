// SPDX-License-Identifier: Apache-2.0
// A program run by a test, and what became of it.
#pragma once

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
    /// Waits for its end; after `seconds` it is killed, and has hung.
    Outcome wait(int seconds);

private:
    int pid_ = -1;
    int out_ = -1;
};
