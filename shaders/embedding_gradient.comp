#version 450
// SPDX-License-Identifier: Apache-2.0
// Rows of dy that have the same id are summed in the order of their places, without atomics: first
// each place finds the next with its id; then the first place of an id walks along. A row of the
// table that no id names is written by nobody; an id outside the table adds nothing.
#extension GL_GOOGLE_include_directive : require
#include "embedding_gradient.h"

layout(local_size_x_id = 0) in;
layout(constant_id = kEmbeddingGradientSpecStage) const uint kStage = 0;

layout(push_constant) uniform Push { EmbeddingGradientPush p; };
layout(set = 0, binding = kEmbeddingGradientBindingIds) readonly buffer Ids { uint ids[]; };
layout(set = 0, binding = kEmbeddingGradientBindingLinks) buffer Links { uint links[]; };
layout(set = 0, binding = kEmbeddingGradientBindingDy) readonly buffer Dy { float dy[]; };
layout(set = 0, binding = kEmbeddingGradientBindingTable) writeonly buffer Table { float table[]; };

#include "common/dispatch.glsl"
#include "common/run_sum.glsl"

void link(uint place) {
    uint id = ids[p.ids_offset + place];
    bool first = true;
    for (uint i = 0u; i < place && first; ++i) {
        first = ids[p.ids_offset + i] != id;
    }
    uint next = place + 1u;
    while (next < p.places && ids[p.ids_offset + next] != id) {
        ++next;
    }
    links[p.links_offset + place] = next | (first ? kEmbeddingGradientFirst : 0u);
}

void main() {
    uint group = group_index();
    uint index = group * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (group >= p.group_count) {
        return;
    }
    if (kStage == 0u) {
        if (index < p.places) {
            link(index);
        }
        return;
    }
    if (index >= p.places * p.width) {
        return;
    }
    uint place = index / p.width;
    uint column = index - place * p.width;
    uint at = links[p.links_offset + place];
    uint id = ids[p.ids_offset + place];
    if ((at & kEmbeddingGradientFirst) == 0u || id >= p.table_rows) {
        return;
    }
    RunSum sum = RunSum(0.0, dy[p.dy_offset + index]);
    at &= ~kEmbeddingGradientFirst;
    for (uint turn = 1u; at < p.places; ++turn) {
        add(sum, turn, dy[p.dy_offset + at * p.width + column]);
        at = links[p.links_offset + at] & ~kEmbeddingGradientFirst;
    }
    table[p.table_offset + id * p.width + column] = p.scale * (sum.runs + sum.run);
}
