// SPDX-License-Identifier: Apache-2.0
// Which nodes of a graph a program runs: those that something depends on, and what stands in for
// those that its device declines.
#include <doctest/doctest.h>

#include <algorithm>

#include "layers/attention.h"
#include "runtime/compile/plan.h"
#include "runtime/device/device.h"
#include "runtime/device/device_core.h"
#include "runtime/device/insides.h"
#include "tests/believed.h"
#include "tests/device.h"
#include "tests/fixtures.h"
#include "tests/op_check.h"

using namespace vkf;
using namespace vkf::test;

namespace {

const Shader kNoShader{"none", {}};

void lower_picky(Lowering& l) {
    l.dispatch({{&kNoShader, {1}, "picky"}}, {{l.input(0), Access::read}, {l.output(0), Access::write}},
               [](const Operands&, Command&) noexcept {});
}

std::string declined_by_picky(const Capabilities& device, const NodeInfo&, WantedOutputs) {
    return device.cpu() ? "processors do not please it" : "";
}

std::vector<Value> softmax_instead(Graph& g, const NodeInfo& node, WantedOutputs) {
    return {softmax(Value(g, node.inputs[0]))};
}

std::vector<Value> picky_instead(Graph& g, const NodeInfo& node, WantedOutputs);
std::vector<Value> transposed_instead(Graph& g, const NodeInfo& node, WantedOutputs) {
    return {transpose(softmax(Value(g, node.inputs[0])), 0, 1)};
}

std::vector<Value> input_instead(Graph& g, const NodeInfo& node, WantedOutputs) { return {Value(g, node.inputs[0])}; }

constexpr OpType kPicky{"picky", lower_picky, declined_by_picky, softmax_instead};
constexpr OpType kPickier{"pickier", lower_picky, declined_by_picky, picky_instead};
constexpr OpType kTurning{"turning", lower_picky, declined_by_picky, transposed_instead};
constexpr OpType kLazy{"lazy", lower_picky, declined_by_picky, input_instead};

/// Twice its input, softmaxed, of two outputs: what a processor makes of it depends on which are
/// wanted.
std::string declined_by_both(const Capabilities& device, const NodeInfo&, WantedOutputs wanted) {
    return device.cpu() && (wanted & 2u) != 0 ? "both are wanted" : "";
}

std::vector<Value> both_instead(Graph& g, const NodeInfo& node, WantedOutputs wanted) {
    const Value x(g, node.inputs[0]);
    return {softmax(x), (wanted & 2u) != 0 ? rms_norm(x, {}) : Value()};
}

constexpr OpType kBoth{"both", lower_picky, declined_by_both, both_instead};

Value add_one(const OpType& op, Value x) {
    return x.graph().add_node(op, {x}, nullptr, {{DType::f32, x.shape(), {}, {}}}).front();
}

Value picky(Value x) { return add_one(kPicky, x); }

std::vector<Value> picky_instead(Graph& g, const NodeInfo& node, WantedOutputs) {
    return {picky(Value(g, node.inputs[0]))};
}

Capabilities of_type(DeviceType type) {
    Capabilities c;
    c.type = type;
    return c;
}

bool dispatches(const Plan& plan, const std::string& label) {
    const std::vector<std::string> all = labels_of(plan);
    return std::find(all.begin(), all.end(), label) != all.end();
}

}  // namespace

TEST_SUITE("decompose") {
    TEST_CASE("plan: what nothing depends on is not dispatched") {
        Graph g;
        const Value x = g.input("x", {4, 8});
        layer_norm(softmax(x), {}, {});
        const Value used = rms_norm(x, {});
        g.output("y", used);
        softmax(used);
        CHECK(labels_of(make_plan(g, {})) == std::vector<std::string>{"rms_norm"});
    }

    TEST_CASE("plan: what is written to a state is dispatched, and what it depends on") {
        Graph g;
        const Value x = g.input("x", {4, 8});
        const Value window = slice(g.state("cache", {6, 8}), 0, 1, 4);
        copy_into(window, softmax(x));
        g.output("y", rms_norm(x, {}));
        const Plan plan = make_plan(g, {});
        CHECK(plan.dispatches.size() == 3);
        CHECK(dispatches(plan, "softmax"));
    }

    TEST_CASE("plan: the device decides whether a node is decomposed, whichever is an output") {
        Graph g;
        const Value x = g.input("x", {4, 8});
        Value y;
        {
            const Scope scope(g, "block");
            y = picky(x);
        }
        g.output("y", rms_norm(y, {}));
        g.output("direct", y);
        const Plan gpu = make_plan(g, of_type(DeviceType::discrete));
        CHECK(labels_of(gpu) == std::vector<std::string>{"block.picky", "rms_norm"});
        CHECK(gpu.notes.empty());
        const Plan cpu = make_plan(g, of_type(DeviceType::cpu));
        CHECK(labels_of(cpu) == std::vector<std::string>{"block.softmax", "rms_norm"});
        REQUIRE(cpu.notes.size() == 1);
        CHECK(cpu.notes[0] == "block.picky: decomposed into other ops: processors do not please it");
        CHECK(cpu.values[cpu.dispatches[0].dispatch.bindings.back().value].storage ==
              cpu.named(StorageKind::output, "direct"));
        CHECK(g.nodes().size() == 2);
        // the graph is as it was
        CHECK(make_plan(g, of_type(DeviceType::discrete)).dispatches.size() == 2);
    }

    TEST_CASE("plan: what a node is decomposed into is decomposed in turn, at its place") {
        Graph g;
        const Value x = g.input("x", {4, 8});
        const Value state = g.state("kept", {4, 8});
        const Value first = contiguous(state);
        copy_into(state, add_one(kPickier, x));
        g.output("before", first);
        g.output("after", contiguous(state));
        const Plan cpu = make_plan(g, of_type(DeviceType::cpu));
        CHECK(labels_of(cpu) == std::vector<std::string>{"contiguous", "softmax", "copy_into", "contiguous"});
        CHECK(cpu.notes.size() == 2);
        CHECK(labels_of(make_plan(g, of_type(DeviceType::discrete))) ==
              std::vector<std::string>{"contiguous", "pickier", "copy_into", "contiguous"});
    }

    TEST_CASE("plan: which outputs are wanted decides, and the others are not computed") {
        const auto planned = [](bool second) {
            Graph g;
            const Value x = g.input("x", {4, 8});
            const OutputSpec like{DType::f32, x.shape(), {}, {}};
            const std::vector<Value> y = g.add_node(kBoth, {x}, nullptr, {like, like});
            g.output("y", y[0]);
            if (second) {
                g.output("z", y[1]);
            }
            return labels_of(make_plan(g, of_type(DeviceType::cpu)));
        };
        CHECK(planned(false) == std::vector<std::string>{"both"});
        CHECK(planned(true) == std::vector<std::string>{"softmax", "rms_norm"});
    }

    TEST_CASE("plan: what takes a node's place must be laid out alike, and computed for it") {
        const auto error = [](const OpType& op) {
            Graph g;
            g.output("y", add_one(op, g.input("x", {4, 4})));
            return error_of([&] { make_plan(g, of_type(DeviceType::cpu)); });
        };
        CHECK(contains(error(kTurning), "laid out alike"));
        CHECK(contains(error(kLazy), "not computed for it"));
    }

    TEST_CASE("graph: a write into a state is said by its node") {
        Graph g;
        const Value state = g.state("kept", {4, 8});
        const Value written = copy_into(slice(state, 0, 1, 2), g.input("x", {2, 8}));
        CHECK(g.nodes().back().writes == std::vector<ValueId>{written.id()});
        rms_norm(written, {});
        CHECK(g.nodes().back().writes.empty());
    }

    TEST_CASE("VKFORMER_VARIANT: names between commas, whole ones") {
        Capabilities c;
        CHECK_FALSE(c.asks_for("attention_lanes"));
        c.variants = "attention_composed,attention_lanes";
        CHECK(c.asks_for("attention_composed"));
        CHECK(c.asks_for("attention_lanes"));
        CHECK_FALSE(c.asks_for("attention"));
        CHECK_FALSE(c.asks_for("lanes"));
        CHECK_FALSE(c.asks_for(""));
    }

    TEST_CASE("VKFORMER_VARIANT: a name that is no kernel's is an error that lists what there is") {
        Graph g;
        const Value x = g.input("x", {1, 1, 4, 8});
        g.output("product", matmul(x, transpose(x, 2, 3)));
        Graph attention;
        const Value q = attention.input("q", {1, 1, 4, 8});
        attention.output("y", scaled_dot_product_attention(q, q, q).y);
        Graph rows;
        rows.output("y", softmax(rows.input("x", {4, 8})));
        Capabilities& c = Insides::core(device()).capabilities;
        const Capabilities before = c;
        for (const std::string wrong : {"attention_share", " attention_composed", "softmax", ""}) {
            for (const Graph* graph : {&g, &attention, &rows}) {
                for (const bool gpu : {false, true}) {
                    c = before;
                    if (gpu) {
                        as_gpu(c);
                    }
                    c.variants = "attention_composed," + wrong;
                    const std::string error = error_of([&] { device().compile(*graph); });
                    CHECK_MESSAGE(
                        contains(error, "VKFORMER_VARIANT: \"" + wrong + "\" is no kernel to ask for; there are "),
                        error);
                    CHECK(contains(error, ", attention_composed, "));
                }
            }
        }
        c = before;
        c.variants = "attention_share";
        CHECK(contains(error_of([&] { device().self_test({.seconds = 1}); }), "VKFORMER_VARIANT"));
        c = before;
    }

    TEST_CASE("VKFORMER_VARIANT: two kernels for one work are an error that names both") {
        const auto told = [](const std::string& asked) {
            const Environment variable("VKFORMER_VARIANT", asked);
            return error_of([] { Device::create(); });
        };
        CHECK(told("attention_lanes,attention_shared") ==
              "VKFORMER_VARIANT: asks for attention_lanes and attention_shared; one at a time");
        CHECK(contains(told("attention_composed,attention_lanes"), "asks for attention_composed and attention_lanes;"));
        CHECK(contains(told("attention_rows,attention_coopmat"), "asks for attention_rows and attention_coopmat;"));
        CHECK(contains(told("matmul_half,matvec_columns,matmul_coopmat"), "matmul_half and matmul_coopmat;"));
        CHECK(contains(told("matmul_dot,matmul_coopmat_int8"), "asks for matmul_dot and matmul_coopmat_int8;"));
        CHECK(contains(told("rows_held,rows_looped"), "asks for rows_held and rows_looped;"));
        CHECK(told("attention_shared,matmul_half,matmul_dot,matvec_columns,rows_held") == "");
        CHECK(contains(told("bogus"), "VKFORMER_VARIANT: \"bogus\" is no kernel to ask for; there are "));
    }

    TEST_CASE("explain: says what was decomposed and why") {
        Graph g;
        const Value x = g.input("x", {1, 1, 4, 8});
        g.output("y", contiguous(scaled_dot_product_attention(x, x, x).y));
        Capabilities& c = Insides::core(device()).capabilities;
        const Capabilities before = c;
        c.variants = "attention_composed";
        const std::string composed = device().compile(g).explain();
        c.variants = "attention_shared";
        const Program fused = device().compile(g);
        const std::string whole = fused.explain();
        const std::string dot = fused.dot();
        c = before;
        CHECK(contains(composed,
                       "scaled_dot_product_attention: decomposed into other ops: "
                       "VKFORMER_VARIANT asks for attention_composed"));
        CHECK(contains(composed, "VKFORMER_VARIANT=attention_composed"));
        CHECK(contains(composed, "softmax"));
        CHECK(contains(whole, "scaled_dot_product_attention"));
        CHECK_FALSE(contains(whole, "decomposed into other ops"));
        CHECK_FALSE(contains(whole, "softmax"));
        CHECK(contains(dot, "scaled_dot_product_attention"));
    }
}
