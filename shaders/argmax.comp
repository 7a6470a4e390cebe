#version 450
// SPDX-License-Identifier: Apache-2.0
// Of equals the lowest index wins.
#extension GL_GOOGLE_include_directive : require
#include "argmax.h"

layout(local_size_x_id = 0) in;
layout(constant_id = kArgmaxSpecLanes) const uint kLanes = 1;

layout(push_constant) uniform Push { ArgmaxPush p; };
layout(set = 0, binding = kArgmaxBindingX) readonly buffer X { float x[]; };
layout(set = 0, binding = kArgmaxBindingIndex) writeonly buffer Index { int index[]; };

#include "common/dispatch.glsl"
#include "common/numeric.glsl"
#include "common/order.glsl"

const uint kMaxGroup = 128;
shared uint best_key[kMaxGroup];
shared uint best_at[kMaxGroup];

void main() {
    uint group = group_index();
    if (group >= p.group_count) {
        return;
    }
    uint lane = gl_LocalInvocationID.x % kLanes;
    uint row = group * (gl_WorkGroupSize.x / kLanes) + gl_LocalInvocationID.x / kLanes;
    uint width = row < p.rows ? p.width : 0u;
    uint at = p.x_offset + row * p.width;
    uint key = 0u;
    uint where = 0u;
    for (uint i = lane; i < width; i += kLanes) {
        uint k = order_key(x[at + i]);
        if (k > key || i == lane) {
            key = k;
            where = i;
        }
    }
    if (kLanes > 1u) {
        uint me = gl_LocalInvocationID.x;
        best_key[me] = key;
        best_at[me] = where;
        barrier();
        for (uint half_width = kLanes / 2u; half_width > 0u; half_width /= 2u) {
            if (lane < half_width) {
                uint k = best_key[me + half_width];
                uint w = best_at[me + half_width];
                if (k > best_key[me] || (k == best_key[me] && w < best_at[me])) {
                    best_key[me] = k;
                    best_at[me] = w;
                }
            }
            barrier();
        }
        where = best_at[me - lane];
    }
    if (lane == 0u && row < p.rows) {
        index[p.index_offset + row] = int(where);
    }
}
