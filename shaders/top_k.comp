#version 450
// SPDX-License-Identifier: Apache-2.0
// A group a row. The k-th largest key is found byte by byte from a histogram of the keys that share
// the bytes found so far; what is larger, and of its equals the first ones, are collected, and each
// counts those before it to find its place.
#extension GL_GOOGLE_include_directive : require
#include "top_k.h"

layout(local_size_x = kTopKMost) in;

layout(push_constant) uniform Push { TopKPush p; };
layout(set = 0, binding = kTopKBindingX) readonly buffer X { float x[]; };
layout(set = 0, binding = kTopKBindingValues) writeonly buffer Values { float values[]; };
layout(set = 0, binding = kTopKBindingIndices) writeonly buffer Indices { int indices[]; };

#include "common/dispatch.glsl"
#include "common/numeric.glsl"
#include "common/order.glsl"

const uint kBins = 256;
shared uint histogram[kBins];
shared uint equals[kTopKMost];
shared uint found_key[kTopKMost];
shared uint found_at[kTopKMost];
shared uint found;

uint row_key(uint row_offset, uint i) { return order_key(x[row_offset + i]); }

// The k-th largest key; `wanted` becomes how many of its equals belong to the k largest.
uint threshold_key(uint row_offset, inout uint wanted) {
    uint me = gl_LocalInvocationID.x;
    uint prefix = 0u;
    uint mask = 0u;
    for (int shift = 24; shift >= 0; shift -= 8) {
        for (uint bin = me; bin < kBins; bin += kTopKMost) {
            histogram[bin] = 0u;
        }
        barrier();
        for (uint i = me; i < p.width; i += kTopKMost) {
            uint key = row_key(row_offset, i);
            if ((key & mask) == prefix) {
                atomicAdd(histogram[(key >> shift) & 255u], 1u);
            }
        }
        barrier();
        uint bin = kBins - 1u;
        while (bin > 0u && histogram[bin] < wanted) {
            wanted -= histogram[bin];
            --bin;
        }
        barrier();  // all have read before it is cleared again
        prefix |= bin << shift;
        mask |= 255u << shift;
    }
    return prefix;
}

// Collects the larger keys in any order, then the first `wanted` of the equal ones.
void collect(uint row_offset, uint threshold, uint wanted) {
    uint me = gl_LocalInvocationID.x;
    // neighbours, so that the equals' order is that of the invocations
    uint each = (p.width + kTopKMost - 1u) / kTopKMost;
    uint begin = min(me * each, p.width);
    uint end = min(begin + each, p.width);
    uint equal_count = 0u;
    if (me == 0u) {
        found = 0u;
    }
    barrier();
    for (uint i = begin; i < end; ++i) {
        uint key = row_key(row_offset, i);
        equal_count += key == threshold ? 1u : 0u;
        if (key > threshold) {
            uint slot = atomicAdd(found, 1u);
            found_key[slot] = key;
            found_at[slot] = i;
        }
    }
    equals[me] = equal_count;
    barrier();
    uint rank = 0u;
    for (uint i = 0u; i < me; ++i) {
        rank += equals[i];
    }
    for (uint i = begin; i < end && equal_count > 0u && rank < wanted; ++i) {
        if (row_key(row_offset, i) == threshold) {
            found_key[p.k - wanted + rank] = threshold;
            found_at[p.k - wanted + rank] = i;
            ++rank;
        }
    }
    barrier();
}

void main() {
    uint row = group_index();
    if (row >= p.group_count) {
        return;
    }
    uint row_offset = p.x_offset + row * p.width;
    uint wanted = p.k;
    uint threshold = threshold_key(row_offset, wanted);
    collect(row_offset, threshold, wanted);
    uint me = gl_LocalInvocationID.x;
    if (me < p.k) {
        uint key = found_key[me];
        uint at = found_at[me];
        uint place = 0u;
        for (uint i = 0u; i < p.k; ++i) {
            place += found_key[i] > key || (found_key[i] == key && found_at[i] < at) ? 1u : 0u;
        }
        values[p.values_offset + row * p.k + place] = x[row_offset + at];
        indices[p.indices_offset + row * p.k + place] = int(at);
    }
}
