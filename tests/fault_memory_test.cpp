// SPDX-License-Identifier: Apache-2.0
// Memory runs out in every life of fault_lives.h: one call of operator new fails, or all from it to
// the end of the step. A short run takes some of the calls, evenly spread, or VKFORMER_FAULTS =
// so many of each life. VKFORMER_FAULTS=all takes every place there is: of the calls that came by
// one chain of callers the first and the last.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/owned_json.h"
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

/// Which of a life's allocations fail, counted from 1.
std::vector<std::uint64_t> wanted_failures(std::uint64_t count, const allocations::Chains& chains) {
    const char* asked = std::getenv("VKFORMER_FAULTS");
    if (asked != nullptr && std::string_view(asked) == "all") {
        return chains.ends();
    }
    const std::uint64_t most = asked == nullptr ? 12 : std::max(1ull, std::strtoull(asked, nullptr, 10));
    std::vector<std::uint64_t> some;
    for (std::uint64_t nth = 1; nth <= count; nth += std::max<std::uint64_t>(1, count / most)) {
        some.push_back(nth);
    }
    return some;
}

}  // namespace

TEST_SUITE("faults") {
    TEST_CASE("faults: JSON is parsed and let go of where there is no memory") {
        const std::string text =
            R"({"a": [[1, 2], {"b": "a text that is too long for its own place", "b": [3]}], "c": {}})";
        std::uint64_t needed = 0, kept = 1;
        {
            std::optional<OwnedJson> read;
            {
                const allocations::Failing counted(0, false);
                read = parse_owned(text);
                needed = counted.count();
            }
            CHECK(read->at("a")[1]["b"] == nlohmann::json::array({3}));
            const allocations::Failing none(1, true);
            read.reset();
            kept = none.count();
        }
        CHECK(kept == 0);
        std::uint64_t thrown = 0;
        for (std::uint64_t nth = 1; nth <= needed; ++nth) {
            try {
                const allocations::Failing failing(nth, true);
                parse_owned(text);
            } catch (const std::bad_alloc&) {
                ++thrown;
            }
        }
        CHECK(thrown == needed);
        CHECK((needed > 10 || !allocations::can_fail()));
    }

    TEST_CASE("faults: memory that runs out anywhere is an exception, nothing leaks, and the next attempt succeeds") {
        if (!allocations::can_fail()) {
            return;
        }
        const Environment no_validation("VKFORMER_VALIDATION", "0");
        std::uint64_t failed = 0, all = 0, places = 0;
        for (const Life& life : fault_lives()) {
            live_without_memory(life, 0, false);  // fills what is made once
            std::vector<std::uint64_t> wanted;
            {
                const allocations::Chains chains;
                const std::uint64_t count = live_without_memory(life, 0, false);
                all += count;
                places += chains.size();
                wanted = wanted_failures(count, chains);
            }
            for (const std::uint64_t nth : wanted) {
                live_without_memory(life, nth, failed % 2 == 1);
                ++failed;
            }
        }
        std::printf("faults: %llu of %llu allocations failed, which come from %llu places\n",
                    static_cast<unsigned long long>(failed), static_cast<unsigned long long>(all),
                    static_cast<unsigned long long>(places));
    }
}

}  // namespace vkf::test
