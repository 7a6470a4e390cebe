#version 450
// SPDX-License-Identifier: Apache-2.0
// Matrix product with register tiles and no shared memory, for CPU-type devices and as the fallback
// everywhere.
//
//! variant matmul
//! variant matmul_lanes -DLANES -DWIDE=0
//
// A group computes kRows rows by 4 columns per invocation; groups follow each other along m first,
// so that the columns of B that a group has read are still cached for the next. Each step takes
// four k: a vec4 of every row of A, a 4x4 block of B per invocation, and 16 multiply-adds per row
// from registers.
//
// On a software device a buffer load costs as much as some thirty arithmetic operations, being a
// loop over the lanes with a bounds check, whether or not the lanes load the same. So with LANES
// each lane loads the vec4 of another row of A, and they are handed round (a single instruction,
// see common/lanes.glsl): 16 rows by 32 columns then take 6 loads instead of 20. That needs a local
// size of 4 or 8, subgroups of exactly that size (smallest and largest, or required), shuffles in
// compute, and quads where there are four lanes; the plain variant needs nothing. kWide, for which
// there must be 64-bit integers, loads 8 bytes at a time, in half as many steps of such a loop. For
// up to kMatmulFewRows rows with 8 lanes, a lane loads each row's vec4 of another k, so that a load
// of A serves 8 steps, and packed weights 16 bytes at a time: a wide load costs little more than a
// narrow one.
//
// Rows and columns past the end repeat the last one, or four, and are not stored. Past the end of k
// both operands are 0.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#ifdef LANES
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_KHR_shader_subgroup_quad : require
#endif

#define UNPACK_BY_PRODUCTS
#include "common/fours.glsl"
#include "matmul.h"

layout(local_size_x_id = 0) in;
layout(constant_id = kMatmulSpecRows) const uint kRows = 8;
layout(constant_id = kMatmulSpecALoad) const uint kALoad = kMatmulAScalar;
layout(constant_id = kMatmulSpecBLoad) const uint kBLoad = kMatmulBScalar;
layout(constant_id = kMatmulSpecCVec) const uint kCVec = 0;
layout(constant_id = kMatmulSpecAct) const uint kAct = kActNone;
layout(constant_id = kMatmulSpecAMasked) const uint kAMasked = 0;
layout(constant_id = kMatmulSpecOther) const uint kOther = kMatmulOtherNone;
layout(constant_id = kMatmulSpecCodeSteps) const uint kCodeSteps = 2;

layout(set = 0, binding = kMatmulBindingA) readonly buffer A { float a[]; };
FOURS_IN(kMatmulBindingA, AVec, a_vec)
layout(set = 0, binding = kMatmulBindingB) readonly buffer B { float b[]; };
FOURS_IN(kMatmulBindingB, BVec, b_vec)
layout(set = 0, binding = kMatmulBindingB) readonly buffer BWords { uint b_words[]; };
layout(set = 0, binding = kMatmulBindingB) readonly buffer BPairs { uvec2 b_pairs[]; };
layout(set = 0, binding = kMatmulBindingB) readonly buffer BQuads { uvec4 b_quads[]; };
layout(set = 0, binding = kMatmulBindingBias) readonly buffer Bias { float bias[]; };
layout(set = 0, binding = kMatmulBindingBias) readonly buffer BiasVec { vec4 bias_vec[]; };
layout(set = 0, binding = kMatmulBindingC) buffer C { float c[]; };
layout(set = 0, binding = kMatmulBindingC) buffer CVec { vec4 c_vec[]; };

layout(push_constant) uniform Push { MatmulPush p; };

#include "common/activation.glsl"
#include "common/dispatch.glsl"
#include "common/product.glsl"
#include "common/packed_b.glsl"
#include "common/other.glsl"

// The rows are written out by the preprocessor, with constant array indices and conditions that
// specialization settles: loops over them would leave the sums in memory wherever a compiler does
// not unroll.
#define EACH_8(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7)
#ifdef LANES
#define EACH_ROW(DO) \
    EACH_8(DO) \
    if (kRows > 8) { \
        DO(8) DO(9) DO(10) DO(11) DO(12) DO(13) DO(14) DO(15) \
        DO(16) DO(17) DO(18) DO(19) DO(20) DO(21) DO(22) DO(23) \
        DO(24) DO(25) DO(26) DO(27) DO(28) DO(29) DO(30) DO(31) \
    }
#else
#define EACH_ROW EACH_8
#endif

#define EACH_FEW(DO) DO(0) DO(1) DO(2) DO(3)

#ifdef LANES
const uint kLanes = gl_WorkGroupSize.x;
#define VKF_LANES kLanes
#include "common/lanes.glsl"
const bool kFew = kLanes == 8u && kRows <= kMatmulFewRows;
// The sums of a step go column by column, not all four side by side: SwiftShader, whose compiler
// keeps few of them in registers, takes 0.86 of the time. Other compilers add these up in another
// order, so sums that may be taken again, below, go as there.
const bool kByColumns = kLanes == 4u && kAMasked == 0;
// Each lane has its sums in an order of its own.
const bool kOwnOrder = kLanes == 4u && kALoad != kMatmulAVecM;
#define EACH_LOAD(DO) DO(0) DO(1) DO(2) DO(3)
#define ROW_OF_LOAD(i) (i * kLanes + LANE)
#define ROWS_PER_LOAD kLanes
#define ROW_OF_A(to, i) VKF_ROW_OF(to, a_rows, i)
#define ROW_OF_SUMS(i) (kOwnOrder ? lane_row(i, LANE) : i)
#define OF_A(i, j) subgroupShuffle(a_rows[i / kLanes][j], i % kLanes)
#else
const bool kFew = false;
const bool kByColumns = false;
#define LANE gl_LocalInvocationID.x
#define EACH_LOAD EACH_ROW
#define ROW_OF_LOAD(i) i
#define ROWS_PER_LOAD 1
#define ROW_OF_A(to, i) to = a_rows[i];
#define ROW_OF_SUMS(i) i
#define OF_A(i, j) a_rows[i][j]
#endif
// Where A is loaded by vec4 along m, load i of a step is of the rows from i / 4 * 4 on, at its
// k + i % 4. A row then takes a number of each of four loads.
#define FIRST_OF_FOUR(i) (i / 4 * 4)
#define ACROSS_A(i) \
    vec4(OF_A(FIRST_OF_FOUR(i), i % 4), OF_A((FIRST_OF_FOUR(i) + 1), i % 4), \
         OF_A((FIRST_OF_FOUR(i) + 2), i % 4), OF_A((FIRST_OF_FOUR(i) + 3), i % 4))

// kAMasked: B held something that is not finite, so this invocation's sums must be taken again with
// care.
bool some_not_finite = false;

// A step's k, and the distance of rows of B, in fours: not shifted at each load, a product takes
// 0.94 of the time on lavapipe 22.
uint k_fours;
uint b_row_fours;

vec4 load_a(uint row, uint k) {
    if (kALoad == kMatmulAVecK) {
        if (kFew || kPacked == kPackedInt4 && kCodeSteps == 2) {  // k may have passed the end
            vec4 values = VKF_FOUR(a_vec, row + (min(k, p.k - 4) >> 2));
            return mix(values, vec4(0.0), bvec4(k >= p.k));
        }
        return VKF_FOUR(a_vec, row + k_fours);
    }
    uvec4 ks = k + uvec4(0, 1, 2, 3);
    uvec4 at = row + min(ks, uvec4(p.k - 1)) * p.a_k;
    return mix(vec4(0.0), vec4(a[at.x], a[at.y], a[at.z], a[at.w]), lessThan(ks, uvec4(p.k)));
}

// Loads four rows of A at one k.
vec4 load_a_rows(uint row, uint k) {
    vec4 values = VKF_FOUR(a_vec, row + min(k, p.k - 1) * (p.a_k >> 2));
    return k < p.k ? values : vec4(0.0);
}

// Takes what is not finite out of B, lest 0 * inf enter a sum it has no part in.
vec4 finite_b(vec4 values) {
    if (kAMasked == 0) {
        return values;
    }
    bvec4 lost = not_finite(values);
    some_not_finite = some_not_finite || any(lost);
    return mix(values, vec4(0.0), lost);
}

// Every step is of four k that are there.
const bool kWholeSteps = kALoad == kMatmulAVecK && !kFew && kPacked == kPackedF32;

// Loads row k of B at this invocation's four columns; kBLoad is not kMatmulBVecK.
vec4 load_b_row(uvec4 columns, uint k) {
    uint row = k;
    if (!kWholeSteps) {
        row = min(k, p.k - 1);
    }
    vec4 values;
    if (kBLoad == kMatmulBVecN) {
        values = VKF_FOUR(b_vec, columns.x + row * b_row_fours);
    } else {
        uvec4 at = columns + row * p.b_k;
        values = vec4(b[at.x], b[at.y], b[at.z], b[at.w]);
    }
    if (kWholeSteps) {
        return finite_b(values);
    }
    return k < p.k ? finite_b(values) : vec4(0.0);
}

uvec4 load_words(uvec4 at) {
    return uvec4(b_words[at.x], b_words[at.y], b_words[at.z], b_words[at.w]);
}

// int4: of each column the scale and zero point of the group, and eight codes; whether the upper
// four of these are next.
vec4 group_scales, group_zeros;
uvec4 codes;
bool upper_codes;

void load_group(uvec4 columns, uint k) {
    uvec4 words = load_words(columns + packed_code_words(kPackedInt4, p.k) + (k >> 5));
    group_scales = group_scale(words);
    group_zeros = vec4(ivec4(words & 15u));
}

void load_codes(uvec4 columns, uint k) {
    codes = load_words(columns + (k >> 3));
}

// The rows of B of one step, out of eight codes of each column, which are not shifted (see
// UNPACK_BY_PRODUCTS): each is a number where it is, and multiplied. Signed numbers are converted
// sooner, but the highest bit is that of a code.
mat4 unpack_int4(uvec4 eight, bool upper) {
    uint up = upper ? 1u << 16 : 1u;
    float down = upper ? 1.0 / 65536.0 : 1.0;
#define FOUR_CODES(shift, integers) \
    (vec4(integers(eight & (15u << shift) * up)) * (down * (1.0 / float(1u << shift))) - group_zeros) * group_scales
    return mat4(FOUR_CODES(0, ivec4), FOUR_CODES(4, ivec4), FOUR_CODES(8, ivec4), FOUR_CODES(12, uvec4));
#undef FOUR_CODES
}

mat4 load_b_packed(uvec4 columns, uint k) {
    if (kPacked == kPackedInt4) {
        return unpack_int4(codes, upper_codes);
    }
    return with_rows(load_packed(columns.x, k), load_packed(columns.y, k), load_packed(columns.z, k),
                     load_packed(columns.w, k));
}

// Loads four rows of B, from k on, as the columns of the result.
mat4 load_b(uvec4 columns, uint k) {
    if (kBLoad != kMatmulBVecK && kPacked == kPackedF32) {
        return mat4(load_b_row(columns, k), load_b_row(columns, k + 1), load_b_row(columns, k + 2),
                    load_b_row(columns, k + 3));
    }
    uint inside = kFew ? min(k, (p.k - 1) & ~3u) : k;
    mat4 rows;
    if (kPacked != kPackedF32) {
        rows = load_b_packed(columns, inside);
    } else {
        uvec4 at = columns + (kFew ? inside >> 2 : k_fours);
        rows = with_rows(finite_b(VKF_FOUR(b_vec, at.x)), finite_b(VKF_FOUR(b_vec, at.y)),
                         finite_b(VKF_FOUR(b_vec, at.z)), finite_b(VKF_FOUR(b_vec, at.w)));
    }
    if (kFew && kPacked < kPackedInt8) {  // what stands for those past the end may not be finite
        bvec4 past = bvec4(k >= p.k);
        rows = mat4(mix(rows[0], vec4(0.0), past), mix(rows[1], vec4(0.0), past), mix(rows[2], vec4(0.0), past),
                    mix(rows[3], vec4(0.0), past));
    }
    return rows;
}

#ifdef LANES
uvec4 b_quad_at(uint i) {
    if (kWide != 0u) {
        return words_of(b_vec_wide[i]);
    }
    return b_quads[i];
}

// Few rows: of each column 16 bytes of a packed row, loaded at once and unpacked over the next
// steps.
const uint kStepsHeld = kPacked == kPackedInt4 ? 8 : kPacked == kPackedInt8 ? 4 : 2;
uvec4 held[4];

void hold(uvec4 columns, uint k) {
    uvec4 at = (columns + (kPacked == kPackedInt4 ? k >> 3 : kPacked == kPackedInt8 ? k >> 2 : k >> 1)) >> 2;
    held[0] = b_quad_at(at.x);
    held[1] = b_quad_at(at.y);
    held[2] = b_quad_at(at.z);
    held[3] = b_quad_at(at.w);
}

// The rows of B of one step, k onwards, out of what is held.
mat4 unpack_held(uint step, uint k) {
    if (kPacked == kPackedInt4) {
        uint word = step / 2;
        return unpack_int4(uvec4(held[0][word], held[1][word], held[2][word], held[3][word]), step % 2 != 0);
    }
    if (kPacked == kPackedInt8) {
        return with_rows(unpack_int8(held[0][step]), unpack_int8(held[1][step]), unpack_int8(held[2][step]),
                         unpack_int8(held[3][step]));
    }
    mat4 rows;
    for (uint i = 0; i < 4; ++i) {
        uvec2 pair = step == 0 ? held[i].xy : held[i].zw;
        rows[i] = kPacked == kPackedF16 ? unpack_f16(pair) : unpack_bf16(pair);
    }
    rows = with_rows(rows[0], rows[1], rows[2], rows[3]);
    bvec4 past = bvec4(k >= p.k);  // what stands for those past the end may not be finite
    return mat4(mix(rows[0], vec4(0.0), past), mix(rows[1], vec4(0.0), past), mix(rows[2], vec4(0.0), past),
                mix(rows[3], vec4(0.0), past));
}
#endif

vec4 relu_if_asked(vec4 x) {
    if (kAct != kActRelu) {
        return x;
    }
    bvec4 kept = greaterThan(floatBitsToUint(x) & kMagnitudeBits, uvec4(kInfinityBits));
    return mix(max(x, 0.0), x, kept);
}

float load_bias(uint column) {
    return p.has_bias != 0 ? bias[p.bias_offset + column * p.bias_stride] : 0.0;
}

void main() {
    uint rest = group_index();
    if (rest >= p.group_count) {
        return;
    }
    uint tile_columns = gl_WorkGroupSize.x * 4;
    uint tiles_down = tiles_over(p.m, kRows);
    uint tiles_across = tiles_over(p.n, tile_columns);
    bool across_first = kALoad == kMatmulAVecM && p.m >= p.n;
    uint first = take_dimension(rest, across_first ? tiles_across : tiles_down);
    uint second = take_dimension(rest, across_first ? tiles_down : tiles_across);
    uint m0 = (across_first ? second : first) * kRows;
    uint n0 = lane_column(across_first ? first : second, gl_WorkGroupSize.x, LANE);
    ProductBases base = product_bases(rest);

    // Rows of A and columns of B begin at an element, or at a four where they are loaded by vec4:
    // then the shift is ahead of the loop, and not in each step of it.
    uint rows[kMatmulMaxRows];
#define DO(i) \
    if (!kFew && i * ROWS_PER_LOAD < kRows) { \
        rows[i] = kALoad == kMatmulAVecM ? base.a + min(m0 + FIRST_OF_FOUR(ROW_OF_LOAD(i)), p.m - 4) \
                                         : base.a + min(m0 + ROW_OF_LOAD(i), p.m - 1) * p.a_row; \
        rows[i] = kALoad == kMatmulAScalar ? rows[i] : rows[i] >> 2; \
    }
    EACH_LOAD(DO)
#undef DO
#define DO(i) \
    if (kFew && i < kRows) { \
        rows[i] = base.a + min(m0 + i, p.m - 1) * p.a_row; \
        rows[i] = kALoad == kMatmulAScalar ? rows[i] : rows[i] >> 2; \
    }
    EACH_FEW(DO)
#undef DO
    uvec4 columns = base.b + min(n0 + uvec4(0, 1, 2, 3), uvec4(p.n - 1)) * p.b_column;
    if (kBLoad == kMatmulBVecN) {
        columns.x = base.b + min(n0, p.n - 4);
    }
    if (kBLoad == kMatmulBVecN || kBLoad == kMatmulBVecK) {
        columns >>= 2;
    }

    b_row_fours = p.b_k >> 2;
    vec4 sums[kMatmulMaxRows];
#define DO(i) \
    if (i < kRows) { \
        sums[i] = vec4(0.0); \
    }
    EACH_ROW(DO)
#undef DO
#define ADD(i, row) \
    if (kByColumns) { \
        sums[i] += b_rows * row; \
    } else { \
        sums[i] += row.x * b_rows[0] + row.y * b_rows[1] + row.z * b_rows[2] + row.w * b_rows[3]; \
    }
#define LOAD_ROW(i) \
    if (i * ROWS_PER_LOAD < kRows) { \
        a_rows[i] = kALoad == kMatmulAVecM ? load_a_rows(rows[i], k + ROW_OF_LOAD(i) % 4) : load_a(rows[i], k); \
    }
#define ADD_ROW(i) \
    if (i < kRows) { \
        vec4 row; \
        if (kALoad == kMatmulAVecM) { \
            row = ACROSS_A(i); \
        } else { \
            ROW_OF_A(row, i) \
        } \
        ADD(i, row) \
    }
#define STEP \
    { \
        k_fours = k >> 2; \
        mat4 b_rows = load_b(columns, k); \
        vec4 a_rows[kMatmulMaxRows]; \
        EACH_LOAD(LOAD_ROW) \
        EACH_ROW(ADD_ROW) \
    }
    if (kFew) {
#ifdef LANES
        for (uint first = 0; first < p.k; first += 32) {
            vec4 a_rows[kMatmulFewRows];
#define DO(i) \
    if (i < kRows) { \
        a_rows[i] = load_a(rows[i], first + 4 * LANE); \
    }
            EACH_FEW(DO)
#undef DO
            if (kPacked == kPackedInt4) {
                load_group(columns, first);
            }
#define ADD_FEW(i) \
    if (i < kRows) { \
        vec4 row = subgroupShuffle(a_rows[i], lane); \
        ADD(i, row) \
    }
#define DO(i) \
    { \
        const uint lane = i; \
        uint k = first + 4 * lane; \
        if (kPacked != kPackedF32 && lane % kStepsHeld == 0) { \
            hold(columns, min(k, p.k - 1)); \
        } \
        mat4 b_rows = kPacked == kPackedF32 ? load_b(columns, k) : unpack_held(lane % kStepsHeld, k); \
        EACH_FEW(ADD_FEW) \
    }
            EACH_8(DO)
#undef DO
        }
#endif
    } else if (kPacked == kPackedInt4) {
        for (uint first = 0; first < p.k; first += 4 * kCodeSteps) {
            if (kCodeSteps == 1 || first % 32 == 0) {
                load_group(columns, first);
            }
            load_codes(columns, first);
            [[unroll]] for (uint part = 0; part < kCodeSteps; ++part) {
                uint k = first + 4 * part;
                upper_codes = kCodeSteps == 1 ? (k & 4u) != 0u : part != 0;
                STEP
            }
        }
    } else {
        for (uint k = 0; k < p.k; k += 4) {
            STEP
        }
    }
    if (kPacked == kPackedInt8) {
        vec4 scales = uintBitsToFloat(load_words(columns + packed_code_words(kPackedInt8, p.k)));
#define DO(i) \
    if (i < kRows) { \
        sums[i] *= scales; \
    }
        EACH_ROW(DO)
#undef DO
    }

    uint c_first = base.c + m0 * p.c_row + n0 * p.c_column;
    uint rows_end = min(kRows, p.m - m0);
    // What is computed once more below is not stored here: C may be its own other operand.
    uint rows_left = kAMasked != 0 && some_not_finite ? 0 : p.m - m0;
    if (kCVec != 0) {
        if (n0 < p.n) {
            vec4 shift = p.has_bias != 0 ? bias_vec[(p.bias_offset + n0) >> 2] : vec4(0.0);
#define DO(i) \
    if (i < kRows) { \
        vec4 value = relu_if_asked(sums[i] * p.alpha + shift); \
        if (ROW_OF_SUMS(i) < rows_left) { \
            uint at = c_first + ROW_OF_SUMS(i) * p.c_row; \
            c_vec[at >> 2] = kAct > kActRelu ? value : with_other(value, at); \
        } \
    }
            EACH_ROW(DO)
#undef DO
        }
    } else {
        // Which of four is chosen without branches: with those SwiftShader takes 4 times as long to
        // compile for 8 rows, and does not end for 16.
        [[dont_unroll]] for (uint j = 0; j < 4 && n0 + j < p.n; ++j) {
            float shift = load_bias(n0 + j);
            uint c_column = c_first + j * p.c_column;
            bool odd = (j & 1u) != 0;
            bool late = j >= 2;
#define DO(i) \
    if (i < kRows) { \
        float sum = mix(mix(sums[i].x, sums[i].y, odd), mix(sums[i].z, sums[i].w, odd), late); \
        float value = relu_if_asked(vec4(sum * p.alpha + shift)).x; \
        if (ROW_OF_SUMS(i) < rows_left) { \
            uint at = c_column + ROW_OF_SUMS(i) * p.c_row; \
            c[at] = kAct > kActRelu ? value : with_other(value, at); \
        } \
    }
            EACH_ROW(DO)
#undef DO
        }
    }

    // Where B was not finite, the invocation computes its outputs once more and leaves out each
    // product of an absent element.
    if (kAMasked != 0) {
        [[dont_unroll]] for (uint i = some_not_finite ? 0 : rows_end; i < rows_end; ++i) {
            uint a_row = base.a + (m0 + i) * p.a_row;
            vec4 sum = vec4(0.0);
            // The sums go in fours like those above, in the same form, so that compilers contract
            // both or neither: where all that is seen is finite, no bit differs from what a finite
            // B would give.
            [[dont_unroll]] for (uint k = 0; k < p.k; k += 4) {
                vec4 row;
                vec4 values[4];
                [[unroll]] for (uint depth = 0; depth < 4; ++depth) {
                    bool inside = k + depth < p.k;
                    uint at = inside ? k + depth : 0;
                    row[depth] = inside ? a[a_row + at * p.a_k] : 0.0;
                    bool absent = floatBitsToUint(row[depth]) == kSignBit || !inside;
                    [[unroll]] for (uint j = 0; j < 4; ++j) {
                        float value = b[base.b + min(n0 + j, p.n - 1) * p.b_column + at * p.b_k];
                        values[depth][j] = absent ? 0.0 : value;
                    }
                }
                sum += row.x * values[0] + row.y * values[1] + row.z * values[2] + row.w * values[3];
            }
            [[dont_unroll]] for (uint j = 0; j < 4 && n0 + j < p.n; ++j) {
                float value = relu_if_asked(vec4(sum[j] * p.alpha + load_bias(n0 + j))).x;
                uint at = c_first + i * p.c_row + j * p.c_column;
                c[at] = kAct > kActRelu ? value : with_other(value, at);
            }
        }
    }
    // An activation of many instructions is applied to what is stored, in a loop, rather than
    // written out per row: compilers take a call site by call site, and on a software device
    // compiling is most of a first run.
    if (kAct > kActRelu) {
        [[dont_unroll]] for (uint i = 0; i < rows_end; ++i) {
            [[dont_unroll]] for (uint j = 0; j < 4 && n0 + j < p.n; ++j) {
                uint at = c_first + i * p.c_row + j * p.c_column;
                c[at] = with_other(activate(kAct, c[at]), at);
            }
        }
    }
}
