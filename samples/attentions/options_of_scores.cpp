// SPDX-License-Identifier: Apache-2.0
// What changes the scores, or the weights, of scaled_dot_product_attention.
#include <cmath>
#include <cstdio>

#include "example.h"

namespace {

constexpr std::int64_t kHeads = 4, kTokens = 6, kHeadDim = 16;
const Floats kSlopes{0.5f, 0.25f, 0.125f, 0.0625f};

struct Qkv {
    Value query, key, value;
};

Qkv inputs(Graph& g) {
    const Shape shape{1, kHeads, kTokens, kHeadDim};
    return {g.input("query", shape), g.input("key", shape), g.input("value", shape)};
}

AttentionResult attend(const Qkv& x, const AttentionOptions& o = {}) {
    return scaled_dot_product_attention(x.query, x.key, x.value, o);
}

/// q k^T / sqrt(d), (1, H, L, S).
Value scores_of(const Qkv& x) { return matmul(x.query, x.key, {.scale = 0.25f, .transpose_b = true}); }

/// -slope |i - j|, (H, L, S).
Floats distances() {
    Floats out;
    for (const float slope : kSlopes) {
        for (std::int64_t i = 0; i < kTokens; ++i) {
            for (std::int64_t j = 0; j < kTokens; ++j) {
                out.push_back(-slope * static_cast<float>(std::abs(i - j)));
            }
        }
    }
    return out;
}

void alibi(Examples& e) {
    Graph g;
    const Qkv x = inputs(g);
    const Value slopes = g.constant("slopes", {kHeads}, kSlopes);
    give("y", attend(x, {.mask = {.alibi_slopes = slopes, .causal = Causal::bottom_right}}));
    const Value bias = g.constant("distances", {kHeads, kTokens, kTokens}, distances());
    give("want", attend(x, {.mask = {.bias = bias, .causal = Causal::bottom_right}}));
    Tensors r = e.run(g);
    e.close("ALiBi = a bias of -slope |i - j|", r["y"], r["want"]);
}

void softcap(Examples& e) {
    Graph g;
    const Qkv x = inputs(g);
    give("y", attend(x, {.softcap = 0.5f}));
    const Value capped = scale(activate(scale(scores_of(x), 2.0f), Activation::tanh), 0.5f);
    give("want", matmul(softmax(capped), x.value));
    Tensors r = e.run(g);
    e.close("softcap c: scores become c tanh(s / c)", r["y"], r["want"]);
}

/// One more logit without a key takes its share: y is what it was, times the share that is left.
void sinks(Examples& e) {
    Graph g;
    const Qkv x = inputs(g);
    const Floats numbers{0.0f, 0.5f, 1.0f, 1.5f};  // of 0: softmax-off-by-one
    give("sinking", attend(x, {.sinks = g.constant("sinks", {kHeads}, numbers)}));
    const AttentionResult a = attend(x, {.log_sum_exp = true});
    give("y", a.y);
    give("lse", a.log_sum_exp);
    Tensors r = e.run(g);
    for (std::size_t i = 0; i < r["y"].size(); ++i) {
        const double sum = std::exp(r["lse"][i / kHeadDim]);
        const double sink = std::exp(numbers[i / (kTokens * kHeadDim)]);
        r["y"][i] = static_cast<float>(r["y"][i] * sum / (sum + sink));
    }
    e.close("attention sinks: y shrinks by the share of the sink", r["sinking"], r["y"]);
}

void dropped(Examples& e) {
    Graph g;
    const Qkv x = inputs(g);
    const auto with = [&](float p, std::uint32_t seed) { return attend(x, {.dropout = p, .dropout_seed = seed}); };
    give("y", with(0.25f, 7));
    give("again", with(0.25f, 7));
    give("other", with(0.25f, 8));
    give("want", matmul(dropout(softmax(scores_of(x)), 0.25f, 7), x.value));
    Tensors r = e.run(g);
    e.same("dropout: the same seed, the same bits", r["y"], r["again"]);
    e.holds("another seed drops others", r["y"] != r["other"]);
    e.close("it is dropout(weights) v", r["y"], r["want"]);
}

void modded(Examples& e) {
    if (glsl_compiler().empty()) {
        std::puts("  no GLSL compiler for score mods: install libshaderc1, or build with VKFORMER_RUNTIME_GLSLANG=ON");
        return;
    }
    const ScoreMod mod = ScoreMod::glsl(
        "float score_mod(float score, uint batch, uint head, uint query, uint key) {\n"
        "    return key > query ? negative_infinity() : score - parameter(head) * float(query - key);\n"
        "}",
        kSlopes);
    Graph g;
    const Qkv x = inputs(g);
    const Value bias = g.constant("distances", {kHeads, kTokens, kTokens}, distances());
    const AttentionOptions same{.mask = {.bias = bias, .causal = Causal::top_left}};
    give("y", attend(x, {.score_mod = mod}));
    give("want", attend(x, same));
    give("alone", matmul(softmax(score_mod(scores_of(x), mod)), x.value, {.masked_weights = true}));
    Tensors r = e.run(g);
    e.close("a score mod that is causal ALiBi = causal ALiBi", r["y"], r["want"]);
    e.close("score_mod() on scores of one's own", r["alone"], r["want"]);
}

}  // namespace

void options_of_scores(Examples& e) {
    e.family("options of the scores and weights");
    alibi(e);
    softcap(e);
    sinks(e);
    dropped(e);
    modded(e);
}
