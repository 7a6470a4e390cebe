// SPDX-License-Identifier: Apache-2.0
// attention_gradient.comp's rows: loads and stores of four columns, which tensors near and far rows
// are of, and which pairs of rows attend. Needs gradient_pairs.glsl, the kernel's constants and
// its buffers.
#ifndef VKF_SHADERS_COMMON_GRADIENT_ROWS_GLSL
#define VKF_SHADERS_COMMON_GRADIENT_ROWS_GLSL

// The first far row that a near one sees, and the one behind the last, where sequences have lengths
// of their own: see attention_ranges.h.
uvec2 range_of(uint near) {
    uint at = batch * (p.queries + p.keys);
    return ranges[at + (kOfQueries ? near / kGroup : p.queries + near)];
}

// Loads four neighbours along the width from `offset + at` on. Past `width`: 0 within a four of
// which something is there, else anything, which only makes columns that are not stored.
#define DEFINE_LOAD(name, buffer_name, buffer_fours, width) \
    vec4 name(uint offset, uint at) { \
        if (kFours != 0u) { \
            return VKF_FOUR(buffer_fours, (offset + min(at, width - 4u)) >> 2); \
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

// Stores four neighbours, or adds them to what an earlier chunk left there.
#define DEFINE_STORE(name, buffer_name, buffer_fours, width) \
    void name(uint offset, uint at, vec4 v) { \
        bool more = !kOfQueries && kChunk != 0u && p.chunk_row != 0u; \
        if (kFours != 0u) { \
            if (at < width) { \
                uint place = (offset + at) >> 2; \
                if (more) { \
                    v += VKF_FOUR(buffer_fours, place); \
                } \
                VKF_PUT_FOUR(buffer_fours, place, v); \
            } \
            return; \
        } \
        [[dont_unroll]] for (uint i = 0u; i < 4u && at + i < width; ++i) { \
            float part = i < 2u ? (i == 0u ? v.x : v.y) : (i == 2u ? v.z : v.w); \
            if (more) { \
                part += buffer_name[offset + at + i]; \
            } \
            buffer_name[offset + at + i] = part; \
        } \
    }
DEFINE_STORE(store_first, first_out, first_fours, p.head_dim)
DEFINE_STORE(store_second, second_out, second_fours, p.value_dim)
#undef DEFINE_STORE

vec4 load_near(uint at, uint k) {
    if (kOfQueries) {
        return load_query(at, k);
    }
    return load_key(at, k);
}
vec4 load_near_second(uint at, uint k) {
    if (kOfQueries) {
        return load_dy(at, k);
    }
    return load_value(at, k);
}
vec4 load_far(uint at, uint k) {
    if (kOfQueries) {
        return load_key(at, k);
    }
    return load_query(at, k);
}
vec4 load_far_second(uint at, uint k) {
    if (kOfQueries) {
        return load_value(at, k);
    }
    return load_dy(at, k);
}

// Which of four pairs a causal mask, its window and the lengths of sequences leave; `range` is that
// of the near row.
bvec4 in_sight(uvec4 rows, uvec4 keys, uvec2 range) {
    if (kSequences != 0u) {
        uvec4 far = kOfQueries ? keys : rows / kGroup;
        return both(greaterThanEqual(far, uvec4(range.x)), lessThan(far, uvec4(range.y)));
    }
    return seen_causally(rows, keys);
}

bvec4 may_attend(uvec4 rows, uvec4 keys, uvec2 range) {
    bvec4 keep = in_sight(rows, keys, range);
    if (kMask != 0u) {
        bool wide = (kMask & kAttentionPresentKey) != 0u;
        uvec4 at = broadcast_rows(kMask, rows, wide ? tiles_over(p.keys, 32u) : 1u);
        at += wide ? keys / 32u : uvec4(0);
        uvec4 bits = uvec4(mask_bits[at.x], mask_bits[at.y], mask_bits[at.z], mask_bits[at.w]);
        keep = both(keep, notEqual((bits >> (wide ? keys % 32u : uvec4(0))) & 1u, uvec4(0)));
    }
    return keep;
}

vec4 gradient_of_pairs(uvec4 rows, uvec4 keys, inout vec4 ds, inout vec4 dp, vec4 row_lse, vec4 row_rest,
                       vec4 row_delta, bvec4 inside, uvec2 range) {
    bvec4 keep = may_attend(rows, keys, range);
    return gradient_of_pairs(rows, keys, ds, dp, row_lse, row_rest, row_delta, keep, inside);
}

#endif
