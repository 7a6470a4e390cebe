// SPDX-License-Identifier: Apache-2.0
// attention_gradient.comp's rows: where those of each tensor lie, loads and stores of four columns,
// and which tensors near and far rows are of. Needs kOfQueries, kGroup, kHeads, kFours, kChunk,
// `batch`, `head`, and what its buffers and what is pushed are called there.
#ifndef VKF_SHADERS_COMMON_GRADIENT_ROWS_GLSL
#define VKF_SHADERS_COMMON_GRADIENT_ROWS_GLSL

// The first far row that a near one sees, and the one behind the last, where sequences have lengths
// of their own: see attention_ranges.h.
uvec2 range_of(uint near) {
    uint at = batch * (p.queries + p.keys);
    return ranges[at + (kOfQueries ? near / kGroup : p.queries + near)];
}

uint query_head(uint row) {
    return head * kGroup + row % kGroup;
}
uint query_row(uint row) {
    return p.q_offset + batch * p.q_batch + query_head(row) * p.q_head + row / kGroup * p.q_row;
}
uint dy_row(uint row) {
    return p.d_offset + batch * p.d_batch + query_head(row) * p.d_head + row / kGroup * p.d_row;
}
uint key_row(uint row) {
    return p.k_offset + batch * p.k_batch + head * p.k_head + row * p.k_row;
}
uint value_row(uint row) {
    return p.v_offset + batch * p.v_batch + head * p.v_head + row * p.v_row;
}
uint statistics_row(uint row) {
    return (batch * kHeads * kGroup + query_head(row)) * p.queries + row / kGroup;
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

#endif
