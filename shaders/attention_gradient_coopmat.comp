#version 450
// SPDX-License-Identifier: Apache-2.0
// The gradient of fused attention on cooperative matrices, for programs whose arithmetic is f16:
// queries, keys, values and dy are rounded to f16 (to the nearest, ties to even) while they are
// staged in shared memory, and weights and ds on their way to the products with these; scores, what
// is made of them, and sums are fp32. A group takes kRows near rows and walks over tiles of 32 far
// ones; each of its subgroups has kSubgroupRows near rows of its own, with all far rows of a tile
// and kBlocks blocks of 32 columns of the results. Nothing is added up by two groups.
//
//! needs GL_KHR_cooperative_matrix
//
// The stage holds f16 by eights: near and far rows for either product, whole (near rows once and
// for all) or part by part; and a strip for every subgroup, through which passes what invocations
// compute on one by one: scores, then dy . v, then ds and weights, and the results in the end. All
// rows have an eight of padding, to keep them off the same banks.
//
// What is not finite in f16 in a far row is staged as 0, and the row noted: its scores are NaN,
// which a mask still hides.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_EXT_spirv_intrinsics : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_cooperative_matrix : require

#include "common/attention_gradient_stage.glsl"

// SPIR-V's RoundingModeRTE (capability 4467, mode 4462) for numbers of 16 bits
spirv_execution_mode(extensions = ["SPV_KHR_float_controls"], capabilities = [4467], 4462, 16);

// True where the alignment lets some near row of the subgroup see a far row of the tile, or be seen
// by one. All of its invocations find the same.
bool takes_part(uint first) {
    uint from = work.first_near + subgroup_row;
    if (from > work.last_near || kCausal == 0u || kFiniteFill) {
        return from <= work.last_near;
    }
    uint last = min(from + kSubgroupRows - 1u, work.last_near);
    uint far_last = min(first + kTile, work.far_count) - 1u;
    int position = int((kOfQueries ? from : first) / kGroup) + shift;  // of the first query
    int last_position = int((kOfQueries ? last : far_last) / kGroup) + shift;
    int key = int(kOfQueries ? first : from);
    int last_key = int(kOfQueries ? far_last : last);
    return key <= last_position && (kWindow == 0u || last_key > position - int(kWindow));
}

#define EACH_OF_STRIP(n, m) \
    [[unroll]] for (uint n = 0u; n < kRowsEach; ++n) \
        [[unroll]] for (uint m = 0u; m < kFoursEach; ++m)

// Takes this invocation's numbers from the strip.
vec4 from_strip(uint n, uint m) {
    return row_of(n) < kSubgroupRows ? uintBitsToFloat(stage[strip + row_of(n) * kStripPitch + four_of(m)]) : vec4(0.0);
}

// Makes ds and weights of the products.
void weigh(uint first) {
    EACH_OF_STRIP(n, m) {
        uint row = subgroup_row + min(row_of(n), kSubgroupRows - 1u);
        uvec4 in_tile = four_of(m) * 4u + uvec4(0, 1, 2, 3);
        uint i = n * kFoursEach + m;
        uvec4 last = uvec4(not_finite_rows[in_tile.x], not_finite_rows[in_tile.y], not_finite_rows[in_tile.z],
                           not_finite_rows[in_tile.w]);
        scores[i] = mix(scores[i], vec4(quiet_nan()), equal(last, uvec4(first + 1u)));
        bvec4 lost = not_finite(dp[i]);
        vec3 own = statistics_of_near(min(work.first_near + row, work.last_near));
        gradient_of_pairs(first, row, in_tile, own, statistics_in_tile(in_tile), scores[i], dp[i]);
        if (!kOfQueries) {  // dy is not finite in f16
            dp[i] = mix(dp[i], vec4(quiet_nan()), both(lost, notEqual(dp[i], vec4(0.0))));
        }
    }
}

// The exponent's bits of the largest finite ds of the subgroup, within bounds.
uint largest_exponent() {
    uint largest = 0u;
    EACH_OF_STRIP(n, m) {
        uvec4 bits = floatBitsToUint(scores[n * kFoursEach + m]) & kMagnitudeBits;
        bits = mix(bits, uvec4(0u), greaterThanEqual(bits, uvec4(kInfinityBits)));
        largest = max(largest, max(max(bits.x, bits.y), max(bits.z, bits.w)));
    }
    return max(subgroupMax(largest) >> 23, kLargestExponent + 1u);
}

void put_halves(uint at, vec4 x, uint n, uint m) {
    if (row_of(n) < kSubgroupRows) {
        uint four = four_of(m);
        uint to = strip + at + row_of(n) * kWeightPitch + four / 2u;
        uvec2 halves = four_halves(x);
        // a component at a time: two at once would be written with their neighbours'
        if (four % 2u == 0u) {
            stage[to].x = halves.x;
            stage[to].y = halves.y;
        } else {
            stage[to].z = halves.x;
            stage[to].w = halves.y;
        }
    }
}

// Adds the products of near and far rows in the stage, `depth_end` columns of them. (A macro, as
// are those below: glslang does not always find that arrays of such matrices have one type.)
#define MULTIPLY(sums, near_from, far_from, depth_end) \
    for (uint depth = 0u; depth < (depth_end); depth += kMatDepth) { \
        LeftMatrix rows[kMatsDown]; \
        [[unroll]] for (uint i = 0u; i < kMatsDown; ++i) { \
            coopMatLoad(rows[i], stage, (near_from) + (subgroup_row + i * kMatRows) * kPitch + depth / 8u, kPitch, \
                        gl_CooperativeMatrixLayoutRowMajor); \
        } \
        [[unroll]] for (uint j = 0u; j < kMatsAcross; ++j) { \
            RightMatrix far; \
            coopMatLoad(far, stage, (far_from) + j * kMatColumns * kPitch + depth / 8u, kPitch, \
                        gl_CooperativeMatrixLayoutColumnMajor); \
            [[unroll]] for (uint i = 0u; i < kMatsDown; ++i) { \
                sums[i * kMatsAcross + j] = coopMatMulAdd(rows[i], far, sums[i * kMatsAcross + j]); \
            } \
        } \
    }

// What the strip has at `at`: ds, or weights.
#define LOAD_FROM_STRIP(mats, at) \
    [[unroll]] for (uint i = 0u; i < kMatsDown; ++i) { \
        [[unroll]] for (uint j = 0u; j < kStripMats; ++j) { \
            coopMatLoad(mats[i * kStripMats + j], stage, \
                        strip + (at) + i * kMatRows * kWeightPitch + j * (kMatDepth / 8u), kWeightPitch, \
                        gl_CooperativeMatrixLayoutRowMajor); \
        } \
    }

// Adds to block b of the sums what the strip had, times a block of far rows, which begins at `from`
// in the stage. Apart: each tile's sums by themselves, in a unit of their own.
#define ADD_BLOCK(sums, b, mats, from, apart, unit) \
    [[unroll]] for (uint j = 0u; j < kMatsAcross; ++j) { \
        Accumulator parts[kMatsDown]; \
        [[unroll]] for (uint i = 0u; i < kMatsDown; ++i) { \
            parts[i] = Accumulator(0.0); \
            if (!(apart)) { \
                parts[i] = sums[i * kOutMats + (b) * kMatsAcross + j]; \
            } \
        } \
        [[unroll]] for (uint k = 0u; k < kStripMats; ++k) { \
            RightMatrix columns; \
            coopMatLoad(columns, stage, (from) + k * kMatDepth * kPitch + j * (kMatColumns / 8u), kPitch, \
                        gl_CooperativeMatrixLayoutRowMajor); \
            [[unroll]] for (uint i = 0u; i < kMatsDown; ++i) { \
                parts[i] = coopMatMulAdd(mats[i * kStripMats + k], columns, parts[i]); \
            } \
        } \
        [[unroll]] for (uint i = 0u; i < kMatsDown; ++i) { \
            uint to = i * kOutMats + (b) * kMatsAcross + j; \
            if (apart) { \
                sums[to] += parts[i] * (unit); \
            } else { \
                sums[to] = parts[i]; \
            } \
        } \
    }

#define STORE_TO_STRIP(mats, mats_a_row, first_mat) \
    [[unroll]] for (uint i = 0u; i < kMatsDown; ++i) { \
        [[unroll]] for (uint j = 0u; j < kMatsAcross; ++j) { \
            coopMatStore(mats[i * (mats_a_row) + (first_mat) + j], stage, \
                         strip + i * kMatRows * kStripPitch + j * (kMatColumns / 4u), kStripPitch, \
                         gl_CooperativeMatrixLayoutRowMajor); \
        } \
    }

// All subgroups of a group come to each subgroupBarrier() together, also those that have nothing to
// do there: llvmpipe (Mesa 26) holds the whole group at it.
void main() {
    if (!find_work()) {
        return;
    }
    subgroup_row = gl_SubgroupID * kSubgroupRows;
    strip = kStripsAt + gl_SubgroupID * kStrip;
    Accumulator firsts[kMatsDown * kOutMats];
    Accumulator seconds[kMatsDown * kOutMats];
    [[unroll]] for (uint i = 0u; i < kMatsDown * kOutMats; ++i) {
        firsts[i] = Accumulator(0.0);
        seconds[i] = Accumulator(0.0);
    }
    for (uint i = gl_LocalInvocationID.x; i < kTile; i += kThreads) {
        not_finite_rows[i] = 0u;
    }

    bool near_staged = false;
    [[dont_unroll]] for (uint first = work.begin; first < work.end; first += kTile) {
        // A tile of which no pair is seen costs nothing more. (Where masked scores are finite they
        // all count.)
        if (!stage_tile(first)) {
            continue;
        }
        bool part_taken = takes_part(first);
        Accumulator products[kMatsDown * kMatsAcross];
        Accumulator second_products[kMatsDown * kMatsAcross];
        [[unroll]] for (uint i = 0u; i < kMatsDown * kMatsAcross; ++i) {
            products[i] = Accumulator(0.0);
            second_products[i] = Accumulator(0.0);
        }
        if (kWhole != 0u) {
            barrier();
            if (!near_staged) {
                stage_near(false, 0u, 0u);
                stage_near(true, 0u, kNearSecondAt);
                near_staged = true;
            }
            stage_far(false, first, 0u, kPartEights, kFarAt);
            stage_far(true, first, 0u, kPartEights, kFarSecondAt);
            barrier();
            MULTIPLY(products, 0u, kFarAt, part_taken ? p.head_dim : 0u)
            MULTIPLY(second_products, kNearSecondAt, kFarSecondAt, part_taken ? p.value_dim : 0u)
        } else {
            for (uint part = 0u; part < p.head_dim; part += kPart) {
                barrier();
                stage_near(false, part, 0u);
                stage_far(false, first, part, kPartEights, kFarAt);
                barrier();
                MULTIPLY(products, 0u, kFarAt, part_taken ? min(kPart, p.head_dim - part) : 0u)
            }
            for (uint part = 0u; part < p.value_dim; part += kPart) {
                barrier();
                stage_near(true, part, 0u);
                stage_far(true, first, part, kPartEights, kFarAt);
                barrier();
                MULTIPLY(second_products, 0u, kFarAt, part_taken ? min(kPart, p.value_dim - part) : 0u)
            }
        }
        if (part_taken) {
            STORE_TO_STRIP(products, kMatsAcross, 0u)
        }
        subgroupBarrier();
        EACH_OF_STRIP(n, m) {
            scores[n * kFoursEach + m] = from_strip(n, m);
        }
        subgroupBarrier();
        if (part_taken) {
            STORE_TO_STRIP(second_products, kMatsAcross, 0u)
        }
        subgroupBarrier();
        EACH_OF_STRIP(n, m) {
            dp[n * kFoursEach + m] = from_strip(n, m);
        }
        if (part_taken) {
            weigh(first);
        }
        subgroupBarrier();
        uint exponent = part_taken ? largest_exponent() : kLargestExponent + 1u;
        float to_unit = uintBitsToFloat((254u + kLargestExponent - exponent) << 23);
        float unit = uintBitsToFloat((exponent - kLargestExponent) << 23);
        // the weights have the scale of dropout, which is 0 where all of them are dropped
        float weight_unit = kKeepScale == 0.0 ? kWeightUnit : kWeightUnit / kKeepScale;
        EACH_OF_STRIP(n, m) {
            put_halves(0u, scores[n * kFoursEach + m] * to_unit, n, m);
            if (!kOfQueries) {
                put_halves(kWeightsAt, dp[n * kFoursEach + m] * weight_unit, n, m);
            }
        }
        subgroupBarrier();
        LeftMatrix ds[kMatsDown * kStripMats];
        LeftMatrix weights[kMatsDown * kStripMats];
        LOAD_FROM_STRIP(ds, 0u)
        if (!kOfQueries) {
            LOAD_FROM_STRIP(weights, kWeightsAt)
        }
        [[unroll]] for (uint b = 0u; b < kBlocks; ++b) {
            uint column = (work.slice * kBlocks + b) * kTile;
            if (column < p.head_dim) {
                if (kWhole == 0u) {
                    barrier();
                    stage_far(false, first, column, kTile / 8u, kFarAt);
                    barrier();
                }
                if (part_taken) {
                    uint from = kFarAt + (kWhole != 0u ? column / 8u : 0u);
                    ADD_BLOCK(firsts, b, ds, from, true, unit)
                }
            }
            if (!kOfQueries && column < p.value_dim) {
                if (kWhole == 0u) {
                    barrier();
                    stage_far(true, first, column, kTile / 8u, kFarAt);
                    barrier();
                }
                if (part_taken) {
                    uint from = kFarSecondAt + (kWhole != 0u ? column / 8u : 0u);
                    ADD_BLOCK(seconds, b, weights, from, false, 1.0)
                }
            }
        }
    }

    subgroupBarrier();  // others may still read their weights
    [[unroll]] for (uint side = 0u; side < (kOfQueries ? 1u : 2u); ++side) {
        [[unroll]] for (uint b = 0u; b < kBlocks; ++b) {
            if (side == 0u) {
                STORE_TO_STRIP(firsts, kOutMats, b * kMatsAcross)
            } else {
                STORE_TO_STRIP(seconds, kOutMats, b * kMatsAcross)
            }
            subgroupBarrier();
            EACH_OF_STRIP(n, m) {
                uint row = work.first_near + subgroup_row + row_of(n);
                if (row_of(n) < kSubgroupRows && row <= work.last_near) {
                    uvec2 to = result_rows(row);
                    uint column = value_column(work.slice, kBlocks, b, kTile, four_of(m));
                    vec4 sums = from_strip(n, m);
                    if (side == 0u) {
                        store_first(to.x, column, sums * kScale);
                    } else {
                        store_second(to.y, column, sums * (kKeepScale / kWeightUnit));
                    }
                }
            }
            subgroupBarrier();
        }
    }
}
