// SPDX-License-Identifier: Apache-2.0
// rate MIB...: reads large files of each format, each as large as it is told, and prints the
// processor's time for each megabyte and the memory beyond the file. Ends with an error where one
// takes more than a second for each megabyte, or more than 64 MiB beyond the file. An argument that
// is no number names the target that alone is read.
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include "tests/fuzz/rate/shapes.h"
#include "tests/fuzz/target.h"

namespace {

// What all threads and libraries hold of the C library's memory, and the most of it.
std::atomic<std::int64_t> held = 0, most_held = 0;

void* counted(void* memory) {
    if (memory != nullptr) {
        const std::int64_t now = held += static_cast<std::int64_t>(malloc_usable_size(memory));
        std::int64_t before = most_held;
        while (now > before && !most_held.compare_exchange_weak(before, now)) {
        }
    }
    return memory;
}

void* uncounted(void* memory) {
    if (memory != nullptr) {
        held -= static_cast<std::int64_t>(malloc_usable_size(memory));
    }
    return memory;
}

}  // namespace

extern "C" {

void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* memory, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);
void __libc_free(void* memory);

void* malloc(std::size_t bytes) { return counted(__libc_malloc(bytes)); }
void* calloc(std::size_t count, std::size_t bytes) { return counted(__libc_calloc(count, bytes)); }
void* realloc(void* memory, std::size_t bytes) {
    void* moved = __libc_realloc(uncounted(memory), bytes);
    counted(moved == nullptr && bytes != 0 ? memory : nullptr);  // which stayed
    return counted(moved);
}
void* memalign(std::size_t alignment, std::size_t bytes) { return counted(__libc_memalign(alignment, bytes)); }
void* aligned_alloc(std::size_t alignment, std::size_t bytes) { return counted(__libc_memalign(alignment, bytes)); }
int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) {
    void* found = counted(__libc_memalign(alignment, bytes));
    *memory = found != nullptr ? found : *memory;
    return found != nullptr ? 0 : ENOMEM;
}
void free(void* memory) { __libc_free(uncounted(memory)); }

}  // extern "C"

namespace vkf::fuzz {

namespace {

double processor_seconds() {
    timespec now{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Reads one file; false where it takes too much.
bool measure(const LargeFile& file, double mebibytes) {
    const Target* target = choose_target(file.target);
    require(target != nullptr, "there is no such target");
    const std::string content = file.make(static_cast<std::size_t>(mebibytes * (1 << 20)));
    const Bytes bytes = std::as_bytes(std::span(content));
    std::string answer = "read";
    const std::int64_t before = most_held = held.load();
    const double begin = processor_seconds();
    try {
        target->read(bytes);
    } catch (const Error& error) {
        answer = error.what();
    }
    const double seconds = processor_seconds() - begin;
    const double megabytes = static_cast<double>(bytes.size()) / 1e6;
    const std::int64_t beyond = most_held - before - static_cast<std::int64_t>(bytes.size());
    const bool good = seconds <= std::max(megabytes, 1.0) &&
                      beyond <= kMostBeyond + file.times * static_cast<std::int64_t>(bytes.size());
    std::printf("%-16s %-26s %5.1f MB %7.3f s/MB %7.1f MiB beyond%s  %.90s\n", file.target, file.shape, megabytes,
                seconds / megabytes, static_cast<double>(beyond) / (1 << 20), good ? "" : "  TOO MUCH", answer.c_str());
    std::fflush(stdout);
    return good;
}

}  // namespace

}  // namespace vkf::fuzz

int main(int count, char** arguments) {
    using namespace vkf::fuzz;
    std::vector<double> sizes;
    std::string only;
    for (int i = 1; i < count; ++i) {
        const double size = std::strtod(arguments[i], nullptr);
        size > 0 ? sizes.push_back(size) : void(only = arguments[i]);
    }
    int bad = 0, all = 0;
    try {
        for (const LargeFile& file : large_files()) {
            if (!only.empty() && only != file.target) {
                continue;
            }
            try {
                choose_target(file.target)->read({});  // what is made once is not of a file
            } catch (const vkf::Error&) {
            }
            for (const double size : sizes) {
                bad += measure(file, size) ? 0 : 1;
                ++all;
            }
        }
    } catch (const std::exception& error) {
        std::fprintf(stderr, "rate: %s\n", error.what());
        return 1;
    }
    std::printf("rate: %d files of %zu shapes, %d took too much\n", all, large_files().size(), bad);
    return bad == 0 && all > 0 ? 0 : 1;
}
