// SPDX-License-Identifier: Apache-2.0
// What scaled_dot_product_attention() owes whichever kernels compute it: it is called as anyone
// calls it.
#include <doctest/doctest.h>

#include <algorithm>
#include <utility>

#include "tests/attention_check.h"
#include "tests/device.h"

using namespace vkf;
using namespace vkf::test;

namespace {

using Options = reference::AttentionOptions;

/// Everything at once, for heads (H) and queries by keys; `seed` chooses the numbers.
Options all_at_once(const AttentionSizes& s, std::uint32_t seed) {
    Options o;
    o.scores.keys = random_integers({s.batch, 1, s.queries, s.keys}, 4, seed);
    for (double& bit : o.scores.keys->data) {
        bit = bit != 0 ? 1 : 0;
    }
    o.scores.bias = random_tensor({s.heads, s.queries, s.keys}, seed + 1, 2);
    o.scores.alibi_slopes = random_tensor({s.heads}, seed + 2, 0.3);
    o.scores.sinks = random_tensor({s.heads}, seed + 3, 2);
    o.scores.causal = Causal::bottom_right;
    o.scores.window = std::max<std::int64_t>(s.keys / 2, 1);
    o.scores.softcap = 1.5;
    o.scores.scale = 0.9;
    return o;
}

Options causal(Causal alignment, std::int64_t window = 0) {
    Options o;
    o.scores.causal = alignment;
    o.scores.window = window;
    return o;
}

/// Heads in the order given.
Tensor heads_in_order(const Tensor& x, const std::vector<std::int64_t>& order) {
    Tensor out(x.shape);
    const std::size_t dim = x.rank() == 1 ? 0 : x.rank() == 3 ? 0 : 1;
    for_each_index(x.shape, [&](const Sizes& i) {
        Sizes from = i;
        from[dim] = order[static_cast<std::size_t>(i[dim])];
        out.at(i) = x.at(from);
    });
    return out;
}

Tensor repeat_heads(const Tensor& x, std::int64_t n) {
    Tensor out({x.shape[0], x.shape[1] * n, x.shape[2], x.shape[3]});
    for_each_index(out.shape, [&](const Sizes& i) { out.at(i) = x.at({i[0], i[1] / n, i[2], i[3]}); });
    return out;
}

}  // namespace

TEST_SUITE_BEGIN("attention");

TEST_CASE("attention: sizes from 1 to beyond a tile, odd ones, wide heads, values of another width") {
    for (const AttentionSizes& s : {AttentionSizes{1, 1, 1, 1, 1, 1, 1},
                                    {2, 3, 3, 5, 7, 7, 5},
                                    {1, 4, 2, 17, 33, 64, 64},
                                    {2, 2, 1, 9, 70, 80, 48},
                                    {1, 2, 2, 33, 65, 128, 128},
                                    {1, 2, 1, 3, 40, 576, 512},
                                    {1, 8, 2, 1, 129, 64, 64},
                                    {1, 3, 1, 70, 2, 8, 36}}) {
        CAPTURE(s.queries);
        CAPTURE(s.keys);
        CAPTURE(s.head_dim);
        const Qkv x = random_qkv(s, 7);
        CHECK(mismatch(x) == "");
        CHECK(mismatch(x, all_at_once(s, 40)) == "");
    }
}

TEST_CASE("attention: each option by itself, where queries and keys differ in number") {
    for (const AttentionSizes& s : {AttentionSizes{2, 4, 2, 6, 13, 16, 16}, {1, 2, 2, 19, 11, 24, 20}}) {
        CAPTURE(s.queries);
        const Qkv x = random_qkv(s, 3, 2);
        const Options all = all_at_once(s, 70);
        Options o;
        CHECK(mismatch(x, causal(Causal::top_left)) == "");
        CHECK(mismatch(x, causal(Causal::bottom_right)) == "");
        CHECK(mismatch(x, causal(Causal::top_left, 4)) == "");
        CHECK(mismatch(x, causal(Causal::bottom_right, 4)) == "");
        (o = {}).scores.softcap = 0.7;
        CHECK(mismatch(x, o) == "");
        (o = causal(Causal::bottom_right)).scores.alibi_slopes = all.scores.alibi_slopes;
        CHECK(mismatch(x, o) == "");
        (o = causal(Causal::top_left)).scores.sinks = all.scores.sinks;
        CHECK(mismatch(x, o) == "");
        (o = {}).scores.bias = all.scores.bias;
        CHECK(mismatch(x, o) == "");
        (o = {}).scores.keys = all.scores.keys;
        o.scores.polarity = Polarity::ignore;
        CHECK(mismatch(x, o) == "");
        (o = all).scores.fill = -1e20;
        CHECK(mismatch(x, o) == "");
        (o = all).dropout = 0.3;
        o.dropout_seed = 5;
        CHECK(mismatch(x, o) == "");
    }
}

TEST_CASE("attention: masks and biases broadcast from every dimension") {
    const AttentionSizes s{2, 4, 2, 5, 9, 16, 8};
    const Qkv x = random_qkv(s);
    for (const Sizes& shape : {Sizes{9}, Sizes{5, 1}, Sizes{4, 1, 9}, Sizes{2, 1, 1, 9}, Sizes{2, 4, 5, 9}, Sizes{1}}) {
        CAPTURE(shape.size());
        Options o;
        o.scores.keys = random_integers(shape, 2, 12);
        o.scores.bias = random_tensor(shape, 13, 2);
        CHECK(mismatch(x, o) == "");
    }
}

TEST_CASE("attention: a kv head shared by its group gives the bits of one repeated") {
    for (const AttentionSizes& s :
         {AttentionSizes{2, 6, 2, 9, 21, 16, 20}, {1, 8, 1, 1, 70, 64, 64}, {1, 4, 2, 35, 35, 7, 7}}) {
        CAPTURE(s.head_dim);
        const Qkv x = random_qkv(s);
        const std::int64_t group = s.heads / s.kv_heads;
        const Qkv repeated{x.query, repeat_heads(x.key, group), repeat_heads(x.value, group)};
        Options dropped = all_at_once(s, 8);
        dropped.dropout = 0.4;
        for (const Options& o : {Options{}, causal(Causal::bottom_right), all_at_once(s, 5), dropped}) {
            for (const Ask ask : asks()) {
                CAPTURE(static_cast<int>(ask));
                const Attended shared = attend(x, o, ask);
                const Attended by_copy = attend(x, o, ask, true);
                const Attended multi_head = attend(repeated, o, ask);
                // Composed attention multiplies the rows of a group together. GPUs have other
                // kernels for so many rows than for one.
                const bool same_kernels = ask != Ask::everything || device().capabilities().cpu();
                const auto same = [&](const Tensor& a, const Tensor& b) {
                    return same_kernels ? same_bits(a, b) : difference(a, b) == "";
                };
                CHECK(same(shared.y, by_copy.y));
                CHECK(same(shared.y, multi_head.y));
                if (ask != Ask::y) {
                    CHECK(same(shared.log_sum_exp, multi_head.log_sum_exp));
                }
            }
        }
    }
}

TEST_CASE("attention: permuting heads permutes outputs") {
    const AttentionSizes s{2, 4, 4, 11, 23, 16, 12};
    const Qkv x = random_qkv(s);
    const std::vector<std::int64_t> order{2, 0, 3, 1};
    Options o = all_at_once(s, 9);
    Options permuted = o;
    for (auto part : {&reference::SoftmaxOptions::bias, &reference::SoftmaxOptions::alibi_slopes,
                      &reference::SoftmaxOptions::sinks}) {
        permuted.scores.*part = heads_in_order(*(o.scores.*part), order);
    }
    const Attended straight = attend(x, o, Ask::y_and_lse);
    const Attended other =
        attend({heads_in_order(x.query, order), heads_in_order(x.key, order), heads_in_order(x.value, order)}, permuted,
               Ask::y_and_lse);
    CHECK(same_bits(heads_in_order(straight.y, order), other.y));
    CHECK(same_bits(transpose(heads_in_order(transpose(straight.log_sum_exp, 0, 1), order), 0, 1), other.log_sum_exp));
}

TEST_CASE("attention: a window as long as the keys, or longer, is causal") {
    for (const AttentionSizes& s :
         {AttentionSizes{1, 2, 1, 40, 40, 16, 16}, {1, 2, 2, 5, 37, 8, 8}, {1, 2, 2, 37, 5, 8, 8}}) {
        CAPTURE(s.queries);
        const Qkv x = random_qkv(s);
        for (const Causal alignment : {Causal::top_left, Causal::bottom_right}) {
            const Tensor whole = attend(x, causal(alignment)).y;
            for (const std::int64_t window : {std::max(s.keys, s.queries), s.keys + 100, std::int64_t{1} << 40}) {
                CHECK(same_bits(whole, attend(x, causal(alignment, window)).y));
            }
        }
    }
}

TEST_CASE("attention: a row with no key left gives 0 and -inf, or the mean under a finite fill") {
    const AttentionSizes s{1, 2, 1, 6, 9, 8, 5};
    const Qkv x = random_qkv(s);
    Options o;
    o.scores.keys = Tensor({6, 9}, 1.0);
    for (std::int64_t key = 0; key < 9; ++key) {
        o.scores.keys->at({2, key}) = 0;
    }
    for (const Ask ask : {Ask::y_and_lse, Ask::everything}) {
        const Attended a = attend(x, o, ask);
        for_each_index(a.y.shape, [&](const Sizes& i) { CHECK((a.y.at(i) == 0) == (i[2] == 2)); });
        for_each_index(a.log_sum_exp.shape,
                       [&](const Sizes& i) { CHECK((a.log_sum_exp.at(i) == -kInf) == (i[2] == 2)); });
    }
    CHECK(mismatch(x, o) == "");
    o.scores.fill = -1e20;
    CHECK(mismatch(x, o) == "");
    // bottom-right: the first five rows stand before the first key
    Qkv tall = random_qkv({1, 2, 2, 9, 4, 8, 8});
    const Attended a = attend(tall, causal(Causal::bottom_right), Ask::y_and_lse);
    for_each_index(a.log_sum_exp.shape, [&](const Sizes& i) { CHECK((a.log_sum_exp.at(i) == -kInf) == (i[2] < 5)); });
    CHECK(mismatch(tall, causal(Causal::bottom_right)) == "");
    Options sink = causal(Causal::bottom_right);
    sink.scores.sinks = Tensor({2}, {0.5, -kInf});
    CHECK(mismatch(tall, sink) == "");
}

TEST_CASE("attention: no keys and no queries") {
    Graph g;
    const Dim queries = g.symbol("queries", 5);
    const Dim keys = g.symbol("keys", 7);
    vkf::AttentionOptions o;
    o.log_sum_exp = true;
    const AttentionResult a = scaled_dot_product_attention(
        g.input("q", {2, 4, queries, 8}), g.input("k", {2, 2, keys, 8}), g.input("v", {2, 2, keys, 6}), o);
    g.output("y", contiguous(a.y));
    g.output("lse", contiguous(a.log_sum_exp));
    Program p = device().compile(g);
    for (const auto& size : {std::pair{3, 0}, {0, 7}, {0, 0}, {5, 7}, {1, 1}}) {
        const int rows = size.first, columns = size.second;
        CAPTURE(rows);
        CAPTURE(columns);
        const Qkv x = random_qkv({2, 4, 2, rows, columns, 8, 6});
        p.set("queries", rows);
        p.set("keys", columns);
        upload(p, "q", x.query);
        upload(p, "k", x.key);
        upload(p, "v", x.value);
        p.run();
        const reference::Attention want = reference::attention(x.query, x.key, x.value);
        CHECK(difference(download(p, "y"), want.y) == "");
        CHECK(difference(download(p, "lse"), want.log_sum_exp) == "");
    }
}

TEST_CASE("attention: logits of +-1e5 and of +-inf") {
    const auto of_logits = [](const std::vector<double>& logits, std::int64_t width) {
        const std::int64_t n = static_cast<std::int64_t>(logits.size());
        Qkv x{Tensor({1, 1, 2, width}), Tensor({1, 1, n, width}), random_tensor({1, 1, n, 5}, 4)};
        x.query.at({0, 0, 0, 0}) = 1;
        x.query.at({0, 0, 1, 0}) = 0.5;
        for (std::int64_t i = 0; i < n; ++i) {
            x.key.at({0, 0, i, 0}) = logits[static_cast<std::size_t>(i)];
        }
        return x;
    };
    Options o;
    o.scores.scale = 1;
    for (const std::int64_t width : {1, 4, 7}) {
        CAPTURE(width);
        CHECK(mismatch(of_logits({1e5, -1e5, 99998, 0}, width), o) == "");
        CHECK(mismatch(of_logits({-1e5, -1e5 + 2, -1e5}, width), o) == "");
        CHECK(mismatch(of_logits({-kInf, 0, 1, -1e5}, width), o) == "");
        CHECK(mismatch(of_logits({-kInf, -kInf}, width), o) == "");
        CHECK(mismatch(of_logits({kInf, 0, 1}, width), o) == "");
        CHECK(mismatch(of_logits({3e38, -3e38, 0}, width), o) == "");
    }
    std::vector<double> long_row(150);
    for (std::size_t i = 0; i < long_row.size();
         ++i) {  // the largest comes late, where a running maximum has to start over
        long_row[i] = i == 140 ? 1e5 : i % 7 == 0 ? -kInf : -1e5 + static_cast<double>(i);
    }
    CHECK(mismatch(of_logits(long_row, 4), o) == "");
    std::fill(long_row.begin(), long_row.begin() + 128, -kInf);
    CHECK(mismatch(of_logits(long_row, 4), o) == "");
    o.scores.bias = Tensor({150}, 0.0);
    std::fill(o.scores.bias->data.begin(), o.scores.bias->data.begin() + 149, -kInf);
    CHECK(mismatch(of_logits(std::vector<double>(150, 3.0), 4), o) == "");
    o.scores.bias->data.back() = -kInf;
    CHECK(mismatch(of_logits(std::vector<double>(150, 3.0), 4), o) == "");
}

TEST_CASE("attention: a hundred runs give the same bits") {
    const AttentionSizes s{1, 4, 2, 19, 150, 32, 24};
    const Qkv x = random_qkv(s);
    Graph g;
    vkf::AttentionOptions o;
    o.mask.causal = Causal::bottom_right;
    o.dropout = 0.2f;
    const auto input = [&](const char* name, const Tensor& t) {
        return g.input(name, Shape(t.shape.begin(), t.shape.end()));
    };
    g.output("y", contiguous(
                      scaled_dot_product_attention(input("q", x.query), input("k", x.key), input("v", x.value), o).y));
    Program p = device().compile(g);
    upload(p, "q", x.query);
    upload(p, "k", x.key);
    upload(p, "v", x.value);
    p.run();
    const Tensor first = download(p, "y");
    for (int run = 1; run < 100; ++run) {
        p.run();
        REQUIRE(same_bits(first, download(p, "y")));
    }
}

TEST_SUITE_END();
