// SPDX-License-Identifier: Apache-2.0
// Whole models lowered, scheduled and laid out in memory for devices that are not there.
#include <algorithm>

#include <doctest/doctest.h>

#include "layers/torch.h"
#include "runtime/compile/plan.h"
#include "tests/dates_config.h"

using namespace vkf;
using vkf::test::dates_config;

namespace {

void describe_deep_encoder(Graph& g) {
    Value x = g.input("x", {2, g.symbol("tokens", 384), 256});
    for (int i = 0; i < 12; ++i) {
        x = torch::transformer_encoder_layer(
            x, {.name = "layers." + std::to_string(i), .nhead = 8, .dim_feedforward = 1024});
    }
    g.output("y", x);
}

Capabilities processor() {
    Capabilities c;
    c.type = DeviceType::cpu;
    c.exact_subgroup_size = 8;
    c.subgroup_shuffle = true;
    c.unified_memory = true;
    return c;
}

/// Checks that no two storages that are needed in a common step share a byte, unless one took the
/// other's memory over in place.
void check_no_overlap(const Plan& plan) {
    std::vector<Interval> lives(plan.storages.size(), {~0u, 0, 0});
    for (const PlannedDispatch& d : plan.dispatches) {
        for (const Window& w : d.windows) {
            Interval& v = lives[w.storage];
            v.first = std::min(v.first, d.step);
            v.last = std::max(v.last, d.step);
        }
    }
    for (StorageId a = 0; a < lives.size(); ++a) {
        for (StorageId b = 0; b < a; ++b) {
            if (plan.arena_offset[a] == Plan::kNotInArena || plan.arena_offset[b] == Plan::kNotInArena) {
                continue;
            }
            const bool together = lives[a].first <= lives[b].last && lives[b].first <= lives[a].last;
            const bool overlap = plan.arena_offset[a] < plan.arena_offset[b] + plan.storage_bytes[b] &&
                                 plan.arena_offset[b] < plan.arena_offset[a] + plan.storage_bytes[a];
            const bool in_place = plan.arena_offset[a] == plan.arena_offset[b] &&
                                  plan.storage_bytes[a] == plan.storage_bytes[b] &&
                                  (lives[a].last == lives[b].first || lives[b].last == lives[a].first);
            CHECK((!together || !overlap || in_place));
        }
    }
}

}  // namespace

TEST_CASE("plan: the arena is within 10 % of the peak of what is live") {
    for (const Capabilities& device : {Capabilities{}, processor()}) {
        for (int model = 0; model < 3; ++model) {
            CAPTURE(model);
            Graph g;
            if (model == 0) {
                EncoderDecoder::describe_encoder(g, dates_config(), 16);
            } else if (model == 1) {
                EncoderDecoder::describe_decoder(g, dates_config(), 16);
            } else {
                describe_deep_encoder(g);
            }
            const Plan plan = make_plan(g, device);
            const std::uint64_t bound = peak_live_bytes(plan.intervals, device.storage_alignment);
            CHECK(bound > 0);
            CHECK(plan.memory.scratch >= bound);
            CHECK(static_cast<double>(plan.memory.scratch) <= 1.1 * static_cast<double>(bound));
            check_no_overlap(plan);
        }
    }
}

TEST_CASE("plan: independent projections share a step") {
    Graph g;
    const Value x = g.input("x", {1, 5, 32});
    const Value q = linear(x, g.weight("q", {32, 32}));
    const Value k = linear(x, g.weight("k", {32, 32}));
    const Value v = linear(x, g.weight("v", {32, 32}));
    g.output("y", matmul(softmax(matmul(q, k, {.transpose_b = true})), v));
    const Plan plan = make_plan(g, processor());
    REQUIRE(plan.dispatches.size() == 4);  // one launch
    CHECK(plan.steps == 4);
    const Plan not_rewritten = make_plan(g, processor(), WeightLayout::none(), {.rewrite = false});
    REQUIRE(not_rewritten.dispatches.size() == 6);
    CHECK(not_rewritten.dispatches[0].step == not_rewritten.dispatches[1].step);
    CHECK(not_rewritten.dispatches[1].step == not_rewritten.dispatches[2].step);
    CHECK(not_rewritten.steps == 4);
}

TEST_CASE("plan: a product takes over the residual that dies in its epilogue") {
    Graph g;
    const Value x = g.input("x", {8, 8});
    const Value w = g.weight("w", {8, 8});
    const Value h = scale(x, 2.0f);
    const Value y = matmul(x, w) + h;
    // read once more after it was written
    const Value kept = matmul(y, w, {.activation = Activation::silu}) * y;
    g.output("y", contiguous(transpose(kept, 0, 1)));
    const Plan plan = make_plan(g, processor());
    const auto offset = [&](const Value& v) { return plan.arena_offset[g.values()[v.id()].storage]; };
    CHECK(offset(y) == offset(h));
    CHECK(offset(kept) != offset(y));
    check_no_overlap(plan);
}

TEST_CASE("plan: element-wise results take over an operand that dies, and no other") {
    Graph g;
    const Value x = g.input("x", {8, 8});
    const Value a = scale(x, 2.0f);
    const Value b = scale(x, 3.0f);
    const Value sum = a + b;              // a dies here: taken over
    g.output("y", scale(sum, 0.5f) + b);  // b lives on until here
    const Plan plan = make_plan(g, processor());
    const auto offset = [&](const Value& v) { return plan.arena_offset[g.values()[v.id()].storage]; };
    CHECK(offset(sum) == offset(a));
    CHECK(offset(b) != offset(a));
    check_no_overlap(plan);
}

TEST_CASE("plan: a product of constant sizes needs one kernel, of others each that could be chosen") {
    const auto product = [](const Capabilities& device, bool constant) {
        Graph g;
        const Dim rows = constant ? Dim(530) : g.symbol("rows", 530);
        g.output("y", linear(g.input("x", {rows, 516}), g.input("w", {516, 516})));
        return make_plan(g, device).dispatches.front();
    };
    const PlannedDispatch constant = product(processor(), true), open = product(processor(), false);
    REQUIRE(open.dispatch.kernels.size() > 1);
    CHECK(constant.dispatch.kernels.size() == open.dispatch.kernels.size());
    CHECK(open.only_kernel == -1);
    REQUIRE(constant.only_kernel >= 0);
    for (std::size_t k = 0; k < open.dispatch.kernels.size(); ++k) {
        CHECK(open.may_choose(k));
        CHECK(constant.may_choose(k) == (k == static_cast<std::size_t>(constant.only_kernel)));
    }
}

TEST_CASE("plan: every description fits the four storage buffers of the minimum") {
    Capabilities minimum;
    minimum.clamp_to_minimum();
    Graph g;
    EncoderDecoder::describe_decoder(g, dates_config(), 4);
    for (const PlannedDispatch& d : make_plan(g, minimum).dispatches) {
        CHECK(d.windows.size() <= 4);
        for (const Window& w : d.windows) {
            CHECK(w.base % minimum.storage_alignment == 0);
            CHECK(w.bytes <= minimum.storage_range);
        }
    }
}
