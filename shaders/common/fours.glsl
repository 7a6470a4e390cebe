// SPDX-License-Identifier: Apache-2.0
// Four floats, or two words, at a time as a buffer holds them. A kernel declares such a buffer by
// FOURS_IN, FOURS_OUT, FOURS_IN_OUT or PAIRS_IN, reads it by VKF_FOUR or VKF_PAIR, and writes it by
// VKF_PUT_FOUR.
//
// With WIDE there is kWide, which is WIDE unless it is set. Where it is not 0, 8 bytes are loaded
// and stored at a time: processors, on which every lane does so by itself, have half as much to do.
// That takes 64-bit integers; where it is 0, prune() leaves nothing of them.
#ifndef VKF_SHADERS_COMMON_FOURS_GLSL
#define VKF_SHADERS_COMMON_FOURS_GLSL

#include "common/wide.h"

#ifdef WIDE
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require

layout(constant_id = kSpecWide) const uint kWide = WIDE;

uvec4 words_of(u64vec2 four) {
    return uvec4(unpack32(four.x), unpack32(four.y));
}
u64vec2 four_of(vec4 floats) {
    uvec4 words = floatBitsToUint(floats);
    return u64vec2(pack64(words.xy), pack64(words.zw));
}

#define VKF_FOURS(access, at, block, name) \
    layout(set = 0, binding = at) access block { vec4 name[]; }; \
    layout(set = 0, binding = at) access block##Wide { u64vec2 name##_wide[]; };
#define VKF_LOAD_FOURS(name) \
    vec4 name##_at(uint i) { \
        if (kWide != 0u) { \
            return uintBitsToFloat(words_of(name##_wide[i])); \
        } \
        return name[i]; \
    }
#define VKF_STORE_FOURS(name) \
    void put_##name(uint i, vec4 floats) { \
        if (kWide != 0u) { \
            name##_wide[i] = four_of(floats); \
        } else { \
            name[i] = floats; \
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
#define VKF_FOURS(access, at, block, name) \
    layout(set = 0, binding = at) access block { vec4 name[]; };
#define VKF_LOAD_FOURS(name)
#define VKF_STORE_FOURS(name)
#define PAIRS_IN(at, block, name) \
    layout(set = 0, binding = at) readonly buffer block { uvec2 name[]; };
#define VKF_FOUR(name, i) name[i]
#define VKF_PAIR(name, i) name[i]
#define VKF_PUT_FOUR(name, i, floats) name[i] = floats
#endif

#define FOURS_IN(at, block, name) \
    VKF_FOURS(readonly buffer, at, block, name) \
    VKF_LOAD_FOURS(name)
#define FOURS_OUT(at, block, name) \
    VKF_FOURS(writeonly buffer, at, block, name) \
    VKF_STORE_FOURS(name)
#define FOURS_IN_OUT(at, block, name) \
    VKF_FOURS(buffer, at, block, name) \
    VKF_LOAD_FOURS(name) \
    VKF_STORE_FOURS(name)

#endif
