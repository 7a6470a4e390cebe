// SPDX-License-Identifier: Apache-2.0
// The logical group index of a dispatch folded over the device's limit of groups per dimension, and
// the arithmetic that takes an index apart. Include it after `layout(push_constant) uniform Push {
// ...Push p; };`.
#ifndef VKF_SHADERS_COMMON_DISPATCH_GLSL
#define VKF_SHADERS_COMMON_DISPATCH_GLSL

#include "tiles.h"

// A fold may start more groups than there is work: the caller returns when the result is >=
// p.group_count, which all invocations of a group do together, so barriers after that are legal.
// first_group is where a long dispatch that was split goes on; group_count counts from zero, over
// all parts.
uint group_index() {
    return p.first_group + gl_WorkGroupID.x +
           gl_NumWorkGroups.x * (gl_WorkGroupID.y + gl_NumWorkGroups.y * gl_WorkGroupID.z);
}

// The element offset of the row-major `index` into a tensor of these sizes (all > 0). Dimensions
// that a tensor lacks are leading ones of size 1. The array indices are constants on purpose: a
// copied array indexed by a loop variable becomes memory on software devices.
uint strided_offset(uint index, uint sizes[5], uint strides[5]) {
    uint rest = index;
    uint offset = take_dimension(rest, sizes[4]) * strides[4];
    offset += take_dimension(rest, sizes[3]) * strides[3];
    offset += take_dimension(rest, sizes[2]) * strides[2];
    offset += take_dimension(rest, sizes[1]) * strides[1];
    return offset + rest * strides[0];
}

#endif
