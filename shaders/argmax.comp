#version 450
// SPDX-License-Identifier: Apache-2.0
// Of equals the lowest index wins. A group takes a row or, where rows are short, several; or a long
// row is cut into parts, a group each, and a second dispatch takes the best of what these found.
// With kSubgroups a group has one row, or a part of one.
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#include "argmax.h"
#include "common/subgroups.h"

layout(local_size_x_id = 0) in;
layout(constant_id = kArgmaxSpecLanes) const uint kLanes = 1;
layout(constant_id = kArgmaxSpecStage) const uint kStage = kArgmaxStageWhole;
layout(constant_id = kArgmaxSpecFours) const uint kFours = 0;
layout(constant_id = kArgmaxSpecMarks) const uint kMarks = 0;
layout(constant_id = kSpecSubgroups) const uint kSubgroups = 0;

layout(push_constant) uniform Push { ArgmaxPush p; };
layout(set = 0, binding = kArgmaxBindingX) readonly buffer X { float x[]; };
layout(set = 0, binding = kArgmaxBindingX) readonly buffer XFours { vec4 x_fours[]; };
layout(set = 0, binding = kArgmaxBindingIndex) writeonly buffer Index { int index[]; };
layout(set = 0, binding = kArgmaxBindingParts) buffer Parts { uint found[]; };

#include "common/dispatch.glsl"
#include "common/numeric.glsl"
#include "common/order.glsl"

// The largest key so far and where it lies in its row. No element has the key 0.
struct Best {
    uint key;
    uint at;
};

// Takes an element that lies behind those before.
void take(inout Best best, uint key, uint at) {
    if (key > best.key) {
        best = Best(key, at);
    }
}

void take_any(inout Best best, uint key, uint at) {
    if (key > best.key || (key == best.key && at < best.at)) {
        best = Best(key, at);
    }
}

// Where a lane loads four at once.
uvec4 four_places(uint first) {
    return uvec4(first, first + kLanes, first + 2u * kLanes, first + 3u * kLanes);
}

// What lanes load at once is clamped to the last element, not left out: loads without a branch can
// wait together, and an element that is seen twice is no other.
Best best_by_fours(uint row, uint lane, uint begin, uint end) {
    Best best = Best(0u, 0u);
    for (uint four = begin / 4u + lane; four < end / 4u; four += 4u * kLanes) {
        uvec4 fours = min(four_places(four), uvec4(end / 4u - 1u));
        vec4 v[4];
        for (uint i = 0u; i < 4u; ++i) {
            v[i] = x_fours[row / 4u + fours[i]];
        }
        for (uint i = 0u; i < 4u; ++i) {
            for (uint j = 0u; j < 4u; ++j) {
                take(best, order_key(v[i][j]), 4u * fours[i] + j);
            }
        }
    }
    return best;
}

// The best of elements, or of those that lie where the parts from `parts` on say.
Best best_by_ones(uint row, uint lane, uint begin, uint end, uint parts) {
    Best best = Best(0u, 0u);
    for (uint i = begin + lane; i < end; i += 4u * kLanes) {
        uvec4 at = min(four_places(i), uvec4(end - 1u));
        if (kStage == kArgmaxStageMerge) {
            uvec4 from = parts + at;
            at = uvec4(found[from.x], found[from.y], found[from.z], found[from.w]);
        }
        uvec4 from = row + at;
        vec4 v = vec4(x[from.x], x[from.y], x[from.z], x[from.w]);
        for (uint j = 0u; j < 4u; ++j) {
            take(best, order_key(v[j]), at[j]);
        }
    }
    return best;
}

// An invocation with a row of its own: a processor's.
Best best_of_row(uint row, uint width) {
    Best best = Best(0u, 0u);
    for (uint i = 0u; i < width; ++i) {
        take(best, order_key(x[row + i]), i);
    }
    return best;
}

shared uint best_key[gl_WorkGroupSize.x];
shared uint best_at[gl_WorkGroupSize.x];

// The best of all lanes of a row; right in the first.
Best best_of_subgroups(Best best, uint lane) {
    uint key = subgroupMax(best.key);
    best = Best(key, subgroupMin(best.key == key ? best.at : ~0u));
    if (subgroupElect()) {
        best_key[gl_SubgroupID] = best.key;
        best_at[gl_SubgroupID] = best.at;
    }
    barrier();
    for (uint i = 0u; i < gl_NumSubgroups && lane == 0u; ++i) {
        take_any(best, best_key[i], best_at[i]);
    }
    return best;
}

// The same, of rows that several lanes share.
Best best_of_lanes(Best best, uint lane) {
    uint me = gl_LocalInvocationID.x;
    best_key[me] = best.key;
    best_at[me] = best.at;
    barrier();
    for (uint half_width = kLanes / 2u; half_width > 0u; half_width /= 2u) {
        if (lane < half_width) {
            take_any(best, best_key[me + half_width], best_at[me + half_width]);
            best_key[me] = best.key;
            best_at[me] = best.at;
        }
        barrier();
    }
    return best;
}

void main() {
    uint group = group_index();
    if (group >= p.group_count) {
        return;
    }
    uint lane = gl_LocalInvocationID.x % kLanes;
    uint row = shared_row(group, gl_WorkGroupSize.x, kLanes, gl_LocalInvocationID.x);
    uint part = kStage == kArgmaxStageParts ? take_dimension(row, p.parts) : 0u;
    uint begin = 0u;
    uint end = row < p.rows ? p.width : 0u;
    if (kStage == kArgmaxStageParts) {
        begin = part * p.part_size;
        end = min(begin + p.part_size, p.width);
    } else if (kStage == kArgmaxStageMerge) {
        end = p.parts;
    }
    uint from = p.x_offset + row * p.width;
    uint parts = p.parts_offset + row * p.parts;
    Best best;
    if (kLanes == 1u) {
        best = best_of_row(from, end);
    } else if (kFours != 0u && kStage != kArgmaxStageMerge) {
        best = best_by_fours(from, lane, begin, end);
    } else {
        best = best_by_ones(from, lane, begin, end, parts);
    }
    if (kSubgroups != 0u) {
        best = best_of_subgroups(best, lane);
    } else if (kLanes > 1u) {
        best = best_of_lanes(best, lane);
    }
    if (lane == 0u && row < p.rows) {
        if (kStage == kArgmaxStageParts) {
            found[parts + part] = best.at;
        } else {
            bool finite = is_finite(ordered_float(best.key));
            index[p.index_offset + row] = kMarks != 0u && !finite ? ~int(best.at) : int(best.at);
        }
    }
}
