// SPDX-License-Identifier: Apache-2.0
// NaN and infinities where attention may not look, and where it does.
#include <doctest/doctest.h>

#include <cmath>
#include <utility>

#include "tests/attention_check.h"
#include "tests/device.h"

using namespace vkf;
using namespace vkf::test;

namespace {

using Options = reference::AttentionOptions;

/// Keys and values of those numbers, each with what spoils a sum.
Qkv poisoned(Qkv x, const std::vector<std::int64_t>& tokens) {
    constexpr double kPoison[] = {kNan, kInf, -kInf};
    std::size_t next = 0;
    for (const std::int64_t token : tokens) {
        for (Tensor* t : {&x.key, &x.value}) {
            for_each_index({t->size(0), t->size(1), t->size(3)}, [&](const Sizes& i) {
                t->at({i[0], i[1], token, i[2]}) = kPoison[next++ % 3];
            });
        }
    }
    return x;
}

/// Checks that the results have the same bits with and without the poison, whatever is asked for.
void check_no_trace(const Qkv& x, const std::vector<std::int64_t>& unseen, const Options& o) {
    const Qkv spoilt = poisoned(x, unseen);
    for (const Ask ask : asks()) {
        CAPTURE(static_cast<int>(ask));
        const Attended clean = attend(x, o, ask);
        const Attended other = attend(spoilt, o, ask);
        CHECK(same_bits(clean.y, other.y));
        CHECK((ask == Ask::y || same_bits(clean.log_sum_exp, other.log_sum_exp)));
        CHECK((ask != Ask::everything || same_bits(*clean.weights, *other.weights)));
        const AsSmallGpu small_gpu;
        CHECK(difference(attend(spoilt, o, ask).y, attend(x, o, ask).y, exactly()) == "");
    }
}

std::vector<std::int64_t> between(std::int64_t from, std::int64_t to) {
    std::vector<std::int64_t> out;
    for (; from < to; ++from) {
        out.push_back(from);
    }
    return out;
}

}  // namespace

TEST_SUITE_BEGIN("attention");

TEST_CASE("attention: what a masked key or value holds leaves no trace") {
    for (const std::int64_t width : {7, 64}) {
        CAPTURE(width);
        Options o;
        o.scores.causal = Causal::top_left;
        check_no_trace(random_qkv({1, 4, 2, 9, 70, width, width}), between(9, 70), o);
        o.scores.causal = Causal::bottom_right;
        o.scores.window = 5;
        check_no_trace(random_qkv({1, 4, 2, 3, 70, width, width}), between(0, 63), o);
        o = {};
        o.scores.keys = Tensor({2, 1, 1, 41}, 1.0);
        const std::vector<std::int64_t> unseen{0, 3, 30, 31, 32, 40};
        for (std::int64_t b = 0; b < 2; ++b) {
            for (const std::int64_t key : unseen) {
                o.scores.keys->at({b, 0, 0, key}) = 0;
            }
        }
        const Qkv x = random_qkv({2, 2, 1, 6, 41, width, 20});
        check_no_trace(x, unseen, o);
        o.scores.softcap = 2;
        o.scores.sinks = Tensor({2}, {0.5, -1});
        o.scores.alibi_slopes = Tensor({2}, {0.5, 0.25});
        o.scores.bias = random_tensor({6, 41});
        o.dropout = 0.25;
        check_no_trace(x, unseen, o);
    }
}

TEST_CASE("attention: a value under a bias of -inf leaves no trace") {
    const Qkv x = random_qkv({1, 2, 2, 5, 40, 16, 16});
    Options o;
    o.scores.bias = Tensor({40}, 0.0);
    o.scores.bias->data[7] = o.scores.bias->data[33] = -kInf;
    Qkv spoilt = x;
    for (const std::int64_t h : {0, 1}) {
        spoilt.value.at({0, h, 7, 3}) = kNan;
        spoilt.value.at({0, h, 33, 0}) = kInf;
    }
    for (const double fill : {-kInf, -1e20}) {
        CAPTURE(fill);
        o.scores.fill = fill;
        for (const Ask ask : {Ask::y, Ask::everything}) {
            CHECK(same_bits(attend(x, o, ask).y, attend(spoilt, o, ask).y));
        }
    }
}

TEST_CASE("attention: a row that sees nothing gives 0 whatever there is") {
    Qkv x = poisoned(random_qkv({1, 2, 1, 4, 6, 8, 8}), between(0, 6));
    x.query = Tensor(x.query.shape, kNan);
    Options o;
    o.scores.keys = Tensor({1}, 0.0);
    for (const Ask ask : asks()) {
        const Attended a = attend(x, o, ask);
        for (const double y : a.y.data) {
            CHECK(y == 0);
        }
        for (const double lse : a.log_sum_exp.data) {
            CHECK(lse == -kInf);
        }
    }
}

TEST_CASE("attention: a NaN that is seen shows, where it is seen and nowhere else") {
    const Qkv x = random_qkv({1, 2, 1, 12, 50, 16, 16});
    Options o;
    o.scores.causal = Causal::bottom_right;  // row r sees keys 0 .. r + 38
    for (const Ask ask : asks()) {
        CAPTURE(static_cast<int>(ask));
        const Attended clean = attend(x, o, ask);
        const auto check = [&](const Qkv& spoilt, auto seen) {
            const Attended got = attend(spoilt, o, ask);
            std::size_t wrong = 0;
            for_each_index(got.y.shape, [&](const Sizes& i) {
                const double y = got.y.at(i);
                wrong += (seen(i) ? std::isnan(y) : y == clean.y.at(i)) ? 0 : 1;
            });
            CHECK(wrong == 0);
        };
        Qkv spoilt = x;
        spoilt.key.at({0, 0, 45, 2}) = kNan;
        check(spoilt, [](const Sizes& i) { return i[2] + 38 >= 45; });
        spoilt = x;
        spoilt.value.at({0, 0, 45, 2}) = kNan;
        check(spoilt, [](const Sizes& i) { return i[2] + 38 >= 45 && i[3] == 2; });
        spoilt = x;
        spoilt.query.at({0, 1, 5, 15}) = kNan;
        check(spoilt, [](const Sizes& i) { return i[1] == 1 && i[2] == 5; });
    }
}

TEST_CASE("attention: many rows, one of NaN among them, leave no trace of what they may not see") {
    Qkv x = random_qkv({1, 2, 1, 150, 45, 20, 36});
    Options o;
    o.scores.causal = Causal::bottom_right;
    o.scores.keys = Tensor({45}, 1.0);
    o.scores.keys->data[3] = o.scores.keys->data[40] = 0;
    check_no_trace(x, {3, 40}, o);
    for (std::int64_t i = 0; i < 20; ++i) {
        x.query.at({0, 1, 131, i}) = kNan;
    }
    for (const Ask ask : asks()) {
        CAPTURE(static_cast<int>(ask));
        const Attended clean = attend(x, o, ask);
        const Attended spoilt = attend(poisoned(x, {3, 40}), o, ask);
        std::size_t wrong = 0;
        for_each_index(clean.y.shape, [&](const Sizes& i) {
            const double y = spoilt.y.at(i);
            wrong += (i[1] == 1 && i[2] == 131 ? std::isnan(y) : y == clean.y.at(i)) ? 0 : 1;
        });
        CHECK(wrong == 0);
    }
}

TEST_CASE("attention: infinite values and sums show in their columns alone, among many rows") {
    Qkv x = random_qkv({1, 1, 1, 150, 40, 16, 20});
    Options o;
    o.scores.causal = Causal::top_left;  // row r sees keys 0 .. r
    const Attended clean = attend(x, o, Ask::y);
    for (std::int64_t i = 0; i < 16; ++i) {
        x.query.at({0, 0, 140, i}) = 0;  // which weighs all keys alike
    }
    for (std::int64_t key = 0; key < 40; ++key) {
        x.value.at({0, 0, key, 3}) = key % 2 == 0 ? 3e38 : 0;
    }
    x.value.at({0, 0, 39, 3}) = kInf;
    const Attended got = attend(x, o, Ask::y);
    std::size_t wrong = 0;
    for_each_index(got.y.shape, [&](const Sizes& i) {
        const double y = got.y.at(i);
        if (i[3] == 3) {
            wrong += i[2] >= 39 && !std::isinf(y) ? 1 : 0;
        } else if (i[2] != 140) {
            wrong += y == clean.y.at(i) ? 0 : 1;
        }
    });
    CHECK(wrong == 0);
}

TEST_CASE("attention: four lanes take many rows again with care, as many keys as four of them could") {
    const Capabilities& c = device().capabilities();
    if (!c.cpu() || c.exact_subgroup_size != 4 || !c.subgroup_quad || !c.variants.empty()) {
        cannot_run("four lanes with quads");
        return;
    }
    const Qkv x = random_qkv({1, 1, 1, 130, 6000, 16, 64});
    Options o;
    o.scores.keys = Tensor({6000}, 1.0);
    o.scores.keys->data[5] = 0;
    Qkv spoilt = x;
    spoilt.value.at({0, 0, 5, 7}) = kNan;
    CHECK(same_bits(attend(x, o, Ask::y).y, attend(spoilt, o, Ask::y).y));
}

TEST_CASE("grouped_query_attention: what the unused part of a cache holds leaves no trace") {
    constexpr std::int64_t kCapacity = 24;
    constexpr std::int64_t kTokens = 9;
    Graph g;
    const Dim tokens = g.symbol("tokens", kCapacity);
    const Dim start = g.symbol("start", kCapacity);
    const Shape shape{3, kCapacity, 2, 8};  // of more sequences than come
    GroupedQueryAttentionOptions o{
        .name = "attn", .heads = 4, .kv_heads = 2, .rope = Rope{.layout = RopeLayout::interleaved}};
    o.mask.window = 6;
    o.cache = KvCache{g.state("k", shape), g.state("v", shape), start};
    g.output("y", grouped_query_attention(g.input("x", {2, tokens, 32}), o));
    Graph filler;
    for (const char* name : {"k", "v"}) {
        copy_into(filler.state(name, shape), filler.input(std::string("fill ") + name, shape));
        filler.output(std::string("now ") + name, contiguous(filler.state(name, shape)));
    }
    std::vector<std::vector<float>> data;
    std::vector<HostTensor> tensors;
    for (const char* name : {"q_proj", "k_proj", "v_proj", "o_proj"}) {
        const std::int64_t rows = name[0] == 'q' || name[0] == 'o' ? 32 : 16;
        data.push_back(random_tensor({rows, 32}, static_cast<std::uint32_t>(data.size() + 1), 0.3).floats());
        tensors.push_back({std::string("attn.") + name + ".weight", DType::f32, {rows, 32}, {}});
    }
    for (std::size_t i = 0; i < data.size(); ++i) {
        tensors[i].data = std::as_bytes(std::span(data[i]));
    }
    const Weights weights = device().load(tensors);
    const Tensor x = random_tensor({2, kTokens, 32}, 5);
    const auto answer = [&](double fill) {
        const State state = device().make_state({&g, &filler});
        Program fills = device().compile(filler, {}, {.state = state});
        for (const char* name : {"fill k", "fill v"}) {
            upload(fills, name, Tensor({3, kCapacity, 2, 8}, fill));
        }
        fills.run();
        CHECK(same_bits(download(fills, "now k"), Tensor({3, kCapacity, 2, 8}, fill)));
        Program p = device().compile(g, weights, {.state = state});
        std::vector<Tensor> out;
        for (const auto& [at, count] : {std::pair{0, 5}, {5, 3}, {8, 1}}) {
            p.set("tokens", count);
            p.set("start", at);
            upload(p, "x", slice(x, 1, at, count));
            p.run();
            out.push_back(download(p, "y"));
        }
        return out;
    };
    const std::vector<Tensor> clean = answer(0);
    for (const double poison : {kNan, kInf}) {
        const std::vector<Tensor> spoilt = answer(poison);
        for (std::size_t i = 0; i < clean.size(); ++i) {
            CHECK(same_bits(clean[i], spoilt[i]));
        }
    }
}

TEST_SUITE_END();
