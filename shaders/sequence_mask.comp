#version 450
// SPDX-License-Identifier: Apache-2.0
// An element an invocation.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "attention.h"
#include "sequence_mask.h"

layout(local_size_x_id = 0) in;
layout(constant_id = kSequenceMaskSpecPacked) const uint kPacked = 0;
layout(constant_id = kSequenceMaskSpecCausal) const uint kCausal = 0;

layout(set = 0, binding = kSequenceMaskBindingTable) readonly buffer Table { uint table[]; };
layout(set = 0, binding = kSequenceMaskBindingMask) writeonly buffer Mask { uint mask[]; };

layout(push_constant) uniform Push { SequenceMaskPush p; };

#include "common/dispatch.glsl"

void main() {
    uint group = group_index();
    uint index = group * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (group >= p.group_count || index >= p.count) {
        return;
    }
    uint rest = index;
    uint key = take_dimension(rest, p.keys);
    uint query = take_dimension(rest, p.queries);
    uint sequence = rest;
    if (kPacked != 0u) {
        // empty ones begin where another does: the last with queries is meant
        [[dont_unroll]] for (uint i = 0u; i < p.sequences; ++i) {
            uint at = i * kAttentionSequenceWords;
            sequence = query >= table[at] && table[at + 1u] != 0u ? i : sequence;
        }
    }
    uint at = sequence * kAttentionSequenceWords;
    int i = int(query - table[at]);
    int j = int(key) - int(table[at + 2u]);
    int keys = int(table[at + 3u]);
    bool seen = j >= 0 && j < keys;
    if (kCausal != 0u) {
        int position = i + (kCausal == 2u ? keys - int(table[at + 1u]) : 0);
        seen = seen && j <= position && (p.window == 0u || j > position - int(p.window));
    }
    mask[index] = seen ? 1u : 0u;
}
