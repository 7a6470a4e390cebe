// SPDX-License-Identifier: Apache-2.0
// Rows longer than the rounds that llvmpipe gives all loops of an invocation together (65,535):
// past them it ends loops in silence.
#include <doctest/doctest.h>

#include <limits>
#include <string>

#include "layers/sequences.h"
#include "tests/attention_check.h"
#include "tests/believed.h"
#include "tests/device.h"
#include "tests/fixtures.h"

using namespace vkf;
using namespace vkf::test;

namespace {

constexpr std::int64_t kLong = 100'003;   // not a multiple of four
constexpr std::int64_t kFours = 300'032;  // a multiple of four

/// (2, width), the largest element of each row near its end.
Tensor long_rows(std::int64_t width) {
    Tensor x = random_tensor({2, width}, 1);
    x.at({0, width - 3}) = 9;
    x.at({1, width - 1}) = 9;
    return x;
}

}  // namespace

TEST_SUITE_BEGIN("long_rows");

TEST_CASE("long rows: the largest element is found wherever it is") {
    const Tensor x = long_rows(kLong);
    OpCheck check;
    const Value in = check.input("x", x);
    CHECK(check.difference(argmax(in), reference::argmax(x), exactly()) == "");
    CHECK(check.difference(hard_max(in), reference::hard_max(x), exactly()) == "");
    const Tensor best = check.run(top_k(in, 1).values);
    CHECK(best.at({0, 0}) == 9);
    CHECK(best.at({1, 0}) == 9);
}

TEST_CASE("long rows: softmax and log-sum-exp") {
    for (const std::int64_t width : {kLong, kFours}) {
        CAPTURE(width);
        const Tensor x = long_rows(width);
        Tensor keep({2, width}, 1.0);
        for (std::int64_t i = 0; i < width; i += 3) {
            keep.at({1, i}) = 0;
        }
        OpCheck check;
        const Value in = check.input("x", x);
        const SoftmaxOptions masked{.mask = {.keys = check.indices("keep", keep)}};
        const Tolerance tolerance{1e-4, 1e-9, {}};
        CHECK(check.difference(softmax(in), reference::softmax(x), tolerance) == "");
        CHECK(check.difference(softmax(in, masked), reference::softmax(x, {.keys = keep}), tolerance) == "");
        CHECK(check.difference(log_sum_exp(in, masked), reference::log_sum_exp(x, {.keys = keep})) == "");
    }
}

TEST_CASE("long rows: a hard maximum among more scores than floats count is refused") {
    Graph g;
    g.output("y", hard_max(g.input("x", {1, (1 << 24) + 1})));
    CHECK(contains(error_of([&] { device().compile(g); }), "hard_max: rows of 16777217 scores; 16777216 are possible"));
}

TEST_CASE("long rows: many small numbers beside a large one add up") {
    // as long as the rows that an invocation of a processor takes alone, where sums drift most:
    // with these logits out of the contract, if numbers are added one by one
    for (const auto& [width, logit] :
         {std::pair<std::int64_t, double>{4096, -10.0945}, {15999, -10.0945}, {15996, -11.0043}}) {
        const std::int64_t keys = width;
        CAPTURE(keys);
        Tensor x({1, keys}, static_cast<double>(static_cast<float>(logit)));
        x.at({0, 0}) = 0;
        const Tensor label({1}, 0.0);
        OpCheck check;
        const Value in = check.input("x", x), classes = check.indices("label", label);
        CHECK(check.difference(softmax(in), reference::softmax(x)) == "");
        CHECK(check.difference(log_sum_exp(in), reference::log_sum_exp(x)) == "");
        CHECK(check.difference(cross_entropy(in, classes), reference::cross_entropy(x, label)) == "");
        const CrossEntropyOptions smoothed{.label_smoothing = 0.1f};
        CHECK(check.difference(cross_entropy(in, classes, smoothed), reference::cross_entropy(x, label, smoothed)) ==
              "");
    }
}

TEST_CASE("long rows: norms") {
    for (const std::int64_t width : {kLong, kFours}) {
        CAPTURE(width);
        const Tensor x = long_rows(width);
        OpCheck check;
        const Value in = check.input("x", x);
        CHECK(check.difference(layer_norm(in, {}, {}), reference::layer_norm(x, {}, {}, 1e-5)) == "");
        CHECK(check.difference(rms_norm(in, {}, 1e-5f), reference::rms_norm(x, {}, 1e-5)) == "");
    }
}

TEST_CASE("long rows: cross-entropy of many classes and of many rows") {
    for (const Sizes& shape : {Sizes{3, kLong}, Sizes{2048, 300}, Sizes{9000, 3}}) {
        CAPTURE(shape[0]);
        const Tensor logits = random_tensor(shape, 1, 4);
        const Tensor labels = random_integers({shape[0]}, shape[1]);
        OpCheck check;
        const Value in = check.input("logits", logits);
        const Value classes = check.indices("labels", labels);
        CHECK(check.difference(cross_entropy(in, classes), reference::cross_entropy(logits, labels)) == "");
        const CrossEntropyOptions smoothed{.label_smoothing = 0.1f};
        CHECK(check.difference(cross_entropy(in, classes, smoothed),
                               reference::cross_entropy(logits, labels, smoothed)) == "");
    }
}

TEST_CASE("long rows: the losses of many like rows add up") {
    // as at the beginning of training; one after the other, they are out of the contract
    Tensor logits({1 << 20, 2}, 0.0);
    for (std::size_t i = 0; i < logits.data.size(); i += 2) {
        logits.data[i] = static_cast<double>(-10.1132f);
    }
    const Tensor labels({1 << 20}, 0.0);
    OpCheck check;
    const Value loss = cross_entropy(check.input("logits", logits), check.indices("labels", labels));
    CHECK(check.difference(loss, reference::cross_entropy(logits, labels)) == "");
}

TEST_CASE("long rows: products of long sums, and longer ones refused where they would be cut") {
    const Tensor a = random_tensor({8, 200'000}, 1);
    const Tensor b = random_tensor({3, 200'000}, 2);
    OpCheck check;
    const Value y = linear(check.input("a", a), check.input("b", b));
    // The check does not run as a small GPU, whose kernels no processor is meant to run.
    CHECK(difference(check.run(y), reference::matmul(a, b, {.transpose_b = true}), {1e-3, 1e-2, {}}) == "");
    if (device().capabilities().cpu()) {
        Graph g;
        g.output("y", linear(g.input("a", {2, 300'000}), g.input("b", {3, 300'000})));
        CHECK(contains(error_of([&] { device().compile(g); }), "a sum of 300000 products would take"));
        // tiles in shared memory take a round for each product
        const Believed forced([](Capabilities& c) { c.variants = "matvec_columns"; });
        Graph tiled;
        tiled.output("y", linear(tiled.input("a", {20, 62'000}), tiled.input("b", {3, 62'000})));
        CHECK(contains(error_of([&] { device().compile(tiled); }), "a sum of 62000 products would take"));
    }
}

TEST_CASE("long rows: attention to more keys than a tile's loops may take") {
    for (const AttentionSizes& sizes :
         {AttentionSizes{1, 2, 1, 3, 90'000, 8, 8}, AttentionSizes{1, 1, 1, 20, 80'000, 64, 4},
          AttentionSizes{1, 1, 1, 20, 75'000, 64, 4}, AttentionSizes{1, 1, 1, 20, 120'000, 64, 4}}) {
        CAPTURE(sizes.keys);
        const Capabilities& caps = device().capabilities();
        const Qkv x = random_qkv(sizes);
        // With eight lanes, 75,000 are not too many.
        const bool too_many =
            sizes.keys > (caps.asks_for("attention_lanes") && caps.exact_subgroup_size == 8 ? 75'000 : 0);
        const bool split = sizes.queries <= 8;
        if (caps.cpu() && too_many && !split &&
            // which give way if they are not forced
            (caps.asks_for("attention_lanes") || caps.asks_for("attention_shared") ||
             caps.asks_for("attention_rows"))) {
            CHECK(contains(error_of([&] { attend(x); }), std::to_string(sizes.keys) + " keys would take"));
            continue;
        }
        CHECK(difference(attend(x).y, reference::attention(x.query, x.key, x.value).y) == "");
    }
}

TEST_CASE("long rows: with four lanes a softcap is a loop, whose rounds count") {
    const auto attention = [](float softcap, std::int64_t keys) {
        Graph g;
        g.output("y", scaled_dot_product_attention(g.input("q", {1, 1, 20, 8}), g.input("k", {1, 1, keys, 8}),
                                                   g.input("v", {1, 1, keys, 8}), {.softcap = softcap})
                          .y);
        return device().compile(g).explain();
    };
    const Capabilities& caps = device().capabilities();
    if (!caps.cpu() || caps.exact_subgroup_size != 4 || caps.storage_buffers < 12 || !caps.variants.empty()) {
        cannot_run("fused attention of four lanes");
        return;
    }
    const std::string gives_way = "so many keys would take more rounds";
    CHECK(contains(attention(5, 40'000), gives_way));
    CHECK(!contains(attention(5, 30'000), gives_way));
    CHECK(!contains(attention(0, 40'000), gives_way));
}

TEST_CASE("long rows: sequences give way like other attention, and too many of them are an error") {
    const Capabilities& caps = device().capabilities();
    if (!caps.cpu() || caps.storage_buffers < 12 || !caps.variants.empty()) {
        cannot_run("fused attention of sequences on a processor");
        return;
    }
    Graph g;
    const PagedKvCache cache{g.input("k", {256, 256, 1, 128}), g.input("v", {256, 256, 1, 128}),
                             g.input("table", {1, 256}, DType::i32), g.input("lengths", {1}, DType::i32)};
    g.output("y", paged_attention(g.input("q", {1, 1, 256, 128}), cache).y);
    CHECK(contains(device().compile(g).explain(), "so many keys would take more rounds"));

    Graph many;
    const Value ends = many.input("ends", {70'001}, DType::i32);
    const Value x = many.input("x", {70'000, 1, 8});
    many.output("y", packed_attention(x, x, x, ends, ends).y);
    CHECK(contains(error_of([&] { device().compile(many); }), "70001 sequences would take"));
}

TEST_CASE("long rows: what is not finite at masked keys leaves no trace among many") {
    Qkv x = random_qkv({1, 1, 1, 30, 2000, 8, 8});
    Tensor keep({1, 1, 1, 2000}, 1.0);
    const Qkv clean = x;
    for (std::int64_t key = 0; key < 2000; key += 7) {
        keep.at({0, 0, 0, key}) = 0;
        for (std::int64_t i = 0; i < 8; ++i) {
            x.value.at({0, 0, key, i}) = std::numeric_limits<double>::quiet_NaN();
        }
    }
    for (const Ask ask : {Ask::y, Ask::everything}) {
        reference::AttentionOptions options;
        options.scores.keys = keep;
        CHECK(same_bits(attend(x, options, ask).y, attend(clean, options, ask).y));
    }
}

TEST_SUITE_END();
