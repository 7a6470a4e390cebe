#version 450
// SPDX-License-Identifier: Apache-2.0
//! variant layer_norm -DWIDE=0
// y = (x - mean) / sqrt(variance + eps) * weight + bias, row by row; RMSNorm leaves the mean in.
// The variance is that of what is left when the mean is taken off: as the mean square less the
// square of the mean, a row of mean 1000 and spread 1 would lose its spread. Each lane sums in four
// parts, which keeps the rounding error of long rows to that of rows a quarter as long. With kHeld
// a row is read once and stays in registers. Without, with kAdded, where x is the sum of two
// tensors, every lane stores its part of it first, and reads that again.
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_KHR_shader_subgroup_quad : require
#define SUBGROUPS
#include "common/fours.glsl"
#include "layer_norm.h"

layout(local_size_x_id = 0) in;
layout(constant_id = kNormSpecLanes) const uint kLanes = 1;
layout(constant_id = kNormSpecCentred) const uint kCentred = 1;
layout(constant_id = kNormSpecWeight) const uint kWeight = 1;
layout(constant_id = kNormSpecBias) const uint kBias = 1;
layout(constant_id = kNormSpecFours) const uint kFours = 0;
layout(constant_id = kNormSpecAdded) const uint kAdded = 0;
layout(constant_id = kNormSpecHeld) const uint kHeld = 0;
layout(constant_id = kNormSpecTogether) const uint kTogether = 0;
#define VKF_LANES kTogether
#include "common/lanes.glsl"

layout(push_constant) uniform Push { NormPush p; };
layout(set = 0, binding = kNormBindingX) readonly buffer X { float x[]; };
FOURS_IN(kNormBindingX, XFours, x_fours)
layout(set = 0, binding = kNormBindingWeight) readonly buffer Weight { float weight[]; };
FOURS_IN(kNormBindingWeight, WeightFours, weight_fours)
layout(set = 0, binding = kNormBindingBias) readonly buffer Bias { float bias[]; };
FOURS_IN(kNormBindingBias, BiasFours, bias_fours)
layout(set = 0, binding = kNormBindingY) writeonly buffer Y { float y[]; };
FOURS_OUT(kNormBindingY, YFours, y_fours)
layout(set = 0, binding = kNormBindingResidual) readonly buffer Residual { float residual[]; };
FOURS_IN(kNormBindingResidual, ResidualFours, residual_fours)
layout(set = 0, binding = kNormBindingSum) buffer Sum { float sum[]; };
FOURS_IN_OUT(kNormBindingSum, SumFours, sum_fours)

#include "common/dispatch.glsl"
#include "common/row.glsl"
#include "common/held.glsl"

float sum_of(vec4 v) {
    return (v.x + v.y) + (v.z + v.w);
}

// Loads the number that is normalised.
float load(uint at) {
    if (kAdded != 0u) {
        return sum[at];
    }
    return x[at];
}

vec4 load_four(uint at) {
    if (kAdded != 0u) {
        return VKF_FOUR(sum_fours, at);
    }
    return VKF_FOUR(x_fours, at);
}

// Loads four elements, kLanes apart, as a lane takes them.
vec4 load_spread(uint at) {
    return vec4(load(at), load(at + kLanes), load(at + 2u * kLanes), load(at + 3u * kLanes));
}

// A lane adds what it will read.
void add_row(uint at, uint from, uint to, uint width) {
    if (kFours != 0u) {
        uvec3 fours = uvec3(at, from, to) >> 2;
        for (uint i = row_lane(); i < width / 4u; i += kLanes) {
            VKF_PUT_FOUR(sum_fours, fours.z + i, VKF_FOUR(x_fours, fours.x + i) + VKF_FOUR(residual_fours, fours.y + i));
        }
        return;
    }
    for (uint i = row_lane(); i < width; i += kLanes) {
        sum[to + i] = x[at + i] + residual[from + i];
    }
}

// The mean of a row, and the mean square of what is left of it.
struct Moments {
    float mean;
    float square;
};

// In one pass: each part's mean moves as numbers come (Welford 1962). It is that of what the part's
// first number leaves, for a mean of thousands would be rounded at each step.
Moments moments_of_fours(uint at, uint fours) {
    uint lane = row_lane();
    uint parts = lane < fours ? tiles_over(fours - lane, kLanes) : 0u;
    vec4 firsts = vec4(0.0);
    if (parts != 0u) {
        firsts = load_four(at + lane);
    }
    vec4 means = vec4(0.0);
    vec4 squares = vec4(0.0);
    for (uint i = 0u; i < parts; ++i) {
        vec4 v = load_four(at + lane + i * kLanes) - firsts;
        vec4 d = v - means;
        means += d * (1.0 / float(int(i) + 1));
        squares += d * (v - means);
    }
    means += firsts;
    float count = float(parts);
    uint width = 4u * fours;
    float mean = kLanes > 1u ? mean_of(row_sum(count * sum_of(means)), width) : 0.25 * sum_of(means);
    vec4 d = parts != 0u ? means - mean : vec4(0.0);
    return Moments(mean, row_sum(sum_of(squares) + count * sum_of(d * d)) / float(width));
}

float row_mean(uint at, uint width) {
    vec4 rests = vec4(0.0);
    uint i = row_lane();
    float first = i < width ? load(at + i) : 0.0;
    uint count = i < width ? (width - i + kLanes - 1u) / kLanes : 0u;
    for (; i + 3u * kLanes < width; i += 4u * kLanes) {
        rests += load_spread(at + i) - first;
    }
    for (; i < width; i += kLanes) {
        rests.x += load(at + i) - first;
    }
    return row_mean_of(first, count, sum_of(rests), width);
}

float row_mean_square(uint at, uint width, float mean) {
    vec4 sums = vec4(0.0);
    uint i = row_lane();
    if (kFours != 0u) {
        uint first = at / 4u;
        for (; i < width / 4u; i += kLanes) {
            vec4 d = load_four(first + i) - mean;
            sums += d * d;
        }
    } else {
        for (; i + 3u * kLanes < width; i += 4u * kLanes) {
            vec4 d = load_spread(at + i) - mean;
            sums += d * d;
        }
        for (; i < width; i += kLanes) {
            float d = load(at + i) - mean;
            sums.x += d * d;
        }
    }
    return row_sum(sum_of(sums)) / float(width);
}

Moments row_moments(uint at, uint width) {
    if (kCentred != 0u && kFours != 0u) {
        return moments_of_fours(at / 4u, width / 4u);
    }
    float mean = kCentred != 0u ? row_mean(at, width) : 0.0;
    return Moments(mean, row_mean_square(at, width, mean));
}

vec4 load_weight(uint at) {
    if (kWeight != 0u) {
        return VKF_FOUR(weight_fours, at);
    }
    return vec4(1.0);
}

vec4 load_bias(uint at) {
    if (kBias != 0u) {
        return VKF_FOUR(bias_fours, at);
    }
    return vec4(0.0);
}

vec4 normalised(vec4 v, float mean, float scale, vec4 w, vec4 b) {
    v = (v - mean) * scale;
    if (kWeight != 0u) {
        v *= w;
    }
    if (kBias != 0u) {
        v += b;
    }
    return v;
}

void write_fours(uint from, uint to, uint fours, float mean, float scale) {
    uint weights = p.weight_offset / 4u;
    uint biases = p.bias_offset / 4u;
    for (uint i = row_lane(); i < fours; i += kLanes) {
        vec4 w = load_weight(weights + i);
        vec4 b = load_bias(biases + i);
        VKF_PUT_FOUR(y_fours, to + i, normalised(load_four(from + i), mean, scale, w, b));
    }
}

// What this lane loaded of the weights, handed to all by the lane `i`.
vec4 handed(vec4 mine, uint i, uint used) {
    vec4 theirs = mine;
    if (used != 0u) {
        theirs = from_lane(mine, i, only_of(i));
    }
    return theirs;
}

// Every lane of the group has a row: each loads another four of the weights, and they are handed
// round. On some processors a load is a loop over the lanes, and handing round an instruction. With
// kWide rows are taken in pieces of 64 bytes, a line of a cache, of which all is loaded before any
// is stored: the rows of a group often fall on the same few places of a cache, and stores drive out
// lines there. SwiftShader, which has no kWide, takes longer for pieces.
void write_fours_together(uint from, uint to, uint fours, float mean, float scale) {
    uint weights = p.weight_offset / 4u;
    uint biases = p.bias_offset / 4u;
    for (uint first = 0u; first < fours; first += kTogether) {
        uint mine = min(first + gl_SubgroupInvocationID, fours - 1u);
        vec4 w = load_weight(weights + mine);
        vec4 b = load_bias(biases + mine);
        uint end = min(kTogether, fours - first);
        for (uint i = 0u; kWide != 0u && i + 4u <= end; i += 4u) {
            uint at = from + first + i;
            vec4 v0 = load_four(at);
            vec4 v1 = load_four(at + 1u);
            vec4 v2 = load_four(at + 2u);
            vec4 v3 = load_four(at + 3u);
            at = to + first + i;
#define PUT(n, v) \
    VKF_PUT_FOUR(y_fours, at + n, \
                 normalised(v, mean, scale, handed(w, i + n, kWeight), handed(b, i + n, kBias)));
            PUT(0u, v0)
            PUT(1u, v1)
            PUT(2u, v2)
            PUT(3u, v3)
#undef PUT
        }
        for (uint i = kWide != 0u ? end / 4u * 4u : 0u; i < end; ++i) {
            vec4 v = load_four(from + first + i);
            VKF_PUT_FOUR(y_fours, to + first + i,
                         normalised(v, mean, scale, handed(w, i, kWeight), handed(b, i, kBias)));
        }
    }
}

// --- held in registers ---------------------------------------------------------------------------

HELD_LOAD(held_x, x_fours, x)
HELD_LOAD(held_residual, residual_fours, residual)
HELD_LOAD(held_weight, weight_fours, weight)
HELD_LOAD(held_bias, bias_fours, bias)
HELD_STORE(store_sum, sum_fours, sum)
HELD_STORE(store_y, y_fours, y)

void norm_held(uint row) {
    bool there = row < p.rows;
    uint at = p.x_offset + row / p.x_group * p.x_outer + row % p.x_group * p.x_inner;
    vec4 held[kMostHeld];
    vec4 weights[kMostHeld];
    vec4 biases[kMostHeld];
    for (uint i = 0u; i < kHeld; ++i) {
        held[i] = vec4(0.0);
    }
    if (there) {
        for (uint i = 0u; i < kHeld; ++i) {
            held[i] = held_x(at, 1u, i, p.width);
        }
        // these come while the sums are made
        if (kWeight != 0u) {
            for (uint i = 0u; i < kHeld; ++i) {
                weights[i] = held_weight(p.weight_offset, p.weight_stride, i, p.width);
            }
        }
        if (kBias != 0u) {
            for (uint i = 0u; i < kHeld; ++i) {
                biases[i] = held_bias(p.bias_offset, p.bias_stride, i, p.width);
            }
        }
        if (kAdded != 0u) {
            for (uint i = 0u; i < kHeld; ++i) {
                held[i] += held_residual(p.residual_offset + row * p.width, 1u, i, p.width);
            }
            for (uint i = 0u; i < kHeld; ++i) {
                store_sum(p.sum_offset + row * p.width, i, p.width, held[i]);
            }
        }
    }
    vec4 sums = vec4(0.0);
    float mean = 0.0;
    if (kCentred != 0u) {
        for (uint i = 0u; i < kHeld; ++i) {
            sums += mix(vec4(0.0), held[i], held_inside(i, p.width));
        }
        mean = mean_of(row_sum(sum_of(sums)), p.width);
        sums = vec4(0.0);
    }
    for (uint i = 0u; i < kHeld; ++i) {
        held[i] -= mean;
        sums += mix(vec4(0.0), held[i] * held[i], held_inside(i, p.width));
    }
    float scale = 1.0 / sqrt(row_sum(sum_of(sums)) / float(p.width) + p.eps);
    if (there) {
        for (uint i = 0u; i < kHeld; ++i) {
            vec4 v = held[i] * scale;
            if (kWeight != 0u) {
                v *= weights[i];
            }
            if (kBias != 0u) {
                v += biases[i];
            }
            store_y(p.y_offset + row * p.width, i, p.width, v);
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
        norm_held(row);
        return;
    }
    uint width = row < p.rows ? p.width : 0u;
    uint at = p.x_offset + row / p.x_group * p.x_outer + row % p.x_group * p.x_inner;
    uint to = p.y_offset + row * p.width;
    if (kAdded != 0u) {
        add_row(at, p.residual_offset + row * p.width, p.sum_offset + row * p.width, width);
        at = p.sum_offset + row * p.width;
    }
    Moments moments = row_moments(at, width);
    float mean = moments.mean;
    float scale = 1.0 / sqrt(moments.square + p.eps);
    if (kTogether != 0u && (group + 1u) * gl_WorkGroupSize.x <= p.rows) {
        write_fours_together(at / 4u, to / 4u, width / 4u, mean, scale);
        return;
    }
    if (kFours != 0u) {
        write_fours(at / 4u, to / 4u, width / 4u, mean, scale);
        return;
    }
    for (uint i = row_lane(); i < width; i += kLanes) {
        float v = (load(at + i) - mean) * scale;
        if (kWeight != 0u) {
            v *= weight[p.weight_offset + i * p.weight_stride];
        }
        if (kBias != 0u) {
            v += bias[p.bias_offset + i * p.bias_stride];
        }
        y[to + i] = v;
    }
}
