// SPDX-License-Identifier: Apache-2.0
// Packed and paged sequences and score mods as this library computes them; make_sequence_cases.py
// writes the cases.
#include "layers/sequences.h"
#include "tests/glsl.h"
#include "tests/golden_systems.h"

namespace vkf::test {

namespace {

void packed_case(const Device& device, GoldenCase& c) {
    Graph g;
    AttentionOptions o;
    o.mask.causal = c.flag("causal") ? Causal::bottom_right : Causal::none;
    o.mask.window = c.integer("window");
    const Value y = packed_attention(c.input(g, "query"), c.input(g, "key"), c.input(g, "value"),
                                     c.input(g, "cumulative_queries"), c.input(g, "cumulative_keys"), o)
                        .y;
    c.output(g, "y", y);
    c.run(device, g);
}

void paged_case(const Device& device, GoldenCase& c) {
    Graph g;
    AttentionOptions o;
    o.mask.causal = c.flag("causal") ? Causal::bottom_right : Causal::none;
    const PagedKvCache cache{c.input(g, "key"), c.input(g, "value"), c.input(g, "table"), c.input(g, "lengths")};
    c.output(g, "y", paged_attention(c.input(g, "query"), cache, o).y);
    c.run(device, g);
}

void score_mod_case(const Device& device, GoldenCase& c) {
    const std::string glsl = c.text("score_mod");
    const auto parameters = c.config("parameters").get<std::vector<float>>();
    if (!can_compile_glsl()) {
        throw NotYet{"score mods, for want of a GLSL compiler here"};
    }
    Graph g;
    const AttentionOptions o{.score_mod = ScoreMod::glsl(glsl, parameters)};
    c.output(g, "y", scaled_dot_product_attention(c.input(g, "query"), c.input(g, "key"), c.input(g, "value"), o).y);
    c.run(device, g);
}

}  // namespace

const GoldenSystems& sequence_systems() {
    static const GoldenSystems kSystems{
        {"packed_attention", packed_case}, {"paged_attention", paged_case}, {"flex_attention", score_mod_case}};
    return kSystems;
}

}  // namespace vkf::test
