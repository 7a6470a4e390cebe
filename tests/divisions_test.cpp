// SPDX-License-Identifier: Apache-2.0
// Shifts that stand for divisions: which there are, and what they give. Under validation the layer
// looks at them too.
#include "runtime/compile/divisions.h"

#include <doctest/doctest.h>

#include "elementwise.spv.h"
#include "runtime/compile/prune.h"
#include "runtime/compile/specialize.h"
#include "tests/glsl.h"
#include "tests/spirv_build.h"
#include "tests/uint_kernel.h"

namespace vkf::test {

namespace {

constexpr std::uint32_t kDivide = 134, kRest = 137, kShift = 194, kAnd = 199;

/// uint is 3 and int 6; of uint the constants 10 to 14 are 8, 6, 1, 0 and 2^31, of int 16 is 4.
/// What divides has the ids from 30 on; 22 is a number that no constant is.
Words module_with(const std::vector<Words>& divisions, const std::vector<Words>& more = {}) {
    std::vector<Words> all = {
        {op(4, 15), 5, 20, 'm'},        {op(2, 19), 2},        {op(4, 21), 3, 32, 0},    {op(3, 33), 4, 2},
        {op(4, 21), 6, 32, 1},          {op(4, 21), 7, 64, 0}, {op(5, 43), 7, 17, 8, 0}, {op(4, 23), 8, 3, 2},
        {op(4, 43), 3, 10, 8},          {op(4, 43), 3, 11, 6}, {op(4, 43), 3, 12, 1},    {op(4, 43), 3, 13, 0},
        {op(4, 43), 3, 14, 0x80000000}, {op(4, 43), 3, 15, 3}, {op(4, 43), 6, 16, 4},    {op(5, 44), 8, 18, 10, 10}};
    all.insert(all.end(), more.begin(), more.end());
    all.insert(all.end(), {{op(5, 54), 2, 20, 0, 4}, {op(2, 248), 21}, {op(5, 128), 3, 22, 10, 11}});
    all.insert(all.end(), divisions.begin(), divisions.end());
    all.insert(all.end(), {{op(1, 253)}, {op(1, 56)}});
    return module_of(all);
}

}  // namespace

TEST_SUITE("divisions") {
    TEST_CASE("divisions: by powers of two they are shifts, and masks for the rest") {
        Words expected = module_with({{op(5, kShift), 3, 30, 22, 200},
                                      {op(5, kAnd), 3, 31, 22, 201},
                                      {op(5, kShift), 3, 32, 22, 202},
                                      {op(5, kAnd), 3, 33, 22, 202},
                                      {op(5, kShift), 3, 34, 22, 203},
                                      {op(5, kAnd), 3, 35, 22, 204},
                                      {op(5, kAnd), 3, 36, 22, 201}},
                                     {{op(4, 43), 3, 200, 3},
                                      {op(4, 43), 3, 201, 7},
                                      {op(4, 43), 3, 202, 0},
                                      {op(4, 43), 3, 203, 31},
                                      {op(4, 43), 3, 204, 0x7fffffff}});
        expected[3] = 205;
        CHECK(shift_for_divisions(module_with({{op(5, kDivide), 3, 30, 22, 10},
                                               {op(5, kRest), 3, 31, 22, 10},
                                               {op(5, kDivide), 3, 32, 22, 12},
                                               {op(5, kRest), 3, 33, 22, 12},
                                               {op(5, kDivide), 3, 34, 22, 14},
                                               {op(5, kRest), 3, 35, 22, 14},
                                               {op(5, kRest), 3, 36, 22, 10}})) == expected);
    }

    TEST_CASE("divisions: all others stay") {
        const Words others = module_with({{op(5, kDivide), 3, 30, 22, 11},  // by 6
                                          {op(5, kRest), 3, 31, 22, 13},    // by 0
                                          {op(5, kDivide), 3, 32, 10, 22},  // by no constant
                                          {op(5, kDivide), 7, 33, 17, 17},  // of 64 bits
                                          {op(5, kDivide), 8, 34, 18, 18},  // of vectors
                                          {op(5, 135), 6, 35, 16, 16}});    // of signed numbers
        CHECK(shift_for_divisions(others) == others);
        Words cut = others;
        cut.pop_back();
        CHECK(shift_for_divisions(cut) == cut);
        CHECK(shift_for_divisions({}) == Words{});
        const Words label = module_of({{op(5, 54), 2, 20, 0, 4}, {op(1, 248)}});  // without its id
        CHECK(shift_for_divisions(label) == label);
        Words full = module_with({{op(5, kDivide), 3, 30, 22, 10}, {op(5, kRest), 3, 31, 22, 10}});
        full[3] = 4194303;  // as many ids as a module may have
        CHECK(shift_for_divisions(full) == full);
    }

    TEST_CASE("divisions: on the device they give what they stand for") {
        if (!can_compile_glsl()) {
            return;
        }
        const UintKernel kernel(
            "uint by(uint x, uint n) { return x / n * 5u + x % n; }"
            "uint divided(uint y) {"
            "    uint x = y * 2654435761u;"
            "    return (by(x, 1u) + by(x, 2u) * 3u + by(x, 64u) * 7u + by(x, 0x80000000u) * 11u +"
            "           by(x, A) * 13u + by(x, 6u) * 17u) % 1000003u;"
            "}",
            "divided", {"A"});
        for (const std::uint32_t a : {1u, 7u, 16u, 0x40000000u}) {
            CAPTURE(a);
            CHECK(kernel.difference({a}, 128, [&](std::uint32_t y) {
                const std::uint32_t x = y * 2654435761u;
                const auto by = [&](std::uint32_t n) { return x / n * 5 + x % n; };
                return (by(1) + by(2) * 3 + by(64) * 7 + by(0x80000000) * 11 + by(a) * 13 + by(6) * 17) % 1000003;
            }) == "");
        }
    }

    TEST_CASE("divisions: a kernel that works by fours has none left") {
        // local size 64, copies, dense, by fours
        const Words plain = prune(specialize(SpirvCode(spirv::kElementwiseSpirv).words(), Words{64, 3, 0, 1, 4}));
        const auto divisions = [](const Words& code) {
            int found = 0;
            for (std::size_t at = 5; at < code.size(); at += code[at] >> 16) {
                found += (code[at] & 0xffff) == kDivide || (code[at] & 0xffff) == kRest ? 1 : 0;
            }
            return found;
        };
        CHECK(divisions(plain) > 0);
        CHECK(divisions(shift_for_divisions(plain)) == 0);
    }
}

}  // namespace vkf::test
