// SPDX-License-Identifier: Apache-2.0
// The code that the attention kernels share: constants, buffers, where rows and keys lie, and what
// becomes of a score between the product and the softmax. FULL adds masks, biases, slopes, sinks,
// sequences, pages, splits and the log-sum-exp, which need more buffers than Vulkan guarantees.
#ifndef VKF_SHADERS_COMMON_ATTENTION_GLSL
#define VKF_SHADERS_COMMON_ATTENTION_GLSL

#include "common/fours.glsl"
#include "attention.h"

#ifndef ONE_BY_ONE
#define ONE_BY_ONE false
#endif

layout(local_size_x_id = 0) in;
layout(constant_id = kAttentionSpecRows) const uint kRows = 8;
layout(constant_id = kAttentionSpecBlocks) const uint kBlocks = 1;
layout(constant_id = kAttentionSpecFours) const uint kFours = 0;
layout(constant_id = kAttentionSpecCausal) const uint kCausal = 0;
layout(constant_id = kAttentionSpecSoftcap) const uint kSoftcap = 0;
layout(constant_id = kAttentionSpecFill) const uint kFill = 0xff800000u;
layout(constant_id = kAttentionSpecGroup) const uint kGroup = 1;
layout(constant_id = kAttentionSpecThreshold) const uint kThreshold = 0;
layout(constant_id = kAttentionSpecKeepScale) const float kKeepScale = 1.0;
layout(constant_id = kAttentionSpecKv) const uint kKv = kPackedF32;
layout(constant_id = kAttentionSpecRing) const uint kRing = 0;
#ifdef FULL
layout(constant_id = kAttentionSpecMask) const uint kMask = 0;
layout(constant_id = kAttentionSpecBias) const uint kBias = 0;
layout(constant_id = kAttentionSpecSlopes) const uint kSlopes = 0;
layout(constant_id = kAttentionSpecSinks) const uint kSinks = 0;
layout(constant_id = kAttentionSpecSequences) const uint kSequences = 0;
layout(constant_id = kAttentionSpecPageSize) const uint kPageSize = 0;
layout(constant_id = kAttentionSpecLse) const uint kLse = 0;
layout(constant_id = kAttentionSpecBiasFours) const uint kBiasFours = 0;
layout(constant_id = kAttentionSpecSplit) const uint kSplit = 0;
#endif

layout(set = 0, binding = kAttentionBindingQuery) readonly buffer Query { float query[]; };
FOURS_IN(kAttentionBindingQuery, QueryFours, query_fours)
layout(set = 0, binding = kAttentionBindingKey) readonly buffer Key { float key[]; };
FOURS_IN(kAttentionBindingKey, KeyFours, key_fours)
layout(set = 0, binding = kAttentionBindingKey) readonly buffer KeyWords { uint key_words[]; };
PAIRS_IN(kAttentionBindingKey, KeyPairs, key_pairs)
layout(set = 0, binding = kAttentionBindingValue) readonly buffer Value { float value[]; };
FOURS_IN(kAttentionBindingValue, ValueFours, value_fours)
layout(set = 0, binding = kAttentionBindingValue) readonly buffer ValueWords { uint value_words[]; };
PAIRS_IN(kAttentionBindingValue, ValuePairs, value_pairs)
layout(set = 0, binding = kAttentionBindingOut) writeonly buffer Out { float result[]; };
FOURS_OUT(kAttentionBindingOut, OutFours, result_fours)
#ifdef FULL
layout(set = 0, binding = kAttentionBindingMask) readonly buffer Mask { uint mask_bits[]; };
layout(set = 0, binding = kAttentionBindingBias) readonly buffer Bias { float bias[]; };
layout(set = 0, binding = kAttentionBindingBias) readonly buffer BiasFours { vec4 bias_fours[]; };
layout(set = 0, binding = kAttentionBindingSlopes) readonly buffer Slopes { float slopes[]; };
layout(set = 0, binding = kAttentionBindingSinks) readonly buffer Sinks { float sinks[]; };
layout(set = 0, binding = kAttentionBindingSequences) readonly buffer Sequences { uint sequences[]; };
layout(set = 0, binding = kAttentionBindingPages) readonly buffer Pages { uint pages[]; };
layout(set = 0, binding = kAttentionBindingLse) writeonly buffer Lse { float lse[]; };
layout(set = 0, binding = kAttentionBindingPartial) writeonly buffer Partial { float partial[]; };
#endif

// A score mod may have such names.
#undef FOURS_IN
#undef FOURS_OUT
#undef FOURS_IN_OUT
#undef PAIRS_IN

layout(push_constant) uniform Push { AttentionPush p; };

#include "common/dispatch.glsl"
#include "common/log_sum_exp.glsl"
#include "common/numeric.glsl"
#include "common/packed.glsl"
#include "common/random.glsl"

#ifdef SCORE_MOD
#include "score_mod.glsl"
#endif

const uint kNegativeInfinityBits = kInfinityBits | kSignBit;
const bool kFiniteFill = kFill != kNegativeInfinityBits;

// The work of this group: rows of one kv head against a range of keys.
struct Work {
    uint batch;
    uint head;          // kv head
    uint slice;         // which kBlocks blocks of O's columns
    uint split;
    uint splits;
    uint split_keys;    // keys of each split; 0: not split
    uint first_row;
    uint last_row;      // inclusive
    uint queries;
    uint keys;          // keys of the sequence
    uint first_query;   // first query of the sequence, where sequences are packed
    uint first_key;
    uint first_page;    // its place in the table of pages
    uint begin;         // keys that some row may see, `begin` a multiple of the tile
    uint end;
    int shift;          // query i stands at key i + shift
} work;

// Fills in `work`; false where the group has nothing to do. Every invocation of a group finds the
// same.
bool find_work(uint tile_keys) {
    uint rest = group_index();
    if (rest >= p.group_count) {
        return false;
    }
    uint slice_columns = kBlocks * tile_keys;
    uint tiles = tiles_over(p.queries * kGroup, kRows);
#ifdef FULL
    tiles += kSequences == 2u ? p.sequences : 0u;
#endif
    uint tile = take_dimension(rest, tiles);
    work.slice = take_dimension(rest, tiles_over(p.value_dim, slice_columns));
    work.splits = 1u;
    work.split_keys = 0u;
#ifdef FULL
    if (kSplit != 0u) {
        work.split_keys = attention_split_keys(kSplit, p.queries, p.keys);
        work.splits = work.split_keys != 0u ? tiles_over(p.keys, work.split_keys) : 1u;
    }
#endif
    work.split = take_dimension(rest, work.splits);
    work.head = take_dimension(rest, p.kv_heads);
    work.batch = rest;
#ifdef FULL
    if (kSequences == 2u) {  // the last sequence whose tiles begin at this one or before
        uint beyond = p.sequences;
        while (work.batch + 1u < beyond) {
            uint middle = (work.batch + beyond) / 2u;
            bool before = sequences[middle * kAttentionSequenceWords + 4u] <= tile;
            work.batch = before ? middle : work.batch;
            beyond = before ? beyond : middle;
        }
        tile -= sequences[work.batch * kAttentionSequenceWords + 4u];
    }
#endif
    work.queries = p.queries;
    work.keys = p.keys;
    work.first_query = 0u;
    work.first_key = 0u;
#ifdef FULL
    if (kSequences != 0u) {
        uint at = work.batch * kAttentionSequenceWords;
        work.first_query = sequences[at];
        work.queries = sequences[at + 1u];
        work.first_key = sequences[at + 2u];
        work.keys = sequences[at + 3u];
    }
    if (kPageSize != 0u) {
        work.first_page = work.batch * (p.keys / kPageSize);
    }
#endif
    uint rows = work.queries * kGroup;
    work.first_row = tile * kRows;
    if (work.first_row >= rows) {
        return false;
    }
    work.last_row = min(work.first_row + kRows, rows) - 1u;
    work.shift = kCausal == 2u ? int(work.keys) - int(work.queries) : 0;
    work.begin = 0u;
    work.end = work.keys;
    if (kCausal != 0u && !kFiniteFill) {
        int last = int(work.last_row / kGroup) + work.shift;
        work.end = uint(clamp(last + 1, 0, int(work.keys)));
        if (p.window != 0u) {
            work.begin = uint(max(int(work.first_row / kGroup) + work.shift + 1 - int(p.window), 0));
        }
    }
#ifdef FULL
    if (kSplit != 0u && work.split_keys != 0u) {
        work.begin = max(work.begin, work.split * work.split_keys);
        work.end = min(work.end, (work.split + 1u) * work.split_keys);
    }
#endif
    work.begin = work.begin / tile_keys * tile_keys;
    return true;
}

// The query's number in its sequence, and the head, of a row.
uint query_of(uint row) {
    return row / kGroup;
}

uint head_of(uint row) {
    return work.head * kGroup + row % kGroup;
}

uint heads() {
    return p.kv_heads * kGroup;
}

uint query_offset(uint row) {
    return p.q_offset + work.batch * p.q_batch + head_of(row) * p.q_head +
           (work.first_query + query_of(row)) * p.q_row;
}

uint out_offset(uint row) {
    return p.o_offset + work.batch * p.o_batch + head_of(row) * p.value_dim +
           (work.first_query + query_of(row)) * p.o_row;
}

// The place of key `index` of the sequence: x in K, y in V; z is 0 when its page is outside the
// pool, and the place is then any.
uvec3 key_offsets(uint index) {
    index = min(index, work.keys - 1u);
#ifdef FULL
    if (kPageSize != 0u) {
        uint page = pages[work.first_page + index / kPageSize];
        uint good = page < p.pages ? 1u : 0u;
        page *= good;
        index %= kPageSize;
        return uvec3(p.k_offset + page * p.k_page + work.head * p.k_head + index * p.k_row,
                     p.v_offset + page * p.v_page + work.head * p.v_head + index * p.v_row, good);
    }
#endif
    index += work.first_key;
    if (kRing != 0u) {
        index += p.ring_first;
        index -= index >= p.ring_rows ? p.ring_rows : 0u;
    }
    return uvec3(p.k_offset + work.batch * p.k_batch + work.head * p.k_head + index * p.k_row,
                 p.v_offset + work.batch * p.v_batch + work.head * p.v_head + index * p.v_row, 1u);
}

// Where a row of Q begins, as its loads count: in fours, or in numbers. Who loads a row piece by
// piece asks once: some compilers take vectors apart for a shift.
uint query_place(uint offset) {
    return kFours != 0u ? offset >> 2 : offset;
}

// The same of a row of K or V, which may be packed: in pairs of words, or in words.
uint key_place(uint offset) {
    if (kKv == kPackedF32) {
        return query_place(offset);
    }
    return kKv == kPackedInt8 ? offset : offset >> 1;
}

// Loads the columns from 4 * four on of a row at `place`; 0 past `width`.
#define DEFINE_LOAD(name, buffer_name, buffer_fours, width) \
    vec4 name(uint place, uint four) { \
        if (kFours != 0u) { \
            return VKF_FOUR(buffer_fours, place + four); \
        } \
        uvec4 columns = 4u * four + uvec4(0, 1, 2, 3); \
        uvec4 from = place + min(columns, uvec4(width - 1u)); \
        vec4 found = vec4(buffer_name[from.x], buffer_name[from.y], buffer_name[from.z], buffer_name[from.w]); \
        return mix(vec4(0.0), found, lessThan(columns, uvec4(width))); \
    }
DEFINE_LOAD(query_at, query, query_fours, p.head_dim)
DEFINE_LOAD(plain_key_at, key, key_fours, p.head_dim)
#undef DEFINE_LOAD

// The same of a packed row; what fills up the last four is 0.
#define DEFINE_PACKED_LOAD(name, words, pairs, width) \
    vec4 name(uint place, uint four) { \
        if (kKv == kPackedF16) { \
            return unpack_f16(VKF_PAIR(pairs, place + four)); \
        } \
        if (kKv == kPackedBf16) { \
            return unpack_bf16(VKF_PAIR(pairs, place + four)); \
        } \
        float scale = uintBitsToFloat(words[place + packed_code_words(kPackedInt8, width)]); \
        return unpack_int8(words[place + four]) * scale; \
    }
DEFINE_PACKED_LOAD(packed_key_at, key_words, key_pairs, p.head_dim)
DEFINE_PACKED_LOAD(packed_value_at, value_words, value_pairs, p.value_dim)
#undef DEFINE_PACKED_LOAD

vec4 key_at(uint place, uint four) {
    if (kKv != kPackedF32) {
        return packed_key_at(place, four);
    }
    return plain_key_at(place, four);
}

// Loads four columns of V; past its width it repeats the last ones, which are not stored.
vec4 value_at(uint place, uint four) {
    if (kKv != kPackedF32) {
        return packed_value_at(place, min(four, (p.value_dim - 1u) >> 2));
    }
    if (kFours != 0u) {
        return VKF_FOUR(value_fours, place + min(four, (p.value_dim >> 2) - 1u));
    }
    uvec4 from = place + min(4u * four + uvec4(0, 1, 2, 3), uvec4(p.value_dim - 1u));
    return vec4(value[from.x], value[from.y], value[from.z], value[from.w]);
}

// The same by offset and column, for a row of which one piece is loaded. The sums are shifted, not
// their parts, by which compilers of GPUs take fewer registers.
vec4 load_query(uint offset, uint column) {
    return kFours != 0u ? query_at(0u, (offset + column) >> 2) : query_at(offset, column >> 2);
}

vec4 load_key(uint offset, uint column) {
    bool fours = kKv == kPackedF32 && kFours != 0u;
    return fours ? key_at(0u, (offset + column) >> 2) : key_at(key_place(offset), column >> 2);
}

vec4 load_value(uint offset, uint column) {
    if (kKv != kPackedF32) {
        return packed_value_at(key_place(offset), min(column, (p.value_dim - 1u) & ~3u) >> 2);
    }
    if (kFours != 0u) {
        return VKF_FOUR(value_fours, (offset + min(column, p.value_dim - 4u)) >> 2);
    }
    return value_at(offset, column >> 2);
}

bvec4 is_masked(vec4 scores) {  // by their bits: a comparison with -inf may be folded away
    return equal(floatBitsToUint(scores), uvec4(kNegativeInfinityBits));
}

#ifdef FULL
// The index of (batch, head, query) into a tensor of which only the dimensions in `present` are not
// 1, `row` long.
uint broadcast_row(uint present, uint row, uint length) {
    uint at = 0u;
    if ((present & kAttentionPresentBatch) != 0u) {
        at = work.batch;
    }
    if ((present & kAttentionPresentHead) != 0u) {
        at = at * heads() + head_of(row);
    }
    if ((present & kAttentionPresentQuery) != 0u) {
        at = at * p.queries + query_of(row);
    }
    return at * length;
}

// The word that holds the mask bits of keys at .. (at a multiple of 32 or less, within a word) of
// this row, `at`'s bit lowest.
uint mask_word(uint row, uint at) {
    uint words = (kMask & kAttentionPresentKey) != 0u ? (p.keys + 31u) / 32u : 1u;
    uint word = (kMask & kAttentionPresentKey) != 0u ? at / 32u : 0u;
    uint bits = mask_bits[broadcast_row(kMask, row, words) + word];
    return (kMask & kAttentionPresentKey) != 0u ? bits >> (at % 32u) : uint(-int(bits & 1u));
}

uint lse_index(uint row) {
    uint head = kSequences == 2u ? head_of(row) : work.batch * heads() + head_of(row);
    return head * p.queries + work.first_query + query_of(row);
}

uint partial_offset(uint row) {
    uint at = (work.batch * p.kv_heads + work.head) * p.queries * kGroup + row;
    return (at * work.splits + work.split) * (p.value_dim + 2u);
}

// The maximum a split tells of a row: a NaN among the scores must not get lost where others are put
// beside it.
float partial_maximum(float largest, float total) {
    return is_nan(total) && floatBitsToUint(largest) != kInfinityBits ? quiet_nan() : largest;
}

// The number that a row's sum begins with, where it has a sink.
float sink_total(float sink) {
    return is_nan(sink) ? quiet_nan() : 1.0;
}

// Computes the log-sum-exp, in two parts, from the maximum of a row and the sum of the exponentials
// of what its scores are below it.
vec2 log_sum_exp(float largest, float total) {
    if (is_nan(total)) {
        return vec2(is_nan(largest) || floatBitsToUint(largest) != kInfinityBits ? quiet_nan() : largest, 0.0);
    }
    return floatBitsToUint(largest) == kNegativeInfinityBits ? vec2(largest, 0.0)
                                                             : log_sum_exp_parts(largest, log(total));
}

void write_log_sum_exp(uint row, float largest, float total) {
    vec2 parts = log_sum_exp(largest, total);
    uint at = lse_index(row);
    if (kLse == 2u) {
        lse[at * 2u] = parts.x;
        lse[at * 2u + 1u] = parts.y;
    } else {
        lse[at] = parts.x;
    }
}
#endif

// The same code four times, or once in a loop, which some compilers take far less time for.
vec4 tanh_of_each(vec4 x) {
    if (ONE_BY_ONE) {
        [[dont_unroll]] for (uint i = 0u; i < 4u; ++i) {
            x = vec4(x.yzw, safe_tanh(x.x));
        }
        return x;
    }
    return vec4(safe_tanh(x.x), safe_tanh(x.y), safe_tanh(x.z), safe_tanh(x.w));
}

// Makes scores of the raw products of a row with the keys `first` .. `first` + 3, whose mask bits
// are the lowest four of `bits`.
vec4 finish_scores(uint row, uint first, vec4 products, uint bits) {
    vec4 s = products * p.scale;
    if (kSoftcap != 0u) {
        s /= p.softcap;
        s = p.softcap * tanh_of_each(s);
    }
    uvec4 keys = first + uvec4(0, 1, 2, 3);
    int position = int(query_of(row)) + work.shift;
#ifdef FULL
    if (kBias != 0u) {
        bool wide = (kBias & kAttentionPresentKey) != 0u;
        uint at = broadcast_row(kBias, row, wide ? p.keys : 1u);
        if (!wide) {
            s += bias[at];
        } else if (kBiasFours != 0u) {
            s += bias_fours[(at + min(first, p.keys - 4u)) >> 2];
        } else {
            uvec4 from = at + min(keys, uvec4(p.keys - 1u));
            s += vec4(bias[from.x], bias[from.y], bias[from.z], bias[from.w]);
        }
    }
    if (kSlopes != 0u) {
        s -= slopes[broadcast_row(kSlopes, row, 1u)] * vec4(abs(position - ivec4(keys)));
    }
#endif
#ifdef SCORE_MOD
    s = vec4(score_mod(s.x, work.batch, head_of(row), query_of(row), keys.x),
             score_mod(s.y, work.batch, head_of(row), query_of(row), keys.y),
             score_mod(s.z, work.batch, head_of(row), query_of(row), keys.z),
             score_mod(s.w, work.batch, head_of(row), query_of(row), keys.w));
#endif
    bvec4 keep = bvec4(true);
#ifdef FULL
    if (kMask != 0u) {
        keep = notEqual(bits & uvec4(1, 2, 4, 8), uvec4(0));
    }
#endif
    if (kCausal != 0u) {
        int lowest = p.window != 0u ? position + 1 - int(p.window) : -0x7fffffff;
        bvec4 seen = lessThanEqual(ivec4(keys), ivec4(position));
        bvec4 near = greaterThanEqual(ivec4(keys), ivec4(lowest));
        keep = bvec4(keep.x && seen.x && near.x, keep.y && seen.y && near.y, keep.z && seen.z && near.z,
                     keep.w && seen.w && near.w);
    }
    s = mix(vec4(uintBitsToFloat(kFill)), s, keep);
    return mix(vec4(negative_infinity()), s, lessThan(keys, uvec4(work.keys)));
}

// Gives 0 where dropout takes a weight, else the weight. Its place in (batch, head, query, key)
// decides.
vec4 drop(uint row, uint first, vec4 weights) {
    if (kThreshold == 0u) {
        return weights;
    }
    uint batch = work.batch;
#ifdef FULL
    batch = kSequences == 2u ? 0u : batch;
#endif
    uint place = ((batch * heads() + head_of(row)) * p.queries + work.first_query + query_of(row)) * p.keys +
                 work.first_key + first;
    uvec4 bits = random_bits(place + uvec4(0, 1, 2, 3), p.seed);
    vec4 kept = mix(vec4(0.0), weights, greaterThanEqual(bits, uvec4(kThreshold)));
    return mix(kept, weights, equal(floatBitsToUint(weights), uvec4(kSignBit)));
}

// Stores four neighbouring columns of a row of O, or of a split's part of one, that lies at `to`.
void store(uint to, uint column, vec4 o) {
    uint left = column < p.value_dim ? p.value_dim - column : 0u;
    to += column;
#ifdef FULL
    if (kSplit != 0u && work.split_keys != 0u) {
        [[dont_unroll]] for (uint i = 0u; i < min(left, 4u); ++i) {
            partial[to + i] = i < 2u ? (i == 0u ? o.x : o.y) : (i == 2u ? o.z : o.w);
        }
        return;
    }
#endif
    if (kFours != 0u) {
        if (left != 0u) {
            VKF_PUT_FOUR(result_fours, to >> 2, o);
        }
        return;
    }
    [[dont_unroll]] for (uint i = 0u; i < min(left, 4u); ++i) {
        result[to + i] = i < 2u ? (i == 0u ? o.x : o.y) : (i == 2u ? o.z : o.w);
    }
}

// The factor that a row's sums are multiplied by in the end.
float final_factor(float total) {
    float factor = kKeepScale / total;
    factor = floatBitsToUint(total) == 0u ? 0.0 : factor;
#ifdef FULL
    if (kSplit != 0u) {
        factor = work.split_keys != 0u ? 1.0 : factor;
    }
#endif
    return factor;
}

// The place of a row of O, or of a split's part of it.
uint row_offset(uint row) {
    uint to = out_offset(row);
#ifdef FULL
    if (kSplit != 0u) {
        uint part = partial_offset(row);
        to = work.split_keys != 0u ? part : to;
    }
#endif
    return to;
}

// Gives NaN for each of four keys whose page is outside the pool, see key_offsets(); else 0.
vec4 poison(uint x, uint y, uint z, uint w) {
#ifdef FULL
    if (kPageSize != 0u) {
        return mix(vec4(quiet_nan()), vec4(0.0), notEqual(uvec4(x, y, z, w), uvec4(0)));
    }
#endif
    return vec4(0.0);
}

#endif
