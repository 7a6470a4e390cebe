// SPDX-License-Identifier: Apache-2.0
// What prune() does to loops, selections and switches that compilers of GLSL do not write, and
// optimisers of SPIR-V do.
#include <doctest/doctest.h>

#include "runtime/compile/prune.h"
#include "tests/spirv_build.h"

namespace vkf::test {

namespace {

constexpr std::uint32_t kVoid = 2, kBool = 3, kTrue = 4, kUnknown = 5, kUint = 6, kOne = 7, kTwo = 8, kUlong = 9;

/// A module of one function, of these blocks.
Words module_around(const std::vector<Words>& blocks, bool with_true) {
    std::vector<Words> all = {{op(2, 17), 1},     {op(2, 17), 11},        {op(4, 15), 5, 1, 'm'},
                              {op(2, 19), kVoid}, {op(3, 33), 99, kVoid}, {op(2, 20), kBool}};
    if (with_true) {
        all.push_back({op(3, 41), kBool, kTrue});
    }
    all.insert(all.end(), {{op(4, 21), kUint, 32, 0},
                           {op(4, 21), kUlong, 64, 0},
                           {op(4, 43), kUint, kOne, 1},
                           {op(4, 43), kUint, kTwo, 2},
                           {op(5, 54), kVoid, 1, 0, 99}});
    all.insert(all.end(), blocks.begin(), blocks.end());
    all.push_back({op(1, 56)});
    return module_of(all);
}

Words label(std::uint32_t id) { return {op(2, 248), id}; }
Words branch(std::uint32_t to) { return {op(2, 249), to}; }
Words branch_if(std::uint32_t condition, std::uint32_t yes, std::uint32_t no) {
    return {op(4, 250), condition, yes, no};
}
Words selection_merge(std::uint32_t to) { return {op(3, 247), to, 0}; }
Words add(std::uint32_t id, std::uint32_t a, std::uint32_t b) { return {op(5, 128), kUint, id, a, b}; }
const Words leave{op(1, 253)};
const Words wide{op(3, 1), kUlong, 30};  // keeps 64-bit integers in the module

}  // namespace

TEST_SUITE("prune") {
    TEST_CASE("prune: the header of a loop that never comes back names nothing that is gone") {
        const std::vector<Words> start{label(10), wide, branch(11), label(11)};
        const Words loop{op(4, 246), 15, 14, 0};
        const auto module = [&](const Words& phi, std::vector<Words> way_back) {
            std::vector<Words> blocks = start;
            blocks.insert(blocks.end(), {phi, loop, branch(12), label(12), add(22, 20, kTwo), selection_merge(13),
                                         branch_if(kTrue, 15, 13), label(13), branch(14), label(14)});
            blocks.insert(blocks.end(), way_back.begin(), way_back.end());
            blocks.insert(blocks.end(), {branch(11), label(15), leave});
            return module_around(blocks, true);
        };
        std::vector<Words> left = start;
        left.insert(left.end(), {{op(7, 245), kUint, 20, kOne, 10, 20, 14},
                                 loop,
                                 branch(12),
                                 label(12),
                                 add(22, 20, kTwo),
                                 branch(15),
                                 label(14),
                                 branch(11),
                                 label(15),
                                 leave});
        const Words want = module_around(left, false);
        CHECK(prune(module({op(7, 245), kUint, 20, kOne, 10, 22, 14}, {})) == want);
        CHECK(prune(module({op(7, 245), kUint, 20, 21, 14, kOne, 10}, {add(21, 22, kTwo)})) == want);
        CHECK(prune(module({op(7, 245), kUint, 20, kOne, 10, 22, 16}, {branch(16), label(16)})) == want);
        CHECK(prune(want) == want);
    }

    TEST_CASE("prune: a selection stays that a branch inside leaves") {
        const auto module = [&](const Words& inside) {
            return module_around({label(10),
                                  {op(3, 1), kBool, kUnknown},
                                  wide,
                                  add(20, kOne, kTwo),
                                  selection_merge(13),
                                  branch_if(kTrue, 11, 13),
                                  label(11),
                                  inside,
                                  label(12),
                                  branch(13),
                                  label(13),
                                  leave},
                                 true);
        };
        const Words needed = module(branch_if(kUnknown, 12, 13));
        CHECK(prune(needed) == needed);
        CHECK(prune(module(branch(12))) ==
              module_around({label(10), {op(3, 1), kBool, kUnknown}, wide, add(20, kOne, kTwo), leave}, false));
    }

    TEST_CASE("prune: a switch over a 64-bit number keeps its cases, and what comes from them") {
        const auto module = [&](const Words& cases, const Words& phi) {
            return module_around({label(10), wide, selection_merge(14), cases, label(11), branch(14), label(12),
                                  branch(14), label(13), branch(14), label(14), phi, leave},
                                 false);
        };
        const Words two =
            module({op(9, 251), 30, 13, 1, 0, 11, 2, 0, 12}, {op(9, 245), kUint, 20, kOne, 11, kTwo, 12, kOne, 13});
        CHECK(prune(two) == two);
        const Words one = module({op(6, 251), 30, 13, 1, 0, 11}, {op(7, 245), kUint, 20, kOne, 11, kTwo, 13});
        CHECK(prune(one) == one);
    }

    TEST_CASE("prune: masks of subgroups ask for subgroups") {
        for (const std::uint32_t built_in : {4416u, 4418u, 4420u}) {
            const Words begin{op(5, 54), kVoid, 1, 0, 99};
            const auto module = [&](const std::vector<Words>& told, const std::vector<Words>& variable,
                                    const Words& body) {
                std::vector<Words> all{{op(2, 17), 1}};
                all.insert(all.end(), told.begin(), told.end());
                all.insert(all.end(), {{op(2, 19), kVoid},
                                       {op(3, 33), 99, kVoid},
                                       {op(4, 21), kUint, 32, 0},
                                       {op(4, 23), 40, kUint, 4},
                                       {op(4, 32), 41, 1, 40}});
                all.insert(all.end(), variable.begin(), variable.end());
                all.insert(all.end(), {begin, label(10), body, leave, {op(1, 56)}});
                return module_of(all);
            };
            const std::vector<Words> told{
                {op(2, 17), 61}, {op(2, 17), 64}, {op(5, 15), 5, 1, 'm', 50}, {op(4, 71), 50, 11, built_in}};
            const std::vector<Words> variable{{op(4, 59), 41, 50, 1}};
            const Words read = module(told, variable, {op(4, 61), 40, 51, 50});
            CHECK(prune(read) == read);
            const Words other{op(3, 1), kUint, 51};
            CHECK(prune(module(told, variable, other)) == module({{op(4, 15), 5, 1, 'm'}}, {}, other));
        }
    }
}

}  // namespace vkf::test
