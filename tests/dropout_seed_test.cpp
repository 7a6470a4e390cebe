// SPDX-License-Identifier: Apache-2.0
// Dropout whose seed is made of symbols: one program draws anew in each run, forward and backward
// alike.
#include <doctest/doctest.h>

#include <functional>
#include <optional>

#include "layers/feed_forward.h"
#include "layers/linear.h"
#include "layers/torch.h"
#include "ops/gradients.h"
#include "ops/recompute.h"
#include "runtime/compile/plan.h"
#include "tests/device.h"
#include "tests/op_check.h"
#include "tests/reference.h"
#include "tests/reference_attention.h"

using namespace vkf;
using namespace vkf::test;

namespace {

/// A program of one input "x" and a symbol "step", and the outputs that are looked at.
class SeededProgram {
public:
    using Describe = std::function<std::vector<Value>(Value x, const Dim& step)>;

    SeededProgram(const Tensor& x, std::int64_t most_steps, const Describe& describe) : x_(x) {
        Graph g;
        const Value input = g.input("x", Shape(x.shape.begin(), x.shape.end()));
        const Dim step = most_steps == 0 ? Dim(0) : g.symbol("step", most_steps);
        for (const Value& y : describe(input, step)) {
            g.output("y" + std::to_string(outputs_++), contiguous(y));
        }
        program_.emplace(device().compile(g));
    }

    std::vector<Tensor> run() {
        upload(*program_, "x", x_);
        program_->run();
        std::vector<Tensor> out;
        for (std::size_t i = 0; i < outputs_; ++i) {
            out.push_back(download(*program_, "y" + std::to_string(i)));
        }
        return out;
    }
    std::vector<Tensor> run(std::int64_t step) {
        program_->set("step", step);
        return run();
    }

private:
    Tensor x_;
    std::size_t outputs_ = 0;
    std::optional<Program> program_;
};

/// Attention of x (B, H, L, d) to itself, and the gradient of half its square.
std::vector<Value> attend_seeded(const Value& x, const Dim& seed) {
    const Value y = scaled_dot_product_attention(
                        x, x, x, {.mask = {.causal = Causal::top_left}, .dropout = 0.3f, .dropout_seed = seed})
                        .y;
    return {y, gradients(scale(sum(y * y), 0.5f), {x}).front()};
}

bool all_same_bits(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
    bool same = a.size() == b.size();
    for (std::size_t i = 0; same && i < a.size(); ++i) {
        same = same_bits(a[i], b[i]);
    }
    return same;
}

}  // namespace

TEST_SUITE_BEGIN("dropout seed");

TEST_CASE("dropout seed: each run of a program draws what its seed says") {
    const Tensor x = random_tensor({13, 20}, 1);
    for (const bool transposed : {false, true}) {
        const Tensor seen = transposed ? transpose(x, 0, 1) : x;
        SeededProgram program(x, 4294967295, [&](Value v, const Dim& step) {
            v = transposed ? transpose(v, 0, 1) : v;
            // the second goes beyond 2^32, and beyond what a tensor's size may be
            return std::vector{dropout(v, 0.4f, step), dropout(v, 0.4f, step * 12 + 5)};
        });
        Tensor before;
        for (const std::int64_t step : {0ll, 1ll, 7ll, 3000000000ll, 4294967295ll}) {
            const std::vector<Tensor> y = program.run(step);
            const auto at = [&](std::int64_t seed) {
                return reference::dropout(seen, static_cast<double>(0.4f), static_cast<std::uint32_t>(seed));
            };
            CHECK(difference(y[0], at(step)) == "");
            CHECK(difference(y[1], at(step * 12 + 5)) == "");
            CHECK_FALSE(same_bits(y[0], y[1]));
            CHECK_FALSE(same_bits(y[0], before));
            before = y[0];
        }
    }
}

TEST_CASE("dropout seed: a number beyond 32 bits counts modulo 2^32") {
    OpCheck check;
    const Tensor x = random_tensor({6, 7}, 2);
    const Value v = check.input("x", x);
    CHECK(same_bits(check.run(dropout(v, 0.5f, 9)), check.run(dropout(v, 0.5f, (std::int64_t{1} << 32) + 9))));
    CHECK(same_bits(check.run(dropout(v, 0.5f, 4294967295u)), check.run(dropout(v, 0.5f, -1))));
}

TEST_CASE("dropout seed: attention, and its gradient, are those of the number") {
    // composed, and of more queries and keys than a processor composes
    for (const Sizes& shape : {Sizes{2, 3, 9, 8}, Sizes{1, 2, 140, 16}}) {
        const auto compare = [&](const char* where) {
            CAPTURE(where);
            CAPTURE(shape[2]);
            const Tensor x = random_tensor(shape, 3);
            SeededProgram program(x, 1000, [](Value v, const Dim& step) { return attend_seeded(v, step * 3 + 1); });
            std::vector<Tensor> before;
            for (const std::int64_t step : {0, 5, 999}) {
                const std::vector<Tensor> got = program.run(step);
                const auto seed = static_cast<std::uint32_t>(step * 3 + 1);
                SeededProgram fixed(x, 0, [&](Value v, const Dim&) { return attend_seeded(v, seed); });
                CHECK(all_same_bits(got, fixed.run()));
                reference::AttentionOptions o;
                o.scores.causal = Causal::top_left;
                o.dropout = static_cast<double>(0.3f);
                o.dropout_seed = seed;
                CHECK(difference(got[0], reference::attention(x, x, x, o).y, {.absolute = 1e-5}) == "");
                CHECK((before.empty() || !same_bits(got[0], before[0])));
                CHECK((before.empty() || !same_bits(got[1], before[1])));
                before = got;
            }
            CHECK(all_same_bits(program.run(999), before));
        };
        compare("as it is");
        const AsSmallGpu small_gpu;
        compare("as on a small GPU");
    }
}

TEST_CASE("dropout seed: constant sizes choose one kernel, whatever the seed is") {
    Capabilities processor;
    processor.type = DeviceType::cpu;
    processor.exact_subgroup_size = 8;
    processor.subgroup_shuffle = true;
    Graph g;
    const Value x = g.input("x", {1, 2, 200, 16});
    const Value y = scaled_dot_product_attention(x, x, x, {.dropout = 0.5f, .dropout_seed = g.symbol("step", 9)}).y;
    g.output("y", contiguous(y));
    const Plan plan = make_plan(g, processor);
    REQUIRE(plan.dispatches.front().dispatch.kernels.size() == 2);
    CHECK(plan.dispatches.front().only_kernel == 1);
}

TEST_CASE("dropout seed: what is computed again draws the same") {
    const Tensor x = random_tensor({1, 2, 140, 16}, 4);
    const auto describe = [](bool again) {
        return [again](Value v, const Dim& step) {
            Graph& g = v.graph();
            Value y = v;
            for (int layer = 0; layer < 2; ++layer) {
                if (again) {
                    g.begin_recompute();
                }
                const Dim seed = step * 4 + 2 * layer;
                y = scaled_dot_product_attention(y, y, y, {.dropout = 0.3f, .dropout_seed = seed}).y;
                y = silu(dropout(y, 0.2f, seed + 1));
                if (again) {
                    g.end_recompute();
                }
            }
            return gradients(sum(y * y), {v});
        };
    };
    SeededProgram kept(x, 9, describe(false)), again(x, 9, describe(true));
    for (const std::int64_t step : {2, 3}) {
        CHECK(all_same_bits(kept.run(step), again.run(step)));
    }
    CHECK_FALSE(all_same_bits(kept.run(2), kept.run(3)));
}

namespace {

constexpr float kDropped = 0.3f;
constexpr std::int64_t kPlaces = 6;  // of a layer

/// Dropout of x as place `place` of layer `layer` draws it.
Value drop_at(Value x, const Dim& seed, std::int64_t layer, std::int64_t place) {
    return dropout(x, kDropped, seed + (layer * kPlaces + place) * 0x9e3779b1);
}

Value attend_at(Value x, Value memory, const char* name, const Dim& seed, std::int64_t n) {
    return torch::multihead_attention(
               x, memory, memory,
               {.name = name, .num_heads = 2, .dropout = kDropped, .dropout_seed = seed + n * 0x9e3779b1})
        .y;
}

Value feed_forward_at(Value x, const Dim& seed, std::int64_t layer) {
    return linear_layer(drop_at(linear_layer(x, "linear1", 12, true, Activation::relu), seed, layer, 4), "linear2", 8);
}

/// PyTorch's two layers, post-norm, written out; n is the layer's number.
Value encoder_layer_by_hand(Value x, const Dim& seed, std::int64_t n) {
    x = torch::layer_norm_layer(x + drop_at(attend_at(x, x, "self_attn", seed, n * kPlaces), seed, n, 1), "norm1");
    return torch::layer_norm_layer(x + drop_at(feed_forward_at(x, seed, n), seed, n, 5), "norm2");
}
Value decoder_layer_by_hand(Value x, Value memory, const Dim& seed, std::int64_t n) {
    x = torch::layer_norm_layer(x + drop_at(attend_at(x, x, "self_attn", seed, n * kPlaces), seed, n, 1), "norm1");
    x = torch::layer_norm_layer(x + drop_at(attend_at(x, memory, "multihead_attn", seed, n * kPlaces + 2), seed, n, 3),
                                "norm2");
    return torch::layer_norm_layer(x + drop_at(feed_forward_at(x, seed, n), seed, n, 5), "norm3");
}

}  // namespace

TEST_CASE("dropout seed: a Transformer drops where PyTorch's does, each place with a draw of its own") {
    Graph g;
    const Dim step = g.symbol("step", 1000);
    const Value src = g.input("src", {2, 5, 8}), tgt = g.input("tgt", {2, 4, 8});
    const torch::TransformerLayerOptions layer{
        .nhead = 2, .dim_feedforward = 12, .dropout = kDropped, .dropout_seed = step};
    const auto whole = [&](const torch::TransformerLayerOptions& l) {
        return torch::transformer(src, tgt, {.layer = l, .num_encoder_layers = 2, .num_decoder_layers = 2});
    };
    g.output("layers", whole(layer));
    torch::TransformerLayerOptions evaluating = layer;
    evaluating.dropout = 0.0f;
    g.output("evaluating", whole(evaluating));
    Value x = src, y = tgt;
    for (std::int64_t i = 0; i < 2; ++i) {
        const Scope scope(g, "encoder.layers." + std::to_string(i));
        x = encoder_layer_by_hand(x, step, i);
    }
    x = torch::layer_norm_layer(x, "encoder.norm");
    for (std::int64_t i = 0; i < 2; ++i) {
        const Scope scope(g, "decoder.layers." + std::to_string(i));
        y = decoder_layer_by_hand(y, x, step, 2 + i);
    }
    g.output("by hand", torch::layer_norm_layer(y, "decoder.norm"));

    Program program = device().compile(g, random_weights({&g}));
    upload(program, "src", random_tensor({2, 5, 8}, 18));
    upload(program, "tgt", random_tensor({2, 4, 8}, 19));
    Tensor before;
    for (const std::int64_t at : {0, 1, 999}) {
        program.set("step", at);
        program.run();
        const Tensor got = download(program, "layers");
        CHECK(difference(got, download(program, "by hand"), {.absolute = 1e-5}) == "");
        CHECK_FALSE(same_bits(got, before));
        CHECK(difference(got, download(program, "evaluating"), {.absolute = 1e-2}) != "");
        before = got;
    }
}

TEST_SUITE_END();
