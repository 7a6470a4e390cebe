#version 450
// SPDX-License-Identifier: Apache-2.0
// Fused attention in registers, for processors whose subgroups have exactly kLanes lanes, 4 or 8,
// which is the local size: a group is one subgroup, takes kRows rows, and walks over tiles of
// 4 * kLanes keys.
//
//! source
//! variant attention_lanes -DFULL -DWIDE=0
//
// Both products are matmul_lanes': in the first a lane holds four keys and rows of Q are handed
// round (common/lanes.glsl). In the second it holds four columns of V. Weights, which lie in the
// lanes that computed them, are handed round then. On a software device a buffer load costs some
// thirty arithmetic operations, and handing round one.
//
// The maximum of a row is the same in every lane; each lane sums the weights it computed, and the
// sums meet at the end. A row whose scores hold a NaN or +inf ends with a sum of NaN.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_KHR_shader_subgroup_quad : require

// With 4 lanes it may be SwiftShader, whose time to compile grows faster than straight code does.
#define ONE_BY_ONE (gl_WorkGroupSize.x == 4u)
#define UNPACK_BY_PRODUCTS
#include "common/attention.glsl"

const uint kLanes = gl_WorkGroupSize.x;
const uint kTile = 4u * kLanes;

// Rows come in fours: kRows is 4 or 16, and with 4 lanes, where compiling takes longest, 4 or 8.
// Blocks are 1, 2 or 4.
const uint kMaxRows = 16u;
const uint kMaxLoads = 2u;
#define EACH_ROW(DO) \
    DO(0) DO(1) DO(2) DO(3) \
    if (kRows > 4u) { \
        DO(4) DO(5) DO(6) DO(7) \
    } \
    if (kRows > 8u) { \
        DO(8) DO(9) DO(10) DO(11) DO(12) DO(13) DO(14) DO(15) \
    }
#define EACH_LOAD(DO) \
    DO(0) \
    if (kRows > kLanes) { \
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
#define VKF_LANES kLanes
#include "common/lanes.glsl"
#define SUM(row, block) sums[(row) * kAttentionMaxBlocks + (block)]

float lanes_max(float x) {
    x = max(x, from_beside(x));
    x = max(x, from_two_away(x));
    if (kLanes == 8u) {
        x = max(x, subgroupShuffle(x, LANE ^ 4u));
    }
    return x;
}

float lanes_sum(float x) {
    x += from_beside(x);
    x += from_two_away(x);
    if (kLanes == 8u) {
        x += subgroupShuffle(x, LANE ^ 4u);
    }
    return x;
}

uint lanes_or(uint x) {
    x |= from_beside(x);
    x |= from_two_away(x);
    if (kLanes == 8u) {
        x |= subgroupShuffle(x, LANE ^ 4u);
    }
    return x;
}

// Per row: maximum, this lane's part of the sum, and of O the lane's columns.
float maxima[kMaxRows];
float totals[kMaxRows];
vec4 sums[kMaxRows * kAttentionMaxBlocks];
// Per row, of one tile: products, then scores, then weights of the lane's four keys.
vec4 tile[kMaxRows];

// All of this is without branches: some compilers keep every live register in mind at every branch,
// and there are many registers.
//
// The running softmax of a row takes in the tile's scores: they become weights, and what was summed
// up so far is scaled to the new maximum. Returns the scale.
float take_in(inout vec4 s, inout float largest, inout float total) {
    float before = largest;
    uvec4 magnitudes = floatBitsToUint(s) & kMagnitudeBits;
    uint magnitude = max(max(magnitudes.x, magnitudes.y), max(magnitudes.z, magnitudes.w));
    largest = lanes_max(max(before, max(max(s.x, s.y), max(s.z, s.w))));
    bool none = floatBitsToUint(before) == kNegativeInfinityBits;
    float below = exp_of_number(before - largest);
    float rescale = none ? 0.0 : below;
    bvec4 masked = is_masked(s);
    vec4 x = s - largest;
    vec4 e = vec4(exp_of_number(x.x), exp_of_number(x.y), exp_of_number(x.z), exp_of_number(x.w));
    vec4 kept = mix(e, vec4(0.0), masked);
    total = total * rescale + ((kept.x + kept.y) + (kept.z + kept.w));
    uint worst = max(magnitude, floatBitsToUint(largest) == kInfinityBits ? kNanBits : 0u);
    total = worst > kInfinityBits ? uintBitsToFloat(kNanBits) : total;
    s = mix(e, vec4(uintBitsToFloat(kSignBit)), masked);
    return rescale;
}

// A bit for each of the group's rows that must be taken again with care: V held something that is
// not finite, and 0 * inf must not enter where a key is masked. The sums tell, as each has a
// product with it; one that overflowed is taken for such. Those of a row whose total is NaN do not,
// and none of that row's results is a number anyhow.
uint lost_rows = 0u;

uvec4 magnitudes_of(vec4 x) {
    return floatBitsToUint(x) & kMagnitudeBits;
}

// Loads V; where the key is absent, numbers that are not finite become 0.
vec4 value_unless(bool absent, uint place, uint four) {
    vec4 found = value_at(place, four);
    return absent ? finite_or_zero(found) : found;
}

// As key_offsets(), but places.
uvec3 key_places(uint index) {
    uvec3 at = key_offsets(index);
    return uvec3(key_place(at.x), key_place(at.y), at.z);
}

// Loads four components of four keys, as the rows of the result.
mat4 load_keys(uint at0, uint at1, uint at2, uint at3, uint four) {
    return with_rows(key_at(at0, four), key_at(at1, four), key_at(at2, four), key_at(at3, four));
}

// Attention of one row again, with care: each product of an absent key is left out. The sums are
// taken in the order of the tiles, so that what is masked leaves no trace in the last bit either.
void redo(uint row, uint column0) {
    uint query_row = query_place(query_offset(row));
    float largest = negative_infinity();
    float total = 0.0;
    if (kSinks != 0u && work.split == 0u) {
        largest = sinks[broadcast_row(kSinks, row, 1u)];
        total = LANE == 0u ? sink_total(largest) : 0.0;
    }
    vec4 o0 = vec4(0.0);
    vec4 o1 = vec4(0.0);
    vec4 o2 = vec4(0.0);
    vec4 o3 = vec4(0.0);
    uint head_fours = tiles_over(p.head_dim, 4u);
    [[dont_unroll]] for (uint first = work.begin; first < work.end; first += kTile) {
        uint lane_first = first + LANE * 4u;
        uvec3 at0 = key_places(lane_first);
        uvec3 at1 = key_places(lane_first + 1u);
        uvec3 at2 = key_places(lane_first + 2u);
        uvec3 at3 = key_places(lane_first + 3u);
        vec4 s = vec4(0.0);
        [[dont_unroll]] for (uint four = 0u; four < head_fours; ++four) {
            s += load_keys(at0.x, at1.x, at2.x, at3.x, four) * query_at(query_row, four);
        }
        uint bits = kMask != 0u ? mask_word(row, first) >> (LANE * 4u) : 0u;
        s = finish_scores(row, lane_first, s + poison(at0.z, at1.z, at2.z, at3.z), bits);
        float rescale = take_in(s, largest, total);
        s = drop(row, lane_first, s);
        o0 *= rescale;
        o1 *= rescale;
        o2 *= rescale;
        o3 *= rescale;
        [[dont_unroll]] for (uint i = 0u; i < kBlocks * kLanes; ++i) {
            uint lane = i / kBlocks;
            uint block = i % kBlocks;
            uint only = only_of(lane);
            vec4 weights = from_lane(s, lane, only);
            uvec4 at = from_lane(uvec4(at0.y, at1.y, at2.y, at3.y), lane, only);
            bvec4 absent = equal(floatBitsToUint(weights), uvec4(kSignBit));
            uint four = (column0 >> 2) + block * kLanes;
            mat4 values = mat4(value_unless(absent.x, at.x, four), value_unless(absent.y, at.y, four),
                               value_unless(absent.z, at.z, four), value_unless(absent.w, at.w, four));
            vec4 o = block < 2u ? (block == 0u ? o0 : o1) : (block == 2u ? o2 : o3);
            o += values * weights;
            o0 = block == 0u ? o : o0;
            o1 = block == 1u ? o : o1;
            o2 = block == 2u ? o : o2;
            o3 = block == 3u ? o : o3;
        }
    }
    total = lanes_sum(total);
    float factor = final_factor(total);
    uint to = row_offset(row);
    [[dont_unroll]] for (uint b = 0u; b < kBlocks; ++b) {
        vec4 o = b < 2u ? (b == 0u ? o0 : o1) : (b == 2u ? o2 : o3);
        store(to, column0 + b * kTile, o * factor);
    }
}

bool redo_allowed() {
    uint tiles = (work.end - work.begin + kTile - 1u) / kTile;
    uint rows = work.last_row - work.first_row + 1u;
    uint rounds = attention_redo_rounds(tiles, (p.head_dim + 3u) / 4u, kLanes, kBlocks, rows);
    if (kSoftcap != 0u && ONE_BY_ONE) {
        rounds += tiles * (kRows + rows) * 5u;
    }
    return rounds < kMostRounds;
}

// Writes NaN, which shows, rather than a row without some of its keys.
void give_up(uint row, uint column0) {
    [[dont_unroll]] for (uint b = 0u; b < kBlocks; ++b) {
        store(row_offset(row), column0 + b * kTile, vec4(uintBitsToFloat(kNanBits)));
    }
}

// Writes the row's maximum and sum for splits, or its log-sum-exp.
void write_statistics(uint row, uint to, float largest, float total) {
    if (work.slice != 0u || LANE != 0u) {
        return;
    }
    if (kSplit != 0u && work.split_keys != 0u) {
        partial[to + p.value_dim] = partial_maximum(largest, total);
        partial[to + p.value_dim + 1u] = total;
    } else if (kLse != 0u) {
        write_log_sum_exp(row, largest, total);
    }
}

void main() {
    if (!find_work(kTile)) {
        return;
    }
    uint column0 = value_column(work.slice, kBlocks, 0u, kTile, LANE);
    uint four0 = column0 >> 2;
    uint head_fours = tiles_over(p.head_dim, 4u);

    uint query_rows[kMaxLoads];
#define DO(i) \
    { \
        query_rows[i] = query_place(query_offset(min(work.first_row + i * kLanes + LANE, work.last_row))); \
    }
    EACH_LOAD(DO)
#undef DO

    float start = negative_infinity();
#define DO(i) \
    { \
        maxima[i] = start; \
        totals[i] = 0.0; \
    }
    EACH_ROW(DO)
#undef DO
    if (kSinks != 0u && work.split == 0u) {
#define DO(i) \
    { \
        maxima[i] = sinks[broadcast_row(kSinks, min(work.first_row + i, work.last_row), 1u)]; \
        totals[i] = LANE == 0u ? sink_total(maxima[i]) : 0.0; \
    }
        EACH_ROW(DO)
#undef DO
    }
#define DO(i) \
    { \
        SUM(i, 0) = vec4(0.0); \
        SUM(i, 1) = vec4(0.0); \
        SUM(i, 2) = vec4(0.0); \
        SUM(i, 3) = vec4(0.0); \
    }
    EACH_ROW(DO)
#undef DO

    [[dont_unroll]] for (uint first = work.begin; first < work.end; first += kTile) {
        uint lane_first = first + LANE * 4u;
        uint words[kMaxLoads];
        if (kMask != 0u) {
            uint seen = 0u;
#define DO(i) \
    { \
        words[i] = mask_word(min(work.first_row + i * kLanes + LANE, work.last_row), first); \
        seen |= words[i]; \
    }
            EACH_LOAD(DO)
#undef DO
            // A tile that no row may see costs nothing more. (Where masked scores are finite they
            // all count.)
            if (kLanes == 4u) {
                seen &= 0xffffu;
            }
            if (!kFiniteFill && lanes_or(seen) == 0u) {
                continue;
            }
        }
        uvec3 at0 = key_places(lane_first);
        uvec3 at1 = key_places(lane_first + 1u);
        uvec3 at2 = key_places(lane_first + 2u);
        uvec3 at3 = key_places(lane_first + 3u);
#define DO(i) \
    { \
        tile[i] = vec4(0.0); \
    }
        EACH_ROW(DO)
#undef DO
        [[dont_unroll]] for (uint four = 0u; four < head_fours; ++four) {
            mat4 keys = load_keys(at0.x, at1.x, at2.x, at3.x, four);
            vec4 rows[kMaxLoads];
#define DO(i) \
    { \
        rows[i] = query_at(query_rows[i], four); \
    }
            EACH_LOAD(DO)
#undef DO
#define DO(i) \
    { \
        vec4 row; \
        VKF_ROW_OF(row, rows, i) \
        tile[i] += keys * row; \
    }
            EACH_ROW(DO)
#undef DO
        }
        if (kLanes == 4u) {
            put_in_order(tile[0], tile[1], tile[2], tile[3]);
            if (kRows > 4u) {
                put_in_order(tile[4], tile[5], tile[6], tile[7]);
            }
        }

        vec4 lost = poison(at0.z, at1.z, at2.z, at3.z);
#define MASK_BITS(i) (kMask != 0u ? subgroupShuffle(words[i / kLanes], i % kLanes) >> (LANE * 4u) : 0u)
#define DO(i) \
    { \
        uint row = min(work.first_row + i, work.last_row); \
        vec4 s = finish_scores(row, lane_first, tile[i] + lost, MASK_BITS(i)); \
        float rescale = take_in(s, maxima[i], totals[i]); \
        tile[i] = drop(row, lane_first, s); \
        SUM(i, 0) *= rescale; \
        if (kBlocks > 1u) { \
            SUM(i, 1) *= rescale; \
        } \
        if (kBlocks > 2u) { \
            SUM(i, 2) *= rescale; \
            SUM(i, 3) *= rescale; \
        } \
    }
        EACH_ROW(DO)
#undef DO

        [[dont_unroll]] for (uint lane = 0u; lane < kLanes; ++lane) {
            uint only = only_of(lane);
            uvec4 at = from_lane(uvec4(at0.y, at1.y, at2.y, at3.y), lane, only);
            mat4 values[kAttentionMaxBlocks];
#define DO(b) \
    { \
        uint four = four0 + b * kLanes; \
        values[b] = mat4(value_at(at.x, four), value_at(at.y, four), value_at(at.z, four), value_at(at.w, four)); \
    }
            EACH_BLOCK(DO)
#undef DO
#define DO(i) \
    { \
        vec4 weights = from_lane(tile[i], lane, only); \
        SUM(i, 0) += values[0] * weights; \
        if (kBlocks > 1u) { \
            SUM(i, 1) += values[1] * weights; \
        } \
        if (kBlocks > 2u) { \
            SUM(i, 2) += values[2] * weights; \
            SUM(i, 3) += values[3] * weights; \
        } \
    }
            EACH_ROW(DO)
#undef DO
        }
    }

#define DO(i) \
    { \
        totals[i] = lanes_sum(totals[i]); \
        uvec4 worst = magnitudes_of(SUM(i, 0)); \
        if (kBlocks > 1u) { \
            worst = max(worst, magnitudes_of(SUM(i, 1))); \
        } \
        if (kBlocks > 2u) { \
            worst = max(worst, max(magnitudes_of(SUM(i, 2)), magnitudes_of(SUM(i, 3)))); \
        } \
        bool lost = any(greaterThanEqual(worst, uvec4(kInfinityBits))); \
        lost_rows |= lost && is_finite(totals[i]) ? 1u << i : 0u; \
    }
    EACH_ROW(DO)
#undef DO

#define DO(i) \
    { \
        uint row = min(work.first_row + four + i, work.last_row); \
        float total = totals[i]; \
        float factor = final_factor(total); \
        uint to = row_offset(row); \
        if (work.first_row + four + i <= work.last_row) { \
            store(to, column0, SUM(i, 0) * factor); \
            if (kBlocks > 1u) { \
                store(to, column0 + kTile, SUM(i, 1) * factor); \
            } \
            if (kBlocks > 2u) { \
                store(to, column0 + 2u * kTile, SUM(i, 2) * factor); \
                store(to, column0 + 3u * kTile, SUM(i, 3) * factor); \
            } \
            write_statistics(row, to, maxima[i], total); \
        } \
    }
#define MOVE_UP(x, i) \
    x(i) = x(i + 4); \
    x(i + 4) = x(i + 8); \
    x(i + 8) = x(i + 12);
#define TOTAL(i) totals[i]
#define MAXIMUM(i) maxima[i]
#define SUM0(i) SUM(i, 0)
#define SUM1(i) SUM(i, 1)
#define SUM2(i) SUM(i, 2)
#define SUM3(i) SUM(i, 3)
#define MOVE(i) \
    MOVE_UP(TOTAL, i) \
    MOVE_UP(MAXIMUM, i) \
    MOVE_UP(SUM0, i) \
    MOVE_UP(SUM1, i) \
    MOVE_UP(SUM2, i) \
    MOVE_UP(SUM3, i)
    // Storing is long: it is compiled for four rows, and the next ones move up.
    [[dont_unroll]] for (uint four = 0u; four < kRows; four += 4u) {
        DO(0) DO(1) DO(2) DO(3)
        if (kRows > 4u) {
            MOVE(0) MOVE(1) MOVE(2) MOVE(3)
        }
    }
#undef DO
    lost_rows = lanes_or(lost_rows);
    if (lost_rows != 0u) {
        bool allowed = redo_allowed();
        [[dont_unroll]] for (uint row = work.first_row; row <= work.last_row; ++row) {
            if ((lost_rows >> (row - work.first_row) & 1u) == 0u) {
                continue;
            }
            if (allowed) {
                redo(row, column0);
            } else {
                give_up(row, column0);
            }
        }
    }
}
