// SPDX-License-Identifier: Apache-2.0
// Four floats, or four or two words, at a time as a buffer holds them. A kernel declares such a
// buffer by FOURS_IN, FOURS_OUT, FOURS_IN_OUT, QUADS_IN, QUADS_OUT or PAIRS_IN, reads it by
// VKF_FOUR or VKF_PAIR, and writes it by VKF_PUT_FOUR.
//
// With WIDE there is kWide, which is WIDE unless it is set. Where it is not 0, 8 bytes are loaded
// and stored at a time: processors, on which every lane does so by itself, have half as much to do.
// That takes 64-bit integers; where it is 0, prune() leaves nothing of them.
#ifndef VKF_SHADERS_COMMON_FOURS_GLSL
#define VKF_SHADERS_COMMON_FOURS_GLSL

#include "common/wide.h"

// The matrix with these rows. Not transpose(): drivers know it, and add up products with its result
// in another order than those with a matrix from a variable. Where the same sums are computed in
// two places, their last bits must be the same.
mat4 with_rows(vec4 a, vec4 b, vec4 c, vec4 d) {
    return mat4(a.x, b.x, c.x, d.x, a.y, b.y, c.y, d.y, a.z, b.z, c.z, d.z, a.w, b.w, c.w, d.w);
}

#ifdef WIDE
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require

layout(constant_id = kSpecWide) const uint kWide = WIDE;

uvec4 words_of(u64vec2 four) {
    return uvec4(unpack32(four.x), unpack32(four.y));
}
u64vec2 four_of(uvec4 words) {
    return u64vec2(pack64(words.xy), pack64(words.zw));
}
u64vec2 four_of(vec4 floats) {
    return four_of(floatBitsToUint(floats));
}

#define VKF_FOURS(access, at, block, type, name) \
    layout(set = 0, binding = at) access block { type name[]; }; \
    layout(set = 0, binding = at) access block##Wide { u64vec2 name##_wide[]; };
#define VKF_LOAD_FOURS(type, of_words, name) \
    type name##_at(uint i) { \
        if (kWide != 0u) { \
            return of_words(words_of(name##_wide[i])); \
        } \
        return name[i]; \
    }
#define VKF_STORE_FOURS(type, name) \
    void put_##name(uint i, type four) { \
        if (kWide != 0u) { \
            name##_wide[i] = four_of(four); \
        } else { \
            name[i] = four; \
        } \
    }
#define PAIRS_IN(at, block, name) \
    layout(set = 0, binding = at) readonly buffer block { uvec2 name[]; }; \
    layout(set = 0, binding = at) readonly buffer block##Wide { uint64_t name##_wide[]; }; \
    uvec2 name##_at(uint i) { \
        if (kWide != 0u) { \
            return unpack32(name##_wide[i]); \
        } \
        return name[i]; \
    }
#define VKF_FOUR(name, i) name##_at(i)
#define VKF_PAIR(name, i) name##_at(i)
#define VKF_PUT_FOUR(name, i, floats) put_##name(i, floats)
#else
#define VKF_FOURS(access, at, block, type, name) \
    layout(set = 0, binding = at) access block { type name[]; };
#define VKF_LOAD_FOURS(type, of_words, name)
#define VKF_STORE_FOURS(type, name)
#define PAIRS_IN(at, block, name) \
    layout(set = 0, binding = at) readonly buffer block { uvec2 name[]; };
#define VKF_FOUR(name, i) name[i]
#define VKF_PAIR(name, i) name[i]
#define VKF_PUT_FOUR(name, i, floats) name[i] = floats
#endif

#define FOURS_IN(at, block, name) \
    VKF_FOURS(readonly buffer, at, block, vec4, name) \
    VKF_LOAD_FOURS(vec4, uintBitsToFloat, name)
#define FOURS_OUT(at, block, name) \
    VKF_FOURS(writeonly buffer, at, block, vec4, name) \
    VKF_STORE_FOURS(vec4, name)
#define FOURS_IN_OUT(at, block, name) \
    VKF_FOURS(buffer, at, block, vec4, name) \
    VKF_LOAD_FOURS(vec4, uintBitsToFloat, name) \
    VKF_STORE_FOURS(vec4, name)
#define QUADS_IN(at, block, name) \
    VKF_FOURS(readonly buffer, at, block, uvec4, name) \
    VKF_LOAD_FOURS(uvec4, uvec4, name)
#define QUADS_OUT(at, block, name) \
    VKF_FOURS(writeonly buffer, at, block, uvec4, name) \
    VKF_STORE_FOURS(uvec4, name)

#endif
