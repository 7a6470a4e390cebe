// SPDX-License-Identifier: Apache-2.0
#include "tests/allocations.h"

#include <cstddef>
#include <cstdlib>
#include <new>

#if defined(__SANITIZE_ADDRESS__)
#define ALLOCATIONS_OF_SANITIZER
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ALLOCATIONS_OF_SANITIZER
#endif
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
thread_local std::uint64_t counted = 0;
thread_local std::uint64_t first_failing = 0;  ///< 0: none
thread_local bool fails_onwards = false;

}  // namespace

namespace allocations {

Counter::Counter() {
    counted = 0;
    counting = true;
}

Counter::~Counter() { counting = false; }

std::uint64_t Counter::count() const { return counted; }

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
#if defined(ALLOCATIONS_OF_SANITIZER)
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

// AddressSanitizer has forms of its own, all of which would have to go.
#if !defined(ALLOCATIONS_OF_SANITIZER)

// The other forms of the standard library end here.
void* operator new(std::size_t bytes) {
    if (counting) {
        ++counted;
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
