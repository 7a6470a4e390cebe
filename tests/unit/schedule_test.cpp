// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "runtime/compile/schedule.h"

using namespace vkf;

namespace {

bool touch(const std::vector<std::uint32_t>& a, const std::vector<std::uint32_t>& b) {
    return std::find_first_of(a.begin(), a.end(), b.begin(), b.end()) != a.end();
}

bool depend(const StorageUse& a, const StorageUse& b) {
    return touch(a.writes, b.reads) || touch(a.writes, b.writes) || touch(a.reads, b.writes);
}

/// Says what is wrong with a schedule; empty when nothing.
std::string fault(const std::vector<StorageUse>& uses, const Schedule& s) {
    std::vector<std::uint32_t> sorted = s.order;
    std::sort(sorted.begin(), sorted.end());
    for (std::uint32_t i = 0; i < sorted.size(); ++i) {
        if (sorted[i] != i) {
            return "not every dispatch is there once";
        }
    }
    if (s.order.size() != uses.size() || s.step.size() != uses.size()) {
        return "dispatches are missing";
    }
    std::vector<std::uint32_t> step(uses.size());
    for (std::size_t i = 0; i < s.order.size(); ++i) {
        step[s.order[i]] = s.step[i];
        if (i > 0 && s.step[i] < s.step[i - 1]) {
            return "steps go back";
        }
        if (s.step[i] >= s.steps) {
            return "a step beyond the last";
        }
    }
    for (std::size_t i = 0; i < uses.size(); ++i) {
        for (std::size_t j = 0; j < i; ++j) {
            if (depend(uses[j], uses[i]) && step[j] >= step[i]) {
                return "dispatch " + std::to_string(i) + " is not after " + std::to_string(j);
            }
        }
    }
    return {};
}

}  // namespace

TEST_CASE("schedule: early ones come as soon as what they wait for, the others as given") {
    // 0 makes a, 1 makes b of it, 2 makes c of b; 3 sends b, 4 uses what came, 5 sends a
    const std::vector<StorageUse> uses{{{}, {0}}, {{0}, {1}}, {{1}, {2}}, {{1}, {3, 9}}, {{3}, {4}}, {{0}, {5, 9}}};
    CHECK(early_order(uses, {false, false, false, true, false, true}) == std::vector<std::uint32_t>{0, 1, 3, 5, 2, 4});
    CHECK(early_order(uses, std::vector<bool>(6, false)) == std::vector<std::uint32_t>{0, 1, 2, 3, 4, 5});
    CHECK(early_order({}, {}).empty());
}

TEST_CASE("schedule: nothing and one") {
    CHECK(make_schedule({}).steps == 0);
    const std::vector<StorageUse> one{{{0}, {1}}};
    CHECK(make_schedule(one).steps == 1);
    CHECK(fault(one, make_schedule(one)) == "");
}

TEST_CASE("schedule: independent dispatches share a step, dependent ones do not") {
    // q, k, v of x; then scores of q and k; then the product with v
    const std::vector<StorageUse> attention{{{0}, {1}}, {{0}, {2}}, {{0}, {3}}, {{1, 2}, {4}}, {{4, 3}, {5}}};
    const Schedule s = make_schedule(attention);
    CHECK(fault(attention, s) == "");
    CHECK(s.step == std::vector<std::uint32_t>{0, 0, 0, 1, 2});
    CHECK(s.steps == 3);
}

TEST_CASE("schedule: reads before a write, and two writes, keep their order") {
    const std::vector<StorageUse> read_then_write{{{0}, {1}}, {{2}, {0}}};
    CHECK(make_schedule(read_then_write).step == std::vector<std::uint32_t>{0, 1});
    const std::vector<StorageUse> write_twice{{{1}, {0}}, {{2}, {0}}, {{0}, {3}}};
    CHECK(make_schedule(write_twice).step == std::vector<std::uint32_t>{0, 1, 2});
    const std::vector<StorageUse> in_place{{{0}, {0}}, {{0}, {0}}};
    CHECK(make_schedule(in_place).step == std::vector<std::uint32_t>{0, 1});
}

TEST_CASE("schedule: a later independent dispatch is drawn forward, but not from beyond the window") {
    std::vector<StorageUse> uses;
    for (std::uint32_t i = 0; i < 10; ++i) {
        uses.push_back({{i}, {i + 1}});  // a chain
    }
    uses.push_back({{100}, {101}});  // needs none of it
    const Schedule wide = make_schedule(uses, 20);
    CHECK(fault(uses, wide) == "");
    CHECK(wide.order[1] == 10);
    CHECK(wide.step[1] == 0);
    const Schedule narrow = make_schedule(uses, 3);
    CHECK(fault(uses, narrow) == "");
    CHECK(narrow.order[1] == 1);
    CHECK(narrow.steps == 10);
    const Schedule in_order = make_schedule(uses, 1);
    CHECK(in_order.steps == 11);
    CHECK(in_order.order.back() == 10);
}

TEST_CASE("schedule: random programs keep every dependency") {
    std::mt19937 random(3);
    for (int round = 0; round < 300; ++round) {
        std::vector<StorageUse> uses(random() % 40);
        const std::uint32_t storages = 1 + random() % 20;
        for (StorageUse& u : uses) {
            for (std::uint32_t n = random() % 4; n-- > 0;) {
                u.reads.push_back(random() % storages);
            }
            for (std::uint32_t n = 1 + random() % 2; n-- > 0;) {
                u.writes.push_back(random() % storages);
            }
        }
        CAPTURE(round);
        for (const std::uint32_t window : {1u, 2u, 8u, 100u}) {
            CHECK(fault(uses, make_schedule(uses, window)) == "");
        }
    }
}
