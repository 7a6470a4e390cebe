// SPDX-License-Identifier: Apache-2.0
// What gradients() and update() refuse, and what they say of it.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "layers/attention.h"
#include "ops/gradients.h"
#include "ops/optimizer.h"
#include "tests/device.h"
#include "tests/op_check.h"

using namespace vkf;
using namespace vkf::test;

namespace {

using Values = std::vector<Value>;

}  // namespace

TEST_SUITE_BEGIN("gradients");

TEST_CASE("gradients: what belongs to another graph is told so, whatever its number") {
    Graph g, h;
    const Value x = g.input("x", {4}), w = g.state("w", {4}), gradient = scale(x, 2.0f);
    Value far = h.input("far", {4});
    for (int i = 0; i < 40; ++i) {
        far = scale(far, 2.0f);
    }
    const Value there = h.state("there", {4});
    const auto updates = [&](const Values& parameters, const Values& found) {
        return error_of([&] { update(parameters, found, Sgd{}); });
    };
    CHECK(contains(updates({w, there}, {gradient, gradient}), "update: there (4) F32 belongs to another graph"));
    CHECK(contains(updates({w}, {far}), "belongs to another graph than w (4) F32"));
    CHECK(contains(error_of([&] {
                       accumulate({w, there}, {gradient, far}, g.symbol("index", 9));
                   }),
                   "accumulate: there (4) F32 belongs to another graph"));
    CHECK(contains(error_of([&] { gradients(sum(x), {far}); }), "belongs to another graph than"));
    CHECK(contains(error_of([&] { gradients(gradient, {x}, far); }), "belongs to another graph than"));
    CHECK(updates({w}, {gradient}) == "");
}

TEST_CASE("gradients: numbers of a run that are made of symbols which the graph has not are told so") {
    Graph g, h;
    const Dim far = h.symbol("far", 9);
    const Value x = g.input("x", {4}), w = g.state("w", {4});
    const auto told = [](const std::string& error, const char* op) {
        return contains(error, op) &&
               contains(error, "is made of symbol 0, and the graph has 0: it is of another graph");
    };
    CHECK(told(error_of([&] { dropout(x, 0.5f, far); }), "dropout: "));
    CHECK(told(error_of([&] { update({w}, {x}, Sgd{.momentum = 0.9}, {.step = far}); }), "update: "));
    CHECK(told(error_of([&] { accumulate({w}, {x}, far); }), "accumulate: "));
    const Value q = g.input("q", {1, 2, 3, 4});
    CHECK(told(error_of([&] { scaled_dot_product_attention(q, q, q, {.dropout = 0.5f, .dropout_seed = far}); }),
               "scaled_dot_product_attention: "));
    CHECK(contains(error_of([&] { accumulate({w}, {x}, Dim(0)); }), "accumulate: the index is the number 0"));
}

TEST_CASE("gradients: errors name what is wrong") {
    Graph g;
    const Value x = g.input("x", {3, 4}), ids = g.input("ids", {3}, DType::i32);
    CHECK(contains(error_of([&] { gradients(x * x, {x}); }), "is not one number, and there is no seed"));
    CHECK(contains(error_of([&] {
                       gradients(x * x, {x}, g.input("seed", {4, 3}));
                   }),
                   "seed seed (4, 3) F32 has another"));
    CHECK(contains(error_of([&] { gradients(sum(x), {ids}); }), "ids (3) I32"));
    Graph h;
    CHECK(contains(error_of([&] { gradients(sum(x), {h.input("y", {1})}); }), "y (1) F32 belongs to another graph"));

    const Value q = g.input("q", {1, 2, 3, 4});
    const Value moded = score_mod(q, ScoreMod::glsl("float score_mod(float s, uint, uint, uint, uint) { return s; }"));
    CHECK(contains(error_of([&] { gradients(sum(moded), {q}); }), "score_mod (score_mod) has no gradient"));
    const Value slopes = g.input("slopes", {2});
    const Value biased = softmax(q, {.mask = {.alibi_slopes = slopes}});
    CHECK(contains(error_of([&] { gradients(sum(biased * biased), {slopes}); }), "alibi_slopes"));
    const Value cache = g.state("cache", {3, 4});
    const Value written = copy_into(cache, x);
    CHECK(contains(error_of([&] {
                       gradients(sum(broadcast_to(x, {2, 3, 4})), {broadcast_to(x, {2, 3, 4})});
                   }),
                   "holds an element more than once"));
    CHECK(contains(error_of([&] { gradients(sum(written), {x}); }),
                   "no gradient passes through a state that is written"));
}

TEST_CASE("gradients: what accumulates is told by that name") {
    Graph g;
    const Value total = g.state("total", {3}), dy = g.input("dy", {4});
    CHECK(contains(error_of([&] { accumulate({total}, {dy}, g.symbol("index", 9)); }), "accumulate: gradient dy (4)"));
    CHECK(contains(error_of([&] { accumulate({total}, {}, g.symbol("other", 9)); }), "accumulate: 1 parameters"));
}

TEST_CASE("gradients: a state must not be written before its gradient is asked for") {
    Graph g;
    const Value x = g.input("x", {4});
    const Value w = g.weight("w", {4}), first = sum(x * w), second = sum(x * w * w);
    const Values parameters = trainable(g);
    update(parameters, gradients(first, parameters), Sgd{});
    CHECK(contains(error_of([&] { gradients(second, {x}); }), "writes later: ask for gradients before"));
    CHECK(contains(error_of([&] { update(parameters, {x}, Sgd{}); }), "w (4) F32 is updated already"));

    Graph h;
    const Value state = h.state("s", {4});
    copy_into(slice(state, 0, 0, 2), h.input("y", {2}));
    CHECK(contains(error_of([&] { gradients(sum(state * state), {state}); }), "a state that is written"));
}

TEST_CASE("gradients: what an update depends on must be given") {
    Graph g;
    const Value x = g.input("x", {4});
    g.weight("a.w", {4});
    CHECK(contains(error_of([&] { trainable(g, {"a.*", "typo"}); }), "no weight of the graph fits \"typo\""));
    const Values parameters = trainable(g, {"a.*"});  // the weights are as they were
    CHECK(parameters.size() == 1);
    CHECK(contains(error_of([&] { update(parameters, {x}, AdamW{}); }), "UpdateOptions::step is not given"));
    CHECK(contains(error_of([&] { update({x}, {x}, Sgd{}); }), "is not a state"));
    CHECK(contains(error_of([&] { update({parameters[0], parameters[0]}, {x, x}, Sgd{}); }), "is given twice"));
    const Scope scope(g, "opt");
    update(parameters, {x}, Sgd{.momentum = 0.5});
    CHECK(std::any_of(g.storages().begin(), g.storages().end(),
                      [](const StorageInfo& s) { return s.name == "a.w.moments"; }));
}

TEST_CASE("gradients: a name of moments that is another's is refused") {
    const char* taken = "the name of a state of its own, w.moments, is that of something else in the graph";
    Graph g;
    const Value w = g.weight("w", {4}), read = g.weight("w.moments", {2, 4}), y = w * slice(read, 0, 0, 1);
    trainable(g, {"w"});
    const Value gradient = reshape(y, {4});
    const auto adam = [&](const Values& parameters, const Values& found) {
        return error_of([&] { update(parameters, found, AdamW{}, {.step = g.symbol("step", 9)}); });
    };
    CHECK(contains(adam({w}, {gradient}), taken));  // a weight
    trainable(g, {"w.moments"});
    CHECK(contains(adam({w}, {gradient}), taken));                   // a state that is read
    CHECK(error_of([&] { update({w}, {gradient}, Sgd{}); }) == "");  // which has none

    Graph h;
    const Value v = h.state("w", {4}), moments = h.state("w.moments", {2, 4}), dv = h.input("dv", {4}),
                dm = h.input("dm", {2, 4});
    const UpdateOptions options{.step = h.symbol("step", 9)};
    CHECK(contains(error_of([&] { update({v, moments}, {dv, dm}, AdamW{}, options); }), taken));
    CHECK(contains(error_of([&] { update({moments, v}, {dm, dv}, AdamW{}, options); }), taken));
    copy_into(moments, dm);  // what the optimizer goes on from
    CHECK(error_of([&] { update({v}, {dv}, AdamW{}, options); }) == "");
    CHECK(contains(error_of([&] { update({moments}, {dm}, AdamW{}, options); }),
                   "w.moments (2, 4) F32 is updated already"));
}

TEST_CASE("gradients: an update that is refused midway updates nothing") {
    Graph g;
    const Value a = g.state("a", {4}), b = g.state("b", {4}), da = g.input("da", {4}), db = g.input("db", {4});
    g.state("b.moments", {7});
    const Sgd sgd{.learning_rate = 1, .momentum = 0.5};
    CHECK(contains(error_of([&] { update({a, b}, {da, db}, sgd); }), "b.moments is (7) F32, now (1, 4) F32"));
    CHECK(g.nodes().empty());
    CHECK(error_of([&] { update({a}, {da}, sgd); }) == "");
    CHECK(contains(
        error_of([&] { update({b}, {db}, Sgd{}, {.step = g.symbol("most", 0xffffffff), .schedule = {.warmup = 2}}); }),
        "update: the number of a step, most, may exceed 2^32 - 2"));
}

TEST_CASE("gradients: the number of a step is not negative") {
    Graph g;
    const Value w = g.state("w", {4}), dw = g.input("dw", {4});
    const Dim t = g.symbol("t", 9);
    const auto refused = [&](const Dim& step) { return error_of([&] { update({w}, {dw}, AdamW{}, {.step = step}); }); };
    CHECK(refused(-1) == "update: the number of a step, -1, is negative");
    CHECK(contains(refused(Dim(-1) - t), "is negative"));
    update({w}, {dw}, AdamW{.learning_rate = 0.125}, {.step = t - Dim(1)});
    CompileOptions options;
    State state = options.state = device().make_state({&g});
    Program program = device().compile(g, Weights(), options);
    upload(program, "dw", Tensor({4}, 1.0));
    program.set("t", 0);
    CHECK(contains(error_of([&] { program.run(); }), "update: the number of a step, "));
    std::vector<float> numbers(4, 1.0f);
    const auto read = [&] {
        const std::vector<std::byte> bytes = state.read("w");
        std::memcpy(numbers.data(), bytes.data(), bytes.size());
        return numbers;
    };
    CHECK(read() == std::vector<float>(4, 0.0f));
    program.set("t", 1);
    program.run();
    CHECK(read()[0] == doctest::Approx(-0.125));
}

TEST_SUITE_END();
