// SPDX-License-Identifier: Apache-2.0
// The gradient of attention computed as one beside the one composed of ops, where it takes many
// tiles and chunks: biases of each broadcast, sequences, and what is masked.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "layers/sequences.h"
#include "ops/attention_gradient_parts.h"
#include "ops/gradients.h"
#include "tests/believed.h"
#include "tests/device.h"
#include "tests/op_check.h"
#include "tests/reference.h"

using namespace vkf;
using namespace vkf::test;

namespace {

/// What is attended with. Differentiated: query, key, value, and of `more` those called bias and
/// sinks.
struct FusedCase {
    Sizes query, key;
    std::int64_t value_dim = 8;
    /// bias, sinks; as integers mask, ends, key_ends, lengths
    std::map<std::string, Tensor> more = {};
    AttentionOptions options = {};
    bool log_sum_exp = false;                    ///< it is a part of the loss
    std::map<std::string, Tensor> instead = {};  ///< of query, key, value and dy
    /// queries and keys are symbols up to it; 0: they are sizes
    std::int64_t most_tokens = 0;
};

struct Found {
    std::vector<std::string> names;
    std::vector<Tensor> gradients;
    std::string explained;
    bool same_bits = true;  ///< in a second run
};

bool bits_match(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Tensor& x, const Tensor& y) {
        return std::equal(x.data.begin(), x.data.end(), y.data.begin(), y.data.end(),
                          [](double m, double n) { return m == n || (std::isnan(m) && std::isnan(n)); });
    });
}

Found found_by(const FusedCase& c, const char* variant) {
    const Believed forced([&](Capabilities& device) {
        if (variant != nullptr) {
            device.variants = variant;
        }
    });
    Graph g;
    std::map<std::string, Tensor> given = c.instead;
    const auto input = [&](const std::string& name, const Tensor& data, bool integers = false) {
        given.emplace(name, data);
        Shape shape(data.shape.begin(), data.shape.end());
        const bool of_queries = name == "query" || name == "dy";
        if (c.most_tokens != 0 && (of_queries || name == "key" || name == "value")) {
            shape[2] = g.symbol(of_queries ? "queries" : "keys", c.most_tokens);
        }
        return g.input(name, shape, integers ? DType::i32 : DType::f32);
    };
    const auto more = [&](const std::string& name, bool integers = true) {
        const auto at = c.more.find(name);
        return at == c.more.end() ? Value() : input(name, at->second, integers);
    };
    const Value q = input("query", random_tensor(c.query, 1)), k = input("key", random_tensor(c.key, 2)),
                v = input("value", random_tensor({c.key[0], c.key[1], c.key[2], c.value_dim}, 3));
    Found out;
    out.names = {"query", "key", "value"};
    std::vector<Value> of{q, k, v};
    AttentionOptions o = c.options;
    o.mask.bias = more("bias", false);
    o.sinks = more("sinks", false);
    for (const auto& [name, value] : {std::pair{"bias", o.mask.bias}, std::pair{"sinks", o.sinks}}) {
        if (value) {
            of.push_back(value);
            out.names.emplace_back(name);
        }
    }
    o.mask.keys = more("mask");
    o.cumulative_queries = more("ends");
    o.cumulative_keys = more("key_ends");
    o.key_lengths = more("lengths");
    o.log_sum_exp = c.log_sum_exp;
    const AttentionResult a = scaled_dot_product_attention(q, k, v, o);
    const Value dy = input("dy", random_tensor({c.query[0], c.query[1], c.query[2], c.value_dim}, 4));
    Value loss = sum(a.y * dy);
    if (c.log_sum_exp) {
        loss = loss + scale(sum(a.log_sum_exp * a.log_sum_exp), 0.1f);
    }
    const std::vector<Value> grads = gradients(loss, of);
    for (std::size_t i = 0; i < grads.size(); ++i) {
        g.output("of " + out.names[i], contiguous(grads[i]));
    }
    Program program = device().compile(g);
    if (c.most_tokens != 0) {
        program.set("queries", c.query[2]);
        program.set("keys", c.key[2]);
    }
    for (const auto& [name, data] : given) {
        const bool integers = name == "mask" || name == "ends" || name == "key_ends" || name == "lengths";
        upload(program, name, data, integers ? DType::i32 : DType::f32);
    }
    const auto run = [&] {
        program.run();
        std::vector<Tensor> tensors;
        for (const std::string& name : out.names) {
            tensors.push_back(download(program, "of " + name));
        }
        return tensors;
    };
    out.gradients = run();
    out.explained = program.explain();
    out.same_bits = bits_match(out.gradients, run());
    return out;
}

/// What is wrong with the gradients as the device has them; empty: nothing.
std::string wrong_beside_composed(const FusedCase& c, const std::string& expected = "") {
    const Found want = found_by(c, "attention_composed"), got = found_by(c, nullptr);
    std::string out = got.same_bits ? "" : "two runs differ; ";
    if (!contains(got.explained, "attention_delta")) {
        cannot_run("the gradient of fused attention");
    } else if (!contains(got.explained, expected)) {
        out += "no " + expected + "; ";
    }
    for (std::size_t i = 0; i < got.gradients.size(); ++i) {
        double largest = 1;
        for (const double x : want.gradients[i].data) {
            largest = std::isfinite(x) ? std::max(largest, std::abs(x)) : largest;
        }
        const std::string difference =
            test::difference(got.gradients[i], want.gradients[i], {.absolute = 3e-5 * largest, .relative = 3e-4});
        out += difference.empty() ? "" : got.names[i] + ": " + difference + "; ";
    }
    return out;
}

Tensor random_mask(const Sizes& shape) {
    Tensor mask = random_integers(shape, 2, 9);
    for (std::int64_t j = 0; j < shape[3]; ++j) {
        mask.at({0, 0, shape[2] / 2, j}) = 0;  // a row with no key left
    }
    return mask;
}

}  // namespace

TEST_SUITE_BEGIN("attention gradient");

TEST_CASE("fused attention: gradient, biases of each broadcast") {
    // without sinks what passes to the keys of a query would add up to 0
    const Sizes scores{2, 4, 140, 133};
    for (unsigned kept = 0; kept < 16; ++kept) {
        CAPTURE(kept);
        Sizes bias(4, 1);
        for (std::size_t i = 0; i < 4; ++i) {
            bias[i] = (kept >> i & 1u) != 0 ? scores[i] : 1;
        }
        CHECK(wrong_beside_composed({.query = {2, 4, 140, 8},
                                     .key = {2, 2, 133, 8},
                                     .more = {{"bias", random_tensor(bias, 5)}, {"sinks", random_tensor({4}, 6)}}},
                                    "attention_bias_gradient") == "");
    }
}

TEST_CASE("fused attention: gradient, of a bias that makes whole rows large") {
    Tensor bias = random_tensor({1, 3, 150, 133}, 5);
    for (std::int64_t j = 0; j < 133; ++j) {
        bias.at({0, 1, 7, j}) = -1e9;
        bias.at({0, 0, 149, j}) = -3.4028234663852886e38;
        bias.at({0, 2, 60, j}) = 1e9;
    }
    CHECK(wrong_beside_composed({.query = {2, 3, 150, 8}, .key = {2, 3, 133, 8}, .more = {{"bias", bias}}},
                                "attention_bias_gradient") == "");
    CHECK(wrong_beside_composed({.query = {2, 3, 150, 8},
                                 .key = {2, 3, 133, 8},
                                 .more = {{"bias", bias}, {"lengths", integers({133, 61})}}},
                                "attention_bias_gradient") == "");
}

TEST_CASE("fused attention: gradient, a bias beside masks, softcap, dropout and sinks") {
    const Tensor whole = random_tensor({1, 4, 150, 150}, 5), keys = random_tensor({150}, 6),
                 a_head = random_tensor({4, 1, 1}, 7);
    const Sizes query{1, 4, 150, 8}, key{1, 1, 150, 8};
    CHECK(wrong_beside_composed({.query = query,
                                 .key = key,
                                 .more = {{"bias", whole}, {"sinks", random_tensor({4}, 8)}},
                                 .options = {.mask = {.causal = Causal::top_left, .window = 37}}},
                                "attention_bias_gradient") == "");
    CHECK(wrong_beside_composed({.query = query,
                                 .key = key,
                                 .value_dim = 5,
                                 .more = {{"bias", keys}, {"mask", random_mask({1, 1, 150, 150})}},
                                 .options = {.softcap = 2.0f, .dropout = 0.2f, .dropout_seed = 3}},
                                "attention_bias_gradient") == "");
    CHECK(wrong_beside_composed({.query = query,
                                 .key = key,
                                 .more = {{"bias", a_head}, {"mask", random_mask({1, 1, 150, 150})}},
                                 .options = {.mask = {.causal = Causal::bottom_right, .fill = -2.0f}, .softcap = 3.0f},
                                 .log_sum_exp = true},
                                "attention_bias_gradient") == "");
    // more heads and keys than an invocation sums over, a sum for each query
    CHECK(wrong_beside_composed({.query = {16, 16, 40, 4},
                                 .key = {16, 16, 133, 4},
                                 .value_dim = 4,
                                 .more = {{"bias", random_tensor({40, 1}, 5)}, {"sinks", random_tensor({16}, 6)}}},
                                "parts put together") == "");
    // columns of more than one group
    CHECK(wrong_beside_composed({.query = {1, 2, 140, 132},
                                 .key = {1, 2, 140, 132},
                                 .value_dim = 260,
                                 .more = {{"bias", random_tensor({2, 140, 1}, 5)}}},
                                "attention_bias_gradient") == "");
}

TEST_CASE("fused attention: gradient, one query, one key, none, and fewer than the program has room for") {
    const auto wrong_with = [](std::int64_t queries, std::int64_t keys) {
        const Sizes query{2, 2, queries, 8}, key{2, 1, keys, 8};
        return wrong_beside_composed({.query = query,
                                      .key = key,
                                      .more = {{"bias", random_tensor({2, 1, 1}, 5)}, {"sinks", random_tensor({2}, 6)}},
                                      .options = {.mask = {.causal = Causal::bottom_right}},
                                      .most_tokens = 300},
                                     "attention_bias_gradient");
    };
    CHECK(wrong_with(300, 300) == "");
    CHECK(wrong_with(129, 257) == "");
    CHECK(wrong_with(31, 1) == "");
    CHECK(wrong_with(1, 300) == "");
    CHECK(wrong_with(0, 5) == "");
    CHECK(wrong_with(5, 0) == "");
    CHECK(wrong_beside_composed(
              {.query = {1, 2, 1, 8}, .key = {1, 2, 200, 8}, .more = {{"bias", random_tensor({2, 1, 200}, 5)}}}) == "");
    CHECK(wrong_beside_composed(
              {.query = {1, 2, 200, 8}, .key = {1, 2, 1, 8}, .more = {{"bias", random_tensor({2, 200, 1}, 5)}}}) == "");
}

TEST_CASE("fused attention: gradient, packed sequences") {
    // an empty one, one of one query, and queries and keys of none behind the last
    const Tensor ends = integers({0, 70, 70, 71, 180, 290}), key_ends = integers({0, 40, 90, 131, 200, 310});
    const Sizes query{1, 4, 300, 8}, key{1, 2, 320, 8};
    const auto wrong_with = [&](const AttentionOptions& o, bool sinks = false) {
        FusedCase c{.query = query, .key = key, .more = {{"ends", ends}, {"key_ends", key_ends}}, .options = o};
        if (sinks) {
            c.more.emplace("sinks", random_tensor({4}, 8));
        }
        return wrong_beside_composed(c, "attention_ranges");
    };
    CHECK(wrong_with({}) == "");
    CHECK(wrong_with({.mask = {.causal = Causal::top_left}}) == "");
    CHECK(wrong_with({.mask = {.causal = Causal::bottom_right, .window = 23}, .softcap = 2.0f}) == "");
    CHECK(wrong_with({.mask = {.causal = Causal::top_left, .window = 1}, .dropout = 0.3f, .dropout_seed = 4}) == "");
    CHECK(wrong_with({.mask = {.causal = Causal::bottom_right}}, true) == "");
    const Believed narrow([](Capabilities& device) { device.int64 = false; });
    CHECK(wrong_with({.mask = {.causal = Causal::top_left}}) == "");
}

TEST_CASE("fused attention: gradient, sequences with lengths of their own") {
    const Sizes query{3, 2, 150, 8}, key{3, 1, 140, 8};
    const Tensor lengths = integers({140, 0, 61});
    CHECK(wrong_beside_composed({.query = query, .key = key, .more = {{"lengths", lengths}}}, "attention_ranges") ==
          "");
    CHECK(wrong_beside_composed({.query = query,
                                 .key = key,
                                 .more = {{"lengths", lengths},
                                          {"bias", random_tensor({1, 2, 150, 140}, 5)},
                                          {"mask", random_mask({1, 1, 150, 140})}},
                                 .options = {.mask = {.causal = Causal::bottom_right, .window = 33}}},
                                "attention_bias_gradient") == "");
}

TEST_CASE("fused attention: gradient, a sequence keeps to itself, whatever the others hold") {
    const Tensor ends = integers({0, 90, 170, 250});
    FusedCase c{.query = {1, 2, 260, 8},
                .key = {1, 2, 260, 8},
                .more = {{"ends", ends}, {"key_ends", ends}},
                .options = {.mask = {.causal = Causal::top_left}}};
    const Found clean = found_by(c, nullptr);
    for (const char* name : {"key", "value", "query", "dy"}) {
        Tensor wild = random_tensor({1, 2, 260, 8}, std::string(name) == "query"   ? 1
                                                    : std::string(name) == "key"   ? 2
                                                    : std::string(name) == "value" ? 3
                                                                                   : 4);
        for (std::int64_t row = 0; row < 260; ++row) {
            if ((row >= 90 && row < 170) || row >= 250) {
                for (std::int64_t i = 0; i < 8; ++i) {
                    wild.at({0, 1, row, i}) = i % 2 == 0 ? kNan : kInf;
                }
            }
        }
        c.instead.emplace(name, wild);
    }
    const Found found = found_by(c, nullptr);
    for (std::size_t i = 0; i < 3; ++i) {
        for (const std::int64_t first : {0, 170}) {
            const std::int64_t count = first == 0 ? 90 : 80;
            CHECK(difference(slice(found.gradients[i], 2, first, count), slice(clean.gradients[i], 2, first, count),
                             exactly()) == "");
        }
        CHECK(difference(slice(found.gradients[i], 2, 250, 10), Tensor({1, 2, 10, 8}), exactly()) == "");
    }
}

TEST_CASE("fused attention: gradient, what is masked passes a bias nothing, whatever it holds") {
    const Sizes query{1, 2, 140, 8}, key{1, 2, 140, 8};
    Tensor mask({1, 1, 1, 140}, 1), bias = random_tensor({1, 1, 1, 140}, 5), k = random_tensor(key, 2),
                                    v = random_tensor(key, 3);
    for (std::int64_t j = 100; j < 140; ++j) {
        mask.at({0, 0, 0, j}) = 0;
        bias.at({0, 0, 0, j}) = kNan;
        for (std::int64_t i = 0; i < 8; ++i) {
            k.at({0, 0, j, i}) = kNan;
            v.at({0, 1, j, i}) = kInf;
        }
    }
    const Found found = found_by(
        {.query = query, .key = key, .more = {{"bias", bias}, {"mask", mask}}, .instead = {{"key", k}, {"value", v}}},
        nullptr);
    for (const Tensor& t : found.gradients) {
        CHECK(std::all_of(t.data.begin(), t.data.end(), [](double x) { return std::isfinite(x); }));
    }
    for (std::int64_t j = 100; j < 140; ++j) {
        CHECK(found.gradients[3].at({0, 0, 0, j}) == 0);
    }
}

TEST_CASE("fused attention: gradient, sinks for all heads, and of each batch") {
    for (const Sizes& shape : {Sizes{1}, Sizes{2, 1, 1, 1}, Sizes{2, 3, 1, 1}}) {
        CAPTURE(shape.size());
        CHECK(wrong_beside_composed(
                  {.query = {2, 3, 140, 8}, .key = {2, 3, 140, 8}, .more = {{"sinks", random_tensor(shape, 5)}}}) ==
              "");
    }
}

TEST_CASE("fused attention: gradient, a row that sees no key passes sinks nothing, whatever dy holds there") {
    const Sizes query{2, 3, 140, 8};
    Tensor mask = random_mask({2, 1, 140, 140}), dy = random_tensor(query, 4);
    for (std::int64_t head = 0; head < 3; ++head) {
        for (std::int64_t i = 0; i < 8; ++i) {
            dy.at({0, head, 70, i}) = i % 2 == 0 ? kNan : kInf;
        }
    }
    CHECK(wrong_beside_composed({.query = query,
                                 .key = query,
                                 .more = {{"sinks", random_tensor({3}, 5)}, {"mask", mask}},
                                 .instead = {{"dy", dy}}}) == "");
    // behind the last sequence there is none
    Tensor padded = random_tensor({1, 3, 140, 8}, 4);
    for (std::int64_t i = 0; i < 8; ++i) {
        padded.at({0, 1, 139, i}) = kNan;
    }
    const Tensor ends({3}, std::vector<double>{0, 60, 130});
    CHECK(wrong_beside_composed({.query = {1, 3, 140, 8},
                                 .key = {1, 3, 140, 8},
                                 .more = {{"sinks", random_tensor({3}, 5)}, {"ends", ends}, {"key_ends", ends}},
                                 .instead = {{"dy", padded}}}) == "");
}

TEST_CASE("fused attention: gradient, a sink of -inf gets 0, of a row that sees no key too") {
    const Sizes query{1, 2, 140, 8};
    const FusedCase c{.query = query,
                      .key = query,
                      .more = {{"sinks", Tensor({2}, {-kInf, 0.5})}, {"mask", random_mask({1, 1, 140, 140})}}};
    CHECK(wrong_beside_composed(c) == "");
    const Found found = found_by(c, nullptr);
    if (contains(found.explained, "attention_delta")) {  // composed, it is 0 up to rounding
        CHECK(found.gradients[3].data[0] == 0);
    }
}

TEST_CASE("fused attention: gradient, a NaN that comes in shows where y is 0") {
    const Sizes query{1, 2, 140, 8};
    Tensor dy = random_tensor(query, 4);
    dy.at({0, 1, 5, 3}) = kNan;
    for (const bool sinks : {false, true}) {
        CAPTURE(sinks);
        FusedCase c{.query = query, .key = query, .instead = {{"value", Tensor(query)}, {"dy", dy}}};
        if (sinks) {
            c.more.emplace("sinks", random_tensor({2}, 5));
        }
        const Found found = found_by(c, nullptr);
        for (std::int64_t head = 0; head < 2; ++head) {
            const Tensor of_values = slice(slice(found.gradients[2], 1, head, 1), 3, 3, 1);
            CHECK(std::all_of(of_values.data.begin(), of_values.data.end(),
                              [&](double x) { return head == 1 ? std::isnan(x) : std::isfinite(x); }));
        }
        CHECK(std::isnan(found.gradients[0].at({0, 1, 5, 0})));
        CHECK(std::isfinite(found.gradients[0].at({0, 1, 4, 0})));
    }
}

TEST_CASE("fused attention: gradient, 2^32 scores or more are computed as one, or it says why not") {
    FusedCase c{.query = {1, 1, 5, 4}, .key = {1, 1, 7, 4}, .value_dim = 4};
    const Found want = found_by(c, "attention_composed");
    c.most_tokens = 65536;
    CHECK(contains(error_of([&] { found_by(c, "attention_composed"); }),
                   "2^32 scores or more are too many to be composed of other ops, and as one it is not computed: "
                   "VKFORMER_VARIANT asks for attention_composed"));
    Found got;
    const std::string refused = error_of([&] { got = found_by(c, nullptr); });
    if (!refused.empty()) {
        CHECK(contains(refused, "2^32 scores or more"));
        cannot_run("the gradient of so long attention");
        return;
    }
    for (std::size_t i = 0; i < got.gradients.size(); ++i) {
        CHECK(difference(got.gradients[i], want.gradients[i], {.absolute = 3e-5, .relative = 3e-4}) == "");
    }
}

TEST_CASE("fused attention: gradient, sinks of a run without keys get 0") {
    Graph g;
    const Dim keys = g.symbol("keys", 100);
    const Value q = g.input("q", {1, 2, 5, 8}), k = g.input("k", {1, 2, keys, 8}), sinks = g.input("sinks", {2});
    const Value y = scaled_dot_product_attention(q, k, k, {.sinks = sinks}).y;
    g.output("of sinks", contiguous(gradients(sum(y * y), {sinks}).front()));
    Program program = device().compile(g);
    upload(program, "q", random_tensor({1, 2, 5, 8}, 1));
    upload(program, "sinks", random_tensor({2}, 3));
    for (const std::int64_t count : {100, 0, 7, 0}) {
        CAPTURE(count);
        program.set("keys", count);
        upload(program, "k", random_tensor({1, 2, count, 8}, 2));
        program.run();
        const Tensor found = download(program, "of sinks");
        CHECK(std::all_of(found.data.begin(), found.data.end(), [&](double x) { return (x == 0) == (count == 0); }));
    }
}

TEST_CASE("fused attention: gradient, some of the gradients alone") {
    const Tensor q = random_tensor({1, 2, 150, 8}, 1), k = random_tensor({1, 2, 140, 8}, 2),
                 dy = random_tensor({1, 2, 150, 8}, 3), b = random_tensor({1, 2, 1, 140}, 4);
    OpCheck check;
    const Value query = check.input("q", q), key = check.input("k", k), value = check.input("v", k),
                bias = check.input("b", b), d = check.input("dy", dy);
    const Value y = scaled_dot_product_attention(query, key, value, {.mask = {.bias = bias}}).y;
    const std::vector<Value> all{query, key, value, bias};
    const std::vector<Value> together = gradients(y, all, d);
    for (std::size_t i = 0; i < all.size(); ++i) {
        CAPTURE(i);
        const Tensor want = check.run(contiguous(together[i]));
        CHECK(check.difference(contiguous(gradients(y, {all[i]}, d).front()), want) == "");
    }
}

TEST_CASE("fused attention: gradient, of queries, keys and values that are stored in any order") {
    const std::vector<Tensor> data{random_tensor({2, 4, 9, 8}, 1), random_tensor({2, 2, 140, 8}, 2),
                                   random_tensor({2, 2, 140, 5}, 3)};
    const Tensor dy = random_tensor({2, 4, 9, 5}, 4);
    std::vector<Tensor> want;
    std::vector<std::size_t> order{0, 1, 2, 3};
    do {
        CAPTURE(order);
        std::vector<std::size_t> back(4);
        for (std::size_t i = 0; i < 4; ++i) {
            back[order[i]] = i;
        }
        OpCheck check;
        std::vector<Value> views, all;
        for (std::size_t i = 0; i < 3; ++i) {
            views.push_back(permute(check.input("in" + std::to_string(i), permute(data[i], order)), back));
        }
        const Value y =
            scaled_dot_product_attention(views[0], views[1], views[2], {.mask = {.causal = Causal::bottom_right}}).y;
        for (const Value& gradient : gradients(y, views, check.input("dy", dy))) {
            all.push_back(reshape(contiguous(gradient), {elements(gradient.shape())}));
        }
        const Value together = concat(all, 0);
        if (want.empty()) {
            want.push_back(check.run(together));
        }
        CHECK(check.difference(together, want.front()) == "");
    } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE("fused attention: gradient, how many queries a chunk has") {
    const auto plan = [](std::int64_t heads, std::int64_t tokens, std::vector<std::size_t> wanted,
                         std::uint32_t bias = 0) {
        AttentionGradientParams p;
        p.attention.most_heads = heads;
        p.attention.most_queries = p.attention.most_keys = tokens;
        p.attention.bias_present = bias;
        p.attention.bias = bias != 0 ? 3 : -1;
        p.wanted = std::move(wanted);
        Capabilities device;
        device.storage_range = 1u << 27;
        return plan_chunks(device, p);
    };
    CHECK(plan(8, 512, {0, 1, 2}).queries == 128);
    CHECK(plan(8, 512, {0, 1, 2}).count == 4);
    CHECK(plan(8, 4096, {0, 1, 2}).queries == 256);
    CHECK(plan(8, 1500, {0, 2}).queries == 160);
    CHECK(plan(8, 1, {0, 1}).queries == 32);
    AttentionGradientParams few;  // of which 32 queries would be beyond the limit
    few.attention.most_heads = 20;
    few.attention.most_queries = 8;
    few.attention.most_keys = 65536;
    few.wanted = {0, 1, 2};
    Capabilities device;
    device.storage_range = 1u << 27;
    CHECK(plan_chunks(device, few).queries == 0);
    CHECK(plan(8, 0, {0, 1}).count == 1);
    CHECK(plan(64, 4096, {0, 1, 2}).queries == 64);
    CHECK(plan(64, 8192, {0, 1, 2}).queries == 0);
    CHECK(plan(8, 512, {0}).queries == 0);
    CHECK(plan(8, 512, {1, 2}).queries == 0);
    constexpr std::uint32_t kWhole = 31, kKeys = 17, kOne = 16, kQueries = 18;
    CHECK(plan(64, 8192, {0, 1, 2, 3}, kWhole).queries == 32);
    CHECK(contains(plan(65, 8192, {3}, kWhole).refused, "its bias has a gradient"));
    CHECK(plan(1000, 256, {3}, kKeys).queries == 32);
    CHECK(plan(1000, 256, {3}, kOne).refused.empty());
    CHECK(contains(plan(2000, 256, {3}, kKeys).refused, "too many heads"));
    CHECK(plan(2000, 256, {3}, kQueries).refused.empty());
}

TEST_SUITE_END();
