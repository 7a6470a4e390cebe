// SPDX-License-Identifier: Apache-2.0
// attention_gradient.comp's pairs of a query and a key, four at a time: whether one attends, and
// what it gives to the sums. Needs gradient_rows.glsl, log_sum_exp.glsl, numeric.glsl, random.glsl
// and the kernel's constants.
#ifndef VKF_SHADERS_COMMON_GRADIENT_PAIRS_GLSL
#define VKF_SHADERS_COMMON_GRADIENT_PAIRS_GLSL

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

// Which of four pairs a causal mask, its window and the lengths of sequences leave; `range` is that
// of the near row.
bvec4 in_sight(uvec4 rows, uvec4 keys, uvec2 range) {
    if (kSequences != 0u) {
        uvec4 far = kOfQueries ? keys : rows / kGroup;
        return both(greaterThanEqual(far, uvec4(range.x)), lessThan(far, uvec4(range.y)));
    }
    if (kCausal != 0u) {
        ivec4 position = ivec4(rows / kGroup) + shift;
        ivec4 lowest = kWindow != 0u ? position + 1 - int(kWindow) : ivec4(-0x7fffffff);
        return both(lessThanEqual(ivec4(keys), position), greaterThanEqual(ivec4(keys), lowest));
    }
    return bvec4(true);
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

// Makes of the products q . k and dy . v of four pairs what they give to the sums: `product`
// becomes ds over the scale, `income` the weight that multiplies dy. Returns what passes to the
// bias. Without branches: some compilers keep every live register in mind at every branch, and
// there are many registers.
vec4 finish(uvec4 rows, uvec4 keys, inout vec4 product, inout vec4 income, vec4 row_lse, vec4 row_rest,
            vec4 row_delta, bvec4 inside, uvec2 range) {
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
    bvec4 keep = both(may_attend(rows, keys, range), inside);
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
    bvec4 wild = equal(floatBitsToUint(row_delta) & kInfinityBits, uvec4(kInfinityBits));
    kept = mix(kept, vec4(uintBitsToFloat(kNanBits)), wild);
    income = mix(vec4(0.0), kept, counts);
    bvec4 passes = both(keep, counts);
    product = mix(vec4(0.0), ds * slope, passes);
    return mix(vec4(0.0), ds, passes);
}

#endif
