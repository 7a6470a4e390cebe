#version 450
// SPDX-License-Identifier: Apache-2.0
// One invocation goes through all sequences: there are few, and each begins where the last one
// ended.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "attention.h"
#include "attention_sequences.h"

layout(local_size_x_id = 0) in;
layout(constant_id = kSequencesSpecPackedQueries) const uint kPackedQueries = 0;
layout(constant_id = kSequencesSpecPackedKeys) const uint kPackedKeys = 0;
layout(constant_id = kSequencesSpecRows) const uint kRows = 16;
layout(constant_id = kSequencesSpecGroup) const uint kGroup = 1;

layout(set = 0, binding = kSequencesBindingQueries) readonly buffer Queries { int queries[]; };
layout(set = 0, binding = kSequencesBindingKeys) readonly buffer Keys { int keys[]; };
layout(set = 0, binding = kSequencesBindingTable) writeonly buffer Table { uint table[]; };

layout(push_constant) uniform Push { AttentionSequencesPush p; };

#include "common/dispatch.glsl"

void main() {
    if (group_index() >= p.group_count || gl_LocalInvocationID.x != 0u) {
        return;
    }
    int first_query = 0;
    int first_key = 0;
    uint first_tile = 0u;
    uint sequences = p.count + kPackedQueries;
    [[dont_unroll]] for (uint i = 0u; i < sequences; ++i) {
        bool given = i < p.count;
        int next_query = int(p.queries);
        if (kPackedQueries != 0u && given) {
            next_query = clamp(queries[p.queries_offset + (i + 1u) * p.queries_stride], first_query, int(p.queries));
        }
        int next_key = first_key;
        if (given) {
            next_key = clamp(keys[p.keys_offset + (i + kPackedKeys) * p.keys_stride], first_key, int(p.keys));
        }
        uint at = i * kAttentionSequenceWords;
        uint rows = uint(next_query - first_query) * kGroup;
        table[at] = uint(first_query);
        table[at + 1u] = uint(next_query - first_query);
        table[at + 2u] = uint(first_key);
        table[at + 3u] = uint(next_key - first_key);
        table[at + 4u] = first_tile;
        first_tile += (rows + kRows - 1u) / kRows;
        first_query = kPackedQueries != 0u ? next_query : 0;
        first_key = kPackedKeys != 0u ? next_key : 0;
    }
}
