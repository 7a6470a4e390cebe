// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "tests/op_check.h"
#include "tests/reference.h"

using namespace vkf;
using namespace vkf::test;

namespace {

std::string cross_entropy_mismatch(const Tensor& logits, const Tensor& labels,
                                   const CrossEntropyOptions& options = {}) {
    OpCheck check;
    const Value y = cross_entropy(check.input("logits", logits), check.indices("labels", labels), options);
    return check.difference(y, reference::cross_entropy(logits, labels, options));
}

}  // namespace

TEST_SUITE_BEGIN("cross_entropy");

TEST_CASE("cross_entropy: sizes from 1, every rank, with and without smoothing") {
    for (const Sizes& shape :
         {Sizes{1, 1}, Sizes{1, 5}, Sizes{7, 3}, Sizes{2, 5, 11}, Sizes{200, 33}, Sizes{3, 70, 2}, Sizes{9, 1000}}) {
        CAPTURE(shape.back());
        const Tensor logits = random_tensor(shape, 1, 4);
        const Tensor labels = random_integers(Sizes(shape.begin(), shape.end() - 1), shape.back());
        CHECK(cross_entropy_mismatch(logits, labels) == "");
        CHECK(cross_entropy_mismatch(logits, labels, {.label_smoothing = 0.1f}) == "");
        CHECK(cross_entropy_mismatch(logits, labels, {.label_smoothing = 1}) == "");
        CHECK(cross_entropy_mismatch(logits, labels, {.ignore_index = 0}) == "");
    }
}

TEST_CASE("cross_entropy: labels to ignore, labels that are none, rows that are not finite") {
    Tensor logits = random_tensor({4, 5}, 2, 1e5);
    CHECK(cross_entropy_mismatch(logits, Tensor({4}, {0, -100, 4, -100})) == "");
    CHECK(cross_entropy_mismatch(logits, Tensor({4}, -100.0)) == "");  // nothing counts: NaN
    CHECK(cross_entropy_mismatch(logits, Tensor({4}, {0, 5, 1, 1})) == "");
    CHECK(cross_entropy_mismatch(logits, Tensor({4}, {0, -1, 1, 1})) == "");
    CHECK(cross_entropy_mismatch(logits, Tensor({4}, {0, -1, 1, 1}), {.ignore_index = -1, .label_smoothing = 0.2f}) ==
          "");
    logits.at({1, 2}) = std::numeric_limits<double>::quiet_NaN();
    CHECK(cross_entropy_mismatch(logits, Tensor({4}, {0, 2, 1, 1})) == "");
    CHECK(cross_entropy_mismatch(logits, Tensor({4}, {0, -100, 1, 1})) == "");
    logits.at({1, 2}) = -std::numeric_limits<double>::infinity();
    CHECK(cross_entropy_mismatch(logits, Tensor({4}, {0, 3, 1, 1})) == "");
    CHECK(cross_entropy_mismatch(logits, Tensor({4}, {0, 2, 1, 1})) == "");
}

TEST_CASE("cross_entropy: logits far from 0 lose nothing") {
    const Tensor labels = random_integers({6}, 9);
    for (const double offset : {1e4, -65536.0}) {
        CAPTURE(offset);
        Tensor logits = random_integers({6, 9}, 64);
        for (double& v : logits.data) {
            v = offset + v / 16;
        }
        for (const float smoothing : {0.0f, 0.1f, 1.0f}) {
            CAPTURE(smoothing);
            CHECK(cross_entropy_mismatch(logits, labels, {.label_smoothing = smoothing}) == "");
        }
    }
}

TEST_CASE("cross_entropy: operands that are views, and no rows") {
    const Tensor logits = random_tensor({5, 6}, 1);
    const Tensor labels = random_integers({2, 6}, 5);
    OpCheck check;
    const Value y = cross_entropy(transpose(check.input("logits", logits), 0, 1),
                                  reshape(slice(check.indices("labels", labels), 0, 1, 1), {6}));
    CHECK(check.difference(
              y, reference::cross_entropy(transpose(logits, 0, 1), reshape(slice(labels, 0, 1, 1), {6}))) == "");
    OpCheck empty;
    const Dim rows = empty.graph.symbol("rows", 4);
    empty.set("rows", 0);
    const Value loss = cross_entropy(empty.input("logits", Tensor({0, 3}), {rows, 3}),
                                     empty.input("labels", Tensor(Sizes{0}), {rows}, DType::i32));
    CHECK(empty.difference(loss, Tensor({1}, std::numeric_limits<double>::quiet_NaN())) == "");
}

TEST_CASE("cross_entropy: bad arguments are refused by name") {
    Graph g;
    const Value logits = g.input("logits", {4, 5});
    const Value labels = g.input("labels", {4}, DType::i32);
    CHECK(
        contains(error_of([&] { cross_entropy(logits, g.input("few", {3}, DType::i32)); }), "cross_entropy: few (3)"));
    CHECK(contains(error_of([&] { cross_entropy(logits, g.input("floats", {4})); }), "floats (4) F32 must be I32"));
    CHECK(contains(error_of([&] { cross_entropy(labels, labels); }), "labels (4) I32 must be F32"));
    CHECK(contains(error_of([&] { cross_entropy(logits, labels, {.label_smoothing = NAN}); }), "label_smoothing"));
    CHECK(contains(error_of([&] { cross_entropy(logits, labels, {.label_smoothing = 1.5f}); }), "label_smoothing"));
    CHECK(contains(error_of([&] { cross_entropy(logits, labels, {.ignore_index = std::int64_t{1} << 40}); }),
                   "ignore_index"));
}

TEST_SUITE_END();
