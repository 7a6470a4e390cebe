// SPDX-License-Identifier: Apache-2.0
// Weights kept as f16, bf16, int8 and int4: what they become, what kernels make of them, and what
// is refused.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "runtime/device/device.h"
#include "runtime/device/program.h"
#include "tests/believed.h"
#include "tests/device.h"
#include "tests/fake_vulkan.h"
#include "tests/fixtures.h"
#include "tests/op_check.h"
#include "tests/reference.h"
#include "tests/reference_packed.h"

using namespace vkf;
using namespace vkf::test;

namespace {

constexpr WeightType kAllTypes[] = {WeightType::f32, WeightType::f16, WeightType::bf16, WeightType::int8,
                                    WeightType::int4};

/// A tensor of fp32 numbers with its bytes.
struct HostWeight {
    HostWeight(const std::string& name, const Tensor& numbers) : floats(numbers.floats()) {
        tensor = {name, DType::f32, numbers.shape, std::as_bytes(std::span(floats))};
    }
    HostWeight(const HostWeight&) = delete;
    HostWeight& operator=(const HostWeight&) = delete;

    std::vector<float> floats;
    HostTensor tensor;
};

Weights load(const Device& on, const Tensor& numbers, WeightType type) {
    const HostWeight w("w", numbers);
    return on.load({&w.tensor, 1}, {.matrices = type});
}

struct PackedCase {
    Sizes x_shape;
    std::int64_t columns = 1;
    bool bias = false;
    Activation activation = Activation::none;
};

/// linear() on the device, as what it is and as a small GPU, beside the twin of what the type kept.
std::string mismatch(const PackedCase& c, WeightType type, double nan_at = -1) {
    Tensor x = random_tensor(c.x_shape, 1);
    if (nan_at >= 0) {
        x.data[static_cast<std::size_t>(nan_at)] = std::numeric_limits<double>::quiet_NaN();
    }
    const Tensor w = random_tensor({c.columns, c.x_shape.back()}, 2);
    const Tensor bias = random_tensor({c.columns}, 3);
    Graph g;
    g.output("y", linear(g.input("x", Shape(c.x_shape.begin(), c.x_shape.end())),
                         g.weight("w", {c.columns, c.x_shape.back()}), c.bias ? g.input("bias", {c.columns}) : Value(),
                         c.activation));
    reference::MatmulOptions o{.activation = c.activation, .transpose_b = true};
    if (c.bias) {
        o.bias = bias;
    }
    const Tensor kept = reference::packed(w, type);
    const Tensor want = reference::matmul(x, kept, o);
    const Tolerance tolerance{.rounding = reference::matmul_rounding(x, kept, o)};
    const Weights weights = load(device(), w, type);
    const auto run = [&] {
        Program program = device().compile(g, weights);
        upload(program, "x", x);
        if (c.bias) {
            upload(program, "bias", bias);
        }
        program.run();
        return difference(download(program, "y"), want, tolerance);
    };
    std::string found = run();
    if (found.empty()) {
        const AsSmallGpu small_gpu;
        found = run();
        found = found.empty() ? found : "as on a small GPU: " + found;
    }
    return found.empty() ? found : std::string(name_of(type)) + ": " + found;
}

/// The rows of a matrix as an embedding reads them.
Tensor rows_of(const Device& on, const Weights& weights, std::int64_t rows, std::int64_t columns) {
    Graph g;
    g.output("y", embedding(g.input("ids", {rows}, DType::i32), g.weight("w", {rows, columns})));
    Program program = on.compile(g, weights);
    Tensor ids({rows}, 0.0);
    for (std::int64_t i = 0; i < rows; ++i) {
        ids.at({i}) = static_cast<double>(i);
    }
    upload(program, "ids", ids, DType::i32);
    program.run();
    return download(program, "y");
}

/// Every number of 16 bits, 32 a row, as a file holds it.
std::vector<std::uint16_t> all_of_sixteen_bits() {
    std::vector<std::uint16_t> bits(65536);
    for (std::size_t i = 0; i < bits.size(); ++i) {
        bits[i] = static_cast<std::uint16_t>(i);
    }
    return bits;
}

double from_half(std::uint16_t bits) {
    const int exponent = bits >> 10 & 31;
    const int fraction = bits & 1023;
    const double sign = bits >> 15 ? -1 : 1;
    if (exponent == 31) {
        return fraction ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
    }
    return sign * (exponent ? std::ldexp(1024 + fraction, exponent - 25) : std::ldexp(fraction, -24));
}

}  // namespace

TEST_SUITE_BEGIN("packed weights");

TEST_CASE("packed weights: linear of every type, sizes around every tile's and every group's edge") {
    const std::int64_t sizes[][3] = {{1, 1, 1},     {1, 5, 3},     {3, 7, 31},    {2, 33, 32},   {5, 64, 33},
                                     {17, 70, 64},  {9, 36, 100},  {33, 12, 40},  {130, 40, 96}, {1, 514, 513},
                                     {1, 520, 516}, {3, 515, 520}, {6, 512, 520}, {2, 130, 513}, {40, 513, 513}};
    for (const auto& size : sizes) {
        CAPTURE(size[0]);
        CAPTURE(size[1]);
        CAPTURE(size[2]);
        for (const WeightType type : kAllTypes) {
            CHECK(mismatch({.x_shape = {size[0], size[2]}, .columns = size[1]}, type) == "");
        }
    }
}

TEST_CASE("packed weights: few rows, 16 bytes of several columns at a time") {
    const std::int64_t sizes[][3] = {{1, 7, 1024}, {2, 5, 1056}, {3, 1, 2048}, {4, 6, 1024}, {1, 34, 4096}};
    for (const bool subgroups : {true, false}) {
        const Believed as([&](Capabilities& c) { c.subgroup_arithmetic = c.subgroup_arithmetic && subgroups; });
        for (const auto& size : sizes) {
            CAPTURE(size[0]);
            CAPTURE(size[2]);
            for (const WeightType type : kAllTypes) {
                CHECK(mismatch({.x_shape = {size[0], size[2]}, .columns = size[1], .bias = size[0] == 2}, type) == "");
            }
        }
    }
    for (const WeightType type : kAllTypes) {
        CHECK(mismatch({.x_shape = {2, 1024}, .columns = 9}, type, 1023) == "");
    }
}

TEST_CASE("packed weights: batches, bias and every activation") {
    for (const WeightType type : kAllTypes) {
        CHECK(mismatch({.x_shape = {2, 3, 40}, .columns = 20, .bias = true}, type) == "");
        CHECK(mismatch({.x_shape = {1, 520}, .columns = 521, .bias = true, .activation = Activation::gelu}, type) ==
              "");
        for (const Activation act : {Activation::relu, Activation::gelu, Activation::gelu_tanh, Activation::silu,
                                     Activation::tanh, Activation::sigmoid}) {
            CAPTURE(static_cast<int>(act));
            CHECK(mismatch({.x_shape = {6, 35}, .columns = 36, .bias = true, .activation = act}, type) == "");
        }
    }
}

TEST_CASE("packed weights: long sums") {
    for (const WeightType type : kAllTypes) {
        CHECK(mismatch({.x_shape = {1, 4099}, .columns = 17}, type) == "");
        CHECK(mismatch({.x_shape = {1, 4099}, .columns = 65}, type) == "");
        CHECK(mismatch({.x_shape = {9, 4096}, .columns = 5}, type) == "");
    }
}

TEST_CASE("packed weights: many rows, sums that end within a step, eight codes and a group") {
    for (const WeightType type : kAllTypes) {
        CAPTURE(name_of(type));
        for (const std::int64_t k : {8, 32, 36, 37, 44, 68, 100}) {
            CAPTURE(k);
            CHECK(mismatch({.x_shape = {141, k}, .columns = 35}, type) == "");
        }
        CHECK(mismatch({.x_shape = {133, 44}, .columns = 17}, type, 43) == "");
    }
}

TEST_CASE("packed weights: a NaN stays in its row") {
    for (const WeightType type : kAllTypes) {
        CHECK(mismatch({.x_shape = {3, 37}, .columns = 33}, type, 36) == "");
        CHECK(mismatch({.x_shape = {2, 515}, .columns = 512}, type, 514) == "");
    }
}

TEST_CASE("packed weights: rows of a packed matrix, and a view of x") {
    const Tensor x = random_tensor({36, 5}, 1);
    const Tensor w = random_tensor({21, 36}, 2);
    for (const WeightType type : kAllTypes) {
        CAPTURE(name_of(type));
        Graph g;
        const Value rows = slice(g.weight("w", {21, 36}), 0, 4, 10);
        g.output("y", matmul(transpose(g.input("x", {36, 5}), 0, 1), rows, {.transpose_b = true}));
        Program program = device().compile(g, load(device(), w, type));
        upload(program, "x", x);
        program.run();
        const Tensor kept = slice(reference::packed(w, type), 0, 4, 10);
        CHECK(difference(download(program, "y"), reference::matmul(transpose(x, 0, 1), kept, {.transpose_b = true})) ==
              "");
    }
}

TEST_CASE("packed weights: what is kept of a number, and how far that may be") {
    Tensor w = random_tensor({9, 70}, 5, 0.03);
    for (std::int64_t k = 0; k < 70; ++k) {
        w.at({1, k}) = 0;                           // nothing to scale by
        w.at({2, k}) = std::abs(w.at({2, k})) + 1;  // far from 0, all of one sign
        w.at({3, k}) = static_cast<double>(-std::abs(static_cast<float>(w.at({3, k}))));
        w.at({4, k}) = static_cast<double>(static_cast<float>(w.at({4, k}) * 1e-4));
        w.at({5, k}) = static_cast<double>(k % 16 - 8);  // codes themselves
        w.at({6, k}) = k % 7 == 0 ? 1.0 : 0.5;
        w.at({2, k}) = static_cast<double>(static_cast<float>(w.at({2, k})));
    }
    w.at({7, 11}) = 1000;  // one that takes the others' digits
    for (const WeightType type : kAllTypes) {
        CAPTURE(name_of(type));
        const Tensor got = rows_of(device(), load(device(), w, type), 9, 70);
        CHECK(difference(got, reference::packed(w, type), {0, 0x1p-23, {}}) == "");
        const Tensor bound = reference::packing_error(w, type);
        for (std::size_t i = 0; i < w.data.size(); ++i) {
            const double error = std::abs(got.data[i] - w.data[i]);
            const bool near = error <= bound.data[i] + 1e-6 * std::abs(w.data[i]);
            if (!near) {
                CAPTURE(i);
                CHECK(error <= bound.data[i]);
            }
        }
    }
}

TEST_CASE("packed weights: int8 and int4 of a whole matrix of sizes") {
    for (const std::int64_t columns : {1, 3, 16, 17, 31, 32, 33, 64, 129, 130}) {
        CAPTURE(columns);
        const Tensor w = random_tensor({5, columns}, static_cast<std::uint32_t>(columns));
        for (const WeightType type : kAllTypes) {
            CAPTURE(name_of(type));
            CHECK(difference(rows_of(device(), load(device(), w, type), 5, columns), reference::packed(w, type),
                             {0, 0x1p-23, {}}) == "");
        }
    }
}

TEST_CASE("packed weights: every number of fp16 and bf16 in a file is what kernels see, untouched") {
    const std::vector<std::uint16_t> bits = all_of_sixteen_bits();
    for (const DType dtype : {DType::f16, DType::bf16}) {
        CAPTURE(name_of(dtype));
        const HostTensor file{"w", dtype, {2048, 32}, std::as_bytes(std::span(bits))};
        const Weights weights = device().load({&file, 1});
        CHECK(weights.find("w")->dtype == DType::f32);
        CHECK(weights.bytes(dtype == DType::f16 ? WeightType::f16 : WeightType::bf16) == 131072);
        Tensor want({2048, 32}, 0.0);
        for (std::size_t i = 0; i < bits.size(); ++i) {
            want.data[i] = dtype == DType::f16
                               ? from_half(bits[i])
                               : static_cast<double>(std::bit_cast<float>(std::uint32_t{bits[i]} << 16));
            // a device may take what is subnormal in fp32 for 0
            if (std::abs(want.data[i]) < static_cast<double>(std::numeric_limits<float>::min())) {
                want.data[i] = 0;
            }
        }
        Tensor got = rows_of(device(), weights, 2048, 32);
        for (double& x : got.data) {
            x = std::abs(x) < static_cast<double>(std::numeric_limits<float>::min()) ? 0 : x;
        }
        CHECK(difference(got, want, exactly()) == "");

        // and the same through a product, without those that no 0 takes away
        std::vector<std::uint16_t> finite = bits;
        for (std::size_t i = 0; i < finite.size(); ++i) {
            const bool keeps = std::isfinite(want.data[i]);
            finite[i] = keeps ? finite[i] : std::uint16_t{0};
            want.data[i] = keeps ? want.data[i] : 0;
        }
        const HostTensor tame{"w", dtype, {2048, 32}, std::as_bytes(std::span(finite))};
        Graph g;
        g.output("y", linear(g.input("x", {32, 32}), g.weight("w", {2048, 32})));
        Tensor identity({32, 32}, 0.0);
        for (std::int64_t i = 0; i < 32; ++i) {
            identity.at({i, i}) = 1;
        }
        const Weights tame_weights = device().load({&tame, 1});
        for (const bool gpu : {false, true}) {
            CAPTURE(gpu);
            std::optional<AsSmallGpu> small_gpu;
            if (gpu) {
                small_gpu.emplace();
            }
            Program program = device().compile(g, tame_weights);
            upload(program, "x", identity);
            program.run();
            Tensor y = download(program, "y");
            for (double& x : y.data) {
                x = std::abs(x) < static_cast<double>(std::numeric_limits<float>::min()) ? 0 : x;
            }
            CHECK(difference(y, transpose(want, 0, 1), exactly()) == "");
        }
    }
}

TEST_CASE("packed weights: vectors of fp16 and bf16 are widened, matrices turned into any type") {
    const std::vector<std::uint16_t> halves = {0x3c00, 0xc000, 0x3555, 0x0001};
    const HostTensor file[] = {{"norm", DType::f16, {4}, std::as_bytes(std::span(halves))},
                               {"w", DType::f16, {2, 2}, std::as_bytes(std::span(halves))}};
    for (const WeightType type : kAllTypes) {
        CAPTURE(name_of(type));
        const Weights weights = device().load(file, {.matrices = type});
        CHECK(weights.find("norm")->type == WeightType::f32);
        CHECK(weights.find("w")->type == type);
        Graph g;
        g.output("y", contiguous(g.weight("norm", {4})));
        Program program = device().compile(g, weights);
        program.run();
        const Tensor want({4}, {1.0, -2.0, from_half(0x3555), 0x1p-24});
        CHECK(difference(download(program, "y"), want, exactly()) == "");
        CHECK(difference(rows_of(device(), weights, 2, 2), reference::packed(reshape(want, {2, 2}), type),
                         {0, 0x1p-23, {}}) == "");
    }
}

TEST_CASE("packed weights: one matrix looked up and multiplied with, larger than a storage buffer may be") {
    fake::Vulkan vulkan;
    vulkan.change_limits([](VkPhysicalDeviceLimits& limits) { limits.maxStorageBufferRange = 1u << 20; });
    Device small = Device::create({.get_instance_proc_addr = vulkan.entry()});
    const std::int64_t rows = 4000;
    const std::int64_t width = 2070;  // in int4 5.2 MB
    const Tensor w = random_tensor({rows, width}, 1);
    for (const WeightType type : {WeightType::f16, WeightType::int4}) {
        CAPTURE(name_of(type));
        const Weights weights = load(small, w, type);
        Graph g;
        const Value table = g.weight("w", {rows, width});
        const Value looked_up = embedding(g.input("ids", {3}, DType::i32), table);
        g.output("logits", linear(looked_up, table));
        Program program = small.compile(g, weights);
        CHECK(contains(program.explain(), std::string("1 weights kept as ") + std::string(name_of(type))));
        upload(program, "ids", Tensor({3}, {0, 1500, 3999}), DType::i32);
        program.run();
        const Tensor kept = reference::packed(w, type);
        Tensor x({3, width}, 0.0);
        for (std::int64_t k = 0; k < width; ++k) {
            x.at({0, k}) = kept.at({0, k});
            x.at({1, k}) = kept.at({1500, k});
            x.at({2, k}) = kept.at({3999, k});
        }
        const reference::MatmulOptions o{.transpose_b = true};
        CHECK(difference(download(program, "logits"), reference::matmul(x, kept, o),
                         {.rounding = reference::matmul_rounding(x, kept, o)}) == "");
    }
    CHECK(last_words(std::move(small)) == "");
}

TEST_CASE("packed weights: chosen one by one, bytes told by type") {
    const HostWeight a("a", random_tensor({10, 33}));
    const HostWeight b("b", random_tensor({10, 33}));
    const HostWeight c("c", random_tensor({33}));
    const HostTensor tensors[] = {a.tensor, b.tensor, c.tensor};
    std::uint64_t done = 0;
    std::uint64_t all = 0;
    LoadOptions options{.matrices = WeightType::int8};
    options.choose = [](const HostTensor& t) { return t.name == "a" ? std::optional(WeightType::int4) : std::nullopt; };
    options.progress = [&](std::uint64_t now, std::uint64_t in_all) {
        CHECK(now >= done);
        done = now;
        all = in_all;
    };
    const Weights weights = device().load(tensors, options);
    CHECK(weights.find("a")->type == WeightType::int4);
    CHECK(weights.find("b")->type == WeightType::int8);
    CHECK(weights.find("c")->type == WeightType::f32);
    CHECK(weights.bytes(WeightType::int4) == 10 * (8 + 4) * 4);
    CHECK(weights.bytes(WeightType::int8) == 10 * (12 + 4) * 4);
    CHECK(weights.bytes(WeightType::f32) == 33 * 4);
    CHECK(weights.bytes(WeightType::f16) == 0);
    CHECK(done == 480 + 640 + 132);
    CHECK(done == all);
    Graph g;
    g.output("y", linear(g.input("x", {2, 33}), g.weight("a", {10, 33})));
    const std::string told = device().compile(g, weights).explain();
    CHECK(contains(told, "1 weights kept as int4, 480 bytes"));
    CHECK(contains(told, "b kept as int4"));
}

TEST_CASE("packed weights: numbers that a type cannot hold are refused by name") {
    const auto said = [](double bad, WeightType type) {
        Tensor w = random_tensor({3, 40});
        w.at({2, 37}) = bad;
        return error_of([&] { load(device(), w, type); });
    };
    for (const WeightType type : {WeightType::int8, WeightType::int4}) {
        for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
                                 -std::numeric_limits<double>::infinity(), 0x1p127}) {
            CAPTURE(bad);
            const std::string message = said(bad, type);
            CAPTURE(message);
            CHECK(contains(message, "weight w"));
            CHECK(contains(message, "(2, 37)"));
            CHECK(contains(message, std::string("which ") + std::string(name_of(type)) + " cannot hold"));
        }
        CHECK(said(0x1.8p126, type) == "");
    }
    CHECK(contains(said(65520, WeightType::f16), "(2, 37), which f16 cannot hold"));
    CHECK(said(65519, WeightType::f16) == "");
    CHECK(contains(said(static_cast<double>(std::numeric_limits<float>::max()), WeightType::bf16), "bf16"));
    CHECK(said(std::numeric_limits<double>::infinity(), WeightType::f16) == "");
    CHECK(said(std::numeric_limits<double>::quiet_NaN(), WeightType::bf16) == "");
}

TEST_CASE("packed weights: a product along their columns is that of their numbers") {
    for (const WeightType type : {WeightType::f16, WeightType::bf16, WeightType::int8, WeightType::int4}) {
        CAPTURE(static_cast<int>(type));
        const Weights weights = load(device(), random_tensor({9, 70}), type);
        Graph g;
        const Value x = g.input("x", {5, 9}), w = g.weight("w", {9, 70});
        const std::vector<std::int32_t> rows{0, 1, 2, 3, 4, 5, 6, 7, 8};
        g.output("y", matmul(x, w));
        g.output("wanted", matmul(x, embedding(g.constant("rows", {9}, rows), w)));
        Program program = device().compile(g, weights);
        program.upload("x", std::vector<float>(45, 0.75f));
        program.run();
        CHECK(program.download("y") == program.download("wanted"));
        CHECK(contains(program.explain(), "table kept as " + std::string(name_of(type))));
    }
}

TEST_CASE("packed weights: what cannot read them says so") {
    const Weights weights = load(device(), random_tensor({8, 8}), WeightType::int8);
    const auto said = [&](auto build) {
        Graph g;
        g.output("y", build(g.input("x", {8, 8}), g.weight("w", {8, 8})));
        return error_of([&] { device().compile(g, weights); });
    };
    for (const std::string& message : {
             said([](Value x, Value w) { return matmul(w, x); }),
             said([](Value x, Value w) { return add(x, w); }),
             said([](Value x, Value w) { return linear(x, transpose(w, 0, 1)); }),
             said([](Value x, Value w) { return linear(slice(x, 1, 0, 4), slice(w, 1, 0, 4)); }),
             said([](Value x, Value w) { return matmul(x, w, {.transpose_b = true, .masked_weights = true}); }),
         }) {
        CAPTURE(message);
        CHECK(contains(message, "weight w is kept as int8"));
        CHECK(contains(message, "LoadOptions::choose"));
    }
    CHECK(said([](Value x, Value w) { return linear(x, w); }) == "");
}

TEST_CASE("packed weights: rows that are not the weight's own are refused") {
    for (const WeightType type : {WeightType::f16, WeightType::bf16, WeightType::int8, WeightType::int4}) {
        const Weights weights = load(device(), random_tensor({8, 64}), type);
        const auto said = [&](auto build) {
            Graph g;
            g.output("y", build(g.input("x", {4, 32}), g.input("ids", {3}, DType::i32), g.weight("w", {8, 64})));
            return error_of([&] { device().compile(g, weights); });
        };
        for (const std::string& message : {
                 said([](Value x, Value, Value w) {
                     return linear(x, reshape(w, {16, 32}));
                 }),
                 said([](Value x, Value, Value w) {
                     return linear(x, reshape(slice(w, 0, 4, 4), {8, 32}));
                 }),
                 said([](Value x, Value, Value w) {
                     return linear(x, reshape(slice(w, 0, 5, 1), {2, 32}));
                 }),
                 said([](Value x, Value, Value w) {
                     return linear(reshape(x, {1, 128}), reshape(w, {4, 128}));
                 }),
                 said([](Value x, Value, Value w) {
                     return matmul(x, reshape(slice(w, 0, 2, 4), {32, 8}));
                 }),
                 said([](Value, Value ids, Value w) {
                     return embedding(ids, reshape(w, {16, 32}));
                 }),
             }) {
            CAPTURE(message);
            CHECK(contains(message, "all of its columns in their order"));
        }
        CHECK(said([](Value x, Value, Value w) {
                  return linear(reshape(x, {2, 64}), reshape(slice(reshape(w, {8, 1, 64}), 0, 2, 3), {3, 64}));
              }) == "");
    }
}

TEST_SUITE_END();
