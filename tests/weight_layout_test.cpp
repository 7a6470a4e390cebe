// SPDX-License-Identifier: Apache-2.0
// Where weights lie is known before they are there, and what is compiled for that takes them later.
#include <doctest/doctest.h>

#include <deque>

#include "ops/ops.h"
#include "runtime/compile/plan.h"
#include "tests/device.h"
#include "tests/fixtures.h"
#include "tests/host.h"
#include "tests/op_check.h"

using namespace vkf;
using namespace vkf::test;

namespace {

/// Tensors with data, and the same without.
class File {
public:
    void add(const std::string& name, DType dtype, const std::vector<std::int64_t>& shape) {
        std::vector<std::byte>& bytes = bytes_.emplace_back(*byte_size(dtype, shape));
        tensors.push_back({name, dtype, shape, bytes});
        headers.push_back({name, dtype, shape, {}});
    }

    std::vector<HostTensor> tensors, headers;

private:
    std::deque<std::vector<std::byte>> bytes_;
};

void check_same(const WeightLayout& a, const WeightLayout& b) {
    CHECK(a.tensors() == b.tensors());
    CHECK(a.blocks() == b.blocks());
}

}  // namespace

TEST_SUITE_BEGIN("weight layout");

TEST_CASE("weight layout: names, types, shapes and places without data are those that loading gives") {
    File file;
    file.add("table", DType::f16, {7, 40});
    file.add("bias", DType::f16, {40});
    file.add("scalar", DType::f32, {});
    file.add("ids", DType::i32, {3});
    file.add("w", DType::f32, {33, 70});
    file.add("brain", DType::bf16, {5, 5});
    file.add("cube", DType::bf16, {2, 3, 5});
    const auto check = [&](const LoadOptions& options) {
        check_same(make_weight_layout(file.headers, device().capabilities(), options),
                   device().load(file.tensors, options).layout());
    };
    check({});
    for (const WeightType type :
         {WeightType::f32, WeightType::f16, WeightType::bf16, WeightType::int8, WeightType::int4}) {
        check({.matrices = type});
        check({.matrices = type, .pack_on = PackOn::device});
    }
    LoadOptions mixed{.matrices = WeightType::int8};
    mixed.choose = [](const HostTensor& t) {
        CHECK(t.name != "bias");
        return t.name == "w" ? std::optional(WeightType::int4) : std::nullopt;
    };
    check(mixed);
    const WeightLayout layout = make_weight_layout(file.headers, device().capabilities(), mixed);
    CHECK(layout.find("w")->type == WeightType::int4);
    CHECK(layout.find("table")->type == WeightType::int8);
    CHECK(layout.find("bias")->bytes == 160);
    const WeightLayout as_given = make_weight_layout(file.headers, device().capabilities());
    CHECK(as_given.find("brain")->type == WeightType::bf16);
    CHECK(as_given.find("w")->type == WeightType::f32);
}

TEST_CASE("weight layout: tensors that cannot be are named") {
    const auto message = [](std::vector<HostTensor> tensors, const LoadOptions& options = {}) {
        return error_of([&] { make_weight_layout(tensors, device().capabilities(), options); });
    };
    CHECK(contains(message({{"w", DType::f32, {2, 2}, {}}, {"w", DType::f32, {3}, {}}}), "weight w: is given twice"));
    CHECK(contains(message({{"w", DType::f32, {-1}, {}}}), "weight w: has a shape whose bytes cannot be counted"));
    CHECK(contains(message({{"w", DType::f32, {4, 8}, {}, WeightType::int8}}, {.matrices = WeightType::int4}),
                   "weight w: is packed as int8; int4 was asked for"));
}

TEST_CASE("weight layout: tensors are loaded as a layout has them, or refused by name") {
    const std::vector<float> numbers(64, 1.5f);
    const auto bytes = std::as_bytes(std::span(numbers));
    const std::vector<HostTensor> tensors{{"a", DType::f32, {2, 32}, bytes}, {"b", DType::f32, {64}, bytes}};
    const Capabilities& on = device().capabilities();
    const WeightLayout layout = make_weight_layout(tensors, on, {.matrices = WeightType::int8});
    const std::vector<HostTensor> turned{tensors[1], tensors[0]};
    std::uint64_t done = 0;
    const Weights weights = device().load(turned, layout, [&](std::uint64_t now, std::uint64_t) { done = now; });
    CHECK(weights.layout().tensors() == layout.tensors());
    CHECK(done == weights.find("a")->bytes + weights.find("b")->bytes);

    const auto refusal = [&](const std::vector<HostTensor>& some, const WeightLayout& as) {
        return error_of([&] { device().load(some, as); });
    };
    CHECK(contains(refusal({tensors[0]}, layout), "weight b: is in the layout, but is not given"));
    CHECK(contains(refusal({tensors[0], tensors[0], tensors[1]}, layout), "weight a: is given twice"));
    CHECK(contains(refusal(tensors, make_weight_layout(std::span(tensors).first(1), on)), "weight b: has no place"));
    const std::vector<HostTensor> wider{{"a", DType::f32, {1, 64}, bytes}, tensors[1]};
    CHECK(contains(refusal(wider, layout), "weight a: becomes (1, 64) int8, the layout has it as (2, 32) int8"));
    const WeightLayout elsewhere({*layout.find("b"), *layout.find("a")}, on.storage_alignment + 4, 1 << 20);
    CHECK(contains(refusal(tensors, elsewhere), "weight a: lies at byte"));
}

TEST_CASE("weight layout: a program is compiled before its weights are there, and answers the same") {
    Graph g;
    SmallModel::describe(g, 9);
    const Weights weights = SmallModel::load(device());
    const std::vector<HostTensor> headers{{"w", DType::f32, {24, 24}, {}}, {"b", DType::f32, {24}, {}}};
    const WeightLayout layout = make_weight_layout(headers, device().capabilities());
    check_same(layout, weights.layout());
    Program program = device().compile(g, layout, {});
    CHECK(program.memory().weights == device().compile(g, weights).memory().weights);
    const std::string missing = error_of([&] { program.run(); });
    CHECK_MESSAGE(contains(missing, "was never uploaded"), missing);
    const std::string none = error_of([&] { program.allocate(); });
    CHECK_MESSAGE(contains(none, "program: has no weights yet; it names 2, "), none);
    CHECK(contains(none, " among them: set_weights() must come before"));
    CHECK(error_of([&] { upload(program, "x", SmallModel::input(9)); }) == none);
    program.set_weights(weights);
    CHECK(SmallModel::check(program, 9) == "");
    CHECK(contains(error_of([&] { program.set_weights(weights); }), "its weights must come before"));
}

TEST_CASE("weight layout: weights that lie otherwise than a program was compiled for are refused by name") {
    Graph g;
    const Value x = g.input("x", {3, 64});
    const Value a = linear(x, g.weight("a", {64, 64}));
    const Value b = linear(x, g.weight("b", {64, 64}));
    g.output("y", matmul(a, b, {.transpose_b = true}));
    File file;
    file.add("a", DType::f32, {64, 64});
    file.add("b", DType::f32, {64, 64});
    file.add("c", DType::f32, {64, 64});
    const auto layout = [&](const LoadOptions& options = {}) {
        return make_weight_layout(file.headers, device().capabilities(), options);
    };
    Program program = device().compile(g, layout({.matrices = WeightType::int8}), {});
    CHECK(contains(program.explain(), "2 weights, one launch"));
    const auto refusal = [&](const std::vector<HostTensor>& tensors, WeightType type) {
        const Weights weights = device().load(tensors, {.matrices = type});
        return error_of([&] { program.set_weights(weights); });
    };
    CHECK(contains(refusal(file.tensors, WeightType::f16),
                   "weight a: is (64, 64) F32 kept as f16, the program was compiled for (64, 64) F32 kept as int8"));
    CHECK(contains(refusal({file.tensors[0], file.tensors[2]}, WeightType::int8), "weight b: is missing"));
    CHECK(contains(refusal({file.tensors[0], file.tensors[2], file.tensors[1]}, WeightType::int8),
                   "weight b: does not lie behind a, for which the program was compiled"));
    CHECK(contains(error_of([&] { program.set_weights({}); }), "weight a: is missing"));
    const Weights fitting = device().load(file.tensors, {.matrices = WeightType::int8});
    program.set_weights(fitting);
    upload(program, "x", random_tensor({3, 64}, 1));
    program.run();

    CHECK(contains(error_of([&] { device().compile(g, WeightLayout::none(), {}); }), "weight a: is missing"));
    Graph wider;
    wider.output("y", linear(wider.input("x", {3, 65}), wider.weight("a", {64, 65})));
    CHECK(contains(error_of([&] { device().compile(wider, layout(), {}); }),
                   "weight a: is (64, 64) F32, the graph wants (64, 65) F32"));
    CHECK(contains(error_of([&] { make_plan(wider, device().capabilities(), layout()); }), "the graph wants (64, 65"));
}

TEST_CASE("weight layout: weights of another device are refused") {
    Graph g;
    SmallModel::describe(g, 4);
    const Weights weights = SmallModel::load(device());
    Device other = Device::create();
    {
        Program program = other.compile(g, weights.layout(), {});
        CHECK(contains(error_of([&] { program.set_weights(weights); }), "of another device"));
    }
    CHECK(last_words(std::move(other)) == "");
}

TEST_SUITE_END();
