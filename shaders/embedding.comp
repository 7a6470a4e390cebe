#version 450
// SPDX-License-Identifier: Apache-2.0
// An id outside the table reads nothing and gives NaN, which shows. The table may be a part of a
// whole one: an id of another part gives 0. The first window writes either. An id of another window
// is left to that window's dispatch.
#extension GL_GOOGLE_include_directive : require
#include "embedding.h"

layout(local_size_x_id = 0) in;
layout(constant_id = kEmbeddingSpecPacked) const uint kPacked = kPackedF32;
layout(constant_id = kEmbeddingSpecWhole) const uint kWhole = 0;

layout(push_constant) uniform Push { EmbeddingPush p; };
layout(set = 0, binding = kEmbeddingBindingIds) readonly buffer Ids { uint ids[]; };
layout(set = 0, binding = kEmbeddingBindingTable) readonly buffer Table { float table[]; };
layout(set = 0, binding = kEmbeddingBindingTable) readonly buffer TableWords { uint words[]; };
layout(set = 0, binding = kEmbeddingBindingOut) writeonly buffer Out { float result[]; };

#include "common/dispatch.glsl"
#include "common/numeric.glsl"
#include "common/packed.glsl"

float number_at(uint row, uint column) {
    if (kPacked == kPackedF32) {
        return table[row + column * p.table_column];
    }
    if (kPacked == kPackedF16) {
        vec2 pair = unpackHalf2x16(words[row + column / 2]);
        return column % 2 == 0 ? pair.x : pair.y;
    }
    if (kPacked == kPackedBf16) {
        return uintBitsToFloat(words[row + column / 2] >> (column % 2 * 16) << 16);
    }
    uint scale_at = row + packed_code_words(kPacked, p.width);
    if (kPacked == kPackedInt8) {
        int code = bitfieldExtract(int(words[row + column / 4]), int(column % 4 * 8), 8);
        return float(code) * uintBitsToFloat(words[scale_at]);
    }
    uint scale = words[scale_at + column / kPackedGroup];
    uint code = words[row + column / 8] >> (column % 8 * 4);
    return less_zero(uvec4(code), vec4(group_zero(scale))).x * group_scale(scale);
}

void main() {
    uint group = group_index();
    uint index = group * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (group >= p.group_count || index >= p.count) {
        return;
    }
    uint which = index / p.width;
    uint column = index - which * p.width;
    // negative ids are large here
    uint id = kWhole != 0u ? which : ids[p.ids_offset + strided_offset(which, p.ids_size, p.ids_stride)];
    if (id >= p.first_row && id - p.first_row < p.rows) {
        result[p.out_offset + index] = p.scale * number_at(p.table_offset + (id - p.first_row) * p.table_row, column);
    } else if (p.first_row == p.part_first && (id < p.part_first || id >= p.part_end)) {
        result[p.out_offset + index] = id < p.all_rows ? 0.0 : quiet_nan();
    }
}
