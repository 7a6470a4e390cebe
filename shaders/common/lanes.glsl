// SPDX-License-Identifier: Apache-2.0
// How the lanes of a processor's subgroup hand numbers round. The kernel defines VKF_LANES, their
// number. For lavapipe, which has 8 (4 where vectors have 128 bits), a shuffle is an instruction.
// For SwiftShader, which has 4, it is eleven for each number, and an exchange within a quad is one;
// so four lanes exchange.
#ifndef VKF_SHADERS_COMMON_LANES_GLSL
#define VKF_SHADERS_COMMON_LANES_GLSL

#define LANE gl_SubgroupInvocationID

// What the lane holds whose number differs in the lowest bit, and in the next one.
#define VKF_EXCHANGES(type) \
    type from_beside(type x) { \
        if (VKF_LANES == 4u) { \
            return subgroupQuadSwapHorizontal(x); \
        } \
        return subgroupShuffle(x, LANE ^ 1u); \
    } \
    type from_two_away(type x) { \
        if (VKF_LANES == 4u) { \
            return subgroupQuadSwapVertical(x); \
        } \
        return subgroupShuffle(x, LANE ^ 2u); \
    }
VKF_EXCHANGES(float)
VKF_EXCHANGES(uint)
VKF_EXCHANGES(uvec4)

// What `lane`, the same in all lanes, holds. `only` is only_of(lane).
uint only_of(uint lane) {
    if (VKF_LANES != 4u) {
        return 0u;
    }
    return LANE == lane ? 0xffffffffu : 0u;
}
uvec4 from_lane(uvec4 x, uint lane, uint only) {
    if (VKF_LANES == 4u) {
        x &= only;
        x |= from_beside(x);
        return x | from_two_away(x);
    }
    return subgroupShuffle(x, lane);
}
vec4 from_lane(vec4 x, uint lane, uint only) {
    return uintBitsToFloat(from_lane(floatBitsToUint(x), lane, only));
}

// Each lane holds a row in held[0], and one that is VKF_LANES further in held[1], and so on. Gives
// `to` the row i, a literal. With four lanes each gets another of these four, lane_row(i, LANE).
#define VKF_ROW_OF(to, held, i) \
    to = held[i / VKF_LANES]; \
    if (VKF_LANES != 4u) { \
        to = subgroupShuffle(to, i % VKF_LANES); \
    } else if (i % 4 == 1) { \
        to = subgroupQuadSwapHorizontal(to); \
    } else if (i % 4 == 2) { \
        to = subgroupQuadSwapVertical(to); \
    } else if (i % 4 == 3) { \
        to = subgroupQuadSwapDiagonal(to); \
    }

// Puts what four lanes computed of four such rows in the order of the rows.
void put_in_order(inout vec4 row0, inout vec4 row1, inout vec4 row2, inout vec4 row3) {
    bvec4 odd = bvec4((LANE & 1u) != 0u);
    bvec4 late = bvec4((LANE & 2u) != 0u);
    vec4 a = mix(row0, row1, odd);
    vec4 b = mix(row1, row0, odd);
    vec4 c = mix(row2, row3, odd);
    vec4 d = mix(row3, row2, odd);
    row0 = mix(a, c, late);
    row1 = mix(b, d, late);
    row2 = mix(c, a, late);
    row3 = mix(d, b, late);
}

#endif
