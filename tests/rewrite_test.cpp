// SPDX-License-Identifier: Apache-2.0
// What is written plainly is turned into what is fast: the same bits, fewer dispatches, and a line
// for each match and near miss.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <functional>

#include "layers/feed_forward.h"
#include "layers/torch.h"
#include "runtime/compile/plan.h"
#include "tests/believed.h"
#include "tests/device.h"
#include "tests/host.h"
#include "tests/op_check.h"

using namespace vkf;
using namespace vkf::test;

namespace {

using Describe = std::function<Value(OpCheck&)>;

struct RewrittenAnswer {
    Tensor y;
    std::size_t dispatches = 0;
    std::vector<std::string> notes;
};

RewrittenAnswer answer(const Describe& describe, bool rewrite) {
    OpCheck check;
    check.rewrite = rewrite;
    const Value y = describe(check);
    RewrittenAnswer out;
    out.y = check.run(y);
    const Plan plan = make_plan(check.graph, device().capabilities(), WeightLayout::none(), {.rewrite = rewrite});
    out.dispatches = plan.dispatches.size();
    out.notes = plan.notes;
    return out;
}

/// Dispatches of what is described, as written and as rewritten, after a check that both give the
/// same bits.
struct Counts {
    std::size_t written, rewritten;
    bool operator==(const Counts&) const = default;
};

Counts counts(const Describe& describe) {
    const RewrittenAnswer written = answer(describe, false), rewritten = answer(describe, true);
    CHECK(same_bits(written.y, rewritten.y));
    CHECK(written.notes.empty());
    return {written.dispatches, rewritten.dispatches};
}

bool says(const std::vector<std::string>& notes, const std::string& text) {
    return std::any_of(notes.begin(), notes.end(), [&](const std::string& n) { return contains(n, text); });
}

/// Plans the graph for a device with room for everything.
Plan planned(Graph& g) {
    Capabilities c;
    c.type = DeviceType::discrete;
    c.storage_buffers = 16;
    return make_plan(g, c);
}

using Labels = std::vector<std::string>;

/// Inputs of one product.
struct Parts {
    Value x, w, bias, other;
};

Parts parts(Graph& g) {
    return {g.input("x", {6, 8}), g.input("w", {5, 8}), g.input("bias", {5}), g.input("r", {6, 5})};
}

Parts parts(OpCheck& check, std::int64_t rows, std::int64_t columns, std::int64_t width) {
    return {check.input("x", random_tensor({rows, width}, 1)), check.input("w", random_tensor({columns, width}, 2)),
            check.input("bias", random_tensor({columns}, 3)), check.input("r", random_tensor({rows, columns}, 4))};
}

}  // namespace

TEST_SUITE("rewrite") {
    TEST_CASE("rewrite: bias, activation, gate and residual become a product's epilogue, with the same bits") {
        const bool five = device().capabilities().storage_buffers >= 5;
        const std::array<std::int64_t, 3> sizes[] = {{1, 64, 64}, {7, 33, 20}, {70, 72, 24}, {130, 41, 12}};
        for (const std::array<std::int64_t, 3>& size : sizes) {
            const std::int64_t rows = size[0], columns = size[1], width = size[2];
            CAPTURE(rows);
            const auto count = [&](const std::function<Value(const Parts&)>& f) {
                return counts([&](OpCheck& check) { return f(parts(check, rows, columns, width)); });
            };
            CHECK(count([](const Parts& p) { return linear(p.x, p.w) + p.bias; }) == Counts{2, 1});
            CHECK(count([](const Parts& p) { return p.bias + linear(p.x, p.w); }) == Counts{2, 1});
            CHECK(count([](const Parts& p) { return silu(linear(p.x, p.w)); }) == Counts{2, 1});
            CHECK(count([](const Parts& p) { return gelu(linear(p.x, p.w) + p.bias); }) == Counts{3, 1});
            CHECK(count([](const Parts& p) { return p.other + linear(p.x, p.w); }) == Counts{2, 1});
            CHECK(count([](const Parts& p) { return linear(p.x, p.w) * p.other; }) == Counts{2, 1});
            CHECK(count([](const Parts& p) { return gated(linear(p.x, p.w), p.other, Activation::silu); }) ==
                  Counts{2, 1});
            CHECK(count([](const Parts& p) { return p.other + (linear(p.x, p.w) + p.bias); }) ==
                  Counts{3, five ? std::size_t{1} : 2});
            CHECK(count([](const Parts& p) { return relu(linear(p.x, p.w, p.bias)) * p.other; }) ==
                  Counts{3, five ? std::size_t{1} : 2});
        }
    }

    TEST_CASE("rewrite: a residual before a norm becomes part of it, and what reads the sum goes on reading it") {
        const bool six = device().capabilities().storage_buffers >= 6;
        for (const std::int64_t width : {5, 64, 300}) {
            CAPTURE(width);
            const auto count = [&](bool centred) {
                return counts([&](OpCheck& check) {
                    const Value x = check.input("x", random_tensor({7, width}, 1));
                    const Value r = check.input("r", random_tensor({7, width}, 2));
                    const Value w = check.input("w", random_tensor({width}, 3));
                    const Value sum = x + r;
                    const Value y = centred ? layer_norm(sum, w, w) : rms_norm(sum, w);
                    return relu(y) + sum;
                });
            };
            CHECK(count(true) == Counts{4, six ? std::size_t{3} : 4});
            CHECK(count(false) == Counts{4, six ? std::size_t{3} : 4});
        }
    }

    TEST_CASE("rewrite: a residual whose rows begin at no multiple of four is added by itself, with the same bits") {
        const bool six = device().capabilities().storage_buffers >= 6;
        const auto odd = [](OpCheck& check) {
            const Value r = check.input("r", random_tensor({257}, 1)), x = check.input("x", random_tensor({4, 64}, 2));
            return layer_norm(x + reshape(slice(r, 0, 1, 256), {4, 64}), {}, {});
        };
        CHECK(counts(odd) == Counts{2, 2});
        CHECK(says(answer(odd, true).notes, "an operand does not begin at a multiple of four"));
        const auto one_row = [](OpCheck& check) {
            const Value r = check.input("r", random_tensor({1, 130}, 1)),
                        x = check.input("x", random_tensor({1, 128}, 2));
            return layer_norm(x + slice(r, 1, 0, 128), {}, {});
        };
        CHECK(counts(one_row) == Counts{2, six ? std::size_t{1} : 2});
    }

    TEST_CASE("rewrite: a Transformer layer that is written plainly") {
        Graph g;
        const Value x = g.input("x", {1, g.symbol("tokens", 9), 16});
        const auto layer = [&](Value h) {
            const Value n = torch::layer_norm_layer(h, "norm");
            const Value up = linear(n, g.weight("up.weight", {24, 16})) + g.weight("up.bias", {24});
            const Value gate = silu(linear(n, g.weight("gate.weight", {24, 16})));
            return h + linear(gate * up, g.weight("down.weight", {16, 24}));
        };
        g.output("y", layer(x));
        const Plan plan = planned(g);
        CHECK(labels_of(plan) == Labels{"norm.layer_norm", "matmul", "matmul", "matmul"});
        CHECK(says(plan.notes, "add: in the epilogue of matmul, as its bias"));
        CHECK(says(plan.notes, "activate: in the epilogue of matmul, as its activation"));
        CHECK(says(plan.notes, "mul: in the epilogue of matmul, as its gate"));
        CHECK(says(plan.notes, "add: in the epilogue of matmul, as its residual"));
    }

    TEST_CASE("rewrite: near misses are told with their reason, and change nothing") {
        const auto missed = [](const std::function<void(Graph&, const Parts&)>& f, const Labels& want) {
            Graph g;
            f(g, parts(g));
            const Plan plan = planned(g);
            CHECK(labels_of(plan) == want);
            std::string all;
            for (const std::string& note : plan.notes) {
                all += note + "\n";
            }
            return all;
        };
        CHECK(contains(missed(
                           [](Graph& g, const Parts& p) {
                               const Value y = linear(p.x, p.w);
                               g.output("sum", y + p.other);
                               g.output("y", relu(y));
                           },
                           {"matmul", "add", "activate"}),
                       "add: not in the epilogue of matmul: matmul is read by activate too"));
        CHECK(contains(missed(
                           [](Graph& g, const Parts& p) {
                               const Value y = linear(p.x, p.w);
                               g.output("y", y);
                               g.output("sum", y + p.other);
                           },
                           {"matmul", "add"}),
                       "matmul is the output y"));
        CHECK(contains(missed([](Graph& g, const Parts& p) { g.output("y", linear(p.x, p.w) + p.other + p.other); },
                              {"matmul", "add"}),
                       "it has a residual already"));
        CHECK(contains(missed(
                           [](Graph& g, const Parts& p) {
                               const Value y = linear(p.x, p.w);
                               g.output("y", y + y);
                           },
                           {"matmul", "add"}),
                       "the other operand is the product itself"));
        CHECK(contains(missed(
                           [](Graph& g, const Parts& p) {
                               const Value sum = p.bias + relu(p.bias);
                               g.output("y", rms_norm(sum, sum));
                           },
                           {"activate", "add", "rms_norm"}),
                       "its weight or bias is the sum itself"));
        CHECK(contains(missed([](Graph& g, const Parts& p) { g.output("y", relu(silu(linear(p.x, p.w)))); },
                              {"matmul", "activate"}),
                       "it has an activation already"));
        CHECK(contains(
            missed([](Graph& g, const Parts& p) { g.output("y", linear(p.x, p.w) * p.bias); }, {"matmul", "mul"}),
            "the other operand is broadcast"));
        CHECK(contains(missed(
                           [](Graph& g, const Parts& p) {
                               const Value turned = transpose(g.input("turned", {5, 6}), 0, 1);
                               g.output("y", linear(p.x, p.w) + turned);
                           },
                           {"matmul", "add"}),
                       "not stored as the result is"));
        CHECK(contains(missed(
                           [](Graph& g, const Parts& p) {
                               const Value sum = relu(p.other) + p.bias;
                               g.output("y", rms_norm(sum, {}));
                           },
                           {"activate", "add", "rms_norm"}),
                       "rms_norm: not one pass with add: an operand is broadcast"));
        CHECK(contains(missed(
                           [](Graph& g, const Parts& p) {
                               const Value sum = p.other + relu(p.other);
                               g.output("before", relu(sum));
                               g.output("y", rms_norm(sum, {}));
                           },
                           {"activate", "add", "activate", "rms_norm"}),
                       "rms_norm: not one pass with add: activate reads add before"));
        CHECK(missed([](Graph& g, const Parts& p) { g.output("y", relu(p.x) + p.x); }, {"activate", "add"}).empty());
    }

    TEST_CASE("rewrite: nothing is moved behind a write into the state that it reads") {
        const Tensor first = random_tensor({6, 5}, 5), later = random_tensor({6, 5}, 6);
        const auto run = [&](bool rewrite) {
            OpCheck check;
            check.rewrite = rewrite;
            const Value state = check.graph.state("kept", {6, 5});
            copy_into(state, check.input("first", first));
            const Value w = check.input("w", random_tensor({5, 5}, 2));
            const Value y = linear(state, w);
            copy_into(state, check.input("later", later));
            const Value sum = y + check.input("r", random_tensor({6, 5}, 4));
            const Plan plan = make_plan(check.graph, device().capabilities());
            return std::pair(check.run(sum), plan.notes);
        };
        const auto [written, none] = run(false);
        const auto [rewritten, notes] = run(true);
        CHECK(same_bits(written, rewritten));
        Graph g;
        const Value state = g.state("kept", {6, 5});
        const Value y = linear(state, g.input("w", {5, 5}));
        copy_into(state, g.input("later", {6, 5}));
        g.output("y", y + g.input("r", {6, 5}));
        const Plan plan = planned(g);
        CHECK(labels_of(plan) == Labels{"matmul", "copy_into", "add"});
        CHECK(says(plan.notes, "copy_into writes what matmul reads"));
    }

    TEST_CASE("rewrite: RoPE writes into a cache by itself, and what is read of the cache is the same") {
        const Tensor x = random_tensor({2, 3, 4, 8}, 1);
        const auto describe = [](Graph& g, Value in) {
            const Value cache = g.state("cache", {2, 9, 3, 8});
            const Value turned = rope(in, {.layout = RopeLayout::half, .max_positions = 9}, 2);
            copy_into(slice(cache, 1, 2, in.size(2)), transpose(turned, 1, 2));
            return contiguous(transpose(slice(cache, 1, 0, 6), 1, 2));
        };
        const auto run = [&](bool rewrite) {
            OpCheck check;
            check.rewrite = rewrite;
            const Dim tokens = check.graph.symbol("tokens", 4);
            return check.run(describe(check.graph, check.input("x", x, {2, 3, tokens, 8})));
        };
        CHECK(same_bits(run(true), run(false)));
        Graph g;
        g.output("y", describe(g, g.input("x", {2, 3, 4, 8})));
        const Plan plan = planned(g);
        CHECK(labels_of(plan) == Labels{"rope", "contiguous"});
        CHECK(says(plan.notes, "copy_into: written by rope"));
        const auto missed = [](const std::function<void(Graph&, Value cache, Value turned)>& f) {
            Graph other;
            const Value cache = other.state("cache", {2, 4, 8});
            f(other, cache, rope(other.input("x", {2, 4, 8}), {.layout = RopeLayout::half, .max_positions = 4}));
            other.output("y", contiguous(cache));
            return planned(other).notes;
        };
        CHECK(says(
            missed([](Graph&, Value cache, Value turned) { copy_into(slice(cache, 1, 0, 3), slice(turned, 1, 1, 3)); }),
            "not written by rope: only a part of what it gives is copied"));
        CHECK(says(missed([](Graph& in, Value cache, Value turned) {
                       copy_into(cache, turned);
                       in.output("turned", contiguous(turned));
                   }),
                   "rope is read by contiguous too"));
        CHECK(says(missed([](Graph&, Value cache, Value) {
                       copy_into(cache, rope(cache, {.layout = RopeLayout::half, .max_positions = 4}));
                   }),
                   "not written by rope: it reads the state"));
    }

    TEST_CASE("rewrite: explain() names matches, and a program compiled without has none") {
        Graph g;
        const Parts p = parts(g);
        g.output("y", linear(p.x, p.w) + p.other);
        CHECK(contains(device().compile(g).explain(), "add: in the epilogue of matmul, as its residual"));
        CHECK(!contains(device().compile(g, {}, {.rewrite = false}).explain(), "epilogue of"));
    }
}
