#version 450
// SPDX-License-Identifier: Apache-2.0
// Copies between tensors of fp32, f16 and bf16. Numbers of 16 bits lie two a word, and no device
// needs storage buffers of 16 bits: an invocation writes a whole word, that is up to two elements.
#extension GL_GOOGLE_include_directive : require
#include "convert.h"

layout(local_size_x_id = 0) in;
layout(constant_id = kConvertSpecFrom) const uint kFrom = kPackedF32;
layout(constant_id = kConvertSpecTo) const uint kTo = kPackedF16;
layout(constant_id = kConvertSpecDense) const uint kDense = 0;
layout(constant_id = kConvertSpecKeep) const uint kKeep = 0;

layout(push_constant) uniform Push { ConvertPush p; };
layout(set = 0, binding = kConvertBindingFrom) readonly buffer From { uint from[]; };
layout(set = 0, binding = kConvertBindingTo) buffer To { uint to[]; };

#include "common/dispatch.glsl"
#include "common/sixteen.glsl"

// The element as `to` keeps it. Between equal types it is copied, NaNs too.
uint converted(uint element) {
    uint at = p.from_offset + (kDense != 0u ? element : strided_offset(element, p.size, p.from_stride));
    uint bits = kFrom == kPackedF32 ? from[at] : from[at >> 1] >> ((at & 1u) << 4) & 0xffffu;
    if (kFrom == kTo) {
        return bits;
    }
    uint wide = kFrom == kPackedF32 ? bits : widened(kFrom, bits);
    return kTo == kPackedF32 ? wide : narrowed(kTo, wide);
}

void write_number(uint element) {
    to[p.to_offset + (kDense != 0u ? element : strided_offset(element, p.size, p.to_stride))] = converted(element);
}

// The words of a run are counted from the one that its first element lies in.
void write_pair(uint item) {
    uint rest = item;
    uint word = take_dimension(rest, p.run_words);
    uint first = rest * p.run;
    uint begin = p.to_offset + (kDense != 0u ? 0u : strided_offset(first, p.size, p.to_stride));
    uint at = (begin >> 1) + word;
    uint low = 2u * at - begin;  // place in the run; in an odd run's first word it wraps around
    uint high = low + 1u;
    if (low >= p.run && high >= p.run) {
        return;
    }
    uint pair = kKeep != 0u && (low >= p.run || high >= p.run) ? to[at] : 0u;
    if (low < p.run) {
        pair = (pair & 0xffff0000u) | converted(first + low);
    }
    if (high < p.run) {
        pair = (pair & 0xffffu) | converted(first + high) << 16;
    }
    to[at] = pair;
}

void main() {
    uint group = group_index();
    if (group >= p.group_count) {
        return;
    }
    uint first = first_strided_item(group, gl_WorkGroupSize.x, gl_LocalInvocationID.x, kConvertPerInvocation);
    for (uint i = 0; i < kConvertPerInvocation; ++i) {
        uint item = first + i * gl_WorkGroupSize.x;
        if (item < p.count) {
            if (kTo == kPackedF32) {
                write_number(item);
            } else {
                write_pair(item);
            }
        }
    }
}
