// SPDX-License-Identifier: Apache-2.0
// A counter-based generator: the same bits on every device.
#ifndef VKF_SHADERS_COMMON_RANDOM_GLSL
#define VKF_SHADERS_COMMON_RANDOM_GLSL

// Philox-2x32 with ten rounds (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"):
// counter index, key seed.
uint random_bits(uint counter, uint key) {
    uint left = counter;
    uint right = 0u;
    for (uint i = 0u; i < 10u; ++i) {
        uint high;
        uint low;
        umulExtended(0xd256d193u, left, high, low);
        left = high ^ key ^ right;
        right = low;
        key += 0x9e3779b9u;
    }
    return left;
}

#define PHILOX_ROUND \
    umulExtended(uvec4(0xd256d193u), left, high, low); \
    left = high ^ key ^ right; \
    right = low; \
    key += 0x9e3779b9u;

// Computes the random bits of four counters, written out so that there is no branch.
uvec4 random_bits(uvec4 counter, uint key) {
    uvec4 left = counter;
    uvec4 right = uvec4(0u);
    uvec4 high;
    uvec4 low;
    PHILOX_ROUND PHILOX_ROUND PHILOX_ROUND PHILOX_ROUND PHILOX_ROUND
    PHILOX_ROUND PHILOX_ROUND PHILOX_ROUND PHILOX_ROUND PHILOX_ROUND
    return left;
}
#undef PHILOX_ROUND

#endif
