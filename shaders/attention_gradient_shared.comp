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

const uint kThreads = kAttentionGradientThreads;
const uint kLanes = kTile / 4u;  // invocations a row, and vec4 of a row's part
const uint kLines = kThreads / kLanes;
const uint kRowsEach = kRows / kLines;
const uint kFarEach = kTile / kLines;
// vec4 from one row of a shared tile to the next: 8, and one against bank conflicts
const uint kStride = kLanes + 1u;

shared vec4 near_tile[kRows * kStride];  // near rows, then what pairs give to the sums
shared vec4 far_tile[kTile * kStride];

uint lane;
uint line;
uvec2 near_at[kRowsEach];
uvec2 far_at[kFarEach];
// Per near row of this invocation, of its four pairs of a tile.
vec4 scores[kRowsEach];  // then ds
vec4 dp[kRowsEach];      // dy . v, then weights
// Per near row, four columns of each block of the results.
vec4 firsts[kRowsEach * kBlocks];
vec4 seconds[kRowsEach * kBlocks];

// Puts four columns of each row of the tile into shared memory, from `part` on.
void stage_far(bool second, uint part, bool only_finite) {
    [[unroll]] for (uint n = 0u; n < kFarEach; ++n) {
        vec4 four = load_far(second, far_at[n], part + lane * 4u);
        if (only_finite) {
            four = finite_or_zero(four);
        }
        far_tile[(line + n * kLines) * kStride + lane] = four;
    }
}

// Adds the products of near and far rows to scores, or to dp.
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
                    dp[n] += products;
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
        own[n] = statistics_of_near(row);
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
            dp[n] = vec4(0.0);
        }
        multiply(false);
        multiply(true);

        uvec4 in_tile = lane + kLanes * uvec4(0, 1, 2, 3);
        Statistics of_far = statistics_in_tile(in_tile);
        [[unroll]] for (uint n = 0u; n < kRowsEach; ++n) {
            gradient_of_pairs(first, line + n * kLines, in_tile, own[n], of_far, scores[n], dp[n]);
        }
        barrier();
        [[unroll]] for (uint n = 0u; n < kRowsEach; ++n) {
            near_tile[(line + n * kLines) * kStride + lane] = scores[n];
        }
        add_up(false);
        if (!kOfQueries) {
            barrier();
            [[unroll]] for (uint n = 0u; n < kRowsEach; ++n) {
                near_tile[(line + n * kLines) * kStride + lane] = dp[n];
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
