// SPDX-License-Identifier: Apache-2.0
// Memory runs out at the first, second, ..., last call of operator new of every life of
// fault_lives.h: that call alone, or all from it to the end of the step. A short run takes some of
// the calls, evenly spread; VKFORMER_FAULTS=all takes a thousand of each life, or
// VKFORMER_FAULTS=number so many.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <string_view>

#include "tests/allocations.h"
#include "tests/device.h"
#include "tests/fault_lives.h"
#include "tests/fixtures.h"

namespace vkf::test {

namespace {

/// Lives once, the nth allocation failing; returns how many there were.
std::uint64_t live_without_memory(const Life& life, std::uint64_t nth, bool onwards) {
    const std::string name = life.name;
    CAPTURE(name);
    CAPTURE(nth);
    CAPTURE(onwards);
    fake::Vulkan vulkan;
    std::uint64_t count = 0;
    Attempts attempt(false, [&](const Attempts::Step& step) {
        const allocations::Failing failing(nth > count ? nth - count : 0, onwards);
        struct Sum {
            const allocations::Failing& of;
            std::uint64_t& into;
            ~Sum() { into += of.count(); }
        } const sum{failing, count};
        step();
    });
    std::string thrown;
    try {
        life.live(vulkan, attempt);
    } catch (const std::exception& e) {
        thrown = e.what();
    }
    CHECK(attempt.take_messages() == "");
    CHECK(thrown == "");
    CHECK(attempt.errors().size() <= (nth == 0 ? 0 : 1));
    CHECK(vulkan.live_objects() == 0);
    CHECK(vulkan.allocated_bytes() == 0);
    return count;
}

/// How many of a life's allocations fail; all of them would take hours.
std::uint64_t wanted_failures() {
    const char* asked = std::getenv("VKFORMER_FAULTS");
    if (asked == nullptr) {
        return 12;
    }
    return std::string_view(asked) == "all" ? 1000 : std::max(1ull, std::strtoull(asked, nullptr, 10));
}

}  // namespace

TEST_SUITE("faults") {
    TEST_CASE("faults: memory that runs out anywhere is an exception, nothing leaks, and the next attempt succeeds") {
        if (!allocations::can_fail()) {
            return;
        }
        const Environment no_validation("VKFORMER_VALIDATION", "0");
        std::uint64_t failed = 0, all = 0;
        for (const Life& life : fault_lives()) {
            live_without_memory(life, 0, false);  // fills what is made once
            const std::uint64_t count = live_without_memory(life, 0, false);
            all += count;
            const std::uint64_t step = std::max<std::uint64_t>(1, count / wanted_failures());
            for (std::uint64_t nth = 1; nth <= count; nth += step) {
                live_without_memory(life, nth, failed % 2 == 1);
                ++failed;
            }
        }
        std::printf("faults: %llu of %llu allocations failed\n", static_cast<unsigned long long>(failed),
                    static_cast<unsigned long long>(all));
    }
}

}  // namespace vkf::test
