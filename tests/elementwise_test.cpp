// SPDX-License-Identifier: Apache-2.0
// add, mul, scale, activate, gated, dropout, combine_masks, contiguous, concat, copy_into,
// repeat_kv: one kernel.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "tests/device.h"
#include "tests/op_check.h"
#include "tests/reference.h"

using namespace vkf;
using namespace vkf::test;

namespace {

constexpr Activation kActivations[] = {Activation::none, Activation::relu, Activation::gelu,    Activation::gelu_tanh,
                                       Activation::silu, Activation::tanh, Activation::sigmoid, Activation::rsqrt};

Tensor special_values() {
    Tensor x({1, 40});
    const double values[] = {0.0,    -0.0, kInf,  -kInf, kNan, 1e5,  -1e5, 88.5, -88.5, 89,    -89, 104, -104, 1e-20,
                             -1e-20, 3e38, -3e38, 0.625, 4,    -4,   5.5,  -5.5, 0.93,  -0.93, 9,   -9,  17.5, -17.5,
                             20,     -20,  1,     -1,    0.1,  -0.1, 2.5,  -2.5, 6,     -6,    12,  -12};
    std::copy(std::begin(values), std::end(values), x.data.begin());
    return x;
}

}  // namespace

TEST_SUITE_BEGIN("elementwise");

TEST_CASE("elementwise: sizes from 1 on, every rank") {
    for (const Sizes& shape : {Sizes{}, Sizes{1}, Sizes{3}, Sizes{257}, Sizes{5, 7}, Sizes{2, 3, 4}, Sizes{2, 1, 3, 85},
                               Sizes{4}, Sizes{3, 8}, Sizes{2, 5, 64}, Sizes{1028}, Sizes{2, 3, 1, 5, 7}}) {
        CAPTURE(shape.size());
        const Tensor a = random_tensor(shape, 1);
        const Tensor b = random_tensor(shape, 2);
        OpCheck check;
        const Value x = check.input("a", a);
        const Value y = check.input("b", b);
        CHECK(check.difference(x + y, reference::add(a, b)) == "");
        CHECK(check.difference(x * y, reference::mul(a, b)) == "");
        CHECK(check.difference(scale(x, -2.5f), reference::scale(a, -2.5)) == "");
        CHECK(check.difference(gated(x, y, Activation::silu), reference::gated(a, b, Activation::silu)) == "");
        CHECK(check.difference(contiguous(x), a, exactly()) == "");
    }
}

TEST_CASE("elementwise: operands broadcast") {
    const std::pair<Sizes, Sizes> shapes[] = {{{4, 5}, {5}},
                                              {{5}, {4, 5}},
                                              {{4, 1}, {1, 5}},
                                              {{2, 3, 4}, {3, 1}},
                                              {{1}, {2, 3}},
                                              {{}, {3, 2}},
                                              {{2, 1, 3, 1, 5}, {4, 3, 6, 1}},
                                              {{1, 2, 1, 2}, {2, 1}},
                                              {{3, 8}, {8}},
                                              {{2, 3, 8}, {2, 1, 8}},
                                              {{3, 1}, {3, 8}},
                                              {{1, 1, 1}, {7}}};
    for (const auto& pair : shapes) {
        const Sizes &left = pair.first, &right = pair.second;
        CAPTURE(left.size());
        CAPTURE(right.size());
        const Tensor a = random_tensor(left, 1);
        const Tensor b = random_tensor(right, 2);
        OpCheck check;
        const Value x = check.input("a", a);
        const Value y = check.input("b", b);
        CHECK(check.difference(x + y, reference::add(a, b)) == "");
        CHECK(check.difference(y * x, reference::mul(b, a)) == "");
    }
}

TEST_CASE("elementwise: operands that are views") {
    const Tensor a = random_tensor({4, 6, 5}, 1);
    const Tensor b = random_tensor({5, 6}, 2);
    OpCheck check;
    const Value x = check.input("a", a);
    const Value y = check.input("b", b);
    const Tensor at = transpose(a, 0, 2);
    CHECK(check.difference(contiguous(transpose(x, 0, 2)), at, exactly()) == "");
    CHECK(check.difference(slice(x, 1, 1, 3) + transpose(slice(y, 1, 2, 3), 0, 1),
                           reference::add(slice(a, 1, 1, 3), transpose(slice(b, 1, 2, 3), 0, 1))) == "");
    CHECK(check.difference(relu(slice(x, 2, 4, 1)), reference::activate(slice(a, 2, 4, 1), Activation::relu)) == "");
    CHECK(check.difference(scale(broadcast_to(slice(y, 0, 1, 1), {3, 6}), 2),
                           reference::scale(broadcast_to(slice(b, 0, 1, 1), {3, 6}), 2)) == "");
    CHECK(check.difference(permute(x, {1, 2, 0}) * permute(x, {1, 2, 0}),
                           reference::mul(permute(a, {1, 2, 0}), permute(a, {1, 2, 0}))) == "");
    CHECK(check.difference(x + x, reference::scale(a, 2)) == "");
}

TEST_CASE("elementwise: every activation where it is steep, flat, huge and undefined") {
    Tensor x = random_tensor({60, 40}, 3, 6);
    const Tensor special = special_values();
    std::copy(special.data.begin(), special.data.end(), x.data.begin());
    for (const Activation act : kActivations) {
        CAPTURE(static_cast<int>(act));
        OpCheck check;
        CHECK(check.difference(activate(check.input("x", x), act), reference::activate(x, act)) == "");
    }
}

TEST_CASE("elementwise: gated products with every activation, NaN and infinities in either operand") {
    const Tensor up = random_tensor({40, 40}, 8, 100);
    const Tensor gate = special_values();
    for (const Activation act : kActivations) {
        CAPTURE(static_cast<int>(act));
        OpCheck check;
        const Value a = check.input("gate", broadcast_to(gate, {40, 40}));
        const Value b = check.input("up", up);
        CHECK(check.difference(gated(a, b, act), reference::gated(broadcast_to(gate, {40, 40}), up, act)) == "");
    }
    const Tensor a = broadcast_to(gate, {40, 40});
    const Tensor b = transpose(a, 0, 1);
    OpCheck check;
    const Value x = check.input("a", a);
    const Value y = check.input("b", b);
    CHECK(check.difference(x * y, reference::mul(a, b)) == "");
}

TEST_CASE("elementwise: masks combine in every polarity") {
    const Tensor a = random_integers({2, 1, 5}, 2, 1);
    const Tensor b = random_integers({4, 5}, 2, 2);
    for (const Polarity p : {Polarity::attend, Polarity::ignore}) {
        for (const Polarity q : {Polarity::attend, Polarity::ignore}) {
            OpCheck check;
            const Value y = combine_masks(check.indices("a", a), p, check.indices("b", b), q);
            CHECK(y.dtype() == DType::i32);
            CHECK(check.difference(y, reference::combine_masks(a, p, b, q), exactly()) == "");
        }
    }
}

TEST_CASE("elementwise: copies keep bits") {
    const Tensor x = special_values();
    const Tensor ids = random_integers({3, 7}, 1 << 30);
    OpCheck check;
    CHECK(same_bits(check.run(contiguous(check.input("x", x))), x));
    CHECK(check.difference(contiguous(transpose(check.indices("ids", ids), 0, 1)), transpose(ids, 0, 1), exactly()) ==
          "");
}

TEST_CASE("elementwise: copy_into writes a window of a state and leaves the rest") {
    Graph g;
    const Dim start = g.symbol("start", 8);
    const Dim tokens = g.symbol("tokens", 8);
    const Value cache = g.state("cache", {2, 8, 3});
    const Value written = copy_into(slice(cache, 1, start, tokens), transpose(g.input("x", {tokens, 2, 3}), 0, 1));
    g.output("window", contiguous(written));
    g.output("cache copy", contiguous(cache));
    Program program = device().compile(g);
    Tensor want({2, 8, 3}, 0.0);
    const std::size_t pipelines = pipelines_of(device());
    std::uint32_t seed = 0;
    for (const auto& window : {std::pair{0, 3}, {3, 1}, {4, 4}, {2, 0}, {1, 2}, {0, 8}, {7, 1}}) {
        const int at = window.first, count = window.second;
        CAPTURE(at);
        const Tensor x = random_tensor({count, 2, 3}, ++seed);
        for_each_index({2, count, 3}, [&, first = at](const Sizes& i) {
            want.at({i[0], first + i[1], i[2]}) = x.at({i[1], i[0], i[2]});
        });
        program.set("start", at);
        program.set("tokens", count);
        upload(program, "x", x);
        program.run();
        CHECK(difference(download(program, "window"), transpose(x, 0, 1), exactly()) == "");
        CHECK(difference(download(program, "cache copy"), want, exactly()) == "");
    }
    CHECK(pipelines_of(device()) == pipelines);
    program.set("start", 6);
    program.set("tokens", 3);
    upload(program, "x", Tensor({3, 2, 3}));
    const std::string beyond = error_of([&] { program.run(); });
    CHECK(contains(beyond, "slice"));
    CHECK(contains(beyond, "9 is more than 8"));
    program.set("start", 0);
    program.set("tokens", 1);
    upload(program, "x", Tensor({1, 2, 3}, 4.0));
    program.run();  // goes on working
    CHECK(difference(download(program, "window"), Tensor({2, 1, 3}, 4.0), exactly()) == "");
}

TEST_CASE("elementwise: repeat_kv repeats each head in a row") {
    const Tensor x = random_tensor({2, 3, 2, 4});
    for (const std::int64_t n : {1, 2, 5}) {
        CAPTURE(n);
        OpCheck check;
        CHECK(check.difference(repeat_kv(check.input("x", x), n), reference::repeat_kv(x, n), exactly()) == "");
    }
    const Tensor stored = random_tensor({2, 2, 3, 4});
    OpCheck check;
    CHECK(check.difference(repeat_kv(transpose(check.input("x", stored), 1, 2), 3),
                           reference::repeat_kv(transpose(stored, 1, 2), 3), exactly()) == "");
}

TEST_CASE("elementwise: dropout keeps what its generator says, by place and seed alone") {
    const Tensor x = random_tensor({50, 41}, 2, 3);
    for (const float p : {0.1f, 0.5f, 0.999f, 1.0f}) {
        CAPTURE(p);
        OpCheck check;
        CHECK(check.difference(dropout(check.input("x", x), p, 7), reference::dropout(x, static_cast<double>(p), 7)) ==
              "");
    }
    OpCheck check;
    const Value v = check.input("x", x);
    CHECK(dropout(v, 0, 7).id() == v.id());
    CHECK(check.difference(dropout(transpose(v, 0, 1), 0.5f, 7), reference::dropout(transpose(x, 0, 1), 0.5, 7)) == "");
    const Tensor ones({300, 300}, 1.0);
    OpCheck counted;
    const Value y = counted.input("x", ones);
    const Tensor first = counted.run(dropout(y, 0.25f, 1));
    const Tensor second = counted.run(dropout(y, 0.25f, 2));
    const auto kept = [](const Tensor& t) {
        return static_cast<double>(std::count_if(t.data.begin(), t.data.end(), [](double e) { return e != 0; }));
    };
    CHECK(std::abs(kept(first) / 90000 - 0.75) < 0.01);
    CHECK(std::abs(kept(second) / 90000 - 0.75) < 0.01);
    CHECK_FALSE(same_bits(first, second));
    Tensor both = reference::mul(first, second);
    CHECK(std::abs(kept(both) / 90000 - 0.5625) < 0.01);  // seeds do not repeat each other
    const Tensor masked({1, 6}, -0.0);
    OpCheck weights;
    CHECK(same_bits(weights.run(dropout(weights.input("x", masked), 0.5f, 3)), masked));
    Tensor odd({1, 64}, kNan);
    OpCheck none;
    CHECK(none.difference(dropout(none.input("x", odd), 1, 3), Tensor({1, 64}, 0.0), exactly()) == "");
}

TEST_CASE("elementwise: parts one behind the other along every dimension") {
    const Tensor a = random_tensor({2, 3, 4}, 1);
    const Tensor b = random_tensor({2, 3, 4}, 2);
    for (const std::size_t dim : {0, 1, 2}) {
        CAPTURE(dim);
        const auto d = static_cast<int>(dim);
        OpCheck check;
        const Value x = check.input("a", a);
        const Value y = check.input("b", b);
        CHECK(check.difference(concat({x, y, slice(x, d, 1, 1)}, d), reference::concat({a, b, slice(a, d, 1, 1)}, dim),
                               exactly()) == "");
        CHECK(check.difference(concat({x}, d - 3), a, exactly()) == "");
        CHECK(check.difference(concat({transpose(x, 1, 2), transpose(y, 1, 2)}, d),
                               reference::concat({transpose(a, 1, 2), transpose(b, 1, 2)}, dim), exactly()) == "");
    }
    OpCheck check;
    const Dim n = check.graph.symbol("n", 6);
    const Tensor ids = random_integers({4, 2}, 100);
    check.set("n", 4);
    const Value i = check.input("ids", ids, {n, 2}, DType::i32);
    CHECK(check.difference(concat({i, i}, 0), reference::concat({ids, ids}, 0), exactly()) == "");
    CHECK(check.difference(concat({i, slice(i, 0, 0, 1)}, 0), reference::concat({ids, slice(ids, 0, 0, 1)}, 0),
                           exactly()) == "");
    Graph g;
    const Value x = g.input("x", {2, 3});
    CHECK(contains(error_of([&] { concat({}, 0); }), "concat: there are no parts"));
    CHECK(contains(error_of([&] { concat({x}, 2); }), "dimension 2 of x (2, 3)"));
    CHECK(contains(error_of([&] { concat({x, g.input("y", {3, 3})}, 1); }), "y (3, 3)"));
    CHECK(contains(error_of([&] { concat({x, g.input("z", {2, 3, 1})}, 0); }), "z (2, 3, 1)"));
    CHECK(contains(error_of([&] { concat({x, g.input("i", {2, 3}, DType::i32)}, 0); }), "i (2, 3) I32"));
    CHECK(contains(error_of([&] { dropout(x, -0.1f, 1); }), "dropout: p"));
    CHECK(contains(error_of([&] { dropout(x, 1.1f, 1); }), "dropout: p"));
    CHECK(contains(error_of([&] { dropout(x, NAN, 1); }), "dropout: p"));
}

TEST_CASE("elementwise: a tensor that is read in two orders is not overwritten in place") {
    const Tensor x = random_tensor({97, 97}, 1);
    OpCheck check;
    const Value y = scale(check.input("x", x), 2);
    const Value z = scale(check.input("z", x), 2);
    const Value sum = y + transpose(y, 0, 1);
    const Value product = transpose(z, 0, 1) * z;
    CHECK(check.difference(scale(sum, 3), reference::scale(reference::add(x, transpose(x, 0, 1)), 6)) == "");
    CHECK(check.difference(scale(product, 3), reference::scale(reference::mul(x, transpose(x, 0, 1)), 12)) == "");
}

TEST_CASE("elementwise: empty tensors") {
    OpCheck check;
    const Dim n = check.graph.symbol("n", 4);
    check.set("n", 0);
    const Value x = check.input("x", Tensor({0, 3}), {n, 3});
    CHECK(check.difference(x + check.input("row", Tensor({3}, 1.0)), Tensor({0, 3})) == "");
    CHECK(check.difference(gelu(x), Tensor({0, 3})) == "");
    CHECK(check.difference(contiguous(transpose(x, 0, 1)), Tensor({3, 0})) == "");
    CHECK(check.difference(repeat_kv(reshape(x, {1, n, 1, 3}), 2), Tensor({1, 0, 2, 3})) == "");
}

TEST_CASE("elementwise: more than 65,535 groups") {
    // a group takes 256 elements
    OpCheck check;
    const Tensor column = random_integers({4099, 1}, 1000, 1);
    const Tensor row = random_integers({1, 4099}, 1000, 2);
    check.graph.output("sum", check.graph.input("column", {4099, 1}) + check.graph.input("row", {1, 4099}));
    Program program = device().compile(check.graph);
    upload(program, "column", column);
    upload(program, "row", row);
    program.run();
    const std::vector<float> got = program.download("sum");
    REQUIRE(got.size() == 4099 * 4099);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
        wrong += static_cast<double>(got[i]) == column.data[i / 4099] + row.data[i % 4099] ? 0 : 1;
    }
    CHECK(wrong == 0);
}

TEST_CASE("elementwise: chains reuse memory, and the same bits come every time") {
    Graph g;
    const Dim n = g.symbol("n", 50);
    const Value x = g.input("x", {n, 9});
    Value y = x;
    for (int i = 0; i < 6; ++i) {
        y = gelu(y + x) * scale(y, 0.5f);
    }
    g.output("y", y);
    Program program = device().compile(g);
    CHECK(program.memory().scratch < 6u * 2 * 50 * 9 * 4);
    for (const std::int64_t length : {50, 3, 0, 21}) {
        const Tensor data = random_tensor({length, 9}, 7);
        Tensor want = data;
        for (int i = 0; i < 6; ++i) {
            want = reference::mul(reference::activate(reference::add(want, data), Activation::gelu),
                                  reference::scale(want, 0.5));
        }
        program.set("n", length);
        upload(program, "x", data);
        program.run();
        const Tensor first = download(program, "y");
        CHECK(difference(first, want) == "");
        for (int repeat = 0; repeat < 20; ++repeat) {
            program.run();
            CHECK(same_bits(first, download(program, "y")));
        }
    }
}

TEST_CASE("elementwise: bad arguments are refused by name") {
    Graph g;
    const Value x = g.input("x", {2, 3});
    const Value ids = g.input("ids", {2, 3}, DType::i32);
    const std::string mismatch = error_of([&] { add(x, g.input("wide", {2, 4})); });
    CHECK(contains(mismatch, "add: "));
    CHECK(contains(mismatch, "x (2, 3)"));
    CHECK(contains(mismatch, "wide (2, 4)"));
    CHECK(contains(mismatch, "3 against 4"));
    CHECK(contains(error_of([&] { mul(x, ids); }), "mul: ids (2, 3) I32 must be F32"));
    CHECK(contains(error_of([&] { scale(x, NAN); }), "scale: factor"));
    CHECK(contains(error_of([&] { scale(x, -INFINITY); }), "scale: factor"));
    CHECK(contains(error_of([&] { gelu(ids); }), "activate: ids (2, 3) I32 must be F32"));
    CHECK(contains(error_of([&] { gated(x, g.input("up", {3}), Activation::silu); }), "up (3)"));
    CHECK(contains(error_of([&] { combine_masks(ids, Polarity::attend, x, Polarity::attend); }),
                   "x (2, 3) F32 must be I32"));
    CHECK(contains(
        error_of([&] { combine_masks(ids, Polarity::attend, g.input("m", {4}, DType::i32), Polarity::attend); }),
        "m (4)"));
    CHECK(contains(error_of([&] { g.input("bytes", {2, 3}, DType::u8); }), "input bytes cannot be U8: F32, F16"));
    const Value cache = g.state("cache", {4, 3});
    CHECK(contains(error_of([&] { copy_into(cache, x); }), "cache (4, 3)"));
    CHECK(contains(error_of([&] { copy_into(slice(cache, 0, 0, 2), ids); }), "types differ"));
    CHECK(contains(error_of([&] { copy_into(g.input("not a state", {2, 3}), x); }), "not a state"));
    CHECK(contains(error_of([&] { repeat_kv(x, 2); }), "repeat_kv: x (2, 3)"));
    CHECK(contains(error_of([&] { repeat_kv(g.input("kv", {1, 2, 3, 4}), 0); }), "n = 0"));
}

TEST_SUITE_END();
