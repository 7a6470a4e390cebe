// SPDX-License-Identifier: Apache-2.0
// What is left of a shader after specialize() and prune() does what the shader did. Under
// validation the layer looks at every module too.
#include <doctest/doctest.h>

#include <random>

#include "argmax.spv.h"
#include "attention_gradient.spv.h"
#include "attention_lanes.spv.h"
#include "attention_shared_full.spv.h"
#include "elementwise.spv.h"
#include "layer_norm.spv.h"
#include "matmul_lanes.spv.h"
#include "matvec_columns.spv.h"
#include "norm_gradient.spv.h"
#include "rope.spv.h"
#include "runtime/compile/glsl.h"
#include "runtime/compile/lowering.h"
#include "runtime/compile/prune.h"
#include "runtime/compile/specialize.h"
#include "runtime/compile/spirv.h"
#include "shaders/common/subgroups.h"
#include "shaders/common/wide.h"
#include "softmax.spv.h"
#include "tests/device.h"
#include "tests/glsl.h"
#include "tests/op_check.h"
#include "tests/uint_kernel.h"

namespace vkf::test {

namespace {

using Words = std::vector<std::uint32_t>;

/// C++ and GLSL alike. A, B and C are constants.
#define TANGLE                                           \
    uint twice(uint x) {                                 \
        if (A == 2u) {                                   \
            return x * 2u;                               \
        }                                                \
        return x + x;                                    \
    }                                                    \
    uint never(uint x) { return B > 7u ? twice(x) : x; } \
    uint tangle(uint x) {                                \
        uint sum = 1u;                                   \
        for (uint i = 0u; i < 6u; ++i) {                 \
            if (A != 0u && x > i) {                      \
                sum += twice(i);                         \
                if (B == 1u) {                           \
                    continue;                            \
                }                                        \
                sum ^= 5u;                               \
            } else if (C == 1u || sum > 40u) {           \
                break;                                   \
            }                                            \
            switch ((x + i) % 3u) {                      \
                case 0u:                                 \
                    if (C == 0u) {                       \
                        break;                           \
                    }                                    \
                    sum += 100u;                         \
                    break;                               \
                case 1u: sum += B == 0u ? x : i; break;  \
                default:                                 \
                    if (!(A == 1u) && B != 2u) {         \
                        return sum + never(x);           \
                    }                                    \
                    sum *= 3u;                           \
                    break;                               \
            }                                            \
        }                                                \
        while (true) {                                   \
            if (C == 2u) {                               \
                return sum;                              \
            }                                            \
            if (++sum % 4u == 0u) {                      \
                break;                                   \
            }                                            \
        }                                                \
        uint rest = 3u;                                  \
        do {                                             \
            if (B == 1u) {                               \
                if (A == 1u) {                           \
                    rest = 1u;                           \
                } else {                                 \
                    sum += 7u;                           \
                }                                        \
            }                                            \
        } while (--rest > 0u && (C == 0u || sum < 90u)); \
        return sum;                                      \
    }

struct Twin {
    using uint = std::uint32_t;
    uint A, B, C;
    TANGLE
};

#define TEXT_OF(...) #__VA_ARGS__
#define TEXT(macro) TEXT_OF(macro)

}  // namespace

TEST_SUITE("prune") {
    TEST_CASE("prune: a kernel's interface stays, and what its constants rule out goes") {
        const Words whole = SpirvCode(spirv::kAttentionSharedFullSpirv).words();
        const Words plain = prune(specialize(whole, Words{128, 32, 1, 1, 0, 0, 0, 1, 0}));
        CHECK(plain.size() < whole.size() * 3 / 4);
        CHECK(prune(plain) == plain);
        CHECK(reflect(plain, "plain").bindings == reflect(whole, "whole").bindings);
        CHECK(reflect(plain, "plain").push_constant_bytes == reflect(whole, "whole").push_constant_bytes);
        const Words full = prune(specialize(whole, Words{128, 32, 4, 0, 2, 1, 1, 2, 1, 31, 31, 28, 20, 1, 0, 1, 0, 1}));
        CHECK(full.size() > plain.size());
    }

    TEST_CASE("prune: functions stay that are called, or applied to the elements of a matrix") {
        const auto op = [](std::uint32_t words, std::uint32_t code) { return words << 16 | code; };
        const auto append = [](Words& to, const Words& more) { to.insert(to.end(), more.begin(), more.end()); };
        const auto function = [&](std::uint32_t id, const Words& body) {
            Words out = {op(5, 54), 2, id, 0, 3, op(2, 248), id + 100};
            append(out, body);
            append(out, {op(1, 253), op(1, 56)});
            return out;
        };
        Words module = {0x07230203, 0x00010600, 0, 300, 0, op(4, 15), 5, 1, 'm'};
        // calls 5, and 6 for each of 7's
        append(module, function(1, {op(4, 57), 2, 20, 5, op(5, 5369), 4, 21, 7, 6}));
        append(module, function(5, {}));
        append(module, function(6, {op(4, 57), 2, 22, 8}));
        Words rest = module;
        append(module, function(7, {}));  // the matrix's id, too, were operands counted wrongly
        append(rest, function(8, {}));
        append(module, function(8, {}));
        CHECK(prune(module) == rest);
    }

    TEST_CASE("prune: without wide loads nothing is left of 64-bit integers, and no word is gained") {
        const std::pair<const char*, PackedSpirv> kernels[] = {{"matmul", spirv::kMatmulLanesSpirv},
                                                               {"attention", spirv::kAttentionLanesSpirv},
                                                               {"attention_gradient", spirv::kAttentionGradientSpirv},
                                                               {"softmax", spirv::kSoftmaxSpirv},
                                                               {"rope", spirv::kRopeSpirv}};
        std::mt19937 random(5);
        for (const auto& kernel : kernels) {
            const char* name = kernel.first;
            CAPTURE(name);
            const Words whole = SpirvCode(kernel.second).words();
            CHECK(reflect(whole, name).uses_int64);
            int wide_ones = 0;
            for (int i = 0; i < 40; ++i) {
                Words constants{i % 2 == 0 ? 4u : 8u};
                for (int id = 1; id < 20; ++id) {
                    constants.push_back(Words{0, 1, 2, 4, 8, 16}[random() % 6]);
                }
                CAPTURE(constants);
                const auto left = [&](std::uint32_t wide) {
                    return prune(specialize(whole, constants, std::pair{shader::kSpecWide, wide}));
                };
                const Words plain = left(0), wide = left(1);
                CHECK_FALSE(reflect(plain, name).uses_int64);
                CHECK(plain == prune(specialize(whole, constants)));
                CHECK(plain.size() <= wide.size());
                wide_ones += reflect(wide, name).uses_int64 ? 1 : 0;
            }
            CHECK(wide_ones > 0);
        }
    }

    TEST_CASE("prune: without sums by subgroups nothing is left of these, nor of the other way with them") {
        const std::pair<const char*, PackedSpirv> kernels[] = {{"argmax", spirv::kArgmaxSpirv},
                                                               {"layer_norm", spirv::kLayerNormSpirv},
                                                               {"matvec_columns", spirv::kMatvecColumnsSpirv},
                                                               {"norm_gradient", spirv::kNormGradientSpirv},
                                                               {"softmax", spirv::kSoftmaxSpirv}};
        for (const auto& kernel : kernels) {
            const char* name = kernel.first;
            CAPTURE(name);
            const Words whole = SpirvCode(kernel.second).words();
            CHECK(reflect(whole, name).uses_subgroup_arithmetic);
            const Words constants{64, name == std::string_view("matvec_columns") ? 1u : 64u};
            const auto left = [&](std::uint32_t by_subgroups) {
                return prune(specialize(whole, constants, std::pair{shader::kSpecSubgroups, by_subgroups}));
            };
            const Words plain = left(0), summed = left(1);
            CHECK_FALSE(reflect(plain, name).uses_subgroup_arithmetic);
            CHECK_FALSE(reflect(plain, name).uses_subgroups);
            CHECK(plain == prune(specialize(whole, constants)));
            CHECK(reflect(summed, name).uses_subgroup_arithmetic);
            const auto count = [](const Words& code, std::uint32_t storage) {
                int found = 0;
                for (std::size_t at = 5; at < code.size(); at += code[at] >> 16) {
                    found += (code[at] & 0xffff) == 59 && code[at + 3] == storage ? 1 : 0;
                }
                return found;
            };
            constexpr std::uint32_t kInput = 1, kShared = 4;
            CHECK(count(plain, kInput) < count(summed, kInput));
            CHECK(count(plain, kShared) == count(summed, kShared));
            CHECK(count(plain, kShared) > 0);
        }
    }

    TEST_CASE("prune: eight lanes ask for no quads, four do, and neither asks for arithmetic") {
        const std::pair<const char*, PackedSpirv> kernels[] = {{"matmul", spirv::kMatmulLanesSpirv},
                                                               {"attention", spirv::kAttentionLanesSpirv},
                                                               {"attention gradient", spirv::kAttentionGradientSpirv},
                                                               {"layer_norm", spirv::kLayerNormSpirv}};
        for (const auto& kernel : kernels) {
            const std::string name = kernel.first;
            CAPTURE(name);
            const Words whole = SpirvCode(kernel.second).words();
            CHECK(reflect(whole, name).uses_subgroup_quad);
            for (const std::uint32_t lanes : {4u, 8u}) {
                CAPTURE(lanes);
                const ShaderInterface face =
                    reflect(prune(specialize(
                                whole, name == "layer_norm" ? Words{lanes, 1, 1, 1, 1, 1, 0, 0, lanes} : Words{lanes})),
                            name);
                CHECK(face.uses_subgroup_quad == (lanes == 4));
                CHECK(face.uses_subgroups);
                CHECK_FALSE(face.uses_subgroup_arithmetic);
            }
        }
    }

    TEST_CASE("prune: what asks for sums or quads alone asks for subgroups where an invocation knows its place") {
        const auto op = [](std::uint32_t words, std::uint32_t code) { return words << 16 | code; };
        const auto with = [&](const std::vector<Words>& capabilities, std::uint32_t built_in) {
            Words out = {0x07230203, 0x00010300, 0, 100, 0};
            for (const Words& i : capabilities) {
                out.insert(out.end(), i.begin(), i.end());
            }
            for (const Words& i : std::vector<Words>{{op(5, 15), 5, 40, 'm', 30},
                                                     {op(4, 71), 30, 11, built_in},
                                                     {op(2, 19), 2},
                                                     {op(3, 33), 3, 2},
                                                     {op(4, 21), 4, 32, 0},
                                                     {op(4, 32), 5, 1, 4},
                                                     {op(4, 59), 5, 30, 1},
                                                     {op(5, 54), 2, 40, 0, 3},
                                                     {op(2, 248), 41},
                                                     {op(4, 61), 4, 42, 30},
                                                     {op(1, 253)},
                                                     {op(1, 56)}}) {
                out.insert(out.end(), i.begin(), i.end());
            }
            return out;
        };
        const Words shader{op(2, 17), 1}, subgroups{op(2, 17), 61}, sums{op(2, 17), 63}, quads{op(2, 17), 68};
        CHECK(prune(with({shader, sums}, 41)) == with({shader, subgroups}, 41));
        CHECK(prune(with({shader, quads, sums}, 41)) == with({shader, subgroups}, 41));
        CHECK(prune(with({shader, subgroups, sums}, 41)) == with({shader, subgroups}, 41));
        CHECK(prune(with({shader, sums}, 28)) == with({shader}, 28));  // GlobalInvocationId
    }

    TEST_CASE("prune: 64-bit integers go where no function has to do with them, constants that nothing names too") {
        const auto op = [](std::uint32_t words, std::uint32_t code) { return words << 16 | code; };
        const auto with = [&](const std::vector<Words>& instructions) {
            Words out = {0x07230203, 0x00010300, 0, 100, 0};
            for (const Words& i : instructions) {
                out.insert(out.end(), i.begin(), i.end());
            }
            return out;
        };
        const Words capability{op(2, 17), 1}, int64{op(2, 17), 11}, entry{op(4, 15), 5, 40, 'm'};
        const Words of_ulong{op(4, 71), 31, 33, 0}, of_uint{op(4, 71), 30, 33, 12}, name{op(3, 5), 20, 'n'};
        const Words nothing{op(2, 19), 2}, type{op(3, 33), 3, 2}, uint{op(4, 21), 4, 32, 0},
            ulong{op(4, 21), 12, 64, 0}, pair{op(4, 23), 13, 12, 2}, uints{op(4, 32), 14, 12, 4},
            pairs{op(4, 32), 15, 12, 13};
        const Words unused{op(4, 43), 4, 20, 31}, one{op(4, 43), 4, 21, 1}, big{op(5, 43), 12, 22, 1, 1};
        const Words variable{op(4, 59), 14, 30, 12}, wide_variable{op(4, 59), 15, 31, 12};
        const Words begin{op(5, 54), 2, 40, 0, 3}, label{op(2, 248), 41}, back{op(1, 253)}, end{op(1, 56)};
        // its storage class, a decoration and a number equal the ids of what is wide
        const Words store{op(3, 62), 30, 21}, literal{op(5, 81), 4, 45, 21, 12};
        const std::vector<Words> before{capability, int64,  entry, name,  of_ulong, of_uint,
                                        nothing,    type,   uint,  ulong, pair,     uints,
                                        pairs,      unused, one,   big,   variable, wide_variable};
        const auto module = [&](const Words& body) {
            std::vector<Words> all = before;
            all.insert(all.end(), {begin, label, store, body, back, end});
            return with(all);
        };
        CHECK(prune(module(literal)) == with({capability, entry, of_uint, nothing, type, uint, uints, one, variable,
                                              begin, label, store, literal, back, end}));
        for (const Words& body : {Words{op(4, 61), 13, 46, 31}, {op(3, 62), 31, 21}, {op(4, 68), 4, 46, 31}}) {
            CHECK(prune(module(body)) ==
                  with({capability, int64, entry,    of_ulong,      of_uint, nothing, type,  uint, ulong, pair, uints,
                        pairs,      one,   variable, wide_variable, begin,   label,   store, body, back,  end}));
        }
    }

    TEST_CASE("prune: a block that comes ahead of those that lead to it stays") {
        const auto op = [](std::uint32_t words, std::uint32_t code) { return words << 16 | code; };
        // 11 is the merge block of 10, and follows it at once; 12 and 13 lead to it
        const Words module = {0x07230203, 0x00010300, 0,  100,        0,          op(4, 15),  5,          1,
                              'm',        op(2, 20),  3,  op(3, 41),  3,          4,          op(5, 54),  2,
                              1,          0,          5,  op(2, 248), 10,         op(3, 247), 11,         0,
                              op(4, 250), 6,          12, 13,         op(2, 248), 11,         op(1, 253), op(2, 248),
                              12,         op(2, 249), 11, op(2, 248), 13,         op(2, 249), 11,         op(1, 56)};
        CHECK(prune(module) == Words{0x07230203, 0x00010300, 0,         100,        0,  op(4, 15),  5,  1,          'm',
                                     op(2, 20),  3,          op(5, 54), 2,          1,  0,          5,  op(2, 248), 10,
                                     op(3, 247), 11,         0,         op(4, 250), 6,  12,         13, op(2, 248), 11,
                                     op(1, 253), op(2, 248), 12,        op(2, 249), 11, op(2, 248), 13, op(2, 249), 11,
                                     op(1, 56)});
    }

    TEST_CASE("prune: a module cut short is given back") {
        const Words whole = SpirvCode(spirv::kElementwiseSpirv).words();
        Words cut(whole.begin(), whole.begin() + 6);
        cut.back() |= 0x00ff0000;
        CHECK(prune(cut) == cut);
    }

    TEST_CASE("prune: loops are kept where nothing asks to unroll them, or all of them, or as they are written") {
        const auto op = [](std::uint32_t words, std::uint32_t code) { return words << 16 | code; };
        const std::uint32_t merge = op(4, 246), unroll = 1, dont_unroll = 2;
        Words module = {0x07230203, 0x00010600, 0,      300,        0, merge, 7,     8, 0, merge,
                        7,          8,          unroll, op(3, 247), 7, 0,     merge, 7, 8, 0};
        Words kept = module;
        kept[8] = kept[19] = dont_unroll;
        const Words written = module;
        keep_loops(module, Loops::as_written);
        CHECK(module == written);
        keep_loops(module, Loops::kept);
        CHECK(module == kept);
        kept[12] = dont_unroll;
        for (Words from : {written, module}) {
            keep_loops(from, Loops::all_kept);
            CHECK(from == kept);
        }
        Words cut = {0x07230203, 0x00010600, 0, 300, 0, merge, 7, 8};
        const Words whole = cut;
        keep_loops(cut, Loops::all_kept);
        CHECK(cut == whole);
    }

    TEST_CASE("prune: a kernel that needs what no device was asked for, or has no main, is refused") {
        if (!can_compile_glsl()) {
            return;
        }
        const auto refused = [](const std::string& text, const std::string& entry_point = "main") {
            return error_of(
                [&] { UintKernel(text, "f", {}, entry_point).difference({}, 4, [](std::uint32_t x) { return x; }); });
        };
        const std::string same = "uint f(uint x) { return x; }";
        CHECK(refused(same).empty());
        CHECK(contains(refused("uint f(uint x) { return uint(double(x) * 1.0lf); }"),
                       "needs SPIR-V's capability Float64"));
        CHECK(contains(refused(same, "mine"), "has no entry point for compute that is called main"));
        CHECK(contains(refused("layout(set = 0, binding = 2) buffer Z { uint z[]; };\nuint f(uint x) { return z[x]; }"),
                       "binds 2 buffers, its shader has 3"));
    }

    TEST_CASE("prune: loops, switches and early returns under constants do what they did") {
        if (!can_compile_glsl()) {
            return;
        }
        const UintKernel kernel(TEXT(TANGLE), "tangle", {"A", "B", "C"});
        for (std::uint32_t c = 0; c < 27; ++c) {
            CAPTURE(c);
            const Twin twin{c % 3, c / 3 % 3, c / 9};
            const auto want = [&](std::uint32_t x) {
                Twin t = twin;
                return t.tangle(x);
            };
            CHECK(kernel.difference({twin.A, twin.B, twin.C}, 16, want) == "");
        }
    }
}

}  // namespace vkf::test
