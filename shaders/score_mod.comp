#version 450
// SPDX-License-Identifier: Apache-2.0
// A caller's score_mod() on every score. Neighbouring invocations take neighbouring scores.
//
//! source
#extension GL_GOOGLE_include_directive : require
#include "score_mod.h"

layout(local_size_x_id = 0) in;
layout(constant_id = kScoreModSpecEach) const uint kEach = 4;

layout(push_constant) uniform Push { ScoreModPush p; };
layout(set = 0, binding = kScoreModBindingScores) readonly buffer Scores { float scores[]; };
layout(set = 0, binding = kScoreModBindingOut) writeonly buffer Out { float result[]; };

#include "common/dispatch.glsl"
#include "common/numeric.glsl"
#include "score_mod.glsl"

void main() {
    uint group = group_index();
    if (group >= p.group_count) {
        return;
    }
    uint first = group * gl_WorkGroupSize.x * kEach + gl_LocalInvocationID.x;
    for (uint i = 0u; i < kEach; ++i) {
        uint index = first + i * gl_WorkGroupSize.x;
        if (index < p.count) {
            uint rest = index;
            uint key = take_dimension(rest, p.keys);
            uint query = take_dimension(rest, p.queries);
            uint head = take_dimension(rest, p.heads);
            result[p.out_offset + index] = score_mod(scores[p.scores_offset + index], rest, head, query, key);
        }
    }
}
