// SPDX-License-Identifier: Apache-2.0
// How a group's rows are divided in attention on cooperative matrices and in its gradient: each
// subgroup has kSubgroupRows of them, and a strip of shared memory through which passes what
// invocations compute on one by one. Names kRows, kBlocks, kTile, kPart, kSubgroup, kSubgroupRows,
// kMatRows and kMatColumns of the kernel.
#ifndef VKF_SHADERS_COMMON_STRIP_GLSL
#define VKF_SHADERS_COMMON_STRIP_GLSL

const uint kSubgroups = kRows / kSubgroupRows;
const uint kThreads = kSubgroups * kSubgroup;
const uint kMatsDown = kSubgroupRows / kMatRows;
const uint kMatsAcross = kTile / kMatColumns;  // a tile, and a block of the results
const uint kOutMats = kBlocks * kMatsAcross;

// What is staged is counted in eights of f16; a strip's fp32 numbers are fours.
const uint kPartEights = kPart / 8u;
const uint kPitch = kPartEights + 1u;
const uint kWeightPitch = kTile / 8u + 1u;
const uint kStripFours = kTile / 4u;

// A strip's rows are shared by kRowLanes neighbours each, which take every kRowLanes-th four of
// them: row_of(n), four_of(m).
const uint kRowLanes = kSubgroup >= 8u * kSubgroupRows   ? 8u
                       : kSubgroup >= 4u * kSubgroupRows ? 4u
                       : kSubgroup >= 2u * kSubgroupRows ? 2u
                                                         : 1u;
const uint kRowsEach = (kSubgroupRows * kRowLanes + kSubgroup - 1u) / kSubgroup;
const uint kFoursEach = kStripFours / kRowLanes;

#define Accumulator coopmat<float, gl_ScopeSubgroup, kMatRows, kMatColumns, gl_MatrixUseAccumulator>

uint subgroup_row;  // the subgroup's first row, within the group's
uint strip;         // where its strip begins

uint row_of(uint n) {
    return strip_lane_row(gl_SubgroupInvocationID, kSubgroup, kRowLanes, n);
}

uint four_of(uint m) {
    return strip_lane_four(gl_SubgroupInvocationID, kRowLanes, m);
}

uvec2 four_halves(vec4 x) {
    return uvec2(packFloat2x16(f16vec2(x.xy)), packFloat2x16(f16vec2(x.zw)));
}

uvec4 eight_halves(vec4 a, vec4 b) {
    return uvec4(four_halves(a), four_halves(b));
}

// True where one of eight numbers is not finite.
bool has_not_finite(uvec4 halves) {
    // an exponent of ones, and one more, reaches the bit above
    uvec4 above = (halves & 0x7c007c00u) + 0x04000400u;
    return ((above.x | above.y | above.z | above.w) & 0x80008000u) != 0u;
}

// Eight numbers, 0 in the place of those that are not finite.
uvec4 finite_halves(uvec4 halves) {
    bvec4 low = equal(halves & 0x7c00u, uvec4(0x7c00u));
    bvec4 high = equal(halves & 0x7c000000u, uvec4(0x7c000000u));
    return halves & ~(mix(uvec4(0u), uvec4(0xffffu), low) | mix(uvec4(0u), uvec4(0xffff0000u), high));
}

#endif
