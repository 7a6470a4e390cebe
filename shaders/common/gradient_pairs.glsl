// SPDX-License-Identifier: Apache-2.0
// What all kernels of attention's gradient share: where rows of each tensor lie, and what a pair of
// a query and a key gives to the sums, for four pairs at a time. Needs log_sum_exp.glsl,
// numeric.glsl, random.glsl, the kernel's constants, its buffers and what is pushed.
#ifndef VKF_SHADERS_COMMON_GRADIENT_PAIRS_GLSL
#define VKF_SHADERS_COMMON_GRADIENT_PAIRS_GLSL

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

bvec4 not_finite(vec4 x) {
    return equal(floatBitsToUint(x) & kInfinityBits, uvec4(kInfinityBits));
}

// Makes of the products q . k and dy . v of four pairs what they give to the sums: `product`
// becomes ds over the scale, `income` the weight that multiplies dy. `keep` says what a query may
// attend to, `inside` that there is such a pair at all. A pair that is masked gives 0, whatever its
// rows hold. Returns what passes to the bias. Without branches: some compilers keep every live
// register in mind at every branch, and there are many registers.
vec4 finish(uvec4 rows, uvec4 keys, inout vec4 product, inout vec4 income, vec4 row_lse, vec4 row_rest,
            vec4 row_delta, bvec4 keep, bvec4 inside) {
    keep = both(keep, inside);
    vec4 s = product * kScale;
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
        income = mix(vec4(0.0), income * kKeepScale, stays);
        kept = mix(vec4(0.0), weight * kKeepScale, stays);
    }
    vec4 ds = weight * (income - row_delta);
    // what comes in at the row is not finite: dy counts as 0 in the sums, so the weight tells
    kept = mix(kept, vec4(quiet_nan()), not_finite(row_delta));
    income = mix(vec4(0.0), kept, counts);
    bvec4 passes = both(keep, counts);
    product = mix(vec4(0.0), ds * slope, passes);
    return mix(vec4(0.0), ds, passes);
}

#endif
