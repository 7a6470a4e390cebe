// SPDX-License-Identifier: Apache-2.0
// Products as backward passes have them: a transposed first operand, and matrices beyond a storage
// buffer whose sums are taken in parts.
#include <doctest/doctest.h>

#include <cmath>

#include "ops/gradients.h"
#include "ops/optimizer.h"
#include "tests/believed.h"
#include "tests/fake_vulkan.h"
#include "tests/op_check.h"
#include "tests/product_check.h"

using namespace vkf;
using namespace vkf::test;

namespace {

/// The gradient at w of x w^T, whose first operand is dy transposed, and the same product of a copy
/// of that. Gives what explain() says of the former.
std::string compare_with_copy(const Tensor& x, const Tensor& dy) {
    OpCheck check, copied;
    const Value w = check.input("w", random_tensor({dy.shape[1], x.shape[1]}, 3));
    const Value found = gradients(linear(check.input("x", x), w), {w}, check.input("dy", dy)).front();
    const Value rows = contiguous(transpose(copied.input("dy", dy), 0, 1));
    const Value want = matmul(rows, copied.input("x", x));
    Graph g;
    const Value v = g.input("w", {dy.shape[1], x.shape[1]});
    g.output("dw", gradients(linear(g.input("x", Shape(x.shape.begin(), x.shape.end())), v), {v},
                             g.input("dy", Shape(dy.shape.begin(), dy.shape.end())))
                       .front());
    // A GPU may take the sums of a dense first operand in parts.
    const Tensor wanted = copied.run(want);
    const bool in_parts = contains(device().compile(copied.graph).explain(), "matmul_merge");
    const Tensor got = check.run(found);
    CHECK((in_parts ? difference(got, wanted) == "" : same_bits(got, wanted)));
    return device().compile(g).explain();
}

Weights load_on(const Device& on, const Tensor& w, WeightType type) {
    const std::vector<float> floats = w.floats();
    const HostTensor tensor{"w", DType::f32, w.shape, std::as_bytes(std::span(floats))};
    return on.load({&tensor, 1}, {.matrices = type});
}

/// Made of a matrix (k, n) too large for a storage buffer of `range` bytes.
struct Parts {
    Tensor x, w, bias, r;
    std::uint64_t range;
};

Parts parts() {
    return {random_tensor({9, 203}, 1), random_tensor({203, 64}, 2), random_tensor({64}, 3), random_tensor({9, 64}, 4),
            16384};
}

}  // namespace

TEST_SUITE_BEGIN("matmul backward");

TEST_CASE("matmul backward: a transposed first operand is read by four rows, and gives the bits of its copy") {
    const std::int64_t sizes[][3] = {// tokens, in, out
                                     {5, 3, 4},    {4, 64, 8},      {33, 36, 20},   {130, 64, 132}, {129, 35, 136},
                                     {64, 12, 96}, {200, 520, 516}, {512, 320, 36}, {37, 64, 260}};
    for (const auto& size : sizes) {
        CAPTURE(size[0]);
        CAPTURE(size[1]);
        CAPTURE(size[2]);
        const Tensor x = random_tensor({size[0], size[1]}, 1), dy = random_tensor({size[0], size[2]}, 2);
        const std::string said = compare_with_copy(x, dy);
        // GPUs have another kernel for few rows
        const bool few = size[2] <= 4 && !device().capabilities().cpu();
        CHECK_MESSAGE(contains(said, "vec4 a along m") == !few, said);
        const auto without = [&](auto change) {
            const Believed other(change);
            CHECK(contains(compare_with_copy(x, dy), size[2] > 4 ? "a along m" : ""));
        };
        without([](Capabilities& c) {
            c.subgroup_shuffle = false;
            c.variants.clear();
        });
        without([](Capabilities& c) {
            c.int64 = false;
            c.variants.clear();
        });
    }
}

TEST_CASE("matmul backward: on GPUs too, but for few rows") {
    const Tensor x = random_tensor({70, 68}, 1);
    const Believed gpu(as_gpu);
    CHECK(contains(compare_with_copy(x, random_tensor({70, 132}, 2)), "vec4 a along m"));
    CHECK_FALSE(contains(compare_with_copy(x, random_tensor({70, 4}, 2)), "vec4 a along m"));
}

TEST_CASE("matmul backward: a first operand that does not go by fours is read number by number") {
    const std::string said = compare_with_copy(random_tensor({40, 64}, 1), random_tensor({40, 66}, 2));
    CHECK_FALSE(contains(said, "along m"));
    CHECK(contains(said, "scalar a"));
}

TEST_CASE("matmul backward: sums in parts, where a matrix is larger than a storage buffer") {
    const Parts p = parts();
    reference::MatmulOptions o;
    o.bias = p.bias;
    const Believed small([&](Capabilities& c) { c.storage_range = p.range; });
    for (const bool fused : {true, false}) {
        CAPTURE(fused);
        ProductCheck check;
        check.rewrite = fused;
        const Value a = check.input("x", p.x), b = check.input("w", p.w), bias = check.input("bias", p.bias);
        const Value r = check.input("r", p.r);
        const auto near = [&](Value y, const Tensor& want) {
            CHECK(check.difference(y, want, tolerance(taken(p.x), taken(p.w), o)) == "");
        };
        const Tensor product = twin(p.x, p.w, o);
        near(matmul(a, b, {.bias = bias}), product);
        near(matmul(a, b, {.bias = bias}) + r, reference::add(product, p.r));
        near(matmul(a, b, {.bias = bias, .activation = Activation::relu}) + r,
             reference::add(reference::activate(product, Activation::relu), p.r));
        near(matmul(a, b, {.bias = bias}) * r, reference::mul(product, p.r));
    }
}

TEST_CASE("matmul backward: parts of a masked product are added up also where a masked row is not finite") {
    const Tensor x = random_tensor({9, 203}, 1), clean = random_tensor({203, 64}, 2);
    for (const std::int64_t masked : {10, 190}) {  // in the first part, and in the last
        CAPTURE(masked);
        Tensor mask({203}, 1), b = clean, zeros = clean;
        mask.at({masked}) = 0;
        for (std::int64_t j = 0; j < 64; ++j) {
            b.at({masked, j}) = kNan;
            zeros.at({masked, j}) = 0;
        }
        const Believed small([&](Capabilities& c) { c.storage_range = parts().range; });
        const auto product = [&](const Tensor& right) {
            OpCheck check;
            const Value weights =
                softmax(check.input("x", x), {.mask = {.keys = check.input("mask", mask, DType::i32)}});
            return check.run(matmul(weights, check.input("b", right), {.masked_weights = true}));
        };
        CHECK(difference(product(b), product(zeros), {.absolute = 1e-6}) == "");
    }
}

TEST_CASE("matmul backward: what comes in for a query reaches no key that it does not see, however b lies") {
    const Tensor weights({2, 3}, {0.5, -0.0, 0.5, 0.25, 0.75, 0.0});  // query 0 does not see key 1
    const Tensor values = random_tensor({3, 4}, 1);
    for (const double bad : {kNan, kInf}) {
        Tensor dy = random_tensor({2, 4}, 2);
        for (std::int64_t j = 0; j < 4; ++j) {
            dy.at({0, j}) = bad;
        }
        for (const bool transposed : {false, true}) {
            CAPTURE(transposed);
            OpCheck check;
            const Value b = check.input("b", transposed ? transpose(values, 0, 1) : values);
            const Value y = matmul(check.input("a", weights), b, {.transpose_b = transposed, .masked_weights = true});
            Tensor db = check.run(contiguous(gradients(y, {b}, check.input("dy", dy)).front()));
            db = transposed ? transpose(db, 0, 1) : db;
            CHECK(difference(slice(db, 0, 1, 1), reference::scale(slice(dy, 0, 1, 1), 0.75)) == "");
            CHECK(!std::isfinite(db.at({0, 0})));
        }
    }
}

TEST_CASE("matmul backward: what is in parts is told, and what is not taken into them") {
    const Parts p = parts();
    const Believed small([&](Capabilities& c) { c.storage_range = p.range; });
    Graph g;
    g.output("y", matmul(g.input("x", {9, 203}), g.input("w", {203, 64}), {.activation = Activation::relu}));
    const std::string said = device().compile(g).explain();
    CHECK_MESSAGE(contains(said, "one of 4 parts of the sums, for want of larger bindings"), said);
    CHECK_MESSAGE(contains(said, "its matrix is larger than a storage buffer, and its sums are taken in parts"), said);
}

TEST_CASE("matmul backward: through a weight larger than a storage buffer, whatever it is kept as") {
    fake::Vulkan vulkan;
    vulkan.change_limits([](VkPhysicalDeviceLimits& limits) { limits.maxStorageBufferRange = 1u << 20; });
    Device small = Device::create({.get_instance_proc_addr = vulkan.entry()});
    const std::int64_t rows = 1501, width = 260;  // 1.5 MB in fp32
    const Tensor w = random_tensor({rows, width}, 1), dy = random_tensor({5, rows}, 2);
    for (const WeightType type : {WeightType::f32, WeightType::f16, WeightType::int8}) {
        CAPTURE(name_of(type));
        const Weights weights = load_on(small, w, type);
        Graph g;
        const Value x = g.input("x", {5, width});
        const Value y = linear(x, g.weight("w", {rows, width}));
        g.output("dx", gradients(y, {x}, g.input("dy", {5, rows})).front());
        Program program = small.compile(g, weights);
        CHECK(contains(program.explain(), "one of 2 parts of the sums"));
        upload(program, "x", random_tensor({5, width}, 3));
        upload(program, "dy", dy);
        program.run();
        const Tensor kept = type == WeightType::f32 ? w : reference::packed(w, type);
        CHECK(difference(download(program, "dx"), reference::matmul(dy, kept),
                         {.rounding = reference::matmul_rounding(dy, kept)}) == "");
    }
    CHECK(last_words(std::move(small)) == "");
}

TEST_CASE("matmul backward: long sums down rows a page apart are taken in parts, as many as a run has") {
    const bool cpu = device().capabilities().cpu();
    const std::int64_t out = 1024, in = 8, most = 1100;
    for (const std::int64_t tokens : {0, 1, 256, 257, 600, 1100}) {
        CAPTURE(tokens);
        const Tensor dy = random_tensor({tokens, out}, 1), x = random_tensor({tokens, in}, 2);
        const Tensor r = random_tensor({out, in}, 3);
        ProductCheck check;
        const Dim count = check.graph.symbol("tokens", most);
        check.set("tokens", tokens);
        const Value a = transpose(check.input("dy", dy, {count, out}), 0, 1), b = check.input("x", x, {count, in});
        Tensor turned({out, tokens});
        for (std::int64_t i = 0; i < out; ++i) {
            for (std::int64_t t = 0; t < tokens; ++t) {
                turned.at({i, t}) = dy.at({t, i});
            }
        }
        const Tensor want = twin(turned, x);
        const auto near = [&](Value y, const Tensor& expected) {
            CHECK(check.difference(y, expected, tolerance(taken(turned), taken(x), {})) == "");
        };
        near(matmul(a, b), want);
        near(matmul(a, b) + check.input("r", r), reference::add(want, r));
    }
    Graph g;
    const Dim count = g.symbol("tokens", most);
    g.output("dw", matmul(transpose(g.input("dy", {count, out}), 0, 1), g.input("x", {count, in})));
    const std::string said = device().compile(g).explain();
    const bool in_parts = contains(said, "the first of 5 parts of the sums") && contains(said, "part 5 of the sums");
    CHECK_MESSAGE(in_parts == cpu, said);
}

TEST_CASE("matmul backward: a parameter larger than a storage buffer is refused by name") {
    const Believed small([&](Capabilities& c) { c.storage_range = 16384; });
    Graph g;
    const Value logits = linear(g.input("x", {5, 64}), g.weight("table", {203, 64}));
    const Value loss = sum(logits * logits);
    const std::vector<Value> parameters = trainable(g);
    update(parameters, gradients(loss, parameters), Sgd{.learning_rate = 0.1});
    CompileOptions options;
    options.state = device().make_state({&g});
    const std::string said = error_of([&] { device().compile(g, Weights(), options); });
    CHECK(said ==
          "update: a tensor of 51968 bytes, table, is larger than the 16384 bytes one storage buffer may have on this "
          "device");
}

TEST_SUITE_END();
