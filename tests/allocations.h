// SPDX-License-Identifier: Apache-2.0
// Counts what our code allocates on the host: the test programs' operator new is the one of
// allocations.cpp. Under AddressSanitizer, which has its own, nothing is counted.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace allocations {

/// Counts this thread's calls of operator new while it lives.
class Counter {
public:
    Counter();
    ~Counter();
    Counter(const Counter&) = delete;
    Counter& operator=(const Counter&) = delete;
    std::uint64_t count() const;
    /// All that was asked for, whether it was given back or not.
    std::uint64_t bytes() const;
};

/// Makes this thread's calls of operator new fail, which it counts as Counter does, while it lives:
/// the nth (0: none) throws std::bad_alloc, and all after it where `onwards` says so.
class Failing {
public:
    Failing(std::uint64_t nth, bool onwards);
    ~Failing();
    Failing(const Failing&) = delete;
    Failing& operator=(const Failing&) = delete;
    std::uint64_t count() const;
};

/// While one lives, tells this thread's counted calls of operator new apart by who called them: by
/// all return addresses up to main(). Where the C library cannot tell, all are of one chain.
class Chains {
public:
    Chains();
    ~Chains();
    Chains(const Chains&) = delete;
    Chains& operator=(const Chains&) = delete;

    std::size_t size() const { return chains_.size(); }
    /// Of each chain the first call and the last, counted from 1, in order.
    std::vector<std::uint64_t> ends() const;

private:
    friend struct ChainsAccess;
    struct Ends {
        std::uint64_t first, last;
    };
    std::map<std::uint64_t, Ends> chains_;  ///< by hash of the addresses
    std::uint64_t count_ = 0;
};

/// False under AddressSanitizer: nothing is counted, and nothing fails.
bool can_fail();

/// While one lives, nothing is counted: drivers allocate as they like.
class Pause {
public:
    Pause();
    ~Pause();
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

private:
    bool before_;
};

/// While one lives, what this thread allocates and loses is no leak to AddressSanitizer: it is lost
/// on purpose.
class Lost {
public:
    Lost();
    ~Lost();
    Lost(const Lost&) = delete;
    Lost& operator=(const Lost&) = delete;
};

/// Bytes this process holds: its resident memory on Linux, 0 elsewhere. Under AddressSanitizer,
/// which keeps freed memory back for a while, what is allocated.
std::uint64_t bytes_in_use();

}  // namespace allocations
