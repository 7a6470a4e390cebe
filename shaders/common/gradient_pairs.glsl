// SPDX-License-Identifier: Apache-2.0
// What all kernels of attention's gradient share: constants, buffers, what is pushed, where rows
// of each tensor lie, and what a pair of a query and a key gives to the sums, for four pairs at a
// time. Near are a group's own rows, of queries where kOfQueries, else of keys; far are the others.
// Needs attention.h and attention_gradient.h.
#ifndef VKF_SHADERS_COMMON_GRADIENT_PAIRS_GLSL
#define VKF_SHADERS_COMMON_GRADIENT_PAIRS_GLSL

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
layout(constant_id = kAttentionGradientSpecWindow) const uint kWindow = 0;

layout(set = 0, binding = kAttentionGradientBindingLse) readonly buffer Lse { float lse[]; };
layout(set = 0, binding = kAttentionGradientBindingDelta) readonly buffer Delta { float delta[]; };
layout(set = 0, binding = kAttentionGradientBindingMask) readonly buffer Mask { uint mask_bits[]; };
layout(set = 0, binding = kAttentionGradientBindingBias) readonly buffer Bias { float bias[]; };
layout(set = 0, binding = kAttentionGradientBindingSlopes) readonly buffer Slopes { float slopes[]; };

layout(push_constant) uniform Push { AttentionGradientPush p; };

#include "common/dispatch.glsl"
#include "common/log_sum_exp.glsl"
#include "common/numeric.glsl"
#include "common/random.glsl"

// else of keys and values
const bool kOfQueries = kSide != kAttentionGradientOfKeys;
const bool kFiniteFill = kFill != (kInfinityBits | kSignBit);

uint batch;
uint head;  // of keys and values
int shift;  // query i stands at key i + shift

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

// What pairs need to know of a row of queries: its log-sum-exp, in two parts, and delta.
vec3 statistics_of(uint row) {
    uint at = statistics_row(row);
    return vec3(lse[at * 2u], lse[at * 2u + 1u], delta[at]);
}

// The places of a near row's results.
uvec2 result_rows(uint row) {
    uint its_head = kOfQueries ? query_head(row) : head;
    uint place = kOfQueries ? row / kGroup : row;
    return uvec2(p.first_offset + batch * p.first_batch + its_head * p.first_head + place * p.first_row,
                 p.second_offset + batch * p.second_batch + its_head * p.second_head + place * p.second_row);
}

// The index of a row of a tensor of which only the dimensions in `present` are not 1.
uint broadcast_row(uint present, uint row, uint length) {
    uint at = 0u;
    if ((present & kAttentionPresentBatch) != 0u) {
        at = batch;
    }
    if ((present & kAttentionPresentHead) != 0u) {
        at = at * kHeads * kGroup + query_head(row);
    }
    if ((present & kAttentionPresentQuery) != 0u) {
        at = at * p.queries + row / kGroup;
    }
    return at * length;
}

uvec4 broadcast_rows(uint present, uvec4 rows, uint length) {
    return uvec4(broadcast_row(present, rows.x, length), broadcast_row(present, rows.y, length),
                 broadcast_row(present, rows.z, length), broadcast_row(present, rows.w, length));
}

bvec4 both(bvec4 a, bvec4 b) {
    return notEqual(uvec4(a) & uvec4(b), uvec4(0));
}

// True where the alignment and the window let a query see a key.
bvec4 seen_causally(uvec4 rows, uvec4 keys) {
    if (kCausal == 0u) {
        return bvec4(true);
    }
    ivec4 position = ivec4(rows / kGroup) + shift;
    ivec4 lowest = kWindow != 0u ? position + 1 - int(kWindow) : ivec4(-0x7fffffff);
    return both(lessThanEqual(ivec4(keys), position), greaterThanEqual(ivec4(keys), lowest));
}

// Makes of the products of four pairs what they give to the sums: `ds`, which is q . k, becomes ds
// over the scale; `dp`, which is dy . v, the weight that multiplies dy. `keep` says what a query
// may attend to, `inside` that there is such a pair at all. A pair that is masked gives 0, whatever
// its rows hold. Returns what passes to the bias. Without branches: some compilers keep every live
// register in mind at every branch, and there are many registers.
vec4 gradient_of_pairs(uvec4 rows, uvec4 keys, inout vec4 ds, inout vec4 dp, vec4 row_lse, vec4 row_rest,
                       vec4 row_delta, bvec4 keep, bvec4 inside) {
    keep = both(keep, inside);
    vec4 s = ds * kScale;
    vec4 slope = vec4(1.0);
    if (kSoftcap != 0.0) {
        vec4 t = s / kSoftcap;
        t = vec4(safe_tanh(t.x), safe_tanh(t.y), safe_tanh(t.z), safe_tanh(t.w));
        s = kSoftcap * t;
        slope = 1.0 - t * t;
    }
    if (kBias != 0u) {
        bool wide = (kBias & kAttentionPresentKey) != 0u;
        uvec4 at = broadcast_rows(kBias, rows, wide ? p.keys : 1u);
        at += wide ? keys : uvec4(0);
        s += vec4(bias[at.x], bias[at.y], bias[at.z], bias[at.w]);
    }
    if (kSlopes != 0u) {
        uvec4 at = broadcast_rows(kSlopes, rows, 1u);
        vec4 distance = vec4(abs(ivec4(rows / kGroup) + shift - ivec4(keys)));
        s -= vec4(slopes[at.x], slopes[at.y], slopes[at.z], slopes[at.w]) * distance;
    }
    s = mix(vec4(uintBitsToFloat(kFill)), s, keep);
    bvec4 counts = both(inside, notEqual(floatBitsToUint(s), uvec4(kInfinityBits | kSignBit)));
    vec4 x = below_log_sum_exp(s, row_lse, row_rest);
    bvec4 lost = greaterThan(floatBitsToUint(x) & kMagnitudeBits, uvec4(kInfinityBits));
    vec4 weight = vec4(exp_of_number(x.x), exp_of_number(x.y), exp_of_number(x.z), exp_of_number(x.w));
    weight = mix(weight, x, lost);
    vec4 kept = weight;
    if (kThreshold != 0u) {
        uvec4 heads = head * kGroup + rows % kGroup;
        uvec4 place = ((batch * kHeads * kGroup + heads) * p.queries + rows / kGroup) * p.keys + keys;
        uvec4 draw = uvec4(random_bits(place.x, p.seed), random_bits(place.y, p.seed), random_bits(place.z, p.seed),
                           random_bits(place.w, p.seed));
        bvec4 stays = greaterThanEqual(draw, uvec4(kThreshold));
        dp = mix(vec4(0.0), dp * kKeepScale, stays);
        kept = mix(vec4(0.0), weight * kKeepScale, stays);
    }
    vec4 of_bias = weight * (dp - row_delta);
    // what comes in at the row is not finite: dy counts as 0 in the sums, so the weight tells
    kept = mix(kept, vec4(quiet_nan()), not_finite(row_delta));
    dp = mix(vec4(0.0), kept, counts);
    bvec4 passes = both(keep, counts);
    ds = mix(vec4(0.0), of_bias * slope, passes);
    return mix(vec4(0.0), of_bias, passes);
}

#endif
