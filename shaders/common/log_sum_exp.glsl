// SPDX-License-Identifier: Apache-2.0
// A log-sum-exp in two parts, so that exp(score - log-sum-exp) is a weight also where a row's
// scores are so large that fp32 drops the logarithm of the sum: as many keys, each masked with a
// finite number. What is computed here must not be contracted, nor be put in another order.
#ifndef VKF_SHADERS_COMMON_LOG_SUM_EXP_GLSL
#define VKF_SHADERS_COMMON_LOG_SUM_EXP_GLSL

#include "common/numeric.glsl"

// The log-sum-exp of a row's maximum and the logarithm of its sum; and what rounding took off it, 0
// where that is not finite.
vec2 log_sum_exp_parts(float largest, float log_total) {
    precise float sum = largest + log_total;
    precise float rest = (largest - sum) + log_total;
    return vec2(sum, is_finite(sum) ? rest : 0.0);
}

// A score less a log-sum-exp in two parts.
float below_log_sum_exp(float score, float sum, float rest) {
    precise float x = (score - sum) - rest;
    return x;
}

// Scores less log-sum-exps in two parts.
vec4 below_log_sum_exp(vec4 scores, vec4 sums, vec4 rests) {
    precise vec4 x = (scores - sums) - rests;
    return x;
}

#endif
