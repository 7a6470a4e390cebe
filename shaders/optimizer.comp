#version 450
// SPDX-License-Identifier: Apache-2.0
// One step of torch.optim's SGD, Adam or AdamW, in place. What depends on the step alone was
// computed on the host, in double precision.
#extension GL_GOOGLE_include_directive : require
#include "optimizer.h"

layout(local_size_x_id = 0) in;
layout(constant_id = kOptimizerSpecKind) const uint kKind = kOptimizerAdam;
layout(constant_id = kOptimizerSpecFactors) const uint kFactors = 0;
layout(constant_id = kOptimizerSpecFours) const uint kFours = 0;

layout(push_constant) uniform Push { OptimizerPush p; };
layout(set = 0, binding = kOptimizerBindingParameter) buffer Parameter { float parameter[]; };
layout(set = 0, binding = kOptimizerBindingParameter) buffer ParameterFours { vec4 parameter_fours[]; };
layout(set = 0, binding = kOptimizerBindingGradient) readonly buffer Gradient { float gradient[]; };
layout(set = 0, binding = kOptimizerBindingGradient) readonly buffer GradientFours { vec4 gradient_fours[]; };
layout(set = 0, binding = kOptimizerBindingMoments) buffer Moments { float moments[]; };
layout(set = 0, binding = kOptimizerBindingMoments) buffer MomentsFours { vec4 moments_fours[]; };
layout(set = 0, binding = kOptimizerBindingFactors) readonly buffer Factors { float factors[]; };

#include "common/dispatch.glsl"
#include "common/numeric.glsl"

vec4 load_moment(uint row, uint item) {
    uint at = p.moments_offset + row * p.stride;
    return kFours != 0u ? moments_fours[at / 4u + item] : vec4(moments[at + item], 0.0, 0.0, 0.0);
}

void store_moment(uint row, uint item, vec4 v) {
    uint at = p.moments_offset + row * p.stride;
    if (kFours != 0u) {
        moments_fours[at / 4u + item] = v;
    } else {
        moments[at + item] = v.x;
    }
}

// What is taken off the parameter, over the learning rate.
vec4 direction(uint item, vec4 g) {
    if (kKind == kOptimizerSgd) {
        return g;
    }
    vec4 first = load_moment(0u, item) * p.beta1 + g * p.beta1_rest;
    store_moment(0u, item, first);
    if (kKind == kOptimizerMomentum) {
        return first;
    }
    if (kKind == kOptimizerNesterov) {
        return g + first * p.beta1;
    }
    vec4 second = load_moment(1u, item) * p.beta2 + g * g * p.beta2_rest;
    store_moment(1u, item, second);
    if (kKind == kOptimizerAmsgrad) {
        second = max(second, load_moment(2u, item));
        store_moment(2u, item, second);
    }
    return first / (sqrt(second) * p.correction + p.eps);
}

void step_item(uint item) {
    float gradient_factor = 1.0;
    float rate_factor = 1.0;
    if (kFactors != 0u) {
        gradient_factor = factors[p.factors_offset];
        rate_factor = factors[p.factors_offset + 1u];
        if (is_nan(gradient_factor)) {
            return;
        }
    }
    vec4 x;
    vec4 g;
    if (kFours != 0u) {
        x = parameter_fours[p.parameter_offset / 4u + item];
        g = gradient_fours[p.gradient_offset / 4u + item];
    } else {
        x = vec4(parameter[p.parameter_offset + item], 0.0, 0.0, 0.0);
        g = vec4(gradient[p.gradient_offset + item], 0.0, 0.0, 0.0);
    }
    if (kKind == kOptimizerAccumulate) {
        g += p.beta1 != 0.0 ? x : vec4(0.0);
        if (kFours != 0u) {
            parameter_fours[p.parameter_offset / 4u + item] = g;
        } else {
            parameter[p.parameter_offset + item] = g.x;
        }
        return;
    }
    vec4 away = finite_or_zero(x - p.decay_to);  // -inf, as of a bias that masks, stays what it is
    g = g * gradient_factor + away * p.l2;
    x -= away * (p.decay * rate_factor);
    x -= direction(item, g) * (p.rate * rate_factor);
    if (kFours != 0u) {
        parameter_fours[p.parameter_offset / 4u + item] = x;
    } else {
        parameter[p.parameter_offset + item] = x.x;
    }
}

void main() {
    uint group = group_index();
    if (group >= p.group_count) {
        return;
    }
    uint first = first_strided_item(group, gl_WorkGroupSize.x, gl_LocalInvocationID.x, kOptimizerItems);
    for (uint i = 0u; i < kOptimizerItems; ++i) {
        uint item = first + i * gl_WorkGroupSize.x;
        if (item < p.count) {
            step_item(item);
        }
    }
}
