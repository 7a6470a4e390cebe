// SPDX-License-Identifier: Apache-2.0
// Numbers of V that are not finite, for attention on cooperative matrices: stage_values() stages 0
// in their place, and add_not_finite() marks the sums that they make infinite or NaN.
#ifndef VKF_SHADERS_COMMON_ATTENTION_NOT_FINITE_GLSL
#define VKF_SHADERS_COMMON_ATTENTION_NOT_FINITE_GLSL

// What values that are not finite make of the sums: see marks_of(). Of each row of the group a
// byte a four of columns. Only read once such values were there.
const uint kMarkWords = kTile / 16u;  // of a block
shared uint marks[kRows * kBlocks * kMarkWords];

// Reads from the weights in the strip which keys a row sees, and which of these by more than 0: a
// bit a key.
void read_weights(out uint seen[kRowsEach], out uint positive[kRowsEach]) {
    for (uint n = 0u; n < kRowsEach; ++n) {
        uint row = row_of(n);
        uint kept = 0u;
        uint more = 0u;
        for (uint word = 0u; word < kTile / 2u && row < kSubgroupRows; ++word) {
            uint pair = stage[strip + row * kWeightPitch + word / 4u][word % 4u];
            uvec2 halves = uvec2(pair & 0xffffu, pair >> 16);
            uvec2 bits = uvec2(1u, 2u) << (word * 2u);
            uvec2 unmasked = mix(bits, uvec2(0u), equal(halves, uvec2(0x8000u)));
            uvec2 above = mix(bits, uvec2(0u), equal(halves, uvec2(0u)));
            kept |= unmasked.x | unmasked.y;
            more |= above.x | above.y;
        }
        seen[n] = kept;
        positive[n] = more;
    }
}

// The word of a four of a row of the subgroup's.
uint mark_word(uint row, uint b, uint four) {
    return ((subgroup_row + row) * kBlocks + b) * kMarkWords + four / 4u;
}

// What becomes of sums that get four numbers, as two bits each: 0 stays, 1 and 2 are infinities, 3
// is NaN. Numbers beyond f16 are infinite. All are found by their bits: numbers that are converted
// there and back may be taken as they were.
uint marks_of(vec4 v) {
    uvec2 halves = four_halves(v);
    bvec4 lost = equal(uvec4(halves, halves >> 16).xzyw & 0x7c00u, uvec4(0x7c00u));
    uvec4 bits = floatBitsToUint(v);
    uvec4 kinds = mix((bits >> 31) + 1u, uvec4(3u), greaterThan(bits & kMagnitudeBits, uvec4(kInfinityBits)));
    kinds = mix(uvec4(0u), kinds, lost);
    return kinds.x | kinds.y << 2 | kinds.z << 4 | kinds.w << 6;
}

// Marks the sums that the numbers of V which stage_values() left out would make infinite, or NaN;
// NaN too where the weight is 0 and not masked.
void add_not_finite(uint first) {
    uint seen[kRowsEach];
    uint positive[kRowsEach];
    read_weights(seen, positive);
    [[dont_unroll]] for (uint key = 0u; key < kTile; ++key) {
        uint offset = key_offsets(first + key).y;
        [[dont_unroll]] for (uint i = 0u; i < kBlocks * kFoursEach; ++i) {
            uint b = i / kFoursEach;
            uint four = four_of(i % kFoursEach);
            uint bits = marks_of(load_value(offset, value_column(work.slice, kBlocks, b, kTile, four)));
            uint nans = ((bits | bits >> 1) & 0x55u) * 3u;
            for (uint n = 0u; n < kRowsEach; ++n) {
                if (bits != 0u && row_of(n) < kSubgroupRows && (seen[n] >> key & 1u) != 0u) {
                    bool counts = (positive[n] >> key & 1u) != 0u;
                    atomicOr(marks[mark_word(row_of(n), b, four)], (counts ? bits : nans) << (four % 4u * 8u));
                }
            }
        }
    }
}

#endif
