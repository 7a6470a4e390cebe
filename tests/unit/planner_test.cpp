// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <random>
#include <string>
#include <vector>

#include "runtime/compile/planner.h"

using namespace vkf;

namespace {

/// Says what is wrong with a plan; empty when nothing.
std::string fault(const std::vector<Interval>& intervals, const ArenaPlan& plan, std::uint64_t alignment) {
    if (plan.offsets.size() != intervals.size()) {
        return "offsets are missing";
    }
    for (std::size_t i = 0; i < intervals.size(); ++i) {
        const Interval& a = intervals[i];
        if (plan.offsets[i] % alignment != 0) {
            return "interval " + std::to_string(i) + " is not aligned";
        }
        if (plan.offsets[i] + a.bytes > plan.bytes) {
            return "interval " + std::to_string(i) + " leaves the arena";
        }
        for (std::size_t j = 0; j < i; ++j) {
            const Interval& b = intervals[j];
            const bool together = a.first <= b.last && b.first <= a.last;
            const bool disjoint =
                plan.offsets[i] + a.bytes <= plan.offsets[j] || plan.offsets[j] + b.bytes <= plan.offsets[i];
            if (together && !disjoint) {
                return "intervals " + std::to_string(j) + " and " + std::to_string(i) + " overlap";
            }
        }
    }
    return {};
}

/// The tensors of a Transformer's encoder layers as dispatches make them: q, k, v, scores, weights,
/// context, projection, sum, norm, hidden, output, sum, norm.
std::vector<Interval> encoder(std::uint32_t layers, std::uint64_t tokens, std::uint64_t width, std::uint64_t heads,
                              std::uint64_t hidden) {
    const std::uint64_t x = tokens * width * 4;
    const std::uint64_t scores = heads * tokens * tokens * 4;
    std::vector<Interval> out{{0, 1, x}};  // embedded
    for (std::uint32_t layer = 0; layer < layers; ++layer) {
        const std::uint32_t t = 1 + 10 * layer;
        for (const std::uint32_t last : {t + 1, t + 1, t + 3}) {  // q, k, v
            out.push_back({t, last, x});
        }
        out.push_back({t + 1, t + 2, scores});
        out.push_back({t + 2, t + 3, scores});
        out.push_back({t + 3, t + 4, x});  // context
        out.push_back({t + 4, t + 5, x});  // projection
        out.push_back({t + 5, t + 6, x});  // sum
        out.push_back({t + 6, t + 9, x});  // norm, which the second sum reads again
        out.push_back({t + 7, t + 8, tokens * hidden * 4});
        out.push_back({t + 8, t + 9, x});
        out.push_back({t + 9, t + 10, x});   // sum
        out.push_back({t + 10, t + 15, x});  // norm, which the next layer's first sum reads again
    }
    return out;
}

double waste(const std::vector<Interval>& intervals, std::uint64_t alignment) {
    const ArenaPlan plan = plan_arena(intervals, alignment);
    CHECK(fault(intervals, plan, alignment) == "");
    return static_cast<double>(plan.bytes) / static_cast<double>(peak_live_bytes(intervals, alignment));
}

}  // namespace

TEST_CASE("planner: nothing, one, and tensors of no bytes") {
    CHECK(plan_arena({}, 256).bytes == 0);
    CHECK(peak_live_bytes({}, 256) == 0);
    const std::vector<Interval> one{{3, 5, 100}};
    CHECK(plan_arena(one, 256).offsets == std::vector<std::uint64_t>{0});
    CHECK(plan_arena(one, 256).bytes == 256);
    CHECK(peak_live_bytes(one, 256) == 256);
    const std::vector<Interval> empty{{0, 9, 0}, {0, 9, 64}, {2, 3, 0}};
    CHECK(fault(empty, plan_arena(empty, 64), 64) == "");
    CHECK(plan_arena(empty, 64).bytes == 64);
}

TEST_CASE("planner: what lives in the same step lies apart, what does not may share") {
    const std::vector<Interval> chain{{0, 1, 1000}, {1, 2, 1000}, {2, 3, 1000}, {3, 4, 1000}};
    CHECK(fault(chain, plan_arena(chain, 16), 16) == "");
    CHECK(plan_arena(chain, 16).bytes == 2 * 1008);
    const std::vector<Interval> together{{0, 3, 10}, {1, 1, 20}, {0, 1, 30}};
    CHECK(plan_arena(together, 1).bytes == 60);
    CHECK(peak_live_bytes(together, 1) == 60);
    const std::vector<Interval> in_turn{{0, 0, 10}, {1, 1, 20}, {2, 2, 30}};
    CHECK(plan_arena(in_turn, 1).bytes == 30);
}

TEST_CASE("planner: random intervals never overlap, at every alignment") {
    std::mt19937 random(7);
    for (int round = 0; round < 300; ++round) {
        const std::uint64_t alignment = std::uint64_t{1} << (random() % 9);
        const std::uint32_t steps = 1 + random() % 40;
        std::vector<Interval> intervals(random() % 60);
        for (Interval& v : intervals) {
            v.first = random() % steps;
            v.last = v.first + random() % (steps - v.first);
            v.bytes = random() % 5 == 0 ? 0 : random() % 5000;
        }
        CAPTURE(round);
        const ArenaPlan plan = plan_arena(intervals, alignment);
        CHECK(fault(intervals, plan, alignment) == "");
        CHECK(plan.bytes >= peak_live_bytes(intervals, alignment));
    }
}

TEST_CASE("planner: sizes beyond 32 bits") {
    const std::uint64_t big = std::uint64_t{5} << 32;
    const std::vector<Interval> intervals{{0, 1, big}, {1, 2, big + 1}, {2, 3, big}};
    const ArenaPlan plan = plan_arena(intervals, 256);
    CHECK(fault(intervals, plan, 256) == "");
    CHECK(plan.bytes == 2 * big + 256);
}

TEST_CASE("planner: within a tenth of the lower bound on Transformers") {
    CHECK(waste(encoder(12, 128, 768, 12, 3072), 256) <= 1.1);
    CHECK(waste(encoder(12, 1024, 768, 12, 3072), 256) <= 1.1);
    CHECK(waste(encoder(12, 17, 768, 12, 3072), 256) <= 1.1);
    CHECK(waste(encoder(6, 512, 512, 8, 2048), 64) <= 1.1);
    CHECK(waste(encoder(2, 32, 64, 4, 128), 256) <= 1.1);
    CHECK(waste(encoder(48, 2048, 1600, 25, 6400), 256) <= 1.1);
}

TEST_CASE("planner: the same plan every time") {
    const std::vector<Interval> intervals = encoder(3, 100, 96, 3, 200);
    CHECK(plan_arena(intervals, 256).offsets == plan_arena(intervals, 256).offsets);
}
