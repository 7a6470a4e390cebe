#version 450
// SPDX-License-Identifier: Apache-2.0
// The gradient of fused attention in registers: a group is one subgroup of kLanes lanes, takes 4 or
// 16 near rows, and walks over tiles of 4 * kLanes far rows. Of the queries' gradient, near rows
// are queries and far ones keys; of the keys' and values', the other way round. Nothing is added up
// by two groups at once, so there are no atomics, and the same bits in every run.
//
// A pair of a query and a key has the weight p = exp(score - lse) and passes
// ds = p (dy . v - delta) to its score, so that dq = sum ds k, dk = sum ds q and dv = sum p dy. The
// first two products are those of attention_lanes.comp: a lane holds four far rows, near rows are
// handed round (common/lanes.glsl). In the last ones it holds four columns, and weights are handed
// round.
//
// Where all three gradients are wanted, queries are taken a chunk at a time: the keys' side keeps
// ds of the chunk, which the queries' side then reads, five products instead of seven. Chunks
// follow each other as dispatches, and add to what those before them left in dk and dv.
//
// A pair that is masked passes nothing, whatever is in its rows: its weight and ds are 0, and what
// is not finite in a far row counts as 0 there. Where it is not masked, the weight or ds is NaN.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_KHR_shader_subgroup_quad : require

#define WIDE 0
#include "common/fours.glsl"
#include "attention.h"
#include "attention_gradient.h"
#include "common/gradient_pairs.glsl"

layout(constant_id = kAttentionGradientSpecChunk) const uint kChunk = 0;
layout(constant_id = kAttentionGradientSpecKeep) const uint kKeep = 0;
layout(constant_id = kAttentionGradientSpecSequences) const uint kSequences = 0;

layout(set = 0, binding = kAttentionGradientBindingQuery) readonly buffer Query { float query[]; };
FOURS_IN(kAttentionGradientBindingQuery, QueryFours, query_fours)
layout(set = 0, binding = kAttentionGradientBindingKey) readonly buffer Key { float key[]; };
FOURS_IN(kAttentionGradientBindingKey, KeyFours, key_fours)
layout(set = 0, binding = kAttentionGradientBindingValue) readonly buffer Value { float value[]; };
FOURS_IN(kAttentionGradientBindingValue, ValueFours, value_fours)
layout(set = 0, binding = kAttentionGradientBindingDy) readonly buffer Dy { float dy[]; };
FOURS_IN(kAttentionGradientBindingDy, DyFours, dy_fours)
layout(set = 0, binding = kAttentionGradientBindingSlopes) readonly buffer Ranges { uvec2 ranges[]; };
layout(set = 0, binding = kAttentionGradientBindingFirst) buffer First { float first_out[]; };
FOURS_IN_OUT(kAttentionGradientBindingFirst, FirstFours, first_fours)
layout(set = 0, binding = kAttentionGradientBindingSecond) buffer Second { float second_out[]; };
FOURS_IN_OUT(kAttentionGradientBindingSecond, SecondFours, second_fours)
FOURS_IN_OUT(kAttentionGradientBindingKept, Kept, kept_fours)

#define EACH_ROW(DO) \
    DO(0) DO(1) DO(2) DO(3) \
    if (kNear > 4u) { \
        DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11) DO(12) DO(13) DO(14) DO(15) \
    }
#define EACH_FOUR(DO) \
    DO(0) \
    if (kNear > 4u) { \
        DO(1) DO(2) DO(3) \
    }
#define EACH_LOAD(DO) \
    DO(0) \
    if (kNear > 4u) { \
        DO(1) \
    }
#define EACH_BLOCK(DO) \
    DO(0) \
    if (kBlocks > 1u) { \
        DO(1) \
    } \
    if (kBlocks > 2u) { \
        DO(2) DO(3) \
    }

const uint kLanes = gl_WorkGroupSize.x;  // 4 or 8
#define VKF_LANES kLanes
#include "common/lanes.glsl"
const uint kTile = 4u * kLanes;
// With 4 lanes, where compiling takes longest, there are fewer rows.
const uint kNear = kLanes == 4u ? 4u : 16u;
const uint kMaxNear = 16u;
const uint kMaxLoads = 2u;
const bool kOfKept = kSide == kAttentionGradientOfKept;

#include "common/gradient_rows.glsl"

// Where in the kept ds, by fours, those of a key and four rows of queries lie.
uint kept_at(uint key, uint row, uint plane) {
    uint line = ((batch * kHeads + head) * p.keys + key) * attention_gradient_planes(kKeep) + plane;
    return (line * kChunk + row - p.chunk_row) >> 2;
}

uint lanes_min(uint x) {
    x = min(x, from_beside(x));
    x = min(x, from_two_away(x));
    if (kLanes == 8u) {
        x = min(x, subgroupShuffle(x, LANE ^ 4u));
    }
    return x;
}

// Per near row, of one tile, of the lane's four far rows.
vec4 scores[kMaxNear];  // then ds
vec4 dp[kMaxNear];      // dy . v, then weights
// Per near row, of the result the lane's columns.
vec4 firsts[kMaxNear * kAttentionGradientMaxBlocks];
vec4 seconds[kMaxNear * kAttentionGradientMaxBlocks];
#define FIRST(row, block) firsts[(row) * kAttentionGradientMaxBlocks + (block)]
#define SECOND(row, block) seconds[(row) * kAttentionGradientMaxBlocks + (block)]
// What near row `i` has, of what its lane holds.
#define OF_ROW(x, i) subgroupShuffle(x[(i) / kLanes], (i) % kLanes)

void main() {
    uint rest = group_index();
    if (rest >= p.group_count) {
        return;
    }
    uint query_rows = p.queries * kGroup;
    uint first_row = 0u;
    if (kChunk != 0u) {
        first_row = p.chunk_row;
        query_rows = min(query_rows, first_row + kChunk);
    }
    uint near_begin = kOfQueries ? first_row : 0u;
    uint near_end = kOfQueries ? query_rows : p.keys;
    uint far_begin = kOfQueries ? 0u : first_row;
    uint far_end = kOfQueries ? p.keys : query_rows;
    uint first_near = near_begin + take_dimension(rest, tiles_over(near_end - near_begin, kNear)) * kNear;
    uint columns = kOfQueries ? p.head_dim : max(p.head_dim, p.value_dim);
    uint slice = take_dimension(rest, tiles_over(columns, kBlocks * kTile));
    head = take_dimension(rest, kHeads);
    batch = rest;
    shift = kCausal == 2u ? int(p.keys) - int(p.queries) : 0;
    uint last_near = min(first_near + kNear, near_end) - 1u;
    uint column0 = (slice * kBlocks * kLanes + LANE) * 4u;

    uint near_rows[kMaxLoads];
    uint near_rows_second[kMaxLoads];
    vec3 near_statistics[kMaxLoads];  // the log-sum-exp, in two parts, and delta
    uvec2 near_ranges[kMaxLoads];
    uvec2 widest = uvec2(0xffffffffu, 0u);
#define DO(i) \
    { \
        uint near = min(first_near + i * kLanes + LANE, last_near); \
        near_ranges[i] = uvec2(0); \
        if (kSequences != 0u) { \
            near_ranges[i] = range_of(near); \
            widest = uvec2(min(widest.x, near_ranges[i].x), max(widest.y, near_ranges[i].y)); \
        } \
        near_statistics[i] = vec3(0.0); \
        if (!kOfKept) { \
            near_rows[i] = kOfQueries ? query_row(near) : key_row(near); \
            near_rows_second[i] = kOfQueries ? dy_row(near) : value_row(near); \
            if (kOfQueries) { \
                near_statistics[i] = statistics_of(near); \
            } \
        } \
    }
    EACH_LOAD(DO)
#undef DO

    // the far rows that some near one sees, from a multiple of the tile on
    uint begin = far_begin;
    uint end = far_end;
    if (kSequences != 0u) {
        uint each = kOfQueries ? 1u : kGroup;
        begin = max(begin, min(lanes_min(widest.x), end / each) * each);
        end = min(end, ~lanes_min(~widest.y) * each);
    } else if (kCausal != 0u && !kFiniteFill) {
        if (kOfQueries) {
            int last = int(last_near / kGroup) + shift;
            end = uint(clamp(last + 1, 0, int(p.keys)));
            if (kWindow != 0u) {
                begin = uint(max(int(first_near / kGroup) + shift + 1 - int(kWindow), 0));
            }
        } else {
            begin = max(begin, uint(clamp(int(first_near) - shift, 0, int(p.queries))) * kGroup);
            if (kWindow != 0u) {
                end = min(end, uint(clamp(int(last_near) + int(kWindow) - shift, 0, int(p.queries))) * kGroup);
            }
        }
    }
    begin = begin / kTile * kTile;
    if (!kOfQueries && kChunk != 0u) {
        // what is not computed counts as 0
        if (kKeep >= kAttentionGradientKeepAll && slice == 0u) {
            [[dont_unroll]] for (uint first = far_begin; first < far_end; first += kTile) {
                if (first < begin || first >= end) {
                    [[dont_unroll]] for (uint near = first_near; near <= last_near; ++near) {
                        VKF_PUT_FOUR(kept_fours, kept_at(near, first + LANE * 4u, 0u), vec4(0.0));
                        if (kKeep == kAttentionGradientKeepBoth) {
                            VKF_PUT_FOUR(kept_fours, kept_at(near, first + LANE * 4u, 1u), vec4(0.0));
                        }
                    }
                }
            }
        }
        if (first_row != 0u && begin >= end) {
            return;
        }
    }
#define DO(i) \
    { \
        FIRST(i, 0) = vec4(0.0); \
        FIRST(i, 1) = vec4(0.0); \
        FIRST(i, 2) = vec4(0.0); \
        FIRST(i, 3) = vec4(0.0); \
        SECOND(i, 0) = vec4(0.0); \
        SECOND(i, 1) = vec4(0.0); \
        SECOND(i, 2) = vec4(0.0); \
        SECOND(i, 3) = vec4(0.0); \
    }
    EACH_ROW(DO)
#undef DO

    [[dont_unroll]] for (uint first = begin; first < end; first += kTile) {
        uvec4 far = first + LANE * 4u + uvec4(0, 1, 2, 3);
        bvec4 inside = lessThan(far, uvec4(far_end));
        far = min(far, uvec4(far_end - 1u));
        uvec4 at;
        uvec4 at_second;
        vec4 far_lse = vec4(0.0);
        vec4 far_rest = vec4(0.0);
        vec4 far_delta = vec4(0.0);
        if (kOfQueries) {
            at = uvec4(key_row(far.x), key_row(far.y), key_row(far.z), key_row(far.w));
            at_second = uvec4(value_row(far.x), value_row(far.y), value_row(far.z), value_row(far.w));
        } else {
            at = uvec4(query_row(far.x), query_row(far.y), query_row(far.z), query_row(far.w));
            at_second = uvec4(dy_row(far.x), dy_row(far.y), dy_row(far.z), dy_row(far.w));
            uvec4 s = uvec4(statistics_row(far.x), statistics_row(far.y), statistics_row(far.z), statistics_row(far.w));
            far_delta = vec4(delta[s.x], delta[s.y], delta[s.z], delta[s.w]);
            s *= 2u;
            far_lse = vec4(lse[s.x], lse[s.y], lse[s.z], lse[s.w]);
            s += 1u;
            far_rest = vec4(lse[s.x], lse[s.y], lse[s.z], lse[s.w]);
        }
        if (kOfKept) {
#define TAKE(i, ds) \
    { \
        uvec4 near_index = uvec4(min(first_near + i, last_near)); \
        scores[i] = mix(vec4(0.0), ds, both(inside, in_sight(near_index, far, OF_ROW(near_ranges, i)))); \
    }
#define DO(i) \
    { \
        uint row = first_near + i * 4u; \
        mat4 ds = with_rows(VKF_FOUR(kept_fours, kept_at(far.x, row, 0u)), \
                            VKF_FOUR(kept_fours, kept_at(far.y, row, 0u)), \
                            VKF_FOUR(kept_fours, kept_at(far.z, row, 0u)), \
                            VKF_FOUR(kept_fours, kept_at(far.w, row, 0u))); \
        TAKE(i * 4, ds[0]) \
        TAKE(i * 4 + 1, ds[1]) \
        TAKE(i * 4 + 2, ds[2]) \
        TAKE(i * 4 + 3, ds[3]) \
    }
            EACH_FOUR(DO)
#undef DO
#undef TAKE
        } else {
#define DO(i) \
    { \
        scores[i] = vec4(0.0); \
        dp[i] = vec4(0.0); \
    }
            EACH_ROW(DO)
#undef DO
            [[dont_unroll]] for (uint k = 0u; k < p.head_dim; k += 4u) {
                mat4 rows = with_rows(load_far(at.x, k), load_far(at.y, k), load_far(at.z, k), load_far(at.w, k));
                vec4 near[kMaxLoads];
#define DO(i) \
    { \
        near[i] = load_near(near_rows[i], k); \
    }
                EACH_LOAD(DO)
#undef DO
#define DO(i) \
    { \
        vec4 row; \
        VKF_ROW_OF(row, near, i) \
        scores[i] += rows * row; \
    }
                EACH_ROW(DO)
#undef DO
            }
            [[dont_unroll]] for (uint k = 0u; k < p.value_dim; k += 4u) {
                mat4 rows = with_rows(load_far_second(at_second.x, k), load_far_second(at_second.y, k),
                                      load_far_second(at_second.z, k), load_far_second(at_second.w, k));
                vec4 near[kMaxLoads];
#define DO(i) \
    { \
        near[i] = load_near_second(near_rows_second[i], k); \
    }
                EACH_LOAD(DO)
#undef DO
#define DO(i) \
    { \
        vec4 row; \
        VKF_ROW_OF(row, near, i) \
        dp[i] += rows * row; \
    }
                EACH_ROW(DO)
#undef DO
            }
            if (kLanes == 4u) {
                put_in_order(scores[0], scores[1], scores[2], scores[3]);
                put_in_order(dp[0], dp[1], dp[2], dp[3]);
            }
#define DO(i) \
    { \
        uvec4 near_index = uvec4(min(first_near + i, last_near)); \
        uvec2 range = OF_ROW(near_ranges, i); \
        if (kOfQueries) { \
            vec3 own = OF_ROW(near_statistics, i); \
            gradient_of_pairs(near_index, far, scores[i], dp[i], vec4(own.x), vec4(own.y), vec4(own.z), inside, \
                              range); \
        } else { \
            vec4 of_bias = gradient_of_pairs(far, near_index, scores[i], dp[i], far_lse, far_rest, far_delta, inside, \
                                             range); \
            if (kKeep == kAttentionGradientKeepBoth && slice == 0u) { \
                VKF_PUT_FOUR(kept_fours, kept_at(near_index.x, first + LANE * 4u, 1u), of_bias); \
            } \
        } \
    }
            EACH_ROW(DO)
#undef DO
            if (kKeep != 0u && slice == 0u) {
#define DO(i) \
    { \
        VKF_PUT_FOUR(kept_fours, kept_at(min(first_near + i, last_near), first + LANE * 4u, 0u), scores[i]); \
    }
                EACH_ROW(DO)
#undef DO
            }
        }
        [[dont_unroll]] for (uint lane = 0u; lane < kLanes; ++lane) {
            uint only = only_of(lane);
            uvec4 from = from_lane(at, lane, only);
            mat4 rows[kAttentionGradientMaxBlocks];
#define DO(b) \
    { \
        uint column = column0 + b * kTile; \
        rows[b] = mat4(finite_or_zero(load_far(from.x, column)), finite_or_zero(load_far(from.y, column)), \
                       finite_or_zero(load_far(from.z, column)), finite_or_zero(load_far(from.w, column))); \
    }
            EACH_BLOCK(DO)
#undef DO
#define DO(i) \
    { \
        vec4 ds = from_lane(scores[i], lane, only); \
        FIRST(i, 0) += rows[0] * ds; \
        if (kBlocks > 1u) { \
            FIRST(i, 1) += rows[1] * ds; \
        } \
        if (kBlocks > 2u) { \
            FIRST(i, 2) += rows[2] * ds; \
            FIRST(i, 3) += rows[3] * ds; \
        } \
    }
            EACH_ROW(DO)
#undef DO
            if (!kOfQueries) {
                from = from_lane(at_second, lane, only);
#define DO(b) \
    { \
        uint column = column0 + b * kTile; \
        rows[b] = mat4(finite_or_zero(load_far_second(from.x, column)), \
                       finite_or_zero(load_far_second(from.y, column)), \
                       finite_or_zero(load_far_second(from.z, column)), \
                       finite_or_zero(load_far_second(from.w, column))); \
    }
                EACH_BLOCK(DO)
#undef DO
#define DO(i) \
    { \
        vec4 weights = from_lane(dp[i], lane, only); \
        SECOND(i, 0) += rows[0] * weights; \
        if (kBlocks > 1u) { \
            SECOND(i, 1) += rows[1] * weights; \
        } \
        if (kBlocks > 2u) { \
            SECOND(i, 2) += rows[2] * weights; \
            SECOND(i, 3) += rows[3] * weights; \
        } \
    }
                EACH_ROW(DO)
#undef DO
            }
        }
    }

#define STORE(i, b) \
    { \
        store_first(to.x, column0 + b * kTile, FIRST(i, b) * kScale); \
        if (!kOfQueries) { \
            store_second(to.y, column0 + b * kTile, SECOND(i, b)); \
        } \
    }
#define DO(i) \
    { \
        uint row = first_near + four + i; \
        uvec2 to = result_rows(row); \
        if (row <= last_near) { \
            STORE(i, 0) \
            if (kBlocks > 1u) { \
                STORE(i, 1) \
            } \
            if (kBlocks > 2u) { \
                STORE(i, 2) \
                STORE(i, 3) \
            } \
        } \
    }
#define MOVE(b) MOVE_ROW(0, b) MOVE_ROW(1, b) MOVE_ROW(2, b) MOVE_ROW(3, b)
#define MOVE_ROW(i, b) \
    { \
        FIRST(i, b) = FIRST(i + 4, b); \
        FIRST(i + 4, b) = FIRST(i + 8, b); \
        FIRST(i + 8, b) = FIRST(i + 12, b); \
        SECOND(i, b) = SECOND(i + 4, b); \
        SECOND(i + 4, b) = SECOND(i + 8, b); \
        SECOND(i + 8, b) = SECOND(i + 12, b); \
    }
    // Storing is long: it is compiled for four rows, and the next ones move up.
    [[dont_unroll]] for (uint four = 0u; four < kNear; four += 4u) {
        DO(0) DO(1) DO(2) DO(3)
        if (kNear > 4u) {
            EACH_BLOCK(MOVE)
        }
    }
#undef DO
}
