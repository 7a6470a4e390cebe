// SPDX-License-Identifier: Apache-2.0
// What is left of a shader once functions stand where they are called and variables are values does
// what the shader did. Under validation the layer looks at every module too.
#include <doctest/doctest.h>

#include <array>
#include <map>

#include "attention_lanes.spv.h"
#include "matmul_lanes.spv.h"
#include "runtime/compile/glsl.h"
#include "runtime/compile/inline_calls.h"
#include "runtime/compile/lowering.h"
#include "runtime/compile/promote_variables.h"
#include "runtime/compile/prune.h"
#include "runtime/compile/specialize.h"
#include "softmax.spv.h"
#include "tests/device.h"
#include "tests/glsl.h"
#include "tests/spirv_build.h"
#include "tests/uint_kernel.h"

namespace vkf::test::variables {

namespace {

/// C++ and GLSL alike. A and B are constants.
#define KNOT                                                                        \
    struct Pair {                                                                   \
        uint number;                                                                \
        uvec4 four;                                                                 \
    };                                                                              \
    uint counter = 7u;                                                              \
    uint untouched = 3u;                                                            \
    void count(uint by) { counter += by; }                                          \
    void exchange(INOUT_UINT a, INOUT_UINT b) {                                     \
        uint kept = a;                                                              \
        a = b;                                                                      \
        b = kept;                                                                   \
    }                                                                               \
    uint fibonacci(uint n) {                                                        \
        uint a = 0u;                                                                \
        uint b = 1u;                                                                \
        for (uint i = 0u; i < n; ++i) {                                             \
            uint sum = a + b;                                                       \
            a = b;                                                                  \
            b = sum;                                                                \
        }                                                                           \
        return a;                                                                   \
    }                                                                               \
    uint early(uint x) {                                                            \
        if (x > 5u) {                                                               \
            return x - 5u;                                                          \
        }                                                                           \
        return x * 3u;                                                              \
    }                                                                               \
    uint largest(uvec4 v) {                                                         \
        uint found = v[0];                                                          \
        for (uint k = 1u; k < 4u; ++k) {                                            \
            found = v[k] > found ? v[k] : found;                                    \
        }                                                                           \
        return found;                                                               \
    }                                                                               \
    uint knot(uint x) {                                                             \
        uint table[4];                                                              \
        table[0] = x;                                                               \
        table[1] = fibonacci(x % 9u);                                               \
        table[2] = 0u;                                                              \
        table[3] = early(x);                                                        \
        uint looked_up[3];                                                          \
        looked_up[0] = 11u;                                                         \
        looked_up[1] = x;                                                           \
        looked_up[2] = 13u;                                                         \
        uvec4 v = uvec4(x, x + 1u, 2u, fibonacci(6u));                              \
        Pair one;                                                                   \
        one.number = 1u;                                                            \
        one.four = v;                                                               \
        Pair pairs[2];                                                              \
        pairs[0] = one;                                                             \
        pairs[1] = pairs[0];                                                        \
        Pair steady[2];                                                             \
        steady[0] = one;                                                            \
        steady[1] = pairs[0];                                                       \
        for (uint i = 0u; i < 6u; i = i + 1u + fibonacci(0u)) {                     \
            uint own;                                                               \
            exchange(table[0], table[1]);                                           \
            v[(x + i) % 4u] += table[1];                                            \
            if (x % 3u == A) {                                                      \
                own = early(i);                                                     \
                if (i == 1u + B) {                                                  \
                    continue;                                                       \
                }                                                                   \
            } else {                                                                \
                own = largest(v) + fibonacci(i);                                    \
            }                                                                       \
            table[2] += own;                                                        \
            pairs[1].four[2] ^= v[i % 4u];                                          \
            pairs[0].number += pairs[1].four[2];                                    \
            looked_up[(i + x) % 3u] += own;                                         \
            count(i);                                                               \
            if ((fibonacci(x % 5u) > 2u && largest(v) > i) || early(x) == i + B) {  \
                steady[1].four[3] += steady[0].number + table[0];                   \
                steady[1].number += i;                                              \
                steady[0] = steady[1];                                              \
            }                                                                       \
            switch ((x + i) % 4u) {                                                 \
                case 0u: exchange(v[0], table[3]); break;                           \
                case 1u:                                                            \
                    for (uint j = 0u; j < i; ++j) {                                 \
                        exchange(v[1], v[2]);                                       \
                        count(j + v[1]);                                            \
                    }                                                               \
                    break;                                                          \
                case 2u:                                                            \
                case 7u: v = pairs[i % 2u == B ? 0 : 1].four; break;                \
                default: pairs[0] = pairs[1]; break;                                \
            }                                                                       \
            if (counter % 11u == 10u) {                                             \
                break;                                                              \
            }                                                                       \
        }                                                                           \
        uint sum = table[0] + table[1] * 3u + table[2] * 5u + table[3];             \
        sum += looked_up[0] + looked_up[1] * 7u + looked_up[2];                     \
        sum += v[0] + v[1] * 2u + v[2] * 3u + v[3] * 4u;                            \
        sum += pairs[0].number + largest(pairs[1].four);                            \
        sum += steady[0].number * 3u + largest(steady[0].four) + steady[1].four[3]; \
        return (sum + counter + untouched) % 1000003u;                              \
    }

struct Twin {
    using uint = std::uint32_t;
    using INOUT_UINT = uint&;
    struct uvec4 {
        std::array<uint, 4> parts{};
        uvec4() = default;
        uvec4(uint x, uint y, uint z, uint w) : parts{x, y, z, w} {}
        uint& operator[](uint k) { return parts[k]; }
    };
    uint A, B;
    KNOT
};

#define KNOT_TEXT_OF(...) #__VA_ARGS__
#define KNOT_TEXT(macro) KNOT_TEXT_OF(macro)

constexpr std::uint32_t kVariable = 59, kCall = 57, kDecorate = 71;
constexpr std::uint32_t kPrivate = 6, kFunction = 7;

int count_of(const Words& code, std::uint32_t wanted, std::uint32_t storage = 0) {
    int found = 0;
    for (std::size_t at = 5; at < code.size(); at += code[at] >> 16) {
        found += (code[at] & 0xffff) == wanted && (storage == 0 || code[at + 3] == storage) ? 1 : 0;
    }
    return found;
}

/// float is 3, the constant 1.0 is 10, the type of a function of a float is 5, of none 4.
const std::vector<Words> kTypes = {
    {op(2, 19), 2}, {op(3, 22), 3, 32}, {op(3, 33), 4, 2}, {op(4, 33), 5, 3, 3}, {op(4, 43), 3, 10, 0x3f800000}};

Words with_types(std::vector<Words> before, const std::vector<Words>& behind) {
    before.insert(before.end(), kTypes.begin(), kTypes.end());
    before.insert(before.end(), behind.begin(), behind.end());
    return module_of(before);
}

}  // namespace

TEST_SUITE("variables") {
    TEST_CASE("variables: kernels call nothing and keep no variable") {
        struct {
            PackedSpirv code;
            Words constants;
            int left;
        } const kernels[] = {{spirv::kMatmulLanesSpirv, {8, 8}, 0}, {spirv::kSoftmaxSpirv, {8}, 0}};
        for (const auto& kernel : kernels) {
            const Words before = prune(specialize(SpirvCode(kernel.code).words(), kernel.constants));
            const Words inlined = inline_calls(before), after = promote_variables(inlined);
            CHECK(count_of(before, kCall) > 0);
            CHECK(count_of(inlined, kCall) == 0);
            CHECK(count_of(before, kVariable, kFunction) > 0);
            CHECK(count_of(after, kVariable, kFunction) == kernel.left);
            CHECK(count_of(after, kVariable, kPrivate) == 0);
            CHECK(inline_calls(after) == after);
            CHECK(promote_variables(after) == after);
        }
    }

    TEST_CASE("variables: copies of a function are decorated as it was, and it goes") {
        const Words decorate{op(3, kDecorate), 50, 42};  // NoContraction
        const std::vector<Words> main = {{op(5, 54), 2, 20, 0, 4},   {op(2, 248), 21}, {op(5, 57), 3, 22, 40, 10},
                                         {op(5, 57), 3, 23, 40, 22}, {op(1, 253)},     {op(1, 56)}};
        const std::vector<Words> callee = {{op(5, 54), 3, 40, 0, 5},    {op(3, 55), 3, 41}, {op(2, 248), 42},
                                           {op(5, 129), 3, 50, 41, 10}, {op(2, 254), 50},   {op(1, 56)}};
        std::vector<Words> behind = callee;
        behind.insert(behind.end(), main.begin(), main.end());
        Words expected = with_types(
            {{op(4, 15), 5, 20, 'm'}, {op(3, kDecorate), 200, 42}, {op(3, kDecorate), 201, 42}},
            {main[0], main[1], {op(5, 129), 3, 200, 10, 10}, {op(5, 129), 3, 201, 200, 10}, main[4], main[5]});
        expected[3] = 202;
        CHECK(inline_calls(with_types({{op(4, 15), 5, 20, 'm'}, decorate}, behind)) == expected);
    }

    TEST_CASE("variables: an initial value is there at each call") {
        // a variable of the callee begins with 1 and is added to
        const Words pointer{op(4, 32), 6, kFunction, 3};
        const std::vector<Words> callee = {{op(5, 54), 3, 40, 0, 5}, {op(3, 55), 3, 41},
                                           {op(2, 248), 42},         {op(5, 59), 6, 43, kFunction, 10},
                                           {op(4, 61), 3, 44, 43},   {op(5, 129), 3, 45, 44, 41},
                                           {op(3, 62), 43, 45},      {op(4, 61), 3, 46, 43},
                                           {op(2, 254), 46},         {op(1, 56)}};
        std::vector<Words> all = {pointer};
        all.insert(all.end(), callee.begin(), callee.end());
        const std::vector<Words> main = {{op(5, 54), 2, 20, 0, 4},   {op(2, 248), 21}, {op(5, 57), 3, 22, 40, 10},
                                         {op(5, 57), 3, 23, 40, 22}, {op(1, 253)},     {op(1, 56)}};
        all.insert(all.end(), main.begin(), main.end());
        const Words left = promote_variables(inline_calls(with_types({{op(4, 15), 5, 20, 'm'}}, all)));
        std::vector<Words> sums;
        for (std::size_t at = 5; at < left.size(); at += left[at] >> 16) {
            if ((left[at] & 0xffff) == 129) {
                sums.emplace_back(left.begin() + static_cast<std::ptrdiff_t>(at) + 2,
                                  left.begin() + static_cast<std::ptrdiff_t>(at) + 5);
            }
        }
        REQUIRE(sums.size() == 2);
        CHECK(sums[0][1] == 10);
        CHECK(sums[0][2] == 10);
        CHECK(sums[1][1] == 10);
        CHECK(sums[1][2] == sums[0][0]);
        CHECK(count_of(left, kVariable) == 0);
    }

    TEST_CASE("variables: a copied instruction's literals stay, whatever ids they equal") {
        // the callee's parameter is 41, and each literal of its instructions too
        const auto inlined = [](const Words& body) {
            const Words copied = inline_calls(with_types({{op(4, 15), 5, 20, 'm'}}, {{op(5, 54), 3, 40, 0, 5},
                                                                                     {op(3, 55), 3, 41},
                                                                                     {op(2, 248), 42},
                                                                                     body,
                                                                                     {op(2, 254), 41},
                                                                                     {op(1, 56)},
                                                                                     {op(5, 54), 2, 20, 0, 4},
                                                                                     {op(2, 248), 21},
                                                                                     {op(5, 57), 3, 22, 40, 10},
                                                                                     {op(1, 253)},
                                                                                     {op(1, 56)}}));
            const std::size_t at = copied.size() - 2 - body.size();
            return Words(copied.begin() + static_cast<std::ptrdiff_t>(at),
                         copied.begin() + static_cast<std::ptrdiff_t>(at + body.size()));
        };
        CHECK(inlined({op(5, 81), 3, 50, 41, 41}) == Words{op(5, 81), 3, 200, 10, 41});
        CHECK(inlined({op(6, 82), 3, 50, 41, 41, 41}) == Words{op(6, 82), 3, 200, 10, 10, 41});
        CHECK(inlined({op(7, 79), 3, 50, 41, 41, 41, 41}) == Words{op(7, 79), 3, 200, 10, 10, 41, 41});
        CHECK(inlined({op(6, 12), 3, 50, 9, 41, 41}) == Words{op(6, 12), 3, 200, 9, 41, 10});
        CHECK(inlined({op(5, 68), 3, 50, 41, 41}) == Words{op(5, 68), 3, 200, 10, 41});
        CHECK(inlined({op(6, 350), 3, 50, 11, 41, 41}) == Words{op(6, 350), 3, 200, 11, 41, 10});
        CHECK(inlined({op(6, 4450), 3, 50, 41, 41, 41}) == Words{op(6, 4450), 3, 200, 10, 10, 41});
        CHECK(inlined({op(7, 4459), 3, 50, 41, 41, 41, 41}) == Words{op(7, 4459), 3, 200, 10, 10, 10, 41});
        CHECK(inlined({op(5, 98), 3, 50, 41, 41}) == Words{op(5, 98), 3, 200, 10, 10});
    }

    TEST_CASE("variables: a loop's header keeps a call of more than a block, and a function that asks for it is kept") {
        const std::vector<Words> one = {{op(5, 54), 2, 40, 0, 4}, {op(2, 248), 41}, {op(1, 253)}, {op(1, 56)}};
        const std::vector<Words> two = {{op(5, 54), 2, 40, 0, 4}, {op(2, 248), 41}, {op(2, 249), 42},
                                        {op(2, 248), 42},         {op(1, 253)},     {op(1, 56)}};
        const auto main_of = [](bool loop) {
            return std::vector<Words>{{op(5, 54), 2, 20, 0, 4},
                                      {op(2, 248), 21},
                                      {op(2, 249), 22},
                                      {op(2, 248), 22},
                                      {op(4, 57), 2, 23, 40},
                                      loop ? Words{op(4, 246), 25, 24, 0} : Words{op(3, 247), 25, 0},
                                      {op(4, 250), 12, loop ? 24u : 25u, 25},
                                      {op(2, 248), 24},
                                      {op(2, 249), loop ? 22u : 25u},
                                      {op(2, 248), 25},
                                      {op(1, 253)},
                                      {op(1, 56)}};
        };
        const auto calls_left = [&](std::vector<Words> callee, bool loop) {
            const auto main = main_of(loop);
            callee.insert(callee.end(), main.begin(), main.end());
            return count_of(inline_calls(with_types({{op(4, 15), 5, 20, 'm'}}, callee)), kCall);
        };
        CHECK(calls_left(two, true) == 1);
        CHECK(calls_left(one, true) == 0);
        CHECK(calls_left(two, false) == 0);
        std::vector<Words> asking = one;
        asking.front()[3] = 2;
        CHECK(calls_left(asking, false) == 1);
        std::vector<Words> hidden = one;  // a block that is never reached
        hidden.insert(hidden.end() - 1, {{op(2, 248), 43}, {op(1, 255)}});
        CHECK(calls_left(hidden, false) == 1);
    }

    TEST_CASE("variables: debug information is left as it is") {
        const Words pointer{op(4, 32), 6, kPrivate, 3}, variable{op(4, 59), 6, 30, kPrivate};
        const std::vector<Words> body = {
            pointer,      variable,   {op(5, 54), 2, 20, 0, 4}, {op(2, 248), 21}, {op(3, 62), 30, 10},
            {op(1, 253)}, {op(1, 56)}};
        const Words plain =
            with_types({{op(6, 11), 7, 0x4c534c47, 0x6474732e, 0x3035342e, 0}, {op(4, 15), 5, 20, 'm'}}, body);
        CHECK(promote_variables(plain).size() < plain.size());
        const Words debug = with_types({{op(4, 11), 7, 0x536e6f4e, 0}, {op(4, 15), 5, 20, 'm'}}, body);
        CHECK(promote_variables(debug) == debug);
        CHECK(inline_calls(debug) == debug);
        std::vector<Words> lined = body;
        lined.insert(lined.begin() + 3, Words{op(4, 8), 9, 1, 1});
        const Words lines = with_types({{op(4, 15), 5, 20, 'm'}}, lined);
        CHECK(promote_variables(lines) == lines);
        CHECK(inline_calls(lines) == lines);
    }

    TEST_CASE("variables: many calls within calls, large arrays and volatile loads end in time and stay") {
        std::vector<Words> chain;
        for (std::uint32_t n = 0; n < 40; ++n) {  // each calls the one before it twice
            const std::uint32_t id = 20 + 4 * n;
            chain.insert(chain.end(), {{op(5, 54), 2, id, 0, 4}, {op(2, 248), id + 1}});
            if (n > 0) {
                chain.insert(chain.end(), {{op(4, 57), 2, id + 2, id - 4}, {op(4, 57), 2, id + 3, id - 4}});
            } else {
                chain.push_back({op(5, 129), 3, id + 2, 10, 10});
            }
            chain.insert(chain.end(), {{op(1, 253)}, {op(1, 56)}});
        }
        const Words inlined = inline_calls(with_types({{op(4, 15), 5, 20 + 4 * 39, 'm'}}, chain));
        CHECK(inlined.size() < std::size_t{1} << 24);
        CHECK(count_of(inlined, kCall) > 0);

        const auto with_array = [](std::uint32_t length, const Words& more) {
            return with_types({{op(4, 15), 5, 20, 'm'}}, {{op(4, 21), 11, 32, 0},
                                                          {op(4, 43), 11, 12, length},
                                                          {op(4, 28), 13, 3, 12},
                                                          {op(4, 32), 14, kFunction, 13},
                                                          {op(4, 32), 15, kFunction, 3},
                                                          {op(4, 43), 11, 16, 1},
                                                          {op(5, 54), 2, 20, 0, 4},
                                                          {op(2, 248), 21},
                                                          {op(4, 59), 14, 22, kFunction},
                                                          {op(5, 65), 15, 23, 22, 16},
                                                          {op(3, 62), 23, 10},
                                                          more,
                                                          {op(1, 253)},
                                                          {op(1, 56)}});
        };
        const Words load{op(4, 61), 3, 24, 23}, volatile_load{op(5, 61), 3, 24, 23, 1};
        CHECK(count_of(promote_variables(with_array(4096, load)), kVariable) == 0);
        CHECK(count_of(promote_variables(with_array(4097, load)), kVariable) == 1);
        CHECK(count_of(promote_variables(with_array(4, volatile_load)), kVariable) == 1);
    }

    TEST_CASE("variables: a value that a branch and a loop leave alone needs no phi") {
        const Words pointer{op(4, 32), 6, kFunction, 3};
        const std::vector<Words> body = {pointer,
                                         {op(5, 54), 2, 20, 0, 4},
                                         {op(2, 248), 21},
                                         {op(4, 59), 6, 30, kFunction},
                                         {op(4, 59), 6, 31, kFunction},
                                         {op(3, 62), 30, 10},
                                         {op(3, 62), 31, 10},
                                         {op(2, 249), 22},
                                         {op(2, 248), 22},
                                         {op(4, 246), 24, 23, 0},
                                         {op(4, 250), 12, 23, 24},
                                         {op(2, 248), 23},
                                         {op(4, 61), 3, 32, 30},
                                         {op(4, 61), 3, 33, 31},
                                         {op(5, 129), 3, 34, 32, 33},
                                         {op(3, 62), 31, 34},
                                         {op(2, 249), 22},
                                         {op(2, 248), 24},
                                         {op(1, 253)},
                                         {op(1, 56)}};
        // 31 changes in the loop, 30 does not
        const Words after = promote_variables(with_types({{op(4, 15), 5, 20, 'm'}}, body));
        constexpr std::uint32_t kPhi = 245;
        REQUIRE(count_of(after, kPhi) == 1);
        for (std::size_t at = 5; at < after.size(); at += after[at] >> 16) {
            if ((after[at] & 0xffff) == kPhi) {
                const Words operands(after.begin() + static_cast<std::ptrdiff_t>(at) + 3,
                                     after.begin() + static_cast<std::ptrdiff_t>(at) + 7);
                CHECK(operands == Words{10, 21, 34, 23});
            }
        }
    }

    TEST_CASE("variables: blocks that only lead to each other hold nothing that was written") {
        // 22 and 23 are a loop that is never reached, though it leads to 24
        const std::vector<Words> body = {{op(4, 32), 6, kFunction, 3},
                                         {op(5, 54), 2, 20, 0, 4},
                                         {op(2, 248), 21},
                                         {op(4, 59), 6, 30, kFunction},
                                         {op(3, 62), 30, 10},
                                         {op(2, 249), 24},
                                         {op(2, 248), 22},
                                         {op(4, 246), 24, 23, 0},
                                         {op(4, 250), 12, 23, 24},
                                         {op(2, 248), 23},
                                         {op(2, 249), 22},
                                         {op(2, 248), 24},
                                         {op(4, 61), 3, 32, 30},
                                         {op(5, 128), 3, 33, 32, 32},
                                         {op(1, 253)},
                                         {op(1, 56)}};
        const Words after = promote_variables(with_types({{op(4, 15), 5, 20, 'm'}}, body));
        constexpr std::uint32_t kUndef = 1, kPhi = 245;
        CHECK(count_of(after, kVariable) == 0);
        CHECK(count_of(after, kUndef) == 1);
        CHECK(count_of(after, kPhi) == 1);
    }

    TEST_CASE("variables: thousands of branches in each other need no phi for what they leave alone") {
        // block 1000 + k branches to 1001 + k, and both lead to 10,000 + k; arrays of so many
        // numbers are variables, one of which is stored ahead of the branches and loaded behind
        const auto nested = [](std::uint32_t depth, std::uint32_t length, std::uint32_t arrays) {
            std::vector<Words> body = {{op(4, 21), 11, 32, 0},        {op(4, 43), 11, 12, length},
                                       {op(4, 28), 13, 3, 12},        {op(4, 32), 14, kFunction, 13},
                                       {op(4, 32), 15, kFunction, 3}, {op(4, 43), 11, 16, 0},
                                       {op(5, 54), 2, 20, 0, 4},      {op(2, 248), 1000}};
            for (std::uint32_t i = 0; i < arrays; ++i) {
                body.push_back({op(4, 59), 14, 22 + i, kFunction});
            }
            body.insert(body.end(), {{op(5, 65), 15, 60, 22, 16}, {op(3, 62), 60, 10}});
            for (std::uint32_t k = 0; k < depth; ++k) {
                body.insert(
                    body.end(),
                    {{op(3, 247), 10000 + k, 0}, {op(4, 250), 10, 1001 + k, 10000 + k}, {op(2, 248), 1001 + k}});
            }
            for (std::uint32_t k = depth; k-- > 0;) {
                body.insert(body.end(), {{op(2, 249), 10000 + k}, {op(2, 248), 10000 + k}});
            }
            body.insert(body.end(), {{op(4, 61), 3, 61, 60}, {op(5, 129), 3, 62, 61, 61}, {op(1, 253)}, {op(1, 56)}});
            Words module = with_types({{op(4, 15), 5, 20, 'm'}}, body);
            module[3] = 20000;
            return promote_variables(module);
        };
        constexpr std::uint32_t kPhi = 245;
        for (const Words& after : {nested(3000, 2, 1), nested(2, 4096, 9)}) {
            CHECK(count_of(after, kVariable) == 0);
            CHECK(count_of(after, kPhi) == 0);
        }
        // nor does one take an id in passing
        CHECK(nested(60, 2, 1)[3] == 20000);
        CHECK(count_of(nested(600, 4096, 1), kVariable) == 1);  // too many parts in too many blocks
    }

    TEST_CASE("variables: components of vectors of 16 bits are put in and taken out by number") {
        // half is 11, four of it 12; the variable is stored to as a whole and by component, and
        // read by component; the index 60 is no constant
        const std::vector<Words> body = {{op(3, 22), 11, 16},
                                         {op(4, 23), 12, 11, 4},
                                         {op(4, 32), 13, kFunction, 12},
                                         {op(4, 32), 14, kFunction, 11},
                                         {op(4, 21), 15, 32, 0},
                                         {op(4, 43), 15, 16, 2},
                                         {op(4, 43), 15, 17, 7},
                                         {op(4, 43), 11, 18, 0x3c00},
                                         {op(7, 44), 12, 19, 18, 18, 18, 18},
                                         {op(5, 54), 2, 20, 0, 4},
                                         {op(2, 248), 21},
                                         {op(4, 59), 13, 22, kFunction},
                                         {op(3, 62), 22, 19},
                                         {op(5, 65), 14, 23, 22, 16},
                                         {op(3, 62), 23, 18},
                                         {op(5, 65), 14, 24, 22, 60},
                                         {op(4, 61), 11, 25, 24},
                                         {op(3, 62), 24, 25},
                                         {op(4, 61), 11, 26, 23},
                                         {op(1, 253)},
                                         {op(1, 56)}};
        const Words after = promote_variables(with_types({{op(4, 15), 5, 20, 'm'}}, body));
        std::vector<Words> left;
        for (std::size_t at = 5; at < after.size(); at += after[at] >> 16) {
            const std::uint32_t code = after[at] & 0xffff;
            if (code >= 77 && code <= 82) {
                left.emplace_back(after.begin() + static_cast<std::ptrdiff_t>(at),
                                  after.begin() + static_cast<std::ptrdiff_t>(at + (after[at] >> 16)));
            }
        }
        CHECK(left == std::vector<Words>{{op(6, 82), 12, 200, 18, 19, 2},
                                         {op(5, 77), 11, 25, 200, 60},
                                         {op(6, 78), 12, 201, 200, 25, 60},
                                         {op(5, 81), 11, 26, 201, 2}});
        std::vector<Words> outside = body;
        outside[13] = {op(5, 65), 14, 23, 22, 17};  // the seventh component of four
        const Words whole = with_types({{op(4, 15), 5, 20, 'm'}}, outside);
        CHECK(promote_variables(whole) == whole);
    }

    TEST_CASE("variables: functions that call themselves or each other stay, and so does what is not known") {
        const auto calling = [](std::uint32_t id, std::uint32_t other) {
            return std::vector<Words>{{op(5, 54), 2, id, 0, 4},
                                      {op(2, 248), id + 1},
                                      {op(4, 57), 2, id + 2, other},
                                      {op(1, 253)},
                                      {op(1, 56)}};
        };
        std::vector<Words> all = calling(20, 40);
        for (const auto& f : {calling(40, 60), calling(60, 40)}) {
            all.insert(all.end(), f.begin(), f.end());
        }
        const Words around = with_types({{op(4, 15), 5, 20, 'm'}}, all);
        CHECK(count_of(inline_calls(around), kCall) > 0);
        const Words itself = with_types({{op(4, 15), 5, 20, 'm'}}, calling(20, 20));
        CHECK(inline_calls(itself) == itself);

        // 200, whatever it does, may name ids or not
        std::vector<Words> unknown = calling(20, 40);
        const std::vector<Words> called = {
            {op(5, 54), 2, 40, 0, 4}, {op(2, 248), 41}, {op(3, 9999), 3, 42}, {op(1, 253)}, {op(1, 56)}};
        unknown.insert(unknown.end(), called.begin(), called.end());
        const Words whole = with_types({{op(4, 15), 5, 20, 'm'}}, unknown);
        CHECK(inline_calls(whole) == whole);
        CHECK(promote_variables(whole) == whole);
    }

    TEST_CASE("variables: one of the invocation goes from the entry point too, unless another function names it") {
        const Words pointer{op(4, 32), 6, kPrivate, 3}, variable{op(4, 59), 6, 30, kPrivate};
        const Words load{op(4, 61), 3, 22, 30}, store{op(3, 62), 30, 10};
        const auto function = [](std::uint32_t id, const std::vector<Words>& body) {
            std::vector<Words> out = {{op(5, 54), 2, id, 0, 4}, {op(2, 248), id + 1}};
            out.insert(out.end(), body.begin(), body.end());
            out.insert(out.end(), {{op(1, 253)}, {op(1, 56)}});
            return out;
        };
        const Words add{op(5, 129), 3, 24, 22, 22}, sum{op(5, 129), 3, 24, 10, 10};
        std::vector<Words> behind = {pointer, variable}, expected = {pointer};
        const auto main = function(20, {store, load, add}), left = function(20, {sum});
        behind.insert(behind.end(), main.begin(), main.end());
        expected.insert(expected.end(), left.begin(), left.end());
        CHECK(promote_variables(with_types({{op(5, 15), 5, 20, 'm', 30}}, behind)) ==
              with_types({{op(4, 15), 5, 20, 'm'}}, expected));

        // its value stays from call to call
        std::vector<Words> called = {pointer, variable};
        const auto caller = function(20, {{op(4, 57), 2, 25, 40}, {op(4, 57), 2, 26, 40}});
        const auto callee = function(40, {load, add, store});
        called.insert(called.end(), caller.begin(), caller.end());
        called.insert(called.end(), callee.begin(), callee.end());
        const Words kept = with_types({{op(5, 15), 5, 20, 'm', 30}}, called);
        CHECK(promote_variables(kept) == kept);

        const auto other = function(40, {store});
        behind.insert(behind.end(), other.begin(), other.end());
        const Words whole = with_types({{op(5, 15), 5, 20, 'm', 30}}, behind);
        CHECK(promote_variables(whole) == whole);
    }

    TEST_CASE("variables: a module cut short is given back") {
        const Words whole = SpirvCode(spirv::kAttentionLanesSpirv).words();
        for (const std::size_t words : {std::size_t{3}, std::size_t{6}, whole.size() - 1}) {
            Words cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(words));
            cut.back() |= 0x00ff0000;
            CHECK(inline_calls(cut) == cut);
            CHECK(promote_variables(cut) == cut);
        }
    }

    TEST_CASE("variables: arrays, structs, vectors, arguments and the invocation's own do what they did") {
        if (!can_compile_glsl()) {
            return;
        }
        const UintKernel kernel("#define INOUT_UINT inout uint\n" KNOT_TEXT(KNOT), "knot", {"A", "B"});
        for (std::uint32_t c = 0; c < 6; ++c) {
            CAPTURE(c);
            const auto want = [&](std::uint32_t x) {
                Twin twin{c % 3, c / 3};
                return twin.knot(x);
            };
            CHECK(kernel.difference({c % 3, c / 3}, 32, want) == "");
        }
    }
}

}  // namespace vkf::test::variables
