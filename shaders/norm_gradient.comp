#version 450
// SPDX-License-Identifier: Apache-2.0
// With n = (x - mean) / deviation and g = weight dy: dx = (g - mean(g) - n mean(g n)) / deviation;
// RMSNorm takes no means off. Mean and deviation are computed again as layer_norm.comp does, which
// costs less than keeping them. With kHeld, rows of x and dy are read once and stay in registers.
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#define SUBGROUPS
#include "norm_gradient.h"

layout(local_size_x_id = 0) in;
layout(constant_id = kNormGradientSpecLanes) const uint kLanes = 1;
layout(constant_id = kNormGradientSpecCentred) const uint kCentred = 1;
layout(constant_id = kNormGradientSpecWeight) const uint kWeight = 1;
layout(constant_id = kNormGradientSpecFours) const uint kFours = 0;
layout(constant_id = kNormGradientSpecHeld) const uint kHeld = 0;

layout(push_constant) uniform Push { NormGradientPush p; };
layout(set = 0, binding = kNormGradientBindingX) readonly buffer X { float x[]; };
layout(set = 0, binding = kNormGradientBindingX) readonly buffer XFours { vec4 x_fours[]; };
layout(set = 0, binding = kNormGradientBindingWeight) readonly buffer Weight { float weight[]; };
layout(set = 0, binding = kNormGradientBindingWeight) readonly buffer WeightFours { vec4 weight_fours[]; };
layout(set = 0, binding = kNormGradientBindingDy) readonly buffer Dy { float dy[]; };
layout(set = 0, binding = kNormGradientBindingDy) readonly buffer DyFours { vec4 dy_fours[]; };
layout(set = 0, binding = kNormGradientBindingDx) writeonly buffer Dx { float dx[]; };
layout(set = 0, binding = kNormGradientBindingDx) writeonly buffer DxFours { vec4 dx_fours[]; };

#include "common/dispatch.glsl"
#include "common/row.glsl"
#include "common/held.glsl"

// Four elements of a row from `four` on; those beyond its end are `beyond`.
vec4 load_x(uint offset, uint four, float beyond) {
    if (kFours != 0u) {
        return x_fours[offset / 4u + four];
    }
    vec4 v = vec4(beyond);
    for (uint i = 0u; i < 4u; ++i) {
        if (four * 4u + i < p.width) {
            v[i] = x[offset + four * 4u + i];
        }
    }
    return v;
}

// weight times dy, 0 beyond the end.
vec4 load_g(uint offset, uint four) {
    if (kFours != 0u) {
        vec4 g = dy_fours[offset / 4u + four];
        if (kWeight != 0u) {
            g *= weight_fours[p.weight_offset / 4u + four];
        }
        return g;
    }
    vec4 g = vec4(0.0);
    for (uint i = 0u; i < 4u; ++i) {
        uint column = four * 4u + i;
        if (column < p.width) {
            g[i] = dy[offset + column];
            if (kWeight != 0u) {
                g[i] *= weight[p.weight_offset + column];
            }
        }
    }
    return g;
}

float sum_of(vec4 v) {
    return (v.x + v.y) + (v.z + v.w);
}

// --- held in registers ---------------------------------------------------------------------------

HELD_LOAD(held_x, x_fours, x)
HELD_LOAD(held_dy, dy_fours, dy)
HELD_LOAD(held_weight, weight_fours, weight)
HELD_STORE(store_dx, dx_fours, dx)

void gradient_held(uint row) {
    bool there = row < p.rows;
    uint start = row * p.width;
    vec4 n[kMostHeld];
    vec4 g[kMostHeld];
    for (uint i = 0u; i < kHeld; ++i) {
        n[i] = vec4(0.0);
        g[i] = vec4(0.0);
    }
    if (there) {
        for (uint i = 0u; i < kHeld; ++i) {
            n[i] = held_x(p.x_offset + start, 1u, i, p.width);
            g[i] = held_dy(p.dy_offset + start, 1u, i, p.width);
        }
        if (kWeight != 0u) {
            for (uint i = 0u; i < kHeld; ++i) {
                g[i] *= held_weight(p.weight_offset, 1u, i, p.width);
            }
        }
    }
    float mean = 0.0;
    vec4 sums = vec4(0.0);
    if (kCentred != 0u) {
        for (uint i = 0u; i < kHeld; ++i) {
            sums += mix(vec4(0.0), n[i], held_inside(i, p.width));
        }
        mean = mean_of(row_sum(sum_of(sums)), p.width);
        sums = vec4(0.0);
    }
    for (uint i = 0u; i < kHeld; ++i) {
        n[i] -= mean;
        sums += mix(vec4(0.0), n[i] * n[i], held_inside(i, p.width));
    }
    float factor = 1.0 / sqrt(row_sum(sum_of(sums)) / float(p.width) + p.eps);

    sums = vec4(0.0);
    vec4 products = vec4(0.0);
    for (uint i = 0u; i < kHeld; ++i) {
        n[i] *= factor;
        sums += mix(vec4(0.0), g[i], held_inside(i, p.width));
        products += mix(vec4(0.0), g[i] * n[i], held_inside(i, p.width));
    }
    float mean_g = kCentred != 0u ? row_sum(sum_of(sums)) / float(p.width) : 0.0;
    float mean_product = row_sum(sum_of(products)) / float(p.width);
    if (there) {
        for (uint i = 0u; i < kHeld; ++i) {
            store_dx(p.dx_offset + start, i, p.width, (g[i] - mean_g - n[i] * mean_product) * factor);
        }
    }
}

void main() {
    uint group = group_index();
    if (group >= p.group_count) {
        return;
    }
    uint row = row_of(group);
    if (kHeld != 0u) {
        gradient_held(row);
        return;
    }
    uint width = row < p.rows ? p.width : 0u;
    uint fours = tiles_over(width, 4u);
    uint start = row * p.width;
    float mean = 0.0;
    vec4 sums = vec4(0.0);
    if (kCentred != 0u) {
        float first = row_lane() < fours ? load_x(p.x_offset + start, row_lane(), 0.0).x : 0.0;
        uint count = 0u;
        for (uint i = row_lane(); i < fours; i += kLanes) {
            sums += load_x(p.x_offset + start, i, first) - first;
            count += min(width - 4u * i, 4u);
        }
        mean = row_mean_of(first, count, sum_of(sums), width);
    }
    sums = vec4(0.0);
    for (uint i = row_lane(); i < fours; i += kLanes) {
        vec4 d = load_x(p.x_offset + start, i, mean) - mean;
        sums += d * d;
    }
    float factor = 1.0 / sqrt(row_sum(sum_of(sums)) / float(width) + p.eps);

    sums = vec4(0.0);
    vec4 products = vec4(0.0);
    for (uint i = row_lane(); i < fours; i += kLanes) {
        vec4 g = load_g(p.dy_offset + start, i);
        sums += g;
        products += g * ((load_x(p.x_offset + start, i, mean) - mean) * factor);
    }
    float mean_g = kCentred != 0u ? row_sum(sum_of(sums)) / float(width) : 0.0;
    float mean_product = row_sum(sum_of(products)) / float(width);
    for (uint i = row_lane(); i < fours; i += kLanes) {
        vec4 n = (load_x(p.x_offset + start, i, mean) - mean) * factor;
        vec4 v = (load_g(p.dy_offset + start, i) - mean_g - n * mean_product) * factor;
        if (kFours != 0u) {
            dx_fours[(p.dx_offset + start) / 4u + i] = v;
        } else {
            for (uint j = 0u; j < 4u; ++j) {
                if (i * 4u + j < width) {
                    dx[p.dx_offset + start + i * 4u + j] = v[j];
                }
            }
        }
    }
}
