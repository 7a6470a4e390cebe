// SPDX-License-Identifier: Apache-2.0
#include "tests/allocations.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <new>

#if defined(__GLIBC__)
#include <execinfo.h>
#endif

#if defined(__SANITIZE_ADDRESS__)
#define ALLOCATIONS_OF_SANITIZER
#elif defined(__SANITIZE_THREAD__)
#define NEW_OF_SANITIZER
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ALLOCATIONS_OF_SANITIZER
#elif __has_feature(thread_sanitizer)
#define NEW_OF_SANITIZER
#endif
#endif
#if defined(ALLOCATIONS_OF_SANITIZER)
#define NEW_OF_SANITIZER
#endif

#if defined(ALLOCATIONS_OF_SANITIZER)
#include <sanitizer/allocator_interface.h>
#include <sanitizer/lsan_interface.h>
#elif defined(__linux__)
#include <unistd.h>

#include <fstream>
#endif

namespace {

thread_local bool counting = false;
thread_local std::uint64_t counted = 0, counted_bytes = 0;
thread_local std::uint64_t first_failing = 0;  ///< 0: none
thread_local bool fails_onwards = false;
thread_local allocations::Chains* telling = nullptr;

/// Gives the same number for the same chain of callers, in one process.
std::uint64_t hash_of_callers() {
    std::uint64_t hash = 14695981039346656037u;  // FNV-1a
#if defined(__GLIBC__)
    std::array<void*, 128> callers{};
    const int depth = backtrace(callers.data(), static_cast<int>(callers.size()));
    for (int i = 0; i < depth; ++i) {
        hash = (hash ^ reinterpret_cast<std::uintptr_t>(callers[static_cast<std::size_t>(i)])) * 1099511628211u;
    }
#endif
    return hash;
}

}  // namespace

namespace allocations {

struct ChainsAccess {
    static void tell(Chains& chains) {
        const Pause pause;
        const std::uint64_t nth = ++chains.count_;
        chains.chains_.try_emplace(hash_of_callers(), Chains::Ends{nth, nth}).first->second.last = nth;
    }
};

Chains::Chains() {
    hash_of_callers();  // which loads what it needs
    telling = this;
}

Chains::~Chains() { telling = nullptr; }

std::vector<std::uint64_t> Chains::ends() const {
    std::vector<std::uint64_t> all;
    for (const auto& [hash, ends] : chains_) {
        all.push_back(ends.first);
        all.push_back(ends.last);
    }
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    return all;
}

Counter::Counter() {
    counted = counted_bytes = 0;
    counting = true;
}

Counter::~Counter() { counting = false; }

std::uint64_t Counter::count() const { return counted; }
std::uint64_t Counter::bytes() const { return counted_bytes; }

Failing::Failing(std::uint64_t nth, bool onwards) {
    counted = 0;
    first_failing = nth;
    fails_onwards = onwards;
    counting = true;
}

Failing::~Failing() {
    counting = false;
    first_failing = 0;
}

std::uint64_t Failing::count() const { return counted; }

bool can_fail() {
#if defined(NEW_OF_SANITIZER)
    return false;
#else
    return true;
#endif
}

Pause::Pause() : before_(counting) { counting = false; }

Pause::~Pause() { counting = before_; }

#if defined(ALLOCATIONS_OF_SANITIZER)
Lost::Lost() { __lsan_disable(); }
Lost::~Lost() { __lsan_enable(); }
#else
Lost::Lost() = default;
Lost::~Lost() = default;
#endif

std::uint64_t bytes_in_use() {
#if defined(ALLOCATIONS_OF_SANITIZER)
    return __sanitizer_get_current_allocated_bytes();
#elif defined(__linux__)
    std::ifstream file("/proc/self/statm");
    std::uint64_t all = 0, pages = 0;
    file >> all >> pages;
    return pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
#else
    return 0;
#endif
}

}  // namespace allocations

// The sanitizers have forms of their own, all of which would have to go.
#if !defined(NEW_OF_SANITIZER)

// The other forms of the standard library end here.
void* operator new(std::size_t bytes) {
    if (counting) {
        ++counted;
        counted_bytes += bytes;
        if (telling != nullptr) {
            allocations::ChainsAccess::tell(*telling);
        }
        if (first_failing != 0 && (counted == first_failing || (fails_onwards && counted > first_failing))) {
            throw std::bad_alloc();
        }
    }
    if (void* memory = std::malloc(bytes != 0 ? bytes : 1)) {
        return memory;
    }
    throw std::bad_alloc();
}

void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

#endif
