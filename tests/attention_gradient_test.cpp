// SPDX-License-Identifier: Apache-2.0
// The gradient of attention beside central differences of its CPU twin, whatever computes it.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "layers/sequences.h"
#include "ops/gradients.h"
#include "tests/device.h"
#include "tests/op_check.h"
#include "tests/reference_attention.h"

using namespace vkf;
using namespace vkf::test;

namespace {

/// What is differentiated: query, key, value, and what else there is of a bias and sinks.
struct Problem {
    Sizes query{2, 4, 5, 8}, key{2, 2, 7, 8};
    std::int64_t value_dim = 8;
    Sizes bias = {};  ///< empty: none
    bool sinks = false, mask = false;
    Causal causal = Causal::none;
    std::int64_t window = 0;
    double softcap = 0, scale = 0, fill = -kInf;
    float dropout = 0;
    bool seed_of_symbol = false;
    bool log_sum_exp = false;  ///< it is a part of the loss
    bool weights = false;      ///< they are too
};

Tensor keys_of(const Problem& p) {
    Tensor keys = random_integers({p.query[0], 1, p.query[2], p.key[2]}, 2, 4);
    for (std::int64_t j = 0; j < p.key[2]; ++j) {
        keys.at({0, 0, p.query[2] / 2, j}) = 0;  // a row with no key left
    }
    return keys;
}

double total(const Tensor& y, const Tensor& weight) {
    double sum = 0;
    for (std::size_t i = 0; i < y.data.size(); ++i) {
        sum += std::isfinite(y.data[i]) ? weight.data[i] * y.data[i] : 0;
    }
    return sum;
}

std::string wrong(const Problem& p) {
    std::vector<Tensor> inputs{random_tensor(p.query, 1), random_tensor(p.key, 2),
                               random_tensor({p.key[0], p.key[1], p.key[2], p.value_dim}, 3)};
    std::vector<std::string> names{"query", "key", "value"};
    if (!p.bias.empty()) {
        inputs.push_back(random_tensor(p.bias, 4));
        names.push_back("bias");
    }
    if (p.sinks) {
        inputs.push_back(random_tensor({p.query[1]}, 5));
        names.push_back("sinks");
    }
    const Tensor keys = keys_of(p);
    const auto host = [&](const std::vector<Tensor>& t) {
        reference::AttentionOptions o;
        o.scores.scale = p.scale;
        o.scores.softcap = p.softcap;
        o.scores.causal = p.causal;
        o.scores.window = p.window;
        o.scores.fill = p.fill;
        o.dropout = p.dropout;
        o.dropout_seed = 5;
        std::size_t next = 3;
        if (!p.bias.empty()) {
            o.scores.bias = t[next++];
        }
        if (p.sinks) {
            o.scores.sinks = t[next++];
        }
        if (p.mask) {
            o.scores.keys = keys;
        }
        return reference::attention(t[0], t[1], t[2], o);
    };
    const reference::Attention forward = host(inputs);
    const Tensor dy = random_tensor(forward.y.shape, 6), dl = random_tensor(forward.log_sum_exp.shape, 7),
                 dw = random_tensor(forward.weights.shape, 8);
    const auto loss = [&](const std::vector<Tensor>& t) {
        const reference::Attention a = host(t);
        return total(a.y, dy) + (p.log_sum_exp ? total(a.log_sum_exp, dl) : 0) + (p.weights ? total(a.weights, dw) : 0);
    };

    OpCheck check;
    std::vector<Value> given;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        given.push_back(check.input(names[i], inputs[i]));
    }
    AttentionOptions o;
    if (p.scale != 0) {
        o.scale = static_cast<float>(p.scale);
    }
    o.softcap = static_cast<float>(p.softcap);
    o.mask.causal = p.causal;
    o.mask.window = p.window;
    o.mask.fill = static_cast<float>(p.fill);
    o.dropout = p.dropout;
    o.dropout_seed = 5;
    if (p.seed_of_symbol) {
        o.dropout_seed = check.graph.symbol("step", 9) * 2 - 1;
        check.set("step", 3);
    }
    o.log_sum_exp = p.log_sum_exp;
    std::size_t next = 3;
    o.mask.bias = p.bias.empty() ? Value() : given[next++];
    o.sinks = p.sinks ? given[next++] : Value();
    o.mask.keys = p.mask ? check.indices("mask", keys) : Value();
    const AttentionResult a = scaled_dot_product_attention(given[0], given[1], given[2], o);
    Value all = sum(a.y * check.input("dy", dy));
    if (p.log_sum_exp) {
        all = all + sum(a.log_sum_exp * check.input("dl", dl));
    }
    if (p.weights) {
        all = all + sum(a.weights * check.input("dw", dw));
    }
    const std::vector<Value> found = gradients(all, given);
    std::string out;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        Tensor want(inputs[i].shape);
        double largest = 0;
        for (std::size_t j = 0; j < want.data.size(); ++j) {
            constexpr double kStep = 1e-5;
            std::vector<Tensor> above = inputs, below = inputs;
            above[i].data[j] += kStep;
            below[i].data[j] -= kStep;
            want.data[j] = (loss(above) - loss(below)) / (2 * kStep);
            largest = std::max(largest, std::abs(want.data[j]));
        }
        const std::string difference =
            check.difference(contiguous(found[i]), want, {.absolute = 3e-5 * std::max(largest, 1.0), .relative = 3e-4});
        out += difference.empty() ? "" : names[i] + ": " + difference + "; ";
    }
    return out;
}

}  // namespace

TEST_SUITE_BEGIN("attention gradient");

TEST_CASE("attention gradient: shapes") {
    CHECK(wrong({}) == "");
    CHECK(wrong({.query = {1, 2, 3, 4}, .key = {1, 2, 3, 4}, .value_dim = 4}) == "");
    CHECK(wrong({.query = {1, 3, 1, 5}, .key = {1, 1, 9, 5}, .value_dim = 3}) == "");
    CHECK(wrong({.query = {1, 2, 6, 12}, .key = {1, 1, 1, 12}, .value_dim = 20}) == "");
    CHECK(wrong({.query = {1, 1, 3, 40}, .key = {1, 1, 4, 40}, .value_dim = 72}) == "");
}

TEST_CASE("attention gradient: masks") {
    CHECK(wrong({.causal = Causal::top_left}) == "");
    CHECK(wrong({.causal = Causal::bottom_right}) == "");
    CHECK(wrong({.query = {1, 2, 9, 8}, .key = {1, 1, 9, 8}, .causal = Causal::top_left, .window = 3}) == "");
    CHECK(wrong({.mask = true}) == "");
    CHECK(wrong({.sinks = true, .mask = true, .causal = Causal::bottom_right}) == "");
    CHECK(wrong({.mask = true, .fill = -2.0}) == "");
}

TEST_CASE("attention gradient: bias in any broadcast, softcap, sinks, scale") {
    CHECK(wrong({.bias = {2, 4, 5, 7}}) == "");
    CHECK(wrong({.bias = {7}}) == "");
    CHECK(wrong({.bias = {4, 1, 1}, .sinks = true, .softcap = 1.5}) == "");
    CHECK(wrong({.bias = {2, 1, 5, 1}, .mask = true, .softcap = 2.0, .scale = 0.7f}) == "");
    CHECK(wrong({.sinks = true, .scale = 1.5}) == "");
}

TEST_CASE("attention gradient: dropout, and what else is a part of the loss") {
    CHECK(wrong({.dropout = 0.3f}) == "");
    CHECK(wrong({.dropout = 0.3f, .seed_of_symbol = true}) == "");
    CHECK(wrong({.causal = Causal::top_left, .dropout = 0.5f, .log_sum_exp = true}) == "");
    CHECK(wrong({.sinks = true, .log_sum_exp = true}) == "");
    CHECK(wrong({.bias = {5, 7}, .causal = Causal::bottom_right, .weights = true}) == "");
}

TEST_CASE("attention gradient: heads of one projection, and one tensor thrice") {
    const Tensor x = random_tensor({1, 6, 16}, 1);
    const auto losses = [&](bool thrice) {
        OpCheck check;
        const Value given = check.input("x", x);
        const Value heads = split_heads(given, 2);
        const Value q = thrice ? heads : slice(split_heads(given, 4), 1, 0, 2);
        const Value k = thrice ? heads : slice(split_heads(given, 4), 1, 1, 2);
        const Value v = thrice ? heads : slice(split_heads(given, 4), 1, 2, 2);
        const Value y = scaled_dot_product_attention(q, k, v, {.mask = {.causal = Causal::top_left}}).y;
        const Tensor got = check.run(contiguous(gradients(sum(y * y), {given}).front()));
        const auto loss = [&](const Tensor& t) {
            const Tensor h = permute(reshape(t, {1, 6, thrice ? 2 : 4, thrice ? 8 : 4}), {0, 2, 1, 3});
            const auto part = [&](std::int64_t first) { return thrice ? h : slice(h, 1, first, 2); };
            reference::AttentionOptions o;
            o.scores.causal = Causal::top_left;
            const Tensor out = reference::attention(part(0), part(1), part(2), o).y;
            return total(out, out);
        };
        Tensor want(x.shape);
        for (std::size_t i = 0; i < want.data.size(); ++i) {
            Tensor above = x, below = x;
            above.data[i] += 1e-5;
            below.data[i] -= 1e-5;
            want.data[i] = (loss(above) - loss(below)) / 2e-5;
        }
        return difference(got, want, {.absolute = 1e-4, .relative = 3e-4});
    };
    CHECK(losses(true) == "");
    CHECK(losses(false) == "");
}

TEST_CASE("attention gradient: packed sequences are those of each by itself") {
    const std::vector<std::int64_t> ends{0, 3, 3, 8};
    const Tensor q = random_tensor({1, 2, 8, 4}, 1), k = random_tensor({1, 1, 8, 4}, 2),
                 v = random_tensor({1, 1, 8, 4}, 3), dy = random_tensor({1, 2, 8, 4}, 4);
    OpCheck check;
    const std::vector<Value> given{check.input("q", q), check.input("k", k), check.input("v", v)};
    const Value cumulative = check.indices("ends", integers(ends));
    const AttentionOptions o{
        .mask = {.causal = Causal::top_left}, .cumulative_queries = cumulative, .cumulative_keys = cumulative};
    const std::vector<Value> found =
        gradients(scaled_dot_product_attention(given[0], given[1], given[2], o).y, given, check.input("dy", dy));
    std::vector<Tensor> want{Tensor(q.shape), Tensor(k.shape), Tensor(v.shape)};
    for (std::size_t i = 0; i + 1 < ends.size(); ++i) {
        const std::int64_t first = ends[i], count = ends[i + 1] - first;
        if (count == 0) {
            continue;
        }
        OpCheck alone;
        const auto part = [&](const Tensor& t) { return slice(t, 2, first, count); };
        const std::vector<Value> own{alone.input("q", part(q)), alone.input("k", part(k)), alone.input("v", part(v))};
        const Value y = scaled_dot_product_attention(own[0], own[1], own[2], {.mask = {.causal = Causal::top_left}}).y;
        const std::vector<Value> of = gradients(y, own, alone.input("dy", part(dy)));
        for (std::size_t t = 0; t < of.size(); ++t) {
            const Tensor got = alone.run(contiguous(of[t]));
            for_each_index(got.shape, [&](const Sizes& at) {
                want[t].at({at[0], at[1], at[2] + first, at[3]}) = got.at(at);
            });
        }
    }
    for (std::size_t t = 0; t < found.size(); ++t) {
        CHECK(check.difference(contiguous(found[t]), want[t]) == "");
    }
}

TEST_CASE("attention gradient: what no query may see passes none, whatever it holds") {
    const Tensor q = random_tensor({1, 2, 4, 8}, 1);
    Tensor k = random_tensor({1, 2, 6, 8}, 2), v = random_tensor({1, 2, 6, 8}, 3);
    for (std::int64_t i = 0; i < 8; ++i) {
        k.at({0, 1, 5, i}) = kNan;
        v.at({0, 1, 5, i}) = i % 2 == 0 ? kInf : kNan;
    }
    OpCheck check;
    const std::vector<Value> given{check.input("q", q), check.input("k", k), check.input("v", v)};
    const Value mask = check.indices("mask", Tensor({6}, {1, 1, 1, 1, 1, 0}));
    const Value y = scaled_dot_product_attention(given[0], given[1], given[2], {.mask = {.keys = mask}}).y;
    const Value dy = check.input("dy", random_tensor({1, 2, 4, 8}, 4));
    const std::vector<Value> found = gradients(y, given, dy);
    for (std::size_t t = 0; t < found.size(); ++t) {
        const Tensor got = check.run(contiguous(found[t]));
        CHECK(std::all_of(got.data.begin(), got.data.end(), [](double x) { return std::isfinite(x); }));
        if (t != 0) {
            CHECK(difference(slice(got, 2, 5, 1), Tensor({1, 2, 1, 8}), exactly()) == "");
        }
    }
}

TEST_CASE("attention gradient: many tiles, beside the composed one") {
    struct Case {
        Sizes query, key;
        std::int64_t value_dim;
        AttentionOptions options = {};
    };
    const Case cases[] = {
        {{1, 4, 150, 40}, {1, 2, 171, 40}, 40, {.mask = {.causal = Causal::bottom_right}}},
        {{2, 2, 131, 8}, {2, 2, 131, 8}, 24, {.mask = {.causal = Causal::top_left, .window = 19}, .softcap = 2.0f}},
        {{1, 2, 129, 130}, {1, 1, 140, 130}, 130, {.dropout = 0.2f, .dropout_seed = 3, .log_sum_exp = true}},
        {{1, 3, 140, 64}, {1, 3, 140, 64}, 64, {.mask = {.causal = Causal::top_left}}},
        {{1, 2, 1, 16}, {1, 1, 300, 16}, 16},
    };
    for (const Case& c : cases) {
        CAPTURE(c.query[3]);
        const Tensor q = random_tensor(c.query, 1), k = random_tensor(c.key, 2),
                     v = random_tensor({c.key[0], c.key[1], c.key[2], c.value_dim}, 3),
                     dy = random_tensor({c.query[0], c.query[1], c.query[2], c.value_dim}, 4);
        const auto found = [&](bool composed, std::string& explained) {
            Graph g;
            const auto shape = [](const Tensor& t) { return Shape(t.shape.begin(), t.shape.end()); };
            const std::vector<Value> given{g.input("q", shape(q)), g.input("k", shape(k)), g.input("v", shape(v))};
            // heads that lie side by side
            const AttentionResult a = scaled_dot_product_attention(given[0], given[1], given[2], c.options);
            Value loss = sum(a.y * g.input("dy", shape(dy)));
            if (c.options.log_sum_exp) {
                loss = loss + sum(a.log_sum_exp);
            }
            if (composed) {
                loss = loss + scale(sum(a.weights), 0.0f);
            }
            const std::vector<Value> grads = gradients(loss, given);
            for (std::size_t i = 0; i < grads.size(); ++i) {
                g.output("out" + std::to_string(i), contiguous(grads[i]));
            }
            Program program = device().compile(g);
            upload(program, "q", q);
            upload(program, "k", k);
            upload(program, "v", v);
            upload(program, "dy", dy);
            program.run();
            explained = program.explain();
            std::vector<Tensor> out;
            for (std::size_t i = 0; i < grads.size(); ++i) {
                out.push_back(download(program, "out" + std::to_string(i)));
            }
            return out;
        };
        std::string fused_text, composed_text;
        const std::vector<Tensor> fused = found(false, fused_text), composed = found(true, composed_text);
        CHECK(contains(composed_text, "its weights have a gradient"));
        if (!contains(fused_text, "attention_delta")) {
            cannot_run("the gradient of fused attention");
        }
        for (std::size_t i = 0; i < fused.size(); ++i) {
            CHECK(difference(fused[i], composed[i], {.absolute = 3e-5, .relative = 3e-4}) == "");
        }
    }
}

TEST_CASE("attention gradient: one sink for all heads") {
    // beside what a sink of each head gets, added up
    const Tensor q = random_tensor({1, 3, 140, 8}, 1), dy = random_tensor({1, 3, 140, 8}, 2);
    OpCheck check;
    const Value x = check.input("q", q), d = check.input("dy", dy);
    const Value one = check.input("one", Tensor({1}, 0.5)), each = check.input("each", Tensor({3}, 0.5));
    const auto of = [&](const Value& sinks) {
        return gradients(scaled_dot_product_attention(x, x, x, {.sinks = sinks}).y, {sinks}, d).front();
    };
    const Tensor parts = check.run(contiguous(of(each)));
    CHECK(check.difference(contiguous(of(one)), Tensor({1}, parts.data[0] + parts.data[1] + parts.data[2])) == "");
}

TEST_CASE("attention gradient: caches, rings and score mods are refused by name") {
    Graph g;
    const Value q = g.input("q", {1, 2, 4, 8});
    const auto refused = [&](const Value& k, const AttentionOptions& o) {
        return error_of([&] { gradients(sum(scaled_dot_product_attention(q, k, k, o).y), {q}); });
    };
    const Value k = g.input("k", {1, 2, 4, 8});
    const ScoreMod mod = ScoreMod::glsl("float score_mod(float s, uint, uint, uint, uint) { return s; }");
    CHECK(contains(refused(k, {.score_mod = mod}), "no gradient passes through a score_mod"));
    CHECK(contains(refused(k, {.ring = RingRows{0, 4, 4}}), "no gradient passes through a ring"));
    const Value packed = g.input("packed", {1, 2, 4, 4}, DType::i32);
    CHECK(contains(refused(packed, {.kv_type = WeightType::f16}), "no gradient passes through packed keys and values"));
    const Value pool = g.input("pool", {3, 2, 4, 8}), lengths = g.input("lengths", {1}, DType::i32),
                pages = g.input("pages", {1, 2}, DType::i32);
    CHECK(contains(refused(pool, {.key_lengths = lengths, .pages = pages}), "no gradient passes through pages"));
    const Value slopes = g.input("slopes", {2});
    CHECK(contains(refused(k, {.mask = {.alibi_slopes = slopes}, .key_lengths = lengths}),
                   "no gradient passes through alibi_slopes of sequences with lengths of their own"));
}

TEST_SUITE_END();
