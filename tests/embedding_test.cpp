// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>
#include <span>

#include "ops/gradients.h"
#include "tests/device.h"
#include "tests/op_check.h"
#include "tests/reference.h"

using namespace vkf;
using namespace vkf::test;

namespace {

std::string embedding_mismatch(const Tensor& ids, const Tensor& table, float scale = 1) {
    OpCheck check;
    const Value y = embedding(check.indices("ids", ids), check.input("table", table), scale);
    return check.difference(y, reference::embedding(ids, table, static_cast<double>(scale)));
}

}  // namespace

TEST_SUITE_BEGIN("embedding");

TEST_CASE("embedding: every rank of ids, sizes from 1, scaled") {
    for (const Sizes& shape : {Sizes{}, Sizes{1}, Sizes{7}, Sizes{2, 5}, Sizes{2, 1, 3}, Sizes{2, 3, 2, 2}}) {
        CAPTURE(shape.size());
        CHECK(embedding_mismatch(random_integers(shape, 11), random_tensor({11, 5})) == "");
    }
    CHECK(embedding_mismatch(random_integers({9}, 1), random_tensor({1, 1})) == "");
    CHECK(embedding_mismatch(random_integers({9}, 30), random_tensor({30, 64}), 8) == "");
    CHECK(embedding_mismatch(random_integers({9}, 30), random_tensor({30, 129}, 2, 1e5), -0.5f) == "");
}

TEST_CASE("embedding: an id outside the table gives a row of NaN") {
    const Tensor ids({7}, {0, 11, -1, 10, 2147483647.0, -2147483648.0, 5});
    CHECK(embedding_mismatch(ids, random_tensor({11, 6})) == "");
}

TEST_CASE("embedding: ids and table that are views") {
    const Tensor ids = random_integers({4, 6}, 5);
    const Tensor table = random_tensor({8, 9}, 2);
    OpCheck check;
    const Value t = check.input("table", table);
    const Value i = check.indices("ids", ids);
    CHECK(check.difference(embedding(transpose(slice(i, 1, 1, 4), 0, 1), transpose(slice(t, 1, 2, 5), 0, 1)),
                           reference::embedding(transpose(slice(ids, 1, 1, 4), 0, 1),
                                                transpose(slice(table, 1, 2, 5), 0, 1))) == "");
}

TEST_CASE("embedding: a row that is named very often gets the sum of its gradients") {
    const std::int64_t places = 60000;
    const double each = static_cast<double>(0.1f);
    OpCheck check;
    const Value table = check.input("table", random_tensor({2, 4}, 1));
    const Value ids = check.indices("ids", Tensor({places}, 1.0));
    const Value dy = check.input("dy", Tensor({places, 4}, each));
    Tensor want({2, 4}, 0.0);
    for (std::int64_t column = 0; column < 4; ++column) {
        want.at({1, column}) = each * static_cast<double>(places);
    }
    CHECK(check.difference(gradients(embedding(ids, table), {table}, dy).front(), want) == "");
}

TEST_CASE("embedding: no ids, and more than 65,535 groups") {
    OpCheck empty;
    const Dim tokens = empty.graph.symbol("tokens", 5);
    empty.set("tokens", 0);
    CHECK(empty.difference(embedding(empty.input("ids", Tensor({2, 0}), {2, tokens}, DType::i32),
                                     empty.input("table", random_tensor({4, 3}))),
                           Tensor({2, 0, 3})) == "");
    // a group takes 64 elements
    const Tensor ids = random_integers({65536}, 9, 4);
    const Tensor table = random_tensor({9, 65}, 5);
    OpCheck many;
    CHECK(difference(many.run(embedding(many.indices("ids", ids), many.input("table", table))),
                     reference::embedding(ids, table), exactly()) == "");
}

TEST_CASE("embedding: a table of 160 MiB, larger than some devices' storage range, looked up and multiplied with") {
    const std::int64_t rows = 160 * 1024;
    const std::int64_t width = 256;
    // every element tells its place, and small whole numbers keep the products exact
    const auto element = [](std::int64_t row, std::int64_t column) {
        return static_cast<float>((row * 7 + column * 3) % 61 - 30);
    };
    std::vector<float> data(static_cast<std::size_t>(rows * width));
    for (std::int64_t row = 0; row < rows; ++row) {
        for (std::int64_t column = 0; column < width; ++column) {
            data[static_cast<std::size_t>(row * width + column)] = element(row, column);
        }
    }
    const HostTensor tensor{"embedding.weight", DType::f32, {rows, width}, std::as_bytes(std::span(data))};
    const Weights weights = device().load({&tensor, 1});

    Graph g;
    const Value table = g.weight("embedding.weight", {rows, width});
    const std::int64_t tokens = 9;
    g.output("looked up", embedding(g.input("ids", {tokens}, DType::i32), table));
    g.output("logits", matmul(g.input("x", {1, width}), table, {.bias = g.input("bias", {rows}), .transpose_b = true}));
    Program program = device().compile(g, weights);

    const Tensor ids({tokens}, {0, 1, 131071, 131072, 131073, 163839, 163840, -1, 77777});
    const Tensor bias = random_integers({rows}, 5, 3);
    Tensor x({1, width}, 0.0);
    const std::int64_t columns[] = {0, 100, 255};
    for (const std::int64_t c : columns) {
        x.at({0, c}) = 1 + static_cast<double>(c % 3);
    }
    upload(program, "ids", ids, DType::i32);
    upload(program, "x", x);
    upload(program, "bias", bias);
    program.run();

    const Tensor rows_got = download(program, "looked up");
    for (std::int64_t t = 0; t < tokens; ++t) {
        CAPTURE(t);
        const double id = ids.data[static_cast<std::size_t>(t)];
        bool good = true;
        for (std::int64_t c = 0; c < width; ++c) {
            const double got = rows_got.at({t, c});
            good = good && (id < 0 || id >= static_cast<double>(rows)
                                ? std::isnan(got)
                                : got == static_cast<double>(element(static_cast<std::int64_t>(id), c)));
        }
        CHECK(good);
    }
    const Tensor logits = download(program, "logits");
    REQUIRE(logits.shape == Sizes{1, rows});
    std::int64_t wrong = 0;
    for (std::int64_t row = 0; row < rows; ++row) {
        double want = bias.data[static_cast<std::size_t>(row)];
        for (const std::int64_t c : columns) {
            want += x.at({0, c}) * static_cast<double>(element(row, c));
        }
        wrong += logits.at({0, row}) == want ? 0 : 1;
    }
    CHECK(wrong == 0);
}

TEST_CASE("embedding: bad arguments are refused by name") {
    Graph g;
    const Value ids = g.input("ids", {3}, DType::i32);
    const Value table = g.input("table", {5, 4});
    CHECK(
        contains(error_of([&] { embedding(g.input("floats", {3}), table); }), "embedding: floats (3) F32 must be I32"));
    CHECK(contains(error_of([&] { embedding(ids, g.input("cube", {2, 3, 4})); }), "cube (2, 3, 4)"));
    CHECK(contains(error_of([&] {
                       embedding(ids, g.input("codes", {5, 4}, DType::i32));
                   }),
                   "codes (5, 4) I32 must be F32"));
    CHECK(contains(error_of([&] { embedding(ids, table, NAN); }), "embedding: scale"));
    CHECK(contains(error_of([&] { embedding(g.input("deep", {1, 1, 1, 1, 1}, DType::i32), table); }), "deep"));
}

TEST_SUITE_END();
