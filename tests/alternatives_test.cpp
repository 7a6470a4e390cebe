// SPDX-License-Identifier: Apache-2.0
// Which nodes of a graph a program runs: those that something depends on, and of alternatives what the device can run.
#include <doctest/doctest.h>

#include <algorithm>

#include "layers/attention.h"
#include "runtime/device/device.h"
#include "runtime/device/device_core.h"
#include "tests/device.h"
#include "tests/op_check.h"

using namespace vkf;
using namespace vkf::test;

namespace {

const Shader kNoShader{"none", {}};

void lower_picky(Lowering& l) {
    l.dispatch({{&kNoShader, {1}, "picky"}}, {{l.input(0), Access::read}, {l.output(0), Access::write}},
               [](const Operands&, Command&) noexcept {});
}

std::string declined_by_picky(const Capabilities& device, const NodeInfo&) {
    return device.cpu() ? "processors do not please it" : "";
}

constexpr OpType kPicky{"picky", lower_picky, declined_by_picky};

Value picky(Value x) { return x.graph().add_node(kPicky, {x}, nullptr, {{DType::f32, x.shape(), {}, {}}}).front(); }

Capabilities of_type(DeviceType type) {
    Capabilities c;
    c.type = type;
    return c;
}

/// Labels of what is dispatched, in order.
std::vector<std::string> labels(const Plan& plan) {
    std::vector<std::string> out;
    for (const PlannedDispatch& d : plan.dispatches) {
        out.push_back(plan.nodes[d.dispatch.node].label);
    }
    return out;
}

bool dispatches(const Plan& plan, const std::string& label) {
    const std::vector<std::string> all = labels(plan);
    return std::find(all.begin(), all.end(), label) != all.end();
}

}  // namespace

TEST_SUITE("alternatives") {
    TEST_CASE("plan: what nothing depends on is not dispatched") {
        Graph g;
        const Value x = g.input("x", {4, 8});
        layer_norm(softmax(x), {}, {});
        const Value used = rms_norm(x, {});
        g.output("y", used);
        softmax(used);
        CHECK(labels(make_plan(g, {})) == std::vector<std::string>{"rms_norm"});
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

    TEST_CASE("plan: of two alternatives the device decides, whichever is an output") {
        Graph g;
        const Value x = g.input("x", {4, 8});
        const Value otherwise = softmax(x);
        const Value y = g.prefer(picky(x), otherwise);
        g.output("y", rms_norm(y, {}));
        g.output("direct", y);
        const Plan gpu = make_plan(g, of_type(DeviceType::discrete));
        CHECK(labels(gpu) == std::vector<std::string>{"picky", "rms_norm"});
        CHECK(gpu.notes.empty());
        const Plan cpu = make_plan(g, of_type(DeviceType::cpu));
        CHECK(labels(cpu) == std::vector<std::string>{"softmax", "rms_norm"});
        REQUIRE(cpu.notes.size() == 1);
        CHECK(cpu.notes[0] == "picky: composed of other ops: processors do not please it");
        CHECK(cpu.values[cpu.dispatches[0].dispatch.bindings.back().value].storage ==
              cpu.named(StorageKind::output, "direct"));
    }

    TEST_CASE("plan: both alternatives may be wanted for what hangs on one of them") {
        Graph g;
        const Value x = g.input("x", {4, 8});
        const Value before = softmax(x);
        g.output("y", g.prefer(picky(before), rms_norm(before, {})));
        g.output("weights", before);
        CHECK(labels(make_plan(g, of_type(DeviceType::discrete))) == std::vector<std::string>{"softmax", "picky"});
        CHECK(labels(make_plan(g, of_type(DeviceType::cpu))) == std::vector<std::string>{"softmax", "rms_norm"});
    }

    TEST_CASE("plan: an alternative of an alternative") {
        Graph g;
        const Value x = g.input("x", {4, 8});
        const Value last = g.prefer(picky(x), softmax(x));
        g.output("y", g.prefer(picky(x), last));
        CHECK(labels(make_plan(g, of_type(DeviceType::cpu))) == std::vector<std::string>{"softmax"});
        CHECK(make_plan(g, of_type(DeviceType::discrete)).dispatches.size() == 1);
    }

    TEST_CASE("prefer: alternatives must be laid out alike, and the preferred one computed") {
        Graph g;
        const Value x = g.input("x", {4, 8});
        CHECK(contains(error_of([&] { g.prefer(picky(x), softmax(g.input("other", {8, 4}))); }), "laid out alike"));
        CHECK(contains(
            error_of([&] {
                g.prefer(picky(g.input("square", {4, 4})), transpose(softmax(picky(g.input("t", {4, 4}))), 0, 1));
            }),
            "laid out alike"));
        CHECK(contains(error_of([&] { g.prefer(x, softmax(x)); }), "not what a node gives"));
        CHECK(contains(error_of([&] { g.prefer(picky(x), x); }), "not a computed tensor"));
        const Value tall = softmax(g.input("tall", {8, 8}));
        CHECK(contains(error_of([&] { g.prefer(picky(x), slice(tall, 0, 0, 4)); }), "not a computed tensor"));
        const Value read = picky(x);
        softmax(read);
        CHECK(contains(error_of([&] { g.prefer(read, softmax(x)); }), "read already"));
        const Value other = softmax(x);
        g.output("y", g.prefer(picky(x), other));
        CHECK(contains(error_of([&] { g.output("o", other); }), "other way"));
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

    TEST_CASE("explain: says which alternative was taken and why") {
        Graph g;
        const Value x = g.input("x", {1, 1, 4, 8});
        g.output("y", contiguous(scaled_dot_product_attention(x, x, x).y));
        Capabilities& c = device().core().capabilities;
        const Capabilities before = c;
        c.variants = "attention_composed";
        const std::string composed = device().compile(g).explain();
        c.variants = "attention_shared";
        const Program fused = device().compile(g);
        const std::string whole = fused.explain();
        const std::string dot = fused.dot();
        c = before;
        CHECK(
            contains(composed, "fused_attention: composed of other ops: VKFORMER_VARIANT asks for attention_composed"));
        CHECK(contains(composed, "VKFORMER_VARIANT=attention_composed"));
        CHECK(contains(composed, "softmax"));
        CHECK(contains(whole, "fused_attention"));
        CHECK_FALSE(contains(whole, "composed of other ops"));
        CHECK_FALSE(contains(whole, "softmax"));
        CHECK(contains(dot, "fused_attention"));
    }
}
