#version 450
// SPDX-License-Identifier: Apache-2.0
// Fused attention with tiles in shared memory, for GPUs and as the fallback everywhere: no subgroup
// operations, 128 invocations, less than 16 KiB. A group takes 32 rows and walks over tiles of 32
// keys; eight invocations share two rows, each with four keys of a tile and four columns of a block
// of O.
//
//! source
//! variant attention_shared
//! variant attention_shared_full -DFULL
//
// Every invocation finds the maximum of its two rows by itself and sums the weights of its own
// keys; the sums meet at the end.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

#include "attention_shared.h"
#include "common/attention.glsl"

const uint kTile = kAttentionSharedTile;
const uint kLane = kAttentionSharedLanes;
// vec4 from one row of a shared tile to the next, one of them against bank conflicts
const uint kStride = kTile / 4u + 1u;

shared vec4 rows_tile[kTile * kStride];    // Q
shared vec4 keys_tile[kTile * kStride];    // K, then V
shared vec4 scores_tile[kTile * kStride];  // scores, then weights
shared uint mask_words[kTile];
shared uint some_not_finite;

uint lane;
uint pair;  // the first of this invocation's two rows within the group
// Per row of this invocation, four columns of each block of O. All indices are constants, else
// drivers keep the sums in memory.
vec4 sums[2u * kBlocks];

// Where key i of a tile lies: the four keys of a lane are kLane rows apart, so that the lanes of a
// row read from as many banks.
uint key_slot(uint i) {
    return i % 4u * kLane + i / 4u;
}

float largest_of(uint row) {
    vec4 found = scores_tile[row * kStride];
    for (uint i = 1u; i < kLane; ++i) {
        found = max(found, scores_tile[row * kStride + i]);
    }
    return max(max(found.x, found.y), max(found.z, found.w));
}

// What the numbers of v that are not finite add to the sums; nothing where the key is masked.
vec4 not_finite_part(float weight, vec4 v) {
    // in these words: compilers for GPUs make more instructions of !not_finite(v)
    bvec4 finite = notEqual(floatBitsToUint(v) & kInfinityBits, uvec4(kInfinityBits));
    return floatBitsToUint(weight) == kSignBit ? vec4(0.0) : mix(weight * v, vec4(0.0), finite);
}

// Adds block b of the values of the tile from key `first` on, times the weights in scores_tile.
void add_block(uint first, uint b) {
    uint self = gl_LocalInvocationID.x;
    uint column = (work.slice * kBlocks + b) * kTile;
    if (column >= p.value_dim) {
        return;
    }
    barrier();
    if (self == 0u) {
        some_not_finite = 0u;
    }
    barrier();
    for (uint i = self; i < kTile * kLane; i += gl_WorkGroupSize.x) {
        vec4 v = load_value(key_offsets(first + i / kLane).y, column + i % kLane * 4u);
        // Numbers that are not finite become 0: 0 * inf must not enter where a key is masked.
        bvec4 lost = not_finite(v);
        if (any(lost)) {
            atomicOr(some_not_finite, 1u);
        }
        keys_tile[i / kLane * kStride + i % kLane] = mix(v, vec4(0.0), lost);
    }
    barrier();
    for (uint i = 0u; i < kLane; ++i) {
        mat4 v = mat4(keys_tile[(i * 4u) * kStride + lane], keys_tile[(i * 4u + 1u) * kStride + lane],
                      keys_tile[(i * 4u + 2u) * kStride + lane], keys_tile[(i * 4u + 3u) * kStride + lane]);
        sums[b] += v * scores_tile[pair * kStride + i];
        sums[kBlocks + b] += v * scores_tile[(pair + 1u) * kStride + i];
    }
    if (some_not_finite != 0u) {  // and come back where the key is not masked
        [[dont_unroll]] for (uint i = 0u; i < kTile; ++i) {
            vec4 v = load_value(key_offsets(first + i).y, column + lane * 4u);
            sums[b] += not_finite_part(scores_tile[pair * kStride + i / 4u][i % 4u], v);
            sums[kBlocks + b] += not_finite_part(scores_tile[(pair + 1u) * kStride + i / 4u][i % 4u], v);
        }
    }
}

void store_block(uint to, uint i, uint b, float factor) {
    store(to, value_column(work.slice, kBlocks, b, kTile, lane), sums[i * kBlocks + b] * factor);
}

void main() {
    if (!find_work(kTile)) {
        return;
    }
    uint self = gl_LocalInvocationID.x;
    lane = self % kLane;
    pair = pair_row(self, kLane);
    [[unroll]] for (uint i = 0u; i < 2u * kBlocks; ++i) {
        sums[i] = vec4(0.0);
    }
    float maxima[2] = {negative_infinity(), negative_infinity()};
    float totals[2] = {0.0, 0.0};
#ifdef FULL
    if (kSinks != 0u && work.split == 0u) {
        [[unroll]] for (uint i = 0u; i < 2u; ++i) {
            maxima[i] = sinks[broadcast_row(kSinks, min(work.first_row + pair + i, work.last_row), 1u)];
            totals[i] = lane == 0u ? sink_total(maxima[i]) : 0.0;
        }
    }
#endif

    for (uint first = work.begin; first < work.end; first += kTile) {
#ifdef FULL
        if (kMask != 0u) {
            barrier();
            if (self < kTile) {
                mask_words[self] = mask_word(min(work.first_row + self, work.last_row), first);
            }
            barrier();
            uint seen = 0u;
            for (uint i = 0u; i < kTile; ++i) {
                seen |= mask_words[i];
            }
            // A tile that no row may see costs nothing more. (Where masked scores are finite they
            // all count.)
            if (!kFiniteFill && seen == 0u) {
                continue;
            }
        }
#endif
        vec4 products[2] = {vec4(0.0), vec4(0.0)};
        for (uint part = 0u; part < p.head_dim; part += kTile) {
            barrier();
            for (uint i = self; i < kTile * kLane; i += gl_WorkGroupSize.x) {
                uint row = i / kLane;
                uint column = part + i % kLane * 4u;
                bool inside = column < p.head_dim;
                column = inside ? column : 0u;
                vec4 q = load_query(query_offset(min(work.first_row + row, work.last_row)), column);
                vec4 k = load_key(key_offsets(first + row).x, column);
                rows_tile[row * kStride + i % kLane] = inside ? q : vec4(0.0);
                keys_tile[key_slot(row) * kStride + i % kLane] = inside ? k : vec4(0.0);
            }
            barrier();
            for (uint i = 0u; i < kLane; ++i) {
                vec4 q0 = rows_tile[pair * kStride + i];
                vec4 q1 = rows_tile[(pair + 1u) * kStride + i];
                uint at = key_slot(lane * 4u) * kStride + i;
                mat4 k = mat4(keys_tile[at], keys_tile[at + kLane * kStride], keys_tile[at + 2u * kLane * kStride],
                              keys_tile[at + 3u * kLane * kStride]);
                products[0] += q0 * k;
                products[1] += q1 * k;
            }
        }

        uint lane_first = first + lane * 4u;
        [[unroll]] for (uint i = 0u; i < 2u; ++i) {
            vec4 raw = products[i];
            raw += poison(key_offsets(lane_first).z, key_offsets(lane_first + 1u).z, key_offsets(lane_first + 2u).z,
                          key_offsets(lane_first + 3u).z);
#ifdef FULL
            uint bits = kMask != 0u ? mask_words[pair + i] >> (lane * 4u) : 0u;
#else
            uint bits = 0u;
#endif
            products[i] = finish_scores(min(work.first_row + pair + i, work.last_row), lane_first, raw, bits);
            scores_tile[(pair + i) * kStride + lane] = products[i];
        }
        barrier();
        vec4 weights[2];
        [[unroll]] for (uint i = 0u; i < 2u; ++i) {
            float before = maxima[i];
            maxima[i] = max(before, largest_of(pair + i));
            vec4 s = products[i];
            bvec4 masked = is_masked(s);
            float rescale = 0.0;
            if (floatBitsToUint(before) != kNegativeInfinityBits) {
                rescale = exp_of_number(before - maxima[i]);
            }
            uvec4 magnitudes = floatBitsToUint(s) & kMagnitudeBits;
            uint magnitude = max(max(magnitudes.x, magnitudes.y), max(magnitudes.z, magnitudes.w));
            s -= maxima[i];
            vec4 e = vec4(exp_of_number(s.x), exp_of_number(s.y), exp_of_number(s.z), exp_of_number(s.w));
            vec4 kept = mix(e, vec4(0.0), masked);
            totals[i] = totals[i] * rescale + ((kept.x + kept.y) + (kept.z + kept.w));
            if (magnitude > kInfinityBits || floatBitsToUint(maxima[i]) == kInfinityBits) {
                totals[i] = quiet_nan();
            }
            weights[i] = drop(min(work.first_row + pair + i, work.last_row), lane_first,
                              mix(e, vec4(uintBitsToFloat(kSignBit)), masked));
            [[unroll]] for (uint b = 0u; b < kBlocks; ++b) {
                sums[i * kBlocks + b] *= rescale;
            }
        }
        barrier();
        scores_tile[pair * kStride + lane] = weights[0];
        scores_tile[(pair + 1u) * kStride + lane] = weights[1];

        add_block(first, 0u);
        if (kBlocks > 1u) {
            add_block(first, 1u);
        }
        if (kBlocks > 2u) {
            add_block(first, 2u);
            add_block(first, 3u);
        }
    }

    // The parts of the sums, in a fixed order.
    barrier();
    scores_tile[pair * kStride + lane] = vec4(totals[0], totals[1], 0.0, 0.0);
    barrier();
    [[unroll]] for (uint i = 0u; i < 2u; ++i) {
        float total = 0.0;
        for (uint j = 0u; j < kLane; ++j) {
            total += scores_tile[pair * kStride + j][i];
        }
        uint row = work.first_row + pair + i;
        if (row > work.last_row) {
            continue;
        }
        float factor = final_factor(total);
        uint to = row_offset(row);
#ifdef FULL
        if (work.slice == 0u && lane == 0u) {
            if (kSplit != 0u && work.split_keys != 0u) {
                partial[to + p.value_dim] = partial_maximum(maxima[i], total);
                partial[to + p.value_dim + 1u] = total;
            } else if (kLse != 0u) {
                write_log_sum_exp(row, maxima[i], total);
            }
        }
#endif
        store_block(to, i, 0u, factor);
        if (kBlocks > 1u) {
            store_block(to, i, 1u, factor);
        }
        if (kBlocks > 2u) {
            store_block(to, i, 2u, factor);
            store_block(to, i, 3u, factor);
        }
    }
}
