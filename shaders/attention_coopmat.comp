#version 450
// SPDX-License-Identifier: Apache-2.0
// Fused attention on cooperative matrices (Dao 2023, FlashAttention-2), for programs whose
// arithmetic is f16: queries, keys and values are rounded to f16 (to the nearest, ties to even)
// while they are staged in shared memory, and weights on their way to the product with the values;
// scores, softmax and sums are fp32. A group takes kRows rows and walks over tiles of 32 keys; each
// of its subgroups has kSubgroupRows rows of its own, with all keys of a tile and kBlocks blocks of
// 32 columns of O.
//
//! needs GL_KHR_cooperative_matrix
//! source
//! variant attention_coopmat
//! variant attention_coopmat_full -DFULL
//
// The stage holds f16 by eights: rows of queries and keys, as much of each as one part is wide,
// rows of values, and a strip for every subgroup. Through its strip pass what invocations compute
// on one by one: a tile's scores and later its weights, and in the end O by blocks. Until then O
// stays in matrices; where some row of the subgroup met a larger score, it is multiplied by a
// matrix of the rows' factors, element by element. All rows have an eight of padding, to keep them
// off the same banks.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_EXT_spirv_intrinsics : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_cooperative_matrix : require

#include "common/attention_stage.glsl"
#include "common/attention_not_finite.glsl"

// SPIR-V's RoundingModeRTE (capability 4467, mode 4462) for numbers of 16 bits
spirv_execution_mode(extensions = ["SPV_KHR_float_controls"], capabilities = [4467], 4462, 16);

// The raw products in the strip to finished scores, there and in `weights`.
void finish(uint first) {
    for (uint n = 0u; n < kRowsEach; ++n) {
        uint row = row_of(n);
        for (uint m = 0u; m < kFoursEach; ++m) {
            if (row < kSubgroupRows) {
                uint four = four_of(m);
                uint key = first + four * 4u;
                uint at = strip + row * kStripPitch + four;
                vec4 raw = uintBitsToFloat(stage[at]);
                raw += poison(key_offsets(key).z, key_offsets(key + 1u).z, key_offsets(key + 2u).z, key_offsets(key + 3u).z);
                uint bits = 0u;
#ifdef FULL
                bits = kMask != 0u ? mask_words[subgroup_row + row] >> (four * 4u) : 0u;
#endif
                vec4 finished = finish_scores(attending_row(row), key, raw, bits);
                weights[n * kFoursEach + m] = finished;
                stage[at] = floatBitsToUint(finished);
            }
        }
    }
}

float largest_of(uint row) {
    vec4 found = uintBitsToFloat(stage[strip + row * kStripPitch]);
    for (uint i = 1u; i < kStripFours; ++i) {
        found = max(found, uintBitsToFloat(stage[strip + row * kStripPitch + i]));
    }
    return max(max(found.x, found.y), max(found.z, found.w));
}

// Scores to weights, and how far O of each row has to be scaled down.
void weigh(uint first) {
    for (uint n = 0u; n < kRowsEach; ++n) {
        uint row = row_of(n);
        if (row < kSubgroupRows) {
            float before = maxima[n];
            maxima[n] = max(before, largest_of(row));
            bool fresh = floatBitsToUint(before) == kNegativeInfinityBits;
            float rescale = fresh ? 0.0 : exp_of_number(before - maxima[n]);
            totals[n] *= rescale;
            if (four_of(0u) == 0u) {
                factors[subgroup_row + row] = fresh ? 1.0 : rescale;  // O is 0 then
            }
            bool odd = floatBitsToUint(maxima[n]) == kInfinityBits;
            for (uint m = 0u; m < kFoursEach; ++m) {
                vec4 s = weights[n * kFoursEach + m];
                bvec4 masked = is_masked(s);
                odd = odd || any(greaterThan(floatBitsToUint(s) & kMagnitudeBits, uvec4(kInfinityBits)));
                s -= maxima[n];
                vec4 e = vec4(exp_of_number(s.x), exp_of_number(s.y), exp_of_number(s.z), exp_of_number(s.w));
                vec4 kept = mix(e, vec4(0.0), masked);
                totals[n] += (kept.x + kept.y) + (kept.z + kept.w);
                weights[n * kFoursEach + m] = drop(attending_row(row), first + four_of(m) * 4u,
                                                   mix(e, vec4(uintBitsToFloat(kSignBit)), masked));
            }
            totals[n] = odd ? quiet_nan() : totals[n];
        }
    }
}

// True where O of some row of the subgroup has to be scaled down.
bool some_grew() {
    bool grew = false;
    for (uint i = 0u; i < kSubgroupRows; ++i) {
        grew = grew || factors[subgroup_row + i] != 1.0;
    }
    return grew;
}

// A matrix of the rows' factors, whose columns are all the same: it takes the scores' place in the
// strip.
void put_factors() {
    for (uint n = 0u; n < kRowsEach; ++n) {
        uint row = row_of(n);
        if (row < kSubgroupRows) {
            for (uint four = four_of(0u); four < kMatColumns / 4u; four += kRowLanes) {
                stage[strip + row * kStripPitch + four] = floatBitsToUint(vec4(factors[subgroup_row + row]));
            }
        }
    }
}

void put_weights() {
    for (uint n = 0u; n < kRowsEach; ++n) {
        uint row = row_of(n);
        for (uint m = 0u; m < kFoursEach; ++m) {
            if (row < kSubgroupRows) {
                vec4 w = weights[n * kFoursEach + m] * kWeightUnit;
                uvec2 halves = four_halves(w);
                uint four = four_of(m);
                uint at = strip + row * kWeightPitch + four / 2u;
                // a component at a time: two at once would be written with their neighbours'
                if (four % 2u == 0u) {
                    stage[at].x = halves.x;
                    stage[at].y = halves.y;
                } else {
                    stage[at].z = halves.x;
                    stage[at].w = halves.y;
                }
            }
        }
    }
}

// Four sums, and what add_not_finite() marked of them.
vec4 marked(vec4 o, uint row, uint b, uint four) {
    uint bits = marks[mark_word(row, b, four)] >> (four % 4u * 8u);
    uvec4 kinds = uvec4(bits, bits >> 2, bits >> 4, bits >> 6) & 3u;
    vec4 infinite = uintBitsToFloat(mix(uvec4(kInfinityBits), uvec4(kInfinityBits | kSignBit), equal(kinds, uvec4(2u))));
    o = mix(o + infinite, o, equal(kinds, uvec4(0u)));
    return mix(o, vec4(quiet_nan()), equal(kinds, uvec4(3u)));
}

// Adds up the parts of a row's sum, in a fixed order.
float whole_total(uint n) {
    uint row = row_of(n);
    if (row < kSubgroupRows) {
        stage[strip + row * kStripPitch + four_of(0u)].x = floatBitsToUint(totals[n]);
    }
    subgroupBarrier();
    float total = 0.0;
    if (row < kSubgroupRows) {
        for (uint i = 0u; i < kRowLanes; ++i) {
            total += uintBitsToFloat(stage[strip + row * kStripPitch + i].x);
        }
    }
    subgroupBarrier();
    return total;
}

// Writes the row's maximum and sum for splits, or its log-sum-exp; gives the factor of its O and
// the place where that lies.
void finish_row(uint n, out float factor, out uint to) {
    float total = whole_total(n);
    uint row = work.first_row + subgroup_row + row_of(n);
    factor = final_factor(total) / kWeightUnit;
    to = 0u;
    if (row_of(n) < kSubgroupRows && row <= work.last_row) {
        to = row_offset(row);
#ifdef FULL
        if (work.slice == 0u && four_of(0u) == 0u) {
            if (kSplit != 0u && work.split_keys != 0u) {
                partial[to + p.value_dim] = partial_maximum(maxima[n], total);
                partial[to + p.value_dim + 1u] = total;
            } else if (kLse != 0u) {
                write_log_sum_exp(row, maxima[n], total);
            }
        }
#endif
    }
}

// Brings a block of O to the strip.
#define PUT_BLOCK(b) \
    [[unroll]] for (uint i = 0u; i < kMatsDown; ++i) { \
        [[unroll]] for (uint j = 0u; j < kMatsAcross; ++j) { \
            coopMatStore(sums[i * kOutMats + (b) * kMatsAcross + j], stage, \
                 strip + i * kMatRows * kStripPitch + j * (kMatColumns / 4u), kStripPitch, \
                 gl_CooperativeMatrixLayoutRowMajor); \
        } \
    }

// Writes block b of O, which is in the strip.
void store_block(uint b, float row_factors[kRowsEach], uint to[kRowsEach]) {
    for (uint n = 0u; n < kRowsEach; ++n) {
        uint row = row_of(n);
        for (uint m = 0u; m < kFoursEach; ++m) {
            if (row < kSubgroupRows && work.first_row + subgroup_row + row <= work.last_row) {
                vec4 o = uintBitsToFloat(stage[strip + row * kStripPitch + four_of(m)]) * row_factors[n];
                if (values_not_finite != 0u) {
                    o = marked(o, row, b, four_of(m));
                }
                store(to[n], value_column(work.slice, kBlocks, b, kTile, four_of(m)), o);
            }
        }
    }
}

// Written out, not looped over: NVK keeps the sums in memory where a loop picks them.
#define STORE_BLOCK(b) \
    PUT_BLOCK(b) \
    subgroupBarrier(); \
    store_block(b, row_factors, to); \
    subgroupBarrier();

// All subgroups of a group come to each subgroupBarrier() together, also those that have nothing to
// do there: llvmpipe (Mesa 26) holds the whole group at it.
void main() {
    if (!find_work(kTile)) {
        return;
    }
    subgroup_row = gl_SubgroupID * kSubgroupRows;
    strip = kStripsAt + gl_SubgroupID * kStrip;
    Accumulator sums[kMatsDown * kOutMats];
    [[unroll]] for (uint i = 0u; i < kMatsDown * kOutMats; ++i) {
        sums[i] = Accumulator(0.0);
    }
    for (uint i = gl_LocalInvocationID.x; i < kRows * kBlocks * kMarkWords; i += kThreads) {
        marks[i] = 0u;
    }
    for (uint n = 0u; n < kRowsEach; ++n) {
        maxima[n] = negative_infinity();
        totals[n] = 0.0;
#ifdef FULL
        if (kSinks != 0u && work.split == 0u) {
            maxima[n] = sinks[broadcast_row(kSinks, attending_row(row_of(n)), 1u)];
            totals[n] = four_of(0u) == 0u ? sink_total(maxima[n]) : 0.0;
        }
#endif
    }
    if (gl_LocalInvocationID.x == 0u) {
        values_not_finite = 0u;
    }
    barrier();  // where no key is attended, none follows before these are read

    bool queries_staged = false;
    for (uint first = work.begin; first < work.end; first += kTile) {
#ifdef FULL
        if (kMask != 0u) {
            barrier();
            for (uint i = gl_LocalInvocationID.x; i < kRows; i += kThreads) {
                mask_words[i] = mask_word(min(work.first_row + i, work.last_row), first);
            }
            barrier();
            uint seen = 0u;
            for (uint i = 0u; i < kRows; ++i) {
                seen |= mask_words[i];
            }
            // A tile that no row may see costs nothing more. (Where masked scores are finite they
            // all count.)
            if (!kFiniteFill && seen == 0u) {
                continue;
            }
        }
#endif
        bool part_taken = takes_part(first);
        Accumulator scores[kMatsDown * kMatsAcross];
        [[unroll]] for (uint i = 0u; i < kMatsDown * kMatsAcross; ++i) {
            scores[i] = Accumulator(0.0);
        }
        for (uint part = 0u; part < p.head_dim; part += kPart) {
            barrier();
            if (!queries_staged || p.head_dim > kPart) {
                stage_queries(part, 0u);
            }
            stage_keys(first, part);
            if (part == 0u) {
                stage_values(first);
            }
            barrier();
            uint depth_end = part_taken ? min(kPart, p.head_dim - part) : 0u;
            for (uint depth = 0u; depth < depth_end; depth += kMatDepth) {
                coopmat<float16_t, gl_ScopeSubgroup, kMatRows, kMatDepth, gl_MatrixUseA> rows[kMatsDown];
                [[unroll]] for (uint i = 0u; i < kMatsDown; ++i) {
                    coopMatLoad(rows[i], stage, (subgroup_row + i * kMatRows) * kPitch + depth / 8u, kPitch,
                                gl_CooperativeMatrixLayoutRowMajor);
                }
                [[unroll]] for (uint j = 0u; j < kMatsAcross; ++j) {
                    coopmat<float16_t, gl_ScopeSubgroup, kMatDepth, kMatColumns, gl_MatrixUseB> keys;
                    coopMatLoad(keys, stage, kKeysAt + j * kMatColumns * kPitch + depth / 8u, kPitch,
                                gl_CooperativeMatrixLayoutColumnMajor);
                    [[unroll]] for (uint i = 0u; i < kMatsDown; ++i) {
                        scores[i * kMatsAcross + j] = coopMatMulAdd(rows[i], keys, scores[i * kMatsAcross + j]);
                    }
                }
            }
        }
        queries_staged = true;
        if (part_taken) {
            [[unroll]] for (uint i = 0u; i < kMatsDown; ++i) {
                [[unroll]] for (uint j = 0u; j < kMatsAcross; ++j) {
                    coopMatStore(scores[i * kMatsAcross + j], stage,
                                 strip + i * kMatRows * kStripPitch + j * (kMatColumns / 4u), kStripPitch,
                                 gl_CooperativeMatrixLayoutRowMajor);
                }
            }
        }
        subgroupBarrier();
        if (part_taken) {
            finish(first);
        }
        subgroupBarrier();
        if (part_taken) {
            weigh(first);
        }
        subgroupBarrier();
        bool grew = part_taken && some_grew();
        if (grew) {
            put_factors();
        }
        subgroupBarrier();
        if (grew) {
            [[unroll]] for (uint i = 0u; i < kMatsDown; ++i) {
                Accumulator by_row;
                coopMatLoad(by_row, stage, strip + i * kMatRows * kStripPitch, kStripPitch,
                            gl_CooperativeMatrixLayoutRowMajor);
                [[unroll]] for (uint j = 0u; j < kOutMats; ++j) {
                    sums[i * kOutMats + j] *= by_row;
                }
            }
        }
        subgroupBarrier();
        if (part_taken) {
            put_weights();
        }
        subgroupBarrier();
        for (uint depth = 0u; depth < (part_taken ? kTile : 0u); depth += kMatDepth) {
            coopmat<float16_t, gl_ScopeSubgroup, kMatRows, kMatDepth, gl_MatrixUseA> rows[kMatsDown];
            [[unroll]] for (uint i = 0u; i < kMatsDown; ++i) {
                coopMatLoad(rows[i], stage, strip + i * kMatRows * kWeightPitch + depth / 8u, kWeightPitch,
                            gl_CooperativeMatrixLayoutRowMajor);
            }
            [[unroll]] for (uint j = 0u; j < kOutMats; ++j) {
                coopmat<float16_t, gl_ScopeSubgroup, kMatDepth, kMatColumns, gl_MatrixUseB> columns;
                coopMatLoad(columns, stage, kValuesAt + depth * kValuePitch + j * (kMatColumns / 8u), kValuePitch,
                            gl_CooperativeMatrixLayoutRowMajor);
                [[unroll]] for (uint i = 0u; i < kMatsDown; ++i) {
                    sums[i * kOutMats + j] = coopMatMulAdd(rows[i], columns, sums[i * kOutMats + j]);
                }
            }
        }
        if (values_not_finite == first + 1u && part_taken) {
            add_not_finite(first);
        }
    }

    subgroupBarrier();  // others may still read their weights
    float row_factors[kRowsEach];
    uint to[kRowsEach];
    for (uint n = 0u; n < kRowsEach; ++n) {
        finish_row(n, row_factors[n], to[n]);
    }
    STORE_BLOCK(0u)
    if (kBlocks > 1u) {
        STORE_BLOCK(1u)
    }
    if (kBlocks > 2u) {
        STORE_BLOCK(2u)
        STORE_BLOCK(3u)
    }
}
