// SPDX-License-Identifier: Apache-2.0
// The code that the GPU's kernels of attention's gradient share: constants, buffers, where rows
// lie, and what a pair of a query and a key gives to the sums.
//
// A group takes kRows near rows, and walks over tiles of far rows. Of the queries' gradient, near
// rows are queries and far ones keys; of the keys' and values', the other way round. A pair has the
// weight p = exp(score - lse) and passes ds = p (dy . v - delta) to its score, so that
// dq = sum ds k, dk = sum ds q and dv = sum p dy.
#ifndef VKF_SHADERS_COMMON_ATTENTION_GRADIENT_GLSL
#define VKF_SHADERS_COMMON_ATTENTION_GRADIENT_GLSL

#include "attention.h"
#include "attention_gradient_tiles.h"

layout(local_size_x_id = 0) in;
layout(constant_id = kAttentionGradientSpecSide) const uint kSide = 0;
layout(constant_id = kAttentionGradientSpecBlocks) const uint kBlocks = 1;
layout(constant_id = kAttentionGradientSpecFours) const uint kFours = 0;
layout(constant_id = kAttentionGradientSpecCausal) const uint kCausal = 0;
layout(constant_id = kAttentionGradientSpecFill) const uint kFill = 0xff800000u;
layout(constant_id = kAttentionGradientSpecGroup) const uint kGroup = 1;
layout(constant_id = kAttentionGradientSpecThreshold) const uint kThreshold = 0;
layout(constant_id = kAttentionGradientSpecKeepScale) const float kKeepScale = 1.0;
layout(constant_id = kAttentionGradientSpecMask) const uint kMask = 0;
layout(constant_id = kAttentionGradientSpecBias) const uint kBias = 0;
layout(constant_id = kAttentionGradientSpecSlopes) const uint kSlopes = 0;
layout(constant_id = kAttentionGradientSpecScale) const float kScale = 1.0;
layout(constant_id = kAttentionGradientSpecSoftcap) const float kSoftcap = 0.0;
layout(constant_id = kAttentionGradientSpecHeads) const uint kHeads = 1;
layout(constant_id = kAttentionGradientSpecRows) const uint kRows = 32;

layout(set = 0, binding = kAttentionGradientBindingQuery) readonly buffer Query { float query[]; };
layout(set = 0, binding = kAttentionGradientBindingQuery) readonly buffer QueryFours { vec4 query_fours[]; };
layout(set = 0, binding = kAttentionGradientBindingKey) readonly buffer Key { float key[]; };
layout(set = 0, binding = kAttentionGradientBindingKey) readonly buffer KeyFours { vec4 key_fours[]; };
layout(set = 0, binding = kAttentionGradientBindingValue) readonly buffer Value { float value[]; };
layout(set = 0, binding = kAttentionGradientBindingValue) readonly buffer ValueFours { vec4 value_fours[]; };
layout(set = 0, binding = kAttentionGradientBindingDy) readonly buffer Dy { float dy[]; };
layout(set = 0, binding = kAttentionGradientBindingDy) readonly buffer DyFours { vec4 dy_fours[]; };
layout(set = 0, binding = kAttentionGradientBindingLse) readonly buffer Lse { float lse[]; };
layout(set = 0, binding = kAttentionGradientBindingDelta) readonly buffer Delta { float delta[]; };
layout(set = 0, binding = kAttentionGradientBindingMask) readonly buffer Mask { uint mask_bits[]; };
layout(set = 0, binding = kAttentionGradientBindingBias) readonly buffer Bias { float bias[]; };
layout(set = 0, binding = kAttentionGradientBindingSlopes) readonly buffer Slopes { float slopes[]; };
layout(set = 0, binding = kAttentionGradientBindingFirst) writeonly buffer First { float first_out[]; };
layout(set = 0, binding = kAttentionGradientBindingFirst) writeonly buffer FirstFours { vec4 first_fours[]; };
layout(set = 0, binding = kAttentionGradientBindingSecond) writeonly buffer Second { float second_out[]; };
layout(set = 0, binding = kAttentionGradientBindingSecond) writeonly buffer SecondFours { vec4 second_fours[]; };

layout(push_constant) uniform Push { AttentionGradientTilesPush p; };

#include "common/dispatch.glsl"
#include "common/log_sum_exp.glsl"
#include "common/numeric.glsl"
#include "common/random.glsl"

const bool kOfQueries = kSide == kAttentionGradientOfQueries;
const bool kFiniteFill = kFill != (kInfinityBits | kSignBit);

#include "common/gradient_pairs.glsl"

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
    const uint tile = kAttentionGradientTile;
    uint query_rows = p.queries * kGroup;
    uint near_count = kOfQueries ? query_rows : p.keys;
    uint columns = kOfQueries ? p.head_dim : max(p.head_dim, p.value_dim);
    work.far_count = kOfQueries ? p.keys : query_rows;
    work.first_near = take_dimension(rest, tiles_over(near_count, kRows)) * kRows;
    work.last_near = min(work.first_near + kRows, near_count) - 1u;
    work.slice = take_dimension(rest, tiles_over(columns, kBlocks * tile));
    head = take_dimension(rest, kHeads);
    batch = rest;
    shift = kCausal == 2u ? int(p.keys) - int(p.queries) : 0;
    work.begin = 0u;
    work.end = work.far_count;
    if (kCausal != 0u && !kFiniteFill) {
        if (kOfQueries) {
            int last = int(work.last_near / kGroup) + shift;
            work.end = uint(clamp(last + 1, 0, int(p.keys)));
            if (p.window != 0u) {
                work.begin = uint(max(int(work.first_near / kGroup) + shift + 1 - int(p.window), 0));
            }
        } else {
            work.begin = uint(clamp(int(work.first_near) - shift, 0, int(p.queries))) * kGroup;
            if (p.window != 0u) {
                int last = int(work.last_near) + int(p.window) - shift;
                work.end = uint(clamp(last, 0, int(p.queries))) * kGroup;
            }
        }
        work.begin = work.begin / tile * tile;
    }
    return true;
}

// What pairs need to know of a row of queries: its log-sum-exp, in two parts, and delta.
vec3 statistics_of(uint row) {
    uint at = statistics_row(row);
    return vec3(lse[at * 2u], lse[at * 2u + 1u], delta[at]);
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
const uint kMaskWords = kOfQueries ? kRows : kAttentionGradientTile * kRowWords;

uint mask_word(uint i, uint first) {
    uint row = kOfQueries ? min(work.first_near + i, work.last_near) : min(first + i / kRowWords, work.far_count - 1u);
    uint at = kOfQueries ? first : work.first_near + i % kRowWords * 32u;
    if ((kMask & kAttentionPresentKey) == 0u) {
        return uint(-int(mask_bits[broadcast_row(kMask, row, 1u)] & 1u));
    }
    uint words = tiles_over(p.keys, 32u);
    return at < p.keys ? mask_bits[broadcast_row(kMask, row, words) + at / 32u] >> at % 32u : 0u;
}

// True where the alignment lets a query see a key.
bvec4 seen_causally(uvec4 rows, uvec4 keys) {
    if (kCausal == 0u) {
        return bvec4(true);
    }
    ivec4 position = ivec4(rows / kGroup) + shift;
    ivec4 lowest = p.window != 0u ? position + 1 - int(p.window) : ivec4(-0x7fffffff);
    return both(lessThanEqual(ivec4(keys), position), greaterThanEqual(ivec4(keys), lowest));
}

// The places of a near row's results.
uvec2 result_rows(uint row) {
    uint its_head = kOfQueries ? query_head(row) : head;
    uint place = kOfQueries ? row / kGroup : row;
    return uvec2(p.first_offset + batch * p.first_batch + its_head * p.first_head + place * p.first_row,
                 p.second_offset + batch * p.second_batch + its_head * p.second_head + place * p.second_row);
}

#endif
