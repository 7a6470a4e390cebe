#version 450
// SPDX-License-Identifier: Apache-2.0
// attention_coopmat.comp where matrices' elements can be told apart, rows reduced and sums made
// operands (VK_NV_cooperative_matrix2, or VK_EXT_cooperative_matrix_maintenance1, whose names a
// module is given where a device has those): scores become weights in the matrices that they were
// computed in, and shared memory holds keys and values alone. A group takes kRows rows, each of its
// subgroups those of one matrix, and walks over tiles of 32 keys.
//
//! needs GL_KHR_cooperative_matrix
//! variant attention_coopmat_elements needs GL_NV_cooperative_matrix2 vulkan1.3
//! variant attention_coopmat_elements_full -DFULL needs GL_NV_cooperative_matrix2 vulkan1.3
//
// Queries, a whole head wide, are staged once, some rows after others, and stay in matrices. Keys
// and values of the next tile are read into registers before this tile's products, and staged
// behind them. Matrices have as many columns as they are deep: then a matrix of weights, rounded to
// f16, is an operand as it is. Maxima are matrices whose columns are all the same; the sums of a
// row's weights stay spread over its columns until the end. Rows are reduced, sums scaled down and
// weights looked at one by one only at tiles in which a score is above its row's maximum (after the
// first tiles few are) or NaN, or a value is not finite, and as long as a row of the subgroup has
// no key. exp is the device's own: its error, which Vulkan bounds by (3 + 2 |x|) 2^-23, is far
// below that of rounding to f16.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_EXT_spirv_intrinsics : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_vote : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_NV_cooperative_matrix2 : require

#define ELEMENTS
#include "common/attention_stage.glsl"
#include "common/attention_not_finite.glsl"

// SPIR-V's RoundingModeRTE (capability 4467, mode 4462) for numbers of 16 bits
spirv_execution_mode(extensions = ["SPV_KHR_float_controls"], capabilities = [4467], 4462, 16);

layout(set = 0, binding = kAttentionBindingKey) readonly buffer KeyEights { uvec4 key_eights[]; };
layout(set = 0, binding = kAttentionBindingValue) readonly buffer ValueEights { uvec4 value_eights[]; };

#define Operand coopmat<float16_t, gl_ScopeSubgroup, kMatRows, kMatDepth, gl_MatrixUseA>
#define OtherOperand coopmat<float16_t, gl_ScopeSubgroup, kMatDepth, kMatColumns, gl_MatrixUseB>

const float kLog2E = 1.44269504;
const float kWeightUnitLog2 = 15.0;  // of kWeightUnit, which sums of weights have here too

// What an invocation carries of the next tile to the stage: eights of K and V, each two vec4 where
// they are kept in fp32, else as f16. Where few invocations would carry much they carry nothing,
// and stage what they read at once.
const uint kRaw = kKv == kPackedF32 ? 2u : 1u;
const uint kKeyItems = (kTile * kPartEights + kThreads - 1u) / kThreads;
const uint kValueItems = (kTile * kValueEights + kThreads - 1u) / kThreads;
const bool kAhead = (kKeyItems + kValueItems) * kRaw <= 8u;
uvec4 next_keys[kAhead ? kKeyItems * kRaw : 1u];
uvec4 next_values[kAhead ? kValueItems * kRaw : 1u];

// --- loads ---------------------------------------------------------------------------------------

uvec4 raw_keys(uint offset, uint column, uint part) {
    if (kKv == kPackedF32) {
        return floatBitsToUint(key_four(offset, column + part * 4u));
    }
    if (kKv == kPackedF16) {  // rows are filled up with zeros, to an eight
        return column < p.head_dim ? key_eights[(offset + (column >> 1)) >> 2] : uvec4(0u);
    }
    return eight_halves(key_four(offset, column), key_four(offset, column + 4u));
}

uvec4 raw_values(uint offset, uint column, uint part) {
    if (kKv == kPackedF32) {
        return floatBitsToUint(load_value(offset, column + part * 4u));
    }
    if (kKv == kPackedF16) {  // past its width the last ones, which are not stored
        return value_eights[(offset >> 2) + min(column >> 3, (p.value_dim - 1u) >> 3)];
    }
    return eight_halves(load_value(offset, column), load_value(offset, column + 4u));
}

uvec4 halves_of(uvec4 low, uvec4 high) {
    return kRaw == 1u ? low : eight_halves(uintBitsToFloat(low), uintBitsToFloat(high));
}

void fetch(uint first) {
    [[unroll]] for (uint i = 0u; i < kKeyItems && kAhead; ++i) {
        uint item = min(gl_LocalInvocationID.x + i * kThreads, kTile * kPartEights - 1u);
        uint row = item / kPartEights;
        uint offset = key_offsets(first + row).x;
        [[unroll]] for (uint part = 0u; part < kRaw; ++part) {
            next_keys[i * kRaw + part] = raw_keys(offset, (item - row * kPartEights) * 8u, part);
        }
    }
    [[unroll]] for (uint i = 0u; i < kValueItems && kAhead; ++i) {
        uint item = min(gl_LocalInvocationID.x + i * kThreads, kTile * kValueEights - 1u);
        uint row = item / kValueEights;
        uint offset = key_offsets(first + row).y;
        uint column = (work.slice * kValueEights + item - row * kValueEights) * 8u;
        [[unroll]] for (uint part = 0u; part < kRaw; ++part) {
            next_values[i * kRaw + part] = raw_values(offset, column, part);
        }
    }
}

void stage_tile(uint first) {
    if (!kAhead) {
        stage_keys(first, 0u);
        stage_values(first);
        return;
    }
    [[unroll]] for (uint i = 0u; i < kKeyItems; ++i) {
        uint item = gl_LocalInvocationID.x + i * kThreads;
        uint row = item / kPartEights;
        if (row < kTile) {
            stage[kKeysAt + row * kPitch + item - row * kPartEights] =
                halves_of(next_keys[i * kRaw], next_keys[i * kRaw + kRaw - 1u]);
        }
    }
    [[unroll]] for (uint i = 0u; i < kValueItems; ++i) {
        uint item = gl_LocalInvocationID.x + i * kThreads;
        uint row = item / kValueEights;
        if (row < kTile) {
            stage[kValuesAt + row * kValuePitch + item - row * kValueEights] =
                finite_values(halves_of(next_values[i * kRaw], next_values[i * kRaw + kRaw - 1u]), first);
        }
    }
}

// --- elements: what becomes of that at (row, column) of a subgroup's matrix ----------------------

// Whether an element that this invocation looked at was what it looked for. Elements come in any
// order, and may come more than once: it is only ever set.
bool found;

float larger(const in float a, const in float b) {
    return max(a, b);
}

float added(const in float a, const in float b) {
    return a + b;
}

float larger_of(const in uint row, const in uint column, const in float a, const in float b) {
    return max(a, b);
}

float first_maximum(const in uint row, const in uint column, const in float x) {
#ifdef FULL
    if (kSinks != 0u && work.split == 0u) {
        return sinks[broadcast_row(kSinks, attending_row(row), 1u)];
    }
#endif
    return negative_infinity();
}

// The sum that a row begins with, in its first column.
float first_total(const in uint row, const in uint column, const in float x, const in float maximum) {
#ifdef FULL
    if (kSinks != 0u && work.split == 0u && column == 0u) {
        return sink_total(maximum) * kWeightUnit;
    }
#endif
    return 0.0;
}

// A score from the product with key `first` + column.
float score(const in uint row, const in uint column, const in float x, const in uint first) {
    uint key = first + column;
    uint bits = 0u;
#ifdef FULL
    bits = kMask != 0u ? mask_words[subgroup_row + row] >> (key % kTile) : 0u;
#endif
    float raw = x;
    if (poisoned == first / kTile * kTile + 1u) {
        raw += poison(key_offsets(key).z, 1u, 1u, 1u).x;
    }
    return finish_scores(attending_row(row), key, vec4(raw), bits).x;
}

// Looks for a score that is above its row's maximum, or NaN.
float find_larger(const in uint row, const in uint column, const in float s, const in float maximum) {
    if (!(s <= maximum)) {
        found = true;
    }
    return s;
}

// Looks for a row without any key yet.
float find_empty(const in uint row, const in uint column, const in float maximum) {
    if (floatBitsToUint(maximum) == kNegativeInfinityBits) {
        found = true;
    }
    return maximum;
}

// A weight, times kWeightUnit, from how far a score is above its row's maximum. What is 0 in f16 is
// 2^-126, so that exp2(-inf) is not asked for.
float weight_of(float above) {
    return exp2(max(above * kLog2E + kWeightUnitLog2, -126.0));
}

// A weight from a score that is at most its row's maximum, where that is a number. Which keys are
// masked can not be told from it: their weights are as good as 0 too.
float plain_weight(const in uint row, const in uint column, const in float s, const in float maximum) {
    return weight_of(s - maximum);
}

// A weight from a score: NaN where that is, -0.0 where it is masked.
float weight(const in uint row, const in uint column, const in float s, const in float maximum) {
    float e = weight_of(s - maximum);
    e = is_nan(s) ? quiet_nan() : e;
    return floatBitsToUint(s) == kNegativeInfinityBits ? uintBitsToFloat(kSignBit) : e;
}

// How far sums have to be scaled down: not at all where the maximum stays, which exp2(0) does not
// promise; to 0 where there was no key yet, with a sink of -inf. NaN where the maximum is infinite,
// which makes the row so.
float rescale(const in uint row, const in uint column, const in float before, const in float maximum) {
    float e = before == maximum ? 1.0 : exp2((before - maximum) * kLog2E);
    e = floatBitsToUint(before) == kNegativeInfinityBits ? 0.0 : e;
    return floatBitsToUint(maximum) == kInfinityBits ? quiet_nan() : e;
}

float dropped(const in uint row, const in uint column, const in float w, const in uint first) {
    return drop(attending_row(row), first + column, vec4(w)).x;
}

// Writes the row's maximum and sum for splits, or its log-sum-exp. Gives the sum.
float finish_total(const in uint row, const in uint column, const in float units, const in float maximum) {
    float total = units / kWeightUnit;
#ifdef FULL
    uint at = work.first_row + subgroup_row + row;
    if (column == 0u && at <= work.last_row && work.slice == 0u) {
        if (kSplit != 0u && work.split_keys != 0u) {
            uint to = row_offset(at);
            partial[to + p.value_dim] = partial_maximum(maximum, total);
            partial[to + p.value_dim + 1u] = total;
        } else if (kLse != 0u) {
            write_log_sum_exp(at, maximum, total);
        }
    }
#endif
    return total;
}

// Writes an element of O, of the matrix that begins at column `begin` of the group's.
float finish_output(const in uint row, const in uint column, const in float sum, const in float total,
                    const in uint begin) {
    uint at = work.first_row + subgroup_row + row;
    uint within = begin + column;
    uint to = work.slice * kBlocks * kTile + within;
    if (at <= work.last_row && to < p.value_dim) {
        float o = sum * (final_factor(total) / kWeightUnit);
        if (values_not_finite != 0u) {
            uint four = within % kTile / 4u;
            uint bits = marks[mark_word(row, within / kTile, four)] >> (four % 4u * 8u + within % 4u * 2u) & 3u;
            float infinite = uintBitsToFloat(bits == 2u ? kNegativeInfinityBits : kInfinityBits);
            o = bits == 3u ? quiet_nan() : bits == 0u ? o : o + infinite;
        }
        to += row_offset(at);
#ifdef FULL
        if (kSplit != 0u && work.split_keys != 0u) {
            partial[to] = o;
            return sum;
        }
#endif
        result[to] = o;
    }
    return sum;
}

// --- tiles ---------------------------------------------------------------------------------------

// True where a score is the product times p.scale, for all rows of the subgroup and all keys of the
// tile.
bool is_plain(uint first) {
#ifdef FULL
    if (kMask != 0u || kBias != 0u || kSlopes != 0u || kPageSize != 0u) {
        return false;
    }
#endif
    if (kSoftcap != 0u || first + kTile > work.keys) {
        return false;
    }
    if (kCausal != 0u) {
        int lowest = int(query_of(attending_row(0u))) + work.shift;
        int highest = int(query_of(attending_row(kSubgroupRows - 1u))) + work.shift;
        return int(first + kTile) - 1 <= lowest && (p.window == 0u || int(first) > highest - int(p.window));
    }
    return true;
}

// Notes whether a key of the tile lies in a page outside the pool.
void find_poison(uint first) {
#ifdef FULL
    if (kPageSize != 0u) {
        for (uint i = gl_LocalInvocationID.x; i < kTile; i += kThreads) {
            if (key_offsets(first + i).z == 0u) {
                atomicMax(poisoned, first + 1u);
            }
        }
    }
#endif
}

void main() {
    if (!find_work(kTile)) {
        return;
    }
    subgroup_row = gl_SubgroupID * kSubgroupRows;
    strip = kStripsAt + gl_SubgroupID * kStrip;
    if (work.begin < work.end) {
        fetch(work.begin);
    }
    for (uint i = gl_LocalInvocationID.x; i < kRows * kBlocks * kMarkWords; i += kThreads) {
        marks[i] = 0u;
    }
    if (gl_LocalInvocationID.x == 0u) {
        values_not_finite = 0u;
        poisoned = 0u;
    }
    Operand queries[kPart / kMatDepth];
    [[unroll]] for (uint from = 0u; from < kRows; from += kQueryRows) {
        if (from != 0u) {
            barrier();
        }
        stage_queries(0u, from);
        barrier();
        if (subgroup_row >= from && subgroup_row < from + kQueryRows) {
            [[unroll]] for (uint d = 0u; d < kPart / kMatDepth; ++d) {
                coopMatLoad(queries[d], stage, (subgroup_row - from) * kPitch + d * (kMatDepth / 8u), kPitch,
                            gl_CooperativeMatrixLayoutRowMajor);
            }
        }
    }
    Accumulator sums[kOutMats];
    [[unroll]] for (uint i = 0u; i < kOutMats; ++i) {
        sums[i] = Accumulator(0.0);
    }
    Accumulator maxima = Accumulator(0.0);
    Accumulator totals = Accumulator(0.0);
    coopMatPerElementNV(maxima, maxima, first_maximum);
    coopMatPerElementNV(totals, totals, first_total, maxima);
    bool some_empty = true;

    for (uint first = work.begin; first < work.end; first += kTile) {
        barrier();  // what was staged last is read
#ifdef FULL
        if (kMask != 0u) {
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
                fetch(first + kTile);
                continue;
            }
        }
#endif
        stage_tile(first);
        find_poison(first);
        barrier();
        if (first + kTile < work.end) {
            fetch(first + kTile);
        }
        bool part_taken = takes_part(first);
        bool some_not_finite = values_not_finite == first + 1u;
        if (part_taken) {
            Accumulator scores[kMatsAcross];
            [[unroll]] for (uint j = 0u; j < kMatsAcross; ++j) {
                scores[j] = Accumulator(0.0);
            }
            [[unroll]] for (uint d = 0u; d < kPart / kMatDepth; ++d) {
                [[unroll]] for (uint j = 0u; j < kMatsAcross; ++j) {
                    OtherOperand keys;
                    coopMatLoad(keys, stage, kKeysAt + j * kMatColumns * kPitch + d * (kMatDepth / 8u), kPitch,
                                gl_CooperativeMatrixLayoutColumnMajor);
                    scores[j] = coopMatMulAdd(queries[d], keys, scores[j]);
                }
            }
            if (is_plain(first)) {
                [[unroll]] for (uint j = 0u; j < kMatsAcross; ++j) {
                    scores[j] *= p.scale;
                }
            } else {
                [[unroll]] for (uint j = 0u; j < kMatsAcross; ++j) {
                    coopMatPerElementNV(scores[j], scores[j], score, first + j * kMatColumns);
                }
            }
            found = false;
            [[unroll]] for (uint j = 0u; j < kMatsAcross; ++j) {
                coopMatPerElementNV(scores[j], scores[j], find_larger, maxima);
            }
            bool with_care = subgroupAny(found) || some_empty || some_not_finite;
            if (with_care) {
                Accumulator before = maxima;
                Accumulator largest = scores[0];
                [[unroll]] for (uint j = 1u; j < kMatsAcross; ++j) {
                    coopMatPerElementNV(largest, largest, larger_of, scores[j]);
                }
                coopMatReduceNV(largest, largest, gl_CooperativeMatrixReduceRowNV, larger);
                coopMatPerElementNV(maxima, before, larger_of, largest);
                coopMatPerElementNV(before, before, rescale, maxima);
                totals *= before;
                [[unroll]] for (uint i = 0u; i < kOutMats; ++i) {
                    sums[i] *= before;
                }
                found = false;
                coopMatPerElementNV(maxima, maxima, find_empty);
                some_empty = subgroupAny(found);
            }
            [[unroll]] for (uint j = 0u; j < kMatsAcross; ++j) {
                if (with_care) {
                    coopMatPerElementNV(scores[j], scores[j], weight, maxima);
                } else {
                    coopMatPerElementNV(scores[j], scores[j], plain_weight, maxima);
                }
                totals += scores[j];
                if (kThreshold != 0u) {
                    coopMatPerElementNV(scores[j], scores[j], dropped, first + j * kMatColumns);
                }
                Operand weights = Operand(scores[j]);
                [[unroll]] for (uint i = 0u; i < kOutMats; ++i) {
                    OtherOperand values;
                    coopMatLoad(values, stage, kValuesAt + j * kMatColumns * kValuePitch + i * (kMatColumns / 8u),
                                kValuePitch, gl_CooperativeMatrixLayoutRowMajor);
                    sums[i] = coopMatMulAdd(weights, values, sums[i]);
                }
                if (some_not_finite) {
                    coopMatStore(weights, stage, strip + j * (kMatColumns / 8u), kWeightPitch,
                                 gl_CooperativeMatrixLayoutRowMajor);
                }
            }
        }
        if (some_not_finite) {
            // all subgroups of a group come to it, also those with nothing to do
            subgroupBarrier();
            if (part_taken) {
                add_not_finite(first);
            }
        }
    }
    barrier();  // other subgroups' marks do not matter, but all of this one's must be there

    coopMatReduceNV(totals, totals, gl_CooperativeMatrixReduceRowNV, added);
    coopMatPerElementNV(totals, totals, finish_total, maxima);
    [[unroll]] for (uint i = 0u; i < kOutMats; ++i) {
        coopMatPerElementNV(sums[i], sums[i], finish_output, totals, i * kMatColumns);
    }
}
