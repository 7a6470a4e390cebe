// SPDX-License-Identifier: Apache-2.0
// Rotary positions with each scaling, partial, and from a caller's table; sinusoidal positions.
#include <cmath>

#include "example.h"

namespace {

constexpr std::int64_t kTokens = 8, kHeadDim = 32;
constexpr std::size_t kPairs = kHeadDim / 2;
using Kind = RopeScaling::Kind;

/// Angle by which a token of position 63 turns pair `pair`, out of a table's cos and sin; in
/// -pi..pi.
float angle(const Rope& options, std::size_t pair) {
    const Floats table = rope_table(options, kHeadDim);
    const std::size_t at = (63 * kPairs + pair) * 2;
    return std::atan2(table[at + 1], table[at]);
}

void scalings(Examples& e) {
    const Rope plain{.theta = 10000.0, .layout = RopeLayout::interleaved, .max_positions = 64};
    Graph g;
    const Value x = g.input("x", {1, 2, kTokens, kHeadDim});
    const auto with = [&](const RopeScaling& scaling) {
        Rope o = plain;
        o.scaling = scaling;
        return o;
    };
    const Rope linear = with({.kind = Kind::linear, .factor = 4.0});
    const Rope ntk = with({.kind = Kind::ntk, .factor = 4.0});
    Rope longer = plain;
    longer.theta *= std::pow(4.0, kHeadDim / (kHeadDim - 2.0));
    give("linear", rope_at(x, g.input("far", {kTokens}, DType::i32), linear));
    give("plain", rope_at(x, g.input("near", {kTokens}, DType::i32), plain));
    give("ntk", rope(x, ntk));
    give("theta", rope(x, longer));
    Tensors r = e.run(g, {.integers = {{"far", {0, 4, 8, 12, 16, 20, 24, 28}}, {"near", {0, 1, 2, 3, 4, 5, 6, 7}}}});
    e.close("linear, factor 4: position 4p turns as p does without", r["linear"], r["plain"]);
    e.close("NTK, factor 4 = theta * 4^(d/(d-2))", r["ntk"], r["theta"]);

    const Rope llama = with({.kind = Kind::llama3, .factor = 8.0, .original_max_positions = 64});
    e.close("Llama 3: the fastest pair turns as before, the slowest 8 times slower",
            {angle(llama, 0), angle(llama, kPairs - 1) * 8}, {angle(plain, 0), angle(plain, kPairs - 1)});
    const Rope yarn = with({.kind = Kind::yarn, .factor = 8.0, .original_max_positions = 64});
    const Floats table = rope_table(yarn, kHeadDim);
    e.close("YaRN: so too, and cos and sin grow by 0.1 ln(8) + 1",
            {angle(yarn, 0), angle(yarn, kPairs - 1) * 8, table[0]},
            {angle(plain, 0), angle(plain, kPairs - 1), 0.1f * std::log(8.0f) + 1.0f});
    std::string refusal;
    try {
        rope_scaling_kind("dynamic");
    } catch (const Error& error) {
        refusal = error.what();
    }
    e.holds("\"dynamic\" is refused by name", refusal.find("dynamic") != std::string::npos);
}

void layouts_and_tables(Examples& e) {
    Graph g;
    const Value x = g.input("x", {1, 2, kTokens, kHeadDim});
    const Rope half{.layout = RopeLayout::half, .max_positions = kTokens};
    Rope interleaved = half;
    interleaved.layout = RopeLayout::interleaved;
    // dimension 2i of the interleaved layout is i of the other, 2i+1 is i + d/2
    const auto unzip = [](Value v) {
        const Value pairs = reshape(v, {1, 2, kTokens, kHeadDim / 2, 2});
        return reshape(contiguous(transpose(pairs, 3, 4)), {1, 2, kTokens, kHeadDim});
    };
    Rope partial = half;
    partial.rotary_dim = 12;
    const Value turned = rope(x, partial);
    give("half", rope(unzip(x), half));
    give("interleaved", unzip(rope(x, interleaved)));
    give("same", slice(x, -1, 12, kHeadDim - 12));
    give("rest", slice(turned, -1, 12, kHeadDim - 12));
    give("partial", slice(turned, -1, 0, 12));
    give("narrow", rope(slice(x, -1, 0, 12), half));
    const Value table = g.constant("table", {kTokens, kPairs, 2}, rope_table(half, kHeadDim));
    give("by table", rope_by_table(x, table, RopeLayout::half));
    give("by theta", rope(x, half));
    Tensors r = e.run(g);
    e.close("half and interleaved layout: the same turn of other dimensions", r["half"], r["interleaved"]);
    e.same("partial rotary: dimensions beyond rotary_dim stay", r["rest"], r["same"]);
    e.close("and the others turn as a head of that size", r["partial"], r["narrow"]);
    e.same("rope_by_table with a table of one's own", r["by table"], r["by theta"]);
}

/// Scores of queries with keys at positions 0.. and at 100000...
void relative(Examples& e) {
    Graph g;
    const Value q = g.input("q", {1, 1, kTokens, kHeadDim}), k = g.input("k", {1, 1, kTokens, kHeadDim});
    const Rope o{.layout = RopeLayout::interleaved, .max_positions = 100000 + kTokens};
    const auto scores = [&](std::int64_t start) {
        return matmul(rope(q, o, start), rope(k, o, start), {.scale = 1.0f / kHeadDim, .transpose_b = true});
    };
    give("near", scores(0));
    give("far", scores(100000));
    Tensors r = e.run(g);
    e.close("scores depend on relative positions alone: at 0 and at 100000", r["far"], r["near"]);
}

void sinusoidal(Examples& e) {
    Graph g;
    give("y", sinusoidal_positions(g, kTokens, kHeadDim));
    Floats want;
    for (std::int64_t p = 0; p < kTokens; ++p) {
        for (std::int64_t i = 0; i < kHeadDim; ++i) {
            const double turn = static_cast<double>(p) * std::pow(10000.0, -static_cast<double>(i / 2 * 2) / kHeadDim);
            want.push_back(static_cast<float>(i % 2 == 0 ? std::sin(turn) : std::cos(turn)));
        }
    }
    e.close("sinusoidal_positions: sin and cos of p 10000^(-2i/d)", e.run(g)["y"], want);
}

}  // namespace

void positions(Examples& e) {
    e.family("rotary and sinusoidal positions");
    scalings(e);
    layouts_and_tables(e);
    relative(e);
    sinusoidal(e);
}
