#version 450
// SPDX-License-Identifier: Apache-2.0
// An id outside the table reads nothing and gives NaN, which shows; the first window writes it. An id of another window is
// left to that window's dispatch.
#extension GL_GOOGLE_include_directive : require
#include "embedding.h"

layout(local_size_x_id = 0) in;

layout(push_constant) uniform Push { EmbeddingPush p; };
layout(set = 0, binding = kEmbeddingBindingIds) readonly buffer Ids { uint ids[]; };
layout(set = 0, binding = kEmbeddingBindingTable) readonly buffer Table { float table[]; };
layout(set = 0, binding = kEmbeddingBindingOut) writeonly buffer Out { float result[]; };

#include "common/dispatch.glsl"
#include "common/numeric.glsl"

void main() {
    uint group = group_index();
    uint index = group * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (group >= p.group_count || index >= p.count) {
        return;
    }
    uint which = index / p.width;
    uint column = index - which * p.width;
    uint id = ids[p.ids_offset + strided_offset(which, p.ids_size, p.ids_stride)];  // negative ids are large here
    if (id >= p.first_row && id - p.first_row < p.rows) {
        result[p.out_offset + index] = p.scale * table[p.table_offset + (id - p.first_row) * p.table_row + column * p.table_column];
    } else if (id >= p.all_rows && p.first_row == 0u) {
        result[p.out_offset + index] = quiet_nan();
    }
}
