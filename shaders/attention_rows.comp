#version 450
// SPDX-License-Identifier: Apache-2.0
// Fused attention for the few rows of a decoding step, for GPUs: no subgroup operations, 128
// invocations, less than 16 KiB of shared memory, most of it the queries. A group takes up to 8
// rows and walks over tiles of 32 keys, which go from memory straight to registers, 16 bytes a load
// (8 bytes of values of int8). Four invocations share a key, for all rows; their parts of a score
// meet in shared memory. Then eight invocations share a row, each with four keys, as in
// attention_shared. For the values as many invocations share a key as it has loads of columns;
// those of other keys of the tile meet at the end. A tile takes three barriers.
//
//! source
//! variant attention_rows -DFULL
//
// Needs kFours, and head_dim up to kAttentionRowsWidth. A group computes kBlocks * 32 columns of O.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

#include "common/attention.glsl"

layout(constant_id = kAttentionSpecHeadDim) const uint kHeadDim = 64;

layout(set = 0, binding = kAttentionBindingKey) readonly buffer KeyQuads { uvec4 key_quads[]; };
layout(set = 0, binding = kAttentionBindingValue) readonly buffer ValueQuads { uvec4 value_quads[]; };
layout(set = 0, binding = kAttentionBindingValue) readonly buffer ValueDuos { uvec2 value_duos[]; };

const uint kTile = 32u;
const uint kThreads = 128u;
const uint kLane = 8u;  // invocations a row of scores
// vec4 from one row of scores to the next, one against bank conflicts
const uint kStride = 9u;

const uint kKeyLanes = kThreads / kTile;
const uint kKeyNumbers = kKv == kPackedF32 ? 4u : (kKv == kPackedInt8 ? 16u : 8u);  // of a load
const uint kKeyLoads = (kHeadDim + kKeyNumbers - 1u) / kKeyNumbers;
const uint kKeyLoadsEach = (kKeyLoads + kKeyLanes - 1u) / kKeyLanes;
const uint kQueryFours = kKeyLoadsEach * kKeyLanes * kKeyNumbers / 4u;  // a row, filled up with 0

const uint kColumns = kBlocks * kTile;
const uint kValueNumbers = kKv == kPackedF32 ? 4u : 8u;
const uint kValueFours = kValueNumbers / 4u;
const uint kValueLanes = kColumns / kValueNumbers;
const uint kValueGroups = kThreads / kValueLanes;
const uint kValuesEach = kTile / kValueGroups;

// The queries, row by row; in the end the sums of a row.
const uint kSumFours = kThreads * kValueFours;
shared vec4 stage[kRows * kQueryFours > kSumFours ? kRows * kQueryFours : kSumFours];
shared float parts[kRows * kThreads];  // of scores: (row, key, invocation of the key)
shared vec4 scores_tile[kRows * kStride];
shared float weights_tile[kTile * kRows];  // (key, row)
shared float factors[kRows];               // the factor by which a row of O is scaled

vec4 sums[kRows * kValueFours];

// The sign bit of each number that these words hold is set where it is not finite: its exponent is
// all ones, and becomes one bit longer when 1 is added.
uvec4 not_finite_signs(uvec4 words) {
    const uint kExponents = kKv == kPackedF16 ? 0x7c007c00u : (kKv == kPackedBf16 ? 0x7f807f80u : kInfinityBits);
    const uint kOnes = kKv == kPackedF16 ? 0x04000400u : (kKv == kPackedBf16 ? 0x00800080u : 0x00800000u);
    const uint kSigns = kKv == kPackedF32 || kKv == kPackedInt8 ? kSignBit : 0x80008000u;
    return ((words & kExponents) + kOnes) & kSigns;
}


// The loads of one key, as many as an invocation has.
void load_keys(uint offset, uint part, out uvec4 words[kKeyLoadsEach]) {
    [[unroll]] for (uint i = 0u; i < kKeyLoadsEach; ++i) {
        uint load = i * kKeyLanes + part;
        words[i] = key_quads[(offset >> 2) + min(load, kKeyLoads - 1u)];
        if (kKeyLoads % kKeyLanes != 0u) {
            words[i] = load < kKeyLoads ? words[i] : uvec4(0u);
        }
    }
}

// Its part of the products with all rows, to `parts`.
void multiply_keys(uint offset, uint part, uvec4 words[kKeyLoadsEach]) {
    float products[kRows];
    [[unroll]] for (uint row = 0u; row < kRows; ++row) {
        products[row] = 0.0;
    }
    [[unroll]] for (uint i = 0u; i < kKeyLoadsEach; ++i) {
        [[unroll]] for (uint four = 0u; four < kKeyNumbers / 4u; ++four) {
            vec4 k = unpack_four(kKv, words[i], four);
            uint at = (i * kKeyLanes + part) * (kKeyNumbers / 4u) + four;
            [[unroll]] for (uint row = 0u; row < kRows; ++row) {
                vec4 q = stage[row * kQueryFours + at];
                products[row] = q.w * k.w + (q.z * k.z + (q.y * k.y + (q.x * k.x + products[row])));
            }
        }
    }
    float scale = 1.0;
    if (kKv == kPackedInt8) {
        scale = uintBitsToFloat(key_words[offset + packed_code_words(kPackedInt8, kHeadDim)]);
    }
    [[unroll]] for (uint row = 0u; row < kRows; ++row) {
        parts[row * kThreads + gl_LocalInvocationID.x] = kKv == kPackedInt8 ? products[row] * scale : products[row];
    }
}

// The product of a row with key `index` of the tile.
float product_of(uint row, uint index) {
    uint at = row * kThreads + index * kKeyLanes;
    return (parts[at] + parts[at + 1u]) + (parts[at + 2u] + parts[at + 3u]);
}

uint value_column_of_lane(uint lane) {
    return min((work.slice * kValueLanes + lane) * kValueNumbers, (p.value_dim - 1u) & ~(kValueNumbers - 1u));
}

// The n-th key of the tile whose values an invocation has.
uint key_of_value(uint n) {
    return n * kValueGroups + gl_LocalInvocationID.x / kValueLanes;
}

// The values of the tile from key `first` on, and their scales.
void load_values(uint first, uint column, out uvec4 words[kValuesEach], out float scales[kValuesEach]) {
    [[unroll]] for (uint n = 0u; n < kValuesEach; ++n) {
        uint offset = key_offsets(first + key_of_value(n)).y;
        scales[n] = 1.0;
        if (kKv == kPackedF32) {
            words[n] = value_quads[(offset + column) >> 2];
        } else if (kKv == kPackedInt8) {
            words[n] = uvec4(value_duos[(offset >> 1) + (column >> 3)], 0u, 0u);
            scales[n] = uintBitsToFloat(value_words[offset + packed_code_words(kPackedInt8, p.value_dim)]);
        } else {
            words[n] = value_quads[(offset >> 2) + (column >> 3)];
        }
    }
}

// Adds the values, times the weights in weights_tile.
void add_values(uvec4 words[kValuesEach], float scales[kValuesEach]) {
    [[unroll]] for (uint n = 0u; n < kValuesEach; ++n) {
        uint key = key_of_value(n);
        [[unroll]] for (uint four = 0u; four < kValueFours; ++four) {
            vec4 v = unpack_four(kKv, words[n], four);
            if (kKv == kPackedInt8) {
                v *= scales[n];
            }
            [[unroll]] for (uint row = 0u; row < kRows; ++row) {
                sums[row * kValueFours + four] += weights_tile[key * kRows + row] * v;
            }
        }
    }
}

// Makes 0 of the numbers that are not finite: 0 * inf must not enter where a key is masked.
void drop_not_finite(inout uvec4 words[kValuesEach], inout float scales[kValuesEach]) {
    [[unroll]] for (uint n = 0u; n < kValuesEach; ++n) {
        if (kKv == kPackedInt8) {
            scales[n] = is_finite(scales[n]) ? scales[n] : 0.0;
        } else if (kKv == kPackedF32) {
            words[n] &= ~uvec4(ivec4(not_finite_signs(words[n])) >> 31);
        } else {
            words[n] &= ~((not_finite_signs(words[n]) >> 15) * 0xffffu);
        }
    }
}

// What these numbers add to the sums; nothing where the key is masked.
void add_not_finite(uint first, uint column) {
    [[dont_unroll]] for (uint n = 0u; n < kValuesEach; ++n) {
        uint key = key_of_value(n);
        uint offset = key_offsets(first + key).y;
        [[unroll]] for (uint four = 0u; four < kValueFours; ++four) {
            uvec4 v = floatBitsToUint(load_value(offset, column + four * 4u));
            v &= uvec4(ivec4((v & kInfinityBits) + 0x00800000u) >> 31);  // 0 where it is finite
            [[unroll]] for (uint row = 0u; row < kRows; ++row) {
                float weight = weights_tile[key * kRows + row];
                uint seen = floatBitsToUint(weight) == kSignBit ? 0u : ~0u;
                sums[row * kValueFours + four] += weight * uintBitsToFloat(v & seen);
            }
        }
    }
}

// store() without a loop, for the sake of which `sums` would lie in memory: rows go by fours.
void store_four(uint to, uint column, vec4 o) {
    if (column >= p.value_dim) {
        return;
    }
    to += column;
    if (kSplit != 0u && work.split_keys != 0u) {
        partial[to] = o.x;
        partial[to + 1u] = o.y;
        partial[to + 2u] = o.z;
        partial[to + 3u] = o.w;
    } else {
        VKF_PUT_FOUR(result_fours, to >> 2, o);
    }
}

void main() {
    if (!find_work(kTile)) {
        return;
    }
    uint self = gl_LocalInvocationID.x;
    // of the scores
    uint row = self / kLane;
    uint lane = self % kLane;
    bool has_row = row < kRows;
    uint attending = min(work.first_row + row, work.last_row);
    uint value_column = value_column_of_lane(self % kValueLanes);
    [[unroll]] for (uint i = 0u; i < kRows * kValueFours; ++i) {
        sums[i] = vec4(0.0);
    }
    for (uint i = self; i < kRows * kQueryFours; i += kThreads) {
        uint column = i % kQueryFours * 4u;
        uint offset = query_offset(min(work.first_row + i / kQueryFours, work.last_row));
        stage[i] = column < kHeadDim ? load_query(offset, column) : vec4(0.0);
    }
    barrier();
    float largest = negative_infinity();
    float total = 0.0;
    if (kSinks != 0u && work.split == 0u && has_row) {
        largest = sinks[broadcast_row(kSinks, attending, 1u)];
        total = lane == 0u ? sink_total(largest) : 0.0;
    }

    for (uint first = work.begin; first < work.end; first += kTile) {
        // A tile that no row may see costs nothing more. (Where masked scores are finite they all
        // count.)
        if (kMask != 0u && !kFiniteFill) {
            uint seen = 0u;
            [[unroll]] for (uint i = 0u; i < kRows; ++i) {
                seen |= mask_word(min(work.first_row + i, work.last_row), first);
            }
            if (seen == 0u) {
                continue;
            }
        }
        uvec4 keys[kKeyLoadsEach];
        uint key_offset = key_offsets(first + self / kKeyLanes).x;
        load_keys(key_offset, self % kKeyLanes, keys);
        uvec4 values[kValuesEach];
        float scales[kValuesEach];
        load_values(first, value_column, values, scales);
        multiply_keys(key_offset, self % kKeyLanes, keys);
        barrier();

        uint lane_first = first + lane * 4u;
        vec4 s = vec4(0.0);
        if (has_row) {
            s = vec4(product_of(row, lane * 4u), product_of(row, lane * 4u + 1u), product_of(row, lane * 4u + 2u),
                     product_of(row, lane * 4u + 3u));
            s += poison(key_offsets(lane_first).z, key_offsets(lane_first + 1u).z, key_offsets(lane_first + 2u).z,
                        key_offsets(lane_first + 3u).z);
            uint bits = kMask != 0u ? mask_word(attending, first) >> (lane * 4u) : 0u;
            s = finish_scores(attending, lane_first, s, bits);
            scores_tile[row * kStride + lane] = s;
        }
        barrier();
        if (has_row) {
            float before = largest;
            vec4 found = scores_tile[row * kStride];
            [[unroll]] for (uint i = 1u; i < kLane; ++i) {
                found = max(found, scores_tile[row * kStride + i]);
            }
            largest = max(before, max(max(found.x, found.y), max(found.z, found.w)));
            bvec4 masked = is_masked(s);
            float rescale = 0.0;
            if (floatBitsToUint(before) != kNegativeInfinityBits) {
                rescale = exp_of_number(before - largest);
            }
            uvec4 magnitudes = floatBitsToUint(s) & kMagnitudeBits;
            uint magnitude = max(max(magnitudes.x, magnitudes.y), max(magnitudes.z, magnitudes.w));
            s -= largest;
            vec4 e = vec4(exp_of_number(s.x), exp_of_number(s.y), exp_of_number(s.z), exp_of_number(s.w));
            vec4 kept = mix(e, vec4(0.0), masked);
            total = total * rescale + ((kept.x + kept.y) + (kept.z + kept.w));
            if (magnitude > kInfinityBits || floatBitsToUint(largest) == kInfinityBits) {
                total = quiet_nan();
            }
            vec4 weights = drop(attending, lane_first, mix(e, vec4(uintBitsToFloat(kSignBit)), masked));
            [[unroll]] for (uint i = 0u; i < 4u; ++i) {
                weights_tile[(lane * 4u + i) * kRows + row] = weights[i];
            }
            if (lane == 0u) {
                factors[row] = rescale;
            }
        }
        barrier();
        [[unroll]] for (uint i = 0u; i < kRows; ++i) {
            [[unroll]] for (uint four = 0u; four < kValueFours; ++four) {
                sums[i * kValueFours + four] *= factors[i];
            }
        }
        uvec4 signs = uvec4(0u);
        [[unroll]] for (uint n = 0u; n < kValuesEach; ++n) {
            signs |= not_finite_signs(kKv == kPackedInt8 ? uvec4(floatBitsToUint(scales[n])) : values[n]);
        }
        bool some_not_finite = (signs.x | signs.y | signs.z | signs.w) != 0u;
        if (some_not_finite) {
            drop_not_finite(values, scales);
        }
        add_values(values, scales);
        if (some_not_finite) {
            add_not_finite(first, value_column);
        }
    }

    // The parts of the totals and of the sums, in a fixed order.
    barrier();
    if (has_row) {
        parts[self] = total;
    }
    barrier();
    if (has_row && lane == 0u) {
        total = 0.0;
        for (uint i = 0u; i < kLane; ++i) {
            total += parts[row * kLane + i];
        }
        factors[row] = final_factor(total);
        uint own = work.first_row + row;
        if (own <= work.last_row && work.slice == 0u) {
            if (kSplit != 0u && work.split_keys != 0u) {
                uint to = row_offset(own);
                partial[to + p.value_dim] = partial_maximum(largest, total);
                partial[to + p.value_dim + 1u] = total;
            } else if (kLse != 0u) {
                write_log_sum_exp(own, largest, total);
            }
        }
    }
    [[unroll]] for (uint i = 0u; i < kRows; ++i) {
        barrier();
        [[unroll]] for (uint four = 0u; four < kValueFours; ++four) {
            stage[self * kValueFours + four] = sums[i * kValueFours + four];
        }
        barrier();
        uint own = work.first_row + i;
        if (self < kColumns / 4u && own <= work.last_row) {
            vec4 sum = stage[self];
            [[unroll]] for (uint n = 1u; n < kValueGroups; ++n) {
                sum += stage[n * (kColumns / 4u) + self];
            }
            store_four(row_offset(own), work.slice * kColumns + self * 4u, sum * factors[i]);
        }
    }
}
