// SPDX-License-Identifier: Apache-2.0
// libFuzzer's entries, and what is counted around each input.
#include <sanitizer/allocator_interface.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "tests/fuzz/target.h"

namespace vkf::fuzz {

namespace {

const Target* chosen = nullptr;

// What is allocated while an input is read, in all threads.
std::atomic<bool> counting = false;
std::atomic<std::int64_t> in_use = 0, most = 0;

void count_new(const volatile void*, std::size_t bytes) {
    if (counting) {
        const std::int64_t now = in_use += static_cast<std::int64_t>(bytes);
        std::int64_t before = most;
        while (now > before && !most.compare_exchange_weak(before, now)) {
        }
    }
}

void count_gone(const volatile void* pointer) {
    if (counting && pointer != nullptr) {
        in_use -= static_cast<std::int64_t>(__sanitizer_get_allocated_size(const_cast<const void*>(pointer)));
    }
}

}  // namespace

}  // namespace vkf::fuzz

extern "C" int LLVMFuzzerInitialize(int*, char***) {
    using namespace vkf::fuzz;
    const char* asked = std::getenv("VKFORMER_FUZZ");
    chosen = choose_target(asked != nullptr ? asked : "");
    if (chosen == nullptr) {
        std::fprintf(stderr, "VKFORMER_FUZZ names no target; there are:%s\n", target_names().c_str());
        std::exit(1);
    }
    try {
        chosen->read({});  // what is made once is not of an input
    } catch (const vkf::Error&) {
    }
    __sanitizer_install_malloc_and_free_hooks(count_new, count_gone);
    return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace vkf::fuzz;
    in_use = most = 0;
    counting = true;
    try {
        chosen->read({reinterpret_cast<const std::byte*>(data), size});
    } catch (const vkf::Error&) {
    }
    counting = false;
    if (most > kMostBeyond + static_cast<std::int64_t>(size)) {
        fail("took " + std::to_string(most >> 20) + " MiB for " + std::to_string(size) + " bytes");
    }
    return 0;
}
