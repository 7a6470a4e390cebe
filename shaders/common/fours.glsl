// SPDX-License-Identifier: Apache-2.0
// Four floats, or two words, at a time as a buffer holds them: FOURS and PAIR are what it is
// declared of. A variant with WIDE, which needs 64-bit integers, loads and stores 8 bytes at a
// time: processors, on which every lane does so by itself, have half as much to do.
#ifndef VKF_SHADERS_COMMON_FOURS_GLSL
#define VKF_SHADERS_COMMON_FOURS_GLSL

#ifdef WIDE
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#define FOURS u64vec2
#define PAIR uint64_t

uvec2 words_of(PAIR pair) {
    return unpack32(pair);
}
uvec4 words_of(FOURS four) {
    return uvec4(unpack32(four.x), unpack32(four.y));
}
vec4 floats_of(FOURS four) {
    return uintBitsToFloat(words_of(four));
}
FOURS four_of(vec4 floats) {
    uvec4 words = floatBitsToUint(floats);
    return FOURS(pack64(words.xy), pack64(words.zw));
}
#else
#define FOURS vec4
#define PAIR uvec2

uvec2 words_of(PAIR pair) {
    return pair;
}
vec4 floats_of(FOURS four) {
    return four;
}
FOURS four_of(vec4 floats) {
    return floats;
}
#endif

#endif
