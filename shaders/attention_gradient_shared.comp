#version 450
// SPDX-License-Identifier: Apache-2.0
// The gradient of fused attention with tiles in shared memory, for GPUs: no subgroup operations,
// 128 invocations, less than 16 KiB. A group takes 32 or 64 near rows and walks over tiles of 32
// far ones. Eight invocations share every sixteenth near row, and each has every eighth far row of
// a tile and four columns of a block of the results. Nothing is added up by two groups, so there
// are no atomics, and the same bits in every run.
//
// What is not finite in a far row counts as 0 in the sums: where a pair is masked it leaves no
// trace, and where it is not, the pair's weight or ds is NaN.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

#include "common/attention_gradient.glsl"

const uint kTile = kAttentionGradientTile;
const uint kThreads = kAttentionGradientThreads;
const uint kLanes = kTile / 4u;  // invocations a row, and vec4 of a row's part
const uint kLines = kThreads / kLanes;
const uint kRowsEach = kRows / kLines;
const uint kFarEach = kTile / kLines;
// vec4 from one row of a shared tile to the next: 8, and one against bank conflicts
const uint kStride = kLanes + 1u;

shared vec4 near_tile[kRows * kStride];  // near rows, then what pairs give to the sums
shared vec4 far_tile[kTile * kStride];
// statistics_of() far rows, where these are queries
shared vec2 log_sum_exps[kTile];
shared float deltas[kTile];
shared uint mask_words[kMaskWords];

uint lane;
uint line;
uvec2 near_at[kRowsEach];
uvec2 far_at[kFarEach];
// Per near row of this invocation, its four pairs of a tile: the products, then what they give.
vec4 scores[kRowsEach];
vec4 incomes[kRowsEach];
// Per near row, four columns of each block of the results.
vec4 firsts[kRowsEach * kBlocks];
vec4 seconds[kRowsEach * kBlocks];

// Puts four columns of each row of the tile into shared memory, from `part` on.
void stage_far(bool second, uint part, bool tamed) {
    [[unroll]] for (uint n = 0u; n < kFarEach; ++n) {
        vec4 four = load_far(second, far_at[n], part + lane * 4u);
        if (tamed) {
            four = mix(four, vec4(0.0), not_finite(four));
        }
        far_tile[(line + n * kLines) * kStride + lane] = four;
    }
}

// Adds the products of near and far rows to scores, or to incomes.
void multiply(bool second) {
    uint width = second ? p.value_dim : p.head_dim;
    for (uint part = 0u; part < width; part += kTile) {
        barrier();
        [[unroll]] for (uint n = 0u; n < kRowsEach; ++n) {
            near_tile[(line + n * kLines) * kStride + lane] = load_near(second, near_at[n], part + lane * 4u);
        }
        stage_far(second, part, false);
        barrier();
        [[dont_unroll]] for (uint i = 0u; i < kLanes; ++i) {
            mat4 rows = mat4(far_tile[lane * kStride + i], far_tile[(lane + kLanes) * kStride + i],
                             far_tile[(lane + 2u * kLanes) * kStride + i], far_tile[(lane + 3u * kLanes) * kStride + i]);
            [[unroll]] for (uint n = 0u; n < kRowsEach; ++n) {
                vec4 products = near_tile[(line + n * kLines) * kStride + i] * rows;
                if (second) {
                    incomes[n] += products;
                } else {
                    scores[n] += products;
                }
            }
        }
    }
}

// Adds block b of far rows, times what pairs give (in near_tile), to firsts, or to seconds.
void add_block(bool second, uint b) {
    uint column = (work.slice * kBlocks + b) * kTile;
    if (column < (second ? p.value_dim : p.head_dim)) {
        barrier();
        stage_far(second, column, true);
        barrier();
        [[dont_unroll]] for (uint i = 0u; i < kLanes; ++i) {
            mat4 rows = mat4(far_tile[i * kStride + lane], far_tile[(i + kLanes) * kStride + lane],
                             far_tile[(i + 2u * kLanes) * kStride + lane], far_tile[(i + 3u * kLanes) * kStride + lane]);
            [[unroll]] for (uint n = 0u; n < kRowsEach; ++n) {
                vec4 sums = rows * near_tile[(line + n * kLines) * kStride + i];
                if (second) {
                    seconds[n * kBlocks + b] += sums;
                } else {
                    firsts[n * kBlocks + b] += sums;
                }
            }
        }
    }
}

// Written out: drivers do not unroll so much, and sums that are indexed would be kept in memory.
void add_up(bool second) {
    add_block(second, 0u);
    if (kBlocks > 1u) {
        add_block(second, 1u);
    }
    if (kBlocks > 2u) {
        add_block(second, 2u);
        add_block(second, 3u);
    }
}

// Puts what is known of a tile's pairs into shared memory; false where a mask leaves none of them.
// Every invocation finds the same.
bool stage_tile(uint first) {
    if (kMask == 0u && kOfQueries) {
        return true;
    }
    uint self = gl_LocalInvocationID.x;
    barrier();
    if (kMask != 0u && self < kMaskWords) {
        mask_words[self] = mask_word(self, first);
    }
    if (!kOfQueries && self < kTile) {
        vec3 statistics = statistics_of(min(first + self, work.far_count - 1u));
        log_sum_exps[self] = statistics.xy;
        deltas[self] = statistics.z;
    }
    barrier();
    if (kMask == 0u || kFiniteFill) {
        return true;
    }
    uint seen = 0u;
    for (uint i = 0u; i < kMaskWords; ++i) {
        seen |= mask_words[i];
    }
    return seen != 0u;
}

void main() {
    if (!find_work()) {
        return;
    }
    lane = gl_LocalInvocationID.x % kLanes;
    line = gl_LocalInvocationID.x / kLanes;
    vec3 own[kRowsEach];
    [[unroll]] for (uint n = 0u; n < kRowsEach; ++n) {
        uint row = min(work.first_near + line + n * kLines, work.last_near);
        near_at[n] = near_rows(row);
        own[n] = vec3(0.0);
        if (kOfQueries) {
            own[n] = statistics_of(row);
        }
        [[unroll]] for (uint b = 0u; b < kBlocks; ++b) {
            firsts[n * kBlocks + b] = vec4(0.0);
            seconds[n * kBlocks + b] = vec4(0.0);
        }
    }

    [[dont_unroll]] for (uint first = work.begin; first < work.end; first += kTile) {
        // A tile of which no pair is seen costs nothing more. (Where masked scores are finite they
        // all count.)
        if (!stage_tile(first)) {
            continue;
        }
        [[unroll]] for (uint n = 0u; n < kFarEach; ++n) {
            far_at[n] = far_rows(min(first + line + n * kLines, work.far_count - 1u));
        }
        [[unroll]] for (uint n = 0u; n < kRowsEach; ++n) {
            scores[n] = vec4(0.0);
            incomes[n] = vec4(0.0);
        }
        multiply(false);
        multiply(true);

        uvec4 in_tile = lane + kLanes * uvec4(0, 1, 2, 3);
        bvec4 inside = lessThan(first + in_tile, uvec4(work.far_count));
        uvec4 far = min(first + in_tile, uvec4(work.far_count - 1u));
        vec4 far_lse = vec4(0.0);
        vec4 far_rest = vec4(0.0);
        vec4 far_delta = vec4(0.0);
        if (!kOfQueries) {
            mat4x2 parts = mat4x2(log_sum_exps[in_tile.x], log_sum_exps[in_tile.y], log_sum_exps[in_tile.z],
                                  log_sum_exps[in_tile.w]);
            far_lse = vec4(parts[0].x, parts[1].x, parts[2].x, parts[3].x);
            far_rest = vec4(parts[0].y, parts[1].y, parts[2].y, parts[3].y);
            far_delta = vec4(deltas[in_tile.x], deltas[in_tile.y], deltas[in_tile.z], deltas[in_tile.w]);
        }
        [[unroll]] for (uint n = 0u; n < kRowsEach; ++n) {
            uint row = line + n * kLines;
            uvec4 near = uvec4(min(work.first_near + row, work.last_near));
            bvec4 mask = bvec4(true);
            if (kOfQueries) {
                if (kMask != 0u) {
                    mask = notEqual(uvec4(mask_words[row]) >> in_tile & 1u, uvec4(0));
                }
                finish(near, far, scores[n], incomes[n], vec4(own[n].x), vec4(own[n].y), vec4(own[n].z),
                       both(mask, seen_causally(near, far)), inside);
            } else {
                if (kMask != 0u) {
                    uvec4 at = in_tile * kRowWords + row / 32u;
                    uvec4 words = uvec4(mask_words[at.x], mask_words[at.y], mask_words[at.z], mask_words[at.w]);
                    mask = notEqual(words >> (row % 32u) & 1u, uvec4(0));
                }
                finish(far, near, scores[n], incomes[n], far_lse, far_rest, far_delta,
                       both(mask, seen_causally(far, near)), inside);
            }
        }
        barrier();
        [[unroll]] for (uint n = 0u; n < kRowsEach; ++n) {
            near_tile[(line + n * kLines) * kStride + lane] = scores[n];
        }
        add_up(false);
        if (!kOfQueries) {
            barrier();
            [[unroll]] for (uint n = 0u; n < kRowsEach; ++n) {
                near_tile[(line + n * kLines) * kStride + lane] = incomes[n];
            }
            add_up(true);
        }
    }

    [[unroll]] for (uint n = 0u; n < kRowsEach; ++n) {
        uint row = work.first_near + line + n * kLines;
        if (row <= work.last_near) {
            uvec2 to = result_rows(row);
            [[unroll]] for (uint b = 0u; b < kBlocks; ++b) {
                uint column = value_column(work.slice, kBlocks, b, kTile, lane);
                store_first(to.x, column, firsts[n * kBlocks + b] * kScale);
                if (!kOfQueries) {
                    store_second(to.y, column, seconds[n * kBlocks + b]);
                }
            }
        }
    }
}
