#version 450
// SPDX-License-Identifier: Apache-2.0
// A query or key an invocation.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "attention.h"
#include "attention_ranges.h"

layout(local_size_x_id = 0) in;
layout(constant_id = kRangesSpecPacked) const uint kPacked = 0;
layout(constant_id = kRangesSpecCausal) const uint kCausal = 0;
layout(constant_id = kRangesSpecWindow) const uint kWindow = 0;

layout(set = 0, binding = kRangesBindingTable) readonly buffer Table { uint table[]; };
layout(set = 0, binding = kRangesBindingRanges) writeonly buffer Ranges { uvec2 ranges[]; };

layout(push_constant) uniform Push { AttentionRangesPush p; };

#include "common/dispatch.glsl"

void main() {
    uint group = group_index();
    uint index = group * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (group >= p.group_count || index >= p.count) {
        return;
    }
    uint sequence = index;
    uint place = take_dimension(sequence, p.queries + p.keys);
    bool of_query = place < p.queries;
    place -= of_query ? 0u : p.queries;
    uint which = of_query ? 0u : 2u;
    if (kPacked != 0u) {  // the last sequence that begins here or before
        sequence = 0u;
        uint beyond = p.sequences;
        [[dont_unroll]] while (sequence + 1u < beyond) {
            uint middle = (sequence + beyond) / 2u;
            bool before = table[middle * kAttentionSequenceWords + which] <= place;
            sequence = before ? middle : sequence;
            beyond = before ? beyond : middle;
        }
    }
    uint at = sequence * kAttentionSequenceWords;
    int queries = int(table[at + 1u]);
    int keys = int(table[at + 3u]);
    int own = int(place - table[at + which]);
    int shift = kCausal == 2u ? keys - queries : 0;
    int begin = 0;
    int end = of_query ? keys : queries;
    if (kCausal != 0u && of_query) {
        end = min(end, own + shift + 1);
        begin = kWindow != 0u ? max(own + shift + 1 - int(kWindow), 0) : 0;
    } else if (kCausal != 0u) {
        begin = max(own - shift, 0);
        end = kWindow != 0u ? min(end, own - shift + int(kWindow)) : end;
    }
    if (begin >= end || own >= (of_query ? queries : keys)) {
        ranges[index] = uvec2(0xffffffffu, 0u);
        return;
    }
    uint first = table[at + (of_query ? 2u : 0u)];
    ranges[index] = first + uvec2(begin, end);
}
