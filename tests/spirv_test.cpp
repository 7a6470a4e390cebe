// SPDX-License-Identifier: Apache-2.0
// What is read from SPIR-V: the truth about the library's own shaders, and an error for what is not
// SPIR-V.
#include "runtime/compile/spirv.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>

#include "attention_lanes.spv.h"
#include "elementwise.spv.h"
#include "matmul.spv.h"
#include "matmul_half.spv.h"
#include "matmul_lanes.spv.h"
#include "runtime/base/error.h"
#include "runtime/compile/lowering.h"
#include "runtime/compile/prune.h"
#include "runtime/compile/specialize.h"
#include "shaders/elementwise.h"
#include "shaders/matmul.h"
#include "shaders/softmax.h"
#include "softmax.spv.h"
#include "tests/fixtures.h"
#include "tests/op_check.h"
#include "tests/spirv_build.h"

namespace vkf::test {

namespace {

Words words(const SpirvCode& code) { return code.words(); }

// there before any constructor runs
constinit const Shader kConstant{"elementwise", spirv::kElementwiseSpirv};

/// A storage buffer (variable 20 + binding) of a set.
std::vector<Words> buffer(std::uint32_t set, std::uint32_t binding) {
    const std::uint32_t id = 20 + binding;
    return {{op(4, 71), id, 34, set}, {op(4, 71), id, 33, binding}, {op(4, 59), 5, id, 12}};
}

Words module_with_buffers(std::initializer_list<std::pair<std::uint32_t, std::uint32_t>> sets_and_bindings) {
    Words out = module_of({{op(3, 22), 2, 32}, {op(3, 30), 4, 2}, {op(4, 32), 5, 12, 4}});
    for (const auto& [set, binding] : sets_and_bindings) {
        for (const Words& i : buffer(set, binding)) {
            out.insert(out.end(), i.begin(), i.end());
        }
    }
    return out;
}

}  // namespace

TEST_SUITE("spirv") {
    TEST_CASE("spirv: the shaders say what their headers say") {
        const ShaderInterface elementwise = reflect(words(spirv::kElementwiseSpirv), "elementwise");
        CHECK(elementwise.bindings == 3);
        CHECK(elementwise.push_constant_bytes == sizeof(shader::ElementwisePush));
        CHECK(elementwise.local_size_id == 0);
        CHECK(elementwise.local_size[1] == 1);
        CHECK(elementwise.local_size[2] == 1);
        CHECK(std::is_sorted(elementwise.constant_ids.begin(), elementwise.constant_ids.end()));
        CHECK(elementwise.constant_ids.front() == 0);
        CHECK_FALSE(elementwise.uses_16bit_storage);
        CHECK_FALSE(elementwise.uses_subgroups);

        // of a matrix product, the fifth buffer is touched where constants say that there is
        // something in it
        const auto reached = [](std::uint32_t third) {
            std::vector<std::uint32_t> constants(shader::kMatmulSpecOther + 1, 0);
            constants[0] = 16;
            constants[shader::kMatmulSpecRows] = 8;
            constants[shader::kMatmulSpecOther] = third;
            return reflect(prune(specialize(words(spirv::kMatmulSpirv), constants)), "matmul").reached;
        };
        CHECK(reflect(words(spirv::kMatmulSpirv), "matmul").bindings == 5);
        CHECK(reached(shader::kMatmulOtherNone) == 4);
        CHECK(reached(shader::kMatmulOtherResidual) == 4);
        CHECK(reached(shader::kMatmulOtherResidualBesideBias) == 5);

        const ShaderInterface softmax = reflect(words(spirv::kSoftmaxSpirv), "softmax");
        CHECK(softmax.bindings == shader::kSoftmaxBindingOut + 1);
        CHECK(softmax.push_constant_bytes == sizeof(shader::SoftmaxPush));
        CHECK(softmax.local_size_id == 0);
    }

    TEST_CASE("spirv: literal local sizes, capabilities and buffers") {
        CHECK(reflect(module_of({{op(6, 16), 1, 17, 8, 4, 2}}), "t").local_size[1] == 4);
        CHECK(reflect(module_of({{op(6, 16), 1, 17, 8, 4, 2}}), "t").local_size_id == -1);
        CHECK(reflect(module_of({{op(2, 17), 4433}}), "t").uses_16bit_storage);
        CHECK(reflect(module_of({{op(2, 17), 65}}), "t").uses_subgroups);
        CHECK(reflect(module_of({{op(2, 17), 63}}), "t").uses_subgroup_arithmetic);
        CHECK_FALSE(reflect(module_of({{op(2, 17), 63}}), "t").uses_subgroups);
        CHECK(reflect(module_of({{op(2, 17), 68}}), "t").uses_subgroup_quad);
        CHECK_FALSE(reflect(module_of({{op(2, 17), 68}}), "t").uses_subgroups);
        CHECK(reflect(module_of({{op(2, 17), 9}}), "t").uses_float16);
        CHECK(reflect(module_of({{op(2, 17), 39}}), "t").uses_int8);
        CHECK(reflect(module_with_buffers({}), "t").bindings == 0);
        CHECK(reflect(module_with_buffers({{0, 1}, {0, 0}}), "t").bindings == 2);
    }

    TEST_CASE("spirv: local sizes by ids of constants, as compilers for SPIR-V 1.6 write them, become plain ones") {
        const Words uint = {op(4, 21), 2, 32, 0};
        const Words by_id = module_of({{op(6, 331), 1, 38, 10, 11, 12},
                                       {op(4, 71), 10, 1, 0},
                                       uint,
                                       {op(4, 50), 2, 10, 8},
                                       {op(4, 43), 2, 11, 2},
                                       {op(4, 43), 2, 12, 3}});
        CHECK(reflect(by_id, "t").local_size_id == 0);
        CHECK(reflect(by_id, "t").local_size[0] == 8);
        CHECK(specialize(by_id, Words{64}) == module_of({{op(6, 16), 1, 17, 64, 2, 3},
                                                         uint,
                                                         {op(4, 43), 2, 10, 64},
                                                         {op(4, 43), 2, 11, 2},
                                                         {op(4, 43), 2, 12, 3}}));
        const Words unknown = module_of({{op(6, 331), 1, 38, 10, 11, 12}, uint, {op(4, 43), 2, 11, 2}});
        CHECK(specialize(unknown, {}) == unknown);
    }

    TEST_CASE("spirv: matrices among push constants take what their columns or rows do") {
        // float, vec3, mat4x3 of 16 bytes a column, and one of 32 bytes a row
        const auto bytes = [](const std::vector<Words>& decorations) {
            std::vector<Words> all = decorations;
            all.insert(all.end(), {{op(3, 22), 2, 32},
                                   {op(4, 23), 3, 2, 3},
                                   {op(4, 24), 4, 3, 4},
                                   {op(4, 30), 5, 4, 2},
                                   {op(4, 32), 6, 9, 5},
                                   {op(4, 59), 6, 7, 9}});
            return reflect(module_of(all), "t").push_constant_bytes;
        };
        const Words first{op(5, 72), 5, 0, 35, 8}, last{op(5, 72), 5, 1, 35, 0}, stride{op(5, 72), 5, 0, 7, 16},
            wide{op(5, 72), 5, 0, 7, 32}, by_columns{op(4, 72), 5, 0, 5}, by_rows{op(4, 72), 5, 0, 4};
        CHECK(bytes({first, last, stride, by_columns}) == 8 + 4 * 16);
        CHECK(bytes({first, last, wide, by_rows}) == 8 + 3 * 32);
        CHECK(bytes({first, last}) == 8 + 4 * 3 * 4);
    }

    TEST_CASE("spirv: constants of 64 bits keep their default or are 0, and other numbers are refused") {
        const auto module = [](const Words& decoration, const Words& constant) {
            return module_of({decoration, {op(4, 21), 2, 64, 0}, constant});
        };
        const Words wide = module({op(4, 71), 10, 1, 1}, {op(5, 50), 2, 10, 5, 6});
        const Words plain = module_of({{op(4, 21), 2, 64, 0}, {op(5, 50), 2, 10, 5, 6}});
        CHECK(specialize(wide, Words{64}) == plain);
        CHECK(specialize(wide, Words{64, 0, 3}) == module_of({{op(4, 21), 2, 64, 0}, {op(5, 43), 2, 10, 0, 0}}));
        CHECK(contains(error_of([&] { specialize(wide, Words{64, 7}); }), "specialization constant 1 has 64 bits"));
    }

    TEST_CASE("spirv: what the runtime does not bind is refused, naming the shader") {
        const auto refusal = [](const Words& words) { return error_of([&] { reflect(words, "odd"); }); };
        CHECK(refusal({}) == "shader odd: not a SPIR-V module");
        CHECK(refusal({1, 2, 3, 4, 5, 6}) == "shader odd: not a SPIR-V module");
        CHECK(refusal({0x07230203, 0x00010300, 0, 100}) == "shader odd: not a SPIR-V module");
        CHECK(contains(refusal(module_of({{op(0, 17)}})), "truncated at word 5"));
        CHECK(contains(refusal(module_of({{op(9, 17), 1}})), "truncated at word 5"));
        CHECK(contains(refusal(module_of({{op(1, 22)}})), "malformed instruction 22"));
        CHECK(contains(refusal(module_of({{op(3, 16), 1, 17}})), "malformed"));
        CHECK(contains(refusal(module_with_buffers({{0, 0}, {0, 2}})), "gaps"));
        CHECK(contains(refusal(module_with_buffers({{1, 0}})), "outside set 0"));
        CHECK(contains(refusal(module_with_buffers({{0, 64}})), "outside set 0"));
        CHECK(contains(refusal(module_of({{op(4, 32), 5, 0, 4}, {op(4, 59), 5, 6, 0}})),
                       "a sampler, or an image elsewhere"));
    }

    TEST_CASE("spirv: an image at binding 0") {
        const auto image = [](std::uint32_t sampled, std::uint32_t set, std::uint32_t binding) {
            return module_of({{op(9, 25), 4, 2, 1, 0, 0, 0, sampled, 0},
                              {op(4, 32), 5, 0, 4},
                              {op(4, 71), 6, 34, set},
                              {op(4, 71), 6, 33, binding},
                              {op(4, 59), 5, 6, 0}});
        };
        CHECK(reflect(image(1, 0, 0), "t").image == ImageAccess::sampled);
        CHECK(reflect(image(2, 0, 0), "t").image == ImageAccess::storage);
        CHECK(reflect(image(2, 0, 0), "t").bindings == 1);
        for (const Words& elsewhere : {image(1, 0, 1), image(1, 1, 0)}) {
            CHECK(contains(error_of([&] { reflect(elsewhere, "odd"); }), "shader odd: uses a sampler, or"));
        }
    }

    TEST_CASE("spirv: packed words are the words of the compiler") {
        // one block, the last, of so many bytes as they are (RFC 1951, 3.2.4)
        const auto deflated = [](const std::string& text) {
            const auto size = static_cast<std::uint8_t>(text.size());
            std::vector<std::uint8_t> bytes{1, size, 0, static_cast<std::uint8_t>(~size), 0xff};
            bytes.insert(bytes.end(), text.begin(), text.end());
            return bytes;
        };
        const auto unpacked = [&](const std::string& text, std::uint32_t count) {
            const std::vector<std::uint8_t> bytes = deflated(text);
            return words(PackedSpirv{count, static_cast<std::uint32_t>(text.size()), bytes});
        };
        const std::string heads = "n230203h0000gi0gl0080j003eh00fdi00f8", stored = "ghffffffeb", rest = "nh2shi";
        CHECK(unpacked(heads + stored + rest, 16) == Words{0x07230203, 0x10000, 0, 32, 0, op(5, 128), 7, 9, 3, 10,
                                                           op(3, 62), 9, 0xffffffff, op(1, 253), op(2, 248), 8});
        CHECK(unpacked("n230203h0000gi0g", 5) == Words{0x07230203, 0x10000, 0, 32, 0});
        // as they are: all of OpDecorate, OpVariable's storage class, OpSelectionMerge's control
        CHECK(unpacked("n230203h0000gi0gk0047k003bl0039j00f7k003dimqmlssjiomi2hjh", 25) ==
              Words{0x07230203, 0x10000, 0, 32, 0, op(4, 71),  6,  34, 1,         op(4, 59), 5,  6, 12,
                    op(5, 57),  2,       9, 4,  6, op(3, 247), 11, 1,  op(4, 61), 3,         10, 6});
        const auto refused = [&](const std::string& text, std::uint32_t count) {
            return contains(error_of([&] { unpacked(text, count); }),
                            "the packed SPIR-V of " + std::to_string(count) + " words is damaged");
        };
        for (const std::uint32_t wrong : {1u, 15u, 17u, ~0u}) {
            CHECK(refused(heads + stored + rest, wrong));
        }
        for (const char no_digit : {'w', '/', ':', 'A', '\0', '\x80'}) {
            CHECK(refused(heads + stored + rest + no_digit, 16));
        }
        CHECK(refused("0" + heads + stored + rest, 16));         // a digit before the first number
        CHECK(refused(heads + stored + "nh2sh000000000i", 16));  // a number of more than 33 bits
        CHECK(refused("n230203h0000gi0gg0080ghigg", 10));        // an instruction of no words
        CHECK(refused("n230203h0000gi0gm0080ghigg", 10));        // one longer than the module
        const std::vector<std::uint8_t> bytes = deflated(heads + stored + rest);
        for (const std::uint32_t length : {0u, 16u, 51u, 53u, ~0u}) {
            CHECK(contains(error_of([&] { words(PackedSpirv{16, length, bytes}); }), "is damaged"));
        }
        CHECK(contains(error_of([&] { words(PackedSpirv{16, 52, std::span(bytes).first(9)}); }), "is damaged"));
        CHECK(words({}).empty());
        CHECK(kConstant.code.words() == words(spirv::kElementwiseSpirv));

        const struct {
            std::string name;
            PackedSpirv packed;
        } modules[] = {{"elementwise", spirv::kElementwiseSpirv},
                       {"attention_lanes", spirv::kAttentionLanesSpirv},
                       {"matmul_half", spirv::kMatmulHalfSpirv},
                       {"matmul_lanes", spirv::kMatmulLanesSpirv},
                       {"softmax", spirv::kSoftmaxSpirv}};
        for (const auto& m : modules) {
            CAPTURE(m.name);
            std::ifstream in(VKFORMER_SHADERS "/" + m.name + ".spv", std::ios::binary);
            const std::string file((std::istreambuf_iterator<char>(in)), {});
            const Words unpacked = words(m.packed);
            REQUIRE(file.size() == unpacked.size() * sizeof(std::uint32_t));
            CHECK(std::memcmp(file.data(), unpacked.data(), file.size()) == 0);
            CHECK(m.packed.bytes.size() < file.size() / 5);
        }
    }

    TEST_CASE("spirv: uniform blocks and arrays of buffers are refused, buffers of SPIR-V 1.0 are not") {
        const auto with = [](std::uint32_t storage, std::uint32_t decoration, const Words& pointee) {
            return module_of({{op(3, 71), 4, decoration},
                              {op(4, 71), 20, 34, 0},
                              {op(4, 71), 20, 33, 0},
                              {op(3, 22), 2, 32},
                              {op(3, 30), 4, 2},
                              pointee,
                              {op(4, 32), 5, storage, pointee[1]},
                              {op(4, 59), 5, 20, storage}});
        };
        const Words block{op(3, 30), 4, 2}, two{op(4, 28), 6, 4, 9}, any{op(3, 29), 6, 4};
        const auto refusal = [&](const Words& code) { return error_of([&] { reflect(code, "blocks"); }); };
        CHECK(reflect(with(12, 2, block), "blocks").bindings == 1);
        CHECK(reflect(with(2, 3, block), "blocks").bindings == 1);
        CHECK(contains(refusal(with(2, 2, block)), "shader blocks: binding 0 is a uniform block"));
        for (const Words& array : {two, any}) {
            CHECK(contains(refusal(with(12, 2, array)), "binding 0 is an array of buffers"));
            CHECK(contains(refusal(with(2, 3, array)), "binding 0 is an array of buffers"));
        }
    }

    TEST_CASE("spirv: of several entry points the one for compute that is called main counts") {
        const auto size = [](std::uint32_t entry, std::uint32_t x) { return Words{op(6, 16), entry, 17, x, 1, 1}; };
        const auto entry = [](std::uint32_t model, std::uint32_t id, const std::string& name) {
            Words out{0, model, id};
            out.resize(3 + name.size() / 4 + 1);
            std::memcpy(out.data() + 3, name.data(), name.size());
            out[0] = op(static_cast<std::uint32_t>(out.size()), 15);
            return out;
        };
        const Words two = module_of({entry(5, 50, "other"), entry(5, 51, "main"), size(50, 4096), size(51, 32)});
        CHECK(reflect(two, "two").has_main);
        CHECK(reflect(two, "two").local_size[0] == 32);
        for (const Words& none : {entry(5, 50, "mai"), entry(5, 50, "mains"), entry(5, 50, ""), entry(4, 50, "main")}) {
            CHECK_FALSE(reflect(module_of({none}), "none").has_main);
        }
    }

    TEST_CASE("spirv: capabilities that the runtime does not know are told") {
        const auto others = [](const std::vector<std::uint32_t>& capabilities) {
            std::vector<Words> all;
            for (const std::uint32_t c : capabilities) {
                all.push_back({op(2, 17), c});
            }
            return reflect(module_of(all), "t").other_capabilities;
        };
        CHECK(others({0, 1, 9, 11, 39, 50, 56, 61, 65, 68, 4433, 4464, 4468, 5345, 5432, 6018, 6022}).empty());
        // Float64, Int16, buffers of bytes, addresses, ray queries
        CHECK(others({1, 10, 22, 4448, 5347, 4472}) == Words{10, 22, 4448, 5347, 4472});
    }

    TEST_CASE("spirv: a type that contains itself ends") {
        const Words self = module_of({{op(3, 30), 4, 4}, {op(4, 32), 5, 9, 4}, {op(4, 59), 5, 6, 9}});
        CHECK(reflect(self, "self").push_constant_bytes == 0);
        const Words each_other =
            module_of({{op(3, 30), 3, 4}, {op(3, 30), 4, 3}, {op(4, 32), 5, 9, 3}, {op(4, 59), 5, 6, 9}});
        CHECK(reflect(each_other, "each other").push_constant_bytes == 0);
    }

    TEST_CASE("spirv: damage is an error or a wrong answer, never a crash") {
        std::mt19937 random(7);
        const Words good = words(spirv::kElementwiseSpirv);
        for (int i = 0; i < 300; ++i) {
            Words damaged = good;
            for (int flips = 1 + i % 3; flips > 0; --flips) {
                damaged[random() % damaged.size()] = i % 2 ? random() : random() % 64;
            }
            error_of([&] { reflect(damaged, "damaged"); });
        }
        for (std::size_t length = 0; length < good.size(); length += 13) {
            error_of([&] { reflect(std::span(good).first(length), "cut"); });
        }
    }
}

}  // namespace vkf::test
