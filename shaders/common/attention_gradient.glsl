// SPDX-License-Identifier: Apache-2.0
// The code that the GPU's kernels of attention's gradient share: buffers, loads and stores, and
// what shared memory has of a tile's mask and statistics.
//
// A group takes kRows near rows, and walks over tiles of far rows. Of the queries' gradient, near
// rows are queries and far ones keys; of the keys' and values', the other way round. A pair has the
// weight p = exp(score - lse) and passes ds = p (dy . v - delta) to its score, so that
// dq = sum ds k, dk = sum ds q and dv = sum p dy.
#ifndef VKF_SHADERS_COMMON_ATTENTION_GRADIENT_GLSL
#define VKF_SHADERS_COMMON_ATTENTION_GRADIENT_GLSL

#include "attention.h"
#include "attention_gradient_tiles.h"
#include "common/gradient_pairs.glsl"

layout(constant_id = kAttentionGradientSpecRows) const uint kRows = 32;

const uint kTile = kAttentionGradientTile;

layout(set = 0, binding = kAttentionGradientBindingQuery) readonly buffer Query { float query[]; };
layout(set = 0, binding = kAttentionGradientBindingQuery) readonly buffer QueryFours { vec4 query_fours[]; };
layout(set = 0, binding = kAttentionGradientBindingKey) readonly buffer Key { float key[]; };
layout(set = 0, binding = kAttentionGradientBindingKey) readonly buffer KeyFours { vec4 key_fours[]; };
layout(set = 0, binding = kAttentionGradientBindingValue) readonly buffer Value { float value[]; };
layout(set = 0, binding = kAttentionGradientBindingValue) readonly buffer ValueFours { vec4 value_fours[]; };
layout(set = 0, binding = kAttentionGradientBindingDy) readonly buffer Dy { float dy[]; };
layout(set = 0, binding = kAttentionGradientBindingDy) readonly buffer DyFours { vec4 dy_fours[]; };
layout(set = 0, binding = kAttentionGradientBindingFirst) writeonly buffer First { float first_out[]; };
layout(set = 0, binding = kAttentionGradientBindingFirst) writeonly buffer FirstFours { vec4 first_fours[]; };
layout(set = 0, binding = kAttentionGradientBindingSecond) writeonly buffer Second { float second_out[]; };
layout(set = 0, binding = kAttentionGradientBindingSecond) writeonly buffer SecondFours { vec4 second_fours[]; };

// The work of this group: near rows of `head` in `batch` against a range of far rows.
struct Work {
    uint slice;      // which kBlocks blocks of the results' columns
    uint first_near;
    uint last_near;  // inclusive
    uint far_count;
    uint begin;      // far rows that some near row sees, `begin` a multiple of the tile
    uint end;
} work;

// Fills in these; false where the group has nothing to do. Every invocation of a group finds the
// same.
bool find_work() {
    uint rest = group_index();
    if (rest >= p.group_count) {
        return false;
    }
    uint query_rows = p.queries * kGroup;
    uint near_count = kOfQueries ? query_rows : p.keys;
    uint columns = kOfQueries ? p.head_dim : max(p.head_dim, p.value_dim);
    work.far_count = kOfQueries ? p.keys : query_rows;
    work.first_near = take_dimension(rest, tiles_over(near_count, kRows)) * kRows;
    work.last_near = min(work.first_near + kRows, near_count) - 1u;
    work.slice = take_dimension(rest, tiles_over(columns, kBlocks * kTile));
    head = take_dimension(rest, kHeads);
    batch = rest;
    shift = kCausal == 2u ? int(p.keys) - int(p.queries) : 0;
    work.begin = 0u;
    work.end = work.far_count;
    if (kCausal != 0u && !kFiniteFill) {
        if (kOfQueries) {
            int last = int(work.last_near / kGroup) + shift;
            work.end = uint(clamp(last + 1, 0, int(p.keys)));
            if (kWindow != 0u) {
                work.begin = uint(max(int(work.first_near / kGroup) + shift + 1 - int(kWindow), 0));
            }
        } else {
            work.begin = uint(clamp(int(work.first_near) - shift, 0, int(p.queries))) * kGroup;
            if (kWindow != 0u) {
                int last = int(work.last_near) + int(kWindow) - shift;
                work.end = uint(clamp(last, 0, int(p.queries))) * kGroup;
            }
        }
        work.begin = work.begin / kTile * kTile;
    }
    return true;
}

// The places of a near row, and of a far one: x for the first product (of queries and keys), y for
// the second (of dy and values).
uvec2 near_rows(uint row) {
    return kOfQueries ? uvec2(query_row(row), dy_row(row)) : uvec2(key_row(row), value_row(row));
}
uvec2 far_rows(uint row) {
    return kOfQueries ? uvec2(key_row(row), value_row(row)) : uvec2(query_row(row), dy_row(row));
}

// Loads four neighbours along the width from `offset + at` on; 0 past `width`.
#define DEFINE_LOAD(name, buffer_name, buffer_fours, width) \
    vec4 name(uint offset, uint at) { \
        if (kFours != 0u) { \
            vec4 four = buffer_fours[(offset + min(at, width - 4u)) >> 2]; \
            return mix(vec4(0.0), four, bvec4(at < width)); \
        } \
        uvec4 columns = at + uvec4(0, 1, 2, 3); \
        uvec4 from = offset + min(columns, uvec4(width - 1u)); \
        vec4 found = vec4(buffer_name[from.x], buffer_name[from.y], buffer_name[from.z], buffer_name[from.w]); \
        return mix(vec4(0.0), found, lessThan(columns, uvec4(width))); \
    }
DEFINE_LOAD(load_query, query, query_fours, p.head_dim)
DEFINE_LOAD(load_key, key, key_fours, p.head_dim)
DEFINE_LOAD(load_value, value, value_fours, p.value_dim)
DEFINE_LOAD(load_dy, dy, dy_fours, p.value_dim)
#undef DEFINE_LOAD

#define DEFINE_STORE(name, buffer_name, buffer_fours, width) \
    void name(uint offset, uint at, vec4 v) { \
        if (kFours != 0u) { \
            if (at < width) { \
                buffer_fours[(offset + at) >> 2] = v; \
            } \
            return; \
        } \
        [[dont_unroll]] for (uint i = 0u; i < 4u && at + i < width; ++i) { \
            buffer_name[offset + at + i] = i < 2u ? (i == 0u ? v.x : v.y) : (i == 2u ? v.z : v.w); \
        } \
    }
DEFINE_STORE(store_first, first_out, first_fours, p.head_dim)
DEFINE_STORE(store_second, second_out, second_fours, p.value_dim)
#undef DEFINE_STORE

// Loads four columns of a row of the first product, or of the second.
vec4 load_near(bool second, uvec2 rows, uint at) {
    if (kOfQueries) {
        return second ? load_dy(rows.y, at) : load_query(rows.x, at);
    }
    return second ? load_value(rows.y, at) : load_key(rows.x, at);
}
vec4 load_far(bool second, uvec2 rows, uint at) {
    if (kOfQueries) {
        return second ? load_value(rows.y, at) : load_key(rows.x, at);
    }
    return second ? load_dy(rows.y, at) : load_query(rows.x, at);
}

// The words of a tile's mask that a group keeps. Of queries: one of each near row, with the bits of
// the tile's far rows. Of keys: kRowWords of each far row, with the bits of the near ones. kRows is
// a power of two.
const uint kRowWords = kOfQueries ? 1u : (kRows + 31u) / 32u;
const uint kMaskWords = kOfQueries ? kRows : kTile * kRowWords;

uint mask_word(uint i, uint first) {
    uint row = kOfQueries ? min(work.first_near + i, work.last_near) : min(first + i / kRowWords, work.far_count - 1u);
    uint at = kOfQueries ? first : work.first_near + i % kRowWords * 32u;
    if ((kMask & kAttentionPresentKey) == 0u) {
        return uint(-int(mask_bits[broadcast_row(kMask, row, 1u)] & 1u));
    }
    uint words = tiles_over(p.keys, 32u);
    return at < p.keys ? mask_bits[broadcast_row(kMask, row, words) + at / 32u] >> at % 32u : 0u;
}

shared uint mask_words[kMaskWords];
// statistics_of() far rows, where these are queries
shared vec2 log_sum_exps[kTile];
shared float deltas[kTile];

// Puts what is known of a tile's pairs into shared memory; false where a mask leaves none of them.
// Every invocation finds the same.
bool stage_tile(uint first) {
    if (kMask == 0u && kOfQueries) {
        return true;
    }
    barrier();
    for (uint i = gl_LocalInvocationID.x; kMask != 0u && i < kMaskWords; i += gl_WorkGroupSize.x) {
        mask_words[i] = mask_word(i, first);
    }
    for (uint i = gl_LocalInvocationID.x; !kOfQueries && i < kTile; i += gl_WorkGroupSize.x) {
        vec3 statistics = statistics_of(min(first + i, work.far_count - 1u));
        log_sum_exps[i] = statistics.xy;
        deltas[i] = statistics.z;
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

// What the mask has of a near row and four far rows of the tile.
bvec4 mask_in_tile(uint row, uvec4 in_tile) {
    if (kMask == 0u) {
        return bvec4(true);
    }
    if (kOfQueries) {
        return notEqual(uvec4(mask_words[row]) >> in_tile & 1u, uvec4(0));
    }
    uvec4 at = in_tile * kRowWords + row / 32u;
    uvec4 words = uvec4(mask_words[at.x], mask_words[at.y], mask_words[at.z], mask_words[at.w]);
    return notEqual(words >> (row % 32u) & 1u, uvec4(0));
}

// What four pairs need to know of their queries.
struct Statistics {
    vec4 lse;
    vec4 rest;
    vec4 delta;
};

// Of a near row: where these are queries; else anything.
vec3 statistics_of_near(uint row) {
    if (kOfQueries) {
        return statistics_of(row);
    }
    return vec3(0.0);
}

// Of four far rows of the tile: where these are queries; else anything.
Statistics statistics_in_tile(uvec4 in_tile) {
    if (kOfQueries) {
        return Statistics(vec4(0.0), vec4(0.0), vec4(0.0));
    }
    mat4x2 parts =
        mat4x2(log_sum_exps[in_tile.x], log_sum_exps[in_tile.y], log_sum_exps[in_tile.z], log_sum_exps[in_tile.w]);
    return Statistics(vec4(parts[0].x, parts[1].x, parts[2].x, parts[3].x),
                      vec4(parts[0].y, parts[1].y, parts[2].y, parts[3].y),
                      vec4(deltas[in_tile.x], deltas[in_tile.y], deltas[in_tile.z], deltas[in_tile.w]));
}

// As gradient_of_pairs() without a tile, of near row `row` of the group and four far rows.
void gradient_of_pairs(uint first, uint row, uvec4 in_tile, vec3 own, Statistics of_far, inout vec4 ds, inout vec4 dp) {
    uvec4 near = uvec4(min(work.first_near + row, work.last_near));
    uvec4 far = min(first + in_tile, uvec4(work.far_count - 1u));
    bvec4 inside = lessThan(first + in_tile, uvec4(work.far_count));
    bvec4 mask = mask_in_tile(row, in_tile);
    if (kOfQueries) {
        gradient_of_pairs(near, far, ds, dp, vec4(own.x), vec4(own.y), vec4(own.z),
                          both(mask, seen_causally(near, far)), inside);
    } else {
        gradient_of_pairs(far, near, ds, dp, of_far.lse, of_far.rest, of_far.delta,
                          both(mask, seen_causally(far, near)), inside);
    }
}

#endif
