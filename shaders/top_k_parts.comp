#version 450
// SPDX-License-Identifier: Apache-2.0
// A group has a part of a row, reads it once and holds it in registers. Elements are ordered by
// their keys and, where these are equal, by their places, so no two are equal: a histogram of the
// bytes of both, from the first on and among those that share the bytes found so far, finds where
// the k largest end, often after two or three bytes. They are collected in any order, and each
// counts those before it to find its place. The next dispatch does the same with what the parts
// found, whose order is theirs in the row wherever keys are equal, until one part is left.
#extension GL_GOOGLE_include_directive : require
#include "top_k_parts.h"

layout(local_size_x_id = 0) in;
layout(constant_id = kTopKPartsSpecHeld) const uint kHeld = 1;
layout(constant_id = kTopKPartsSpecStage) const uint kStage = 0;
layout(constant_id = kTopKPartsSpecFours) const uint kFours = 0;

layout(push_constant) uniform Push { TopKPartsPush p; };
layout(set = 0, binding = kTopKPartsBindingX) readonly buffer X { float x[]; };
layout(set = 0, binding = kTopKPartsBindingX) readonly buffer XFours { vec4 x_fours[]; };
layout(set = 0, binding = kTopKPartsBindingIndices) writeonly buffer Indices { uint indices[]; };
layout(set = 0, binding = kTopKPartsBindingFound) readonly buffer Found { uint found[]; };
layout(set = 0, binding = kTopKPartsBindingValues) writeonly buffer Values { float values[]; };

#include "common/dispatch.glsl"
#include "common/numeric.glsl"
#include "common/order.glsl"

const uint kBins = 256;
const uint kRuns = 16;  // of bins
const uint kNowhere = ~0u;
shared uint histogram[2u * kBins];  // two, by turns: one is cleared while the other is read
shared uint run_sums[kRuns];
shared uint chosen_key[kTopKMostRanked];
shared uint chosen_at[kTopKMostRanked];
shared uint chosen;

uint row;                  // the part's
uint first;                // its first element among those that are looked at
uint end;                  // behind its last
uint keys[kTopKMostHeld];  // of what this invocation holds; 0, as no element has, beyond the end

// The place in the part of the invocation's j-th element. Neighbours read neighbouring elements.
uint place_of(uint j) {
    uint me = gl_LocalInvocationID.x;
    return kFours != 0u ? 4u * held_four_place(j / 4u, me, gl_WorkGroupSize.x) + j % 4u
                        : held_place(0u, j, me, gl_WorkGroupSize.x);
}

// Where an element lies in its row.
uint index_of(uint place) {
    if (first + place >= end) {
        return kNowhere;
    }
    return (kStage & kTopKStageMerge) != 0u ? found[p.found_offset + row * p.count + first + place] : first + place;
}

// What lies beyond the end is clamped to the last and then forgotten: loads without a branch can
// wait together.
void load_keys() {
    uint from = p.x_offset + row * p.width;
    if (kFours != 0u) {
        for (uint j = 0u; j < kHeld; j += 4u) {
            vec4 v = x_fours[(from + min(first + place_of(j), end - 4u)) / 4u];
            for (uint i = 0u; i < 4u; ++i) {
                keys[j + i] = order_key(v[i]);
            }
        }
    } else {
        for (uint j = 0u; j < kHeld; ++j) {
            uint at = min(first + place_of(j), end - 1u);
            bool there = true;
            if ((kStage & kTopKStageMerge) != 0u) {
                at = found[p.found_offset + row * p.count + at];
                there = at != kNowhere;
            }
            uint key = order_key(x[from + (there ? at : 0u)]);
            keys[j] = there ? key : 0u;
        }
    }
    for (uint j = 0u; j < kHeld; ++j) {
        keys[j] = first + place_of(j) < end ? keys[j] : 0u;
    }
}

uint turn = 0u;  // where the histogram begins that is counted in

void clear_histogram(uint from) {
    for (uint bin = gl_LocalInvocationID.x; bin < kBins; bin += gl_WorkGroupSize.x) {
        histogram[from + bin] = 0u;
    }
}

void count_byte(uint byte) {
    atomicAdd(histogram[turn + byte], 1u);
}

// The bin in which the last of the `wanted` largest that were counted lies, and how many are in it;
// `wanted` becomes how many of these belong to them. All invocations find the same.
uvec2 last_bin(inout uint wanted) {
    const uint each = kBins / kRuns;
    uint me = gl_LocalInvocationID.x;
    uint from = turn;
    turn ^= kBins;
    barrier();
    if (me < kRuns) {
        uint sum = 0u;
        for (uint i = 0u; i < each; ++i) {
            sum += histogram[from + me * each + i];
        }
        run_sums[me] = sum;
    }
    clear_histogram(turn);
    barrier();
    uint run = kRuns - 1u;
    while (run > 0u && run_sums[run] < wanted) {
        wanted -= run_sums[run];
        --run;
    }
    uint bin = run * each + each - 1u;
    while (bin > run * each && histogram[from + bin] < wanted) {
        wanted -= histogram[from + bin];
        --bin;
    }
    return uvec2(bin, histogram[from + bin]);
}

// A byte that no first byte of the k largest is below: k invocations hold something as large.
uint least_byte() {
    uint largest = 0u;
    for (uint j = 0u; j < kHeld; ++j) {
        largest = max(largest, keys[j]);
    }
    count_byte(largest >> 24u);
    uint wanted = p.k;
    return last_bin(wanted).x;
}

// Where the k largest end: at a key and, among equal keys, at a place, of which the masks say how
// many bits matter.
struct Bound {
    uint key;
    uint key_mask;
    uint order;
    uint order_mask;
};

// Of equal keys the lower place goes first. A part has fewer places than 16 bits count.
uint order_of(uint j) {
    return 0xffffu - place_of(j);
}

Bound find_bound() {
    uint least = least_byte() << 24u;
    Bound b = Bound(0u, 0u, 0u, 0u);
    uint wanted = p.k;
    uvec2 bin = uvec2(0u);
    for (uint shift = 32u; shift > 0u && bin.y != wanted;) {
        shift -= 8u;
        for (uint j = 0u; j < kHeld; ++j) {
            if (keys[j] >= least && (keys[j] & b.key_mask) == b.key) {
                count_byte((keys[j] >> shift) & 255u);
            }
        }
        bin = last_bin(wanted);
        b.key |= bin.x << shift;
        b.key_mask |= 255u << shift;
    }
    for (uint shift = 16u; shift > 0u && bin.y != wanted;) {
        shift -= 8u;
        for (uint j = 0u; j < kHeld; ++j) {
            uint order = order_of(j);
            if (keys[j] == b.key && (order & b.order_mask) == b.order) {
                count_byte((order >> shift) & 255u);
            }
        }
        bin = last_bin(wanted);
        b.order |= bin.x << shift;
        b.order_mask |= 255u << shift;
    }
    return b;
}

// Collects the k largest.
void choose() {
    clear_histogram(turn);
    if (gl_LocalInvocationID.x == 0u) {
        chosen = 0u;
    }
    barrier();
    Bound b = find_bound();
    for (uint j = 0u; j < kHeld; ++j) {
        uint key = keys[j] & b.key_mask;
        if (key > b.key || (key == b.key && (order_of(j) & b.order_mask) >= b.order)) {
            uint slot = atomicAdd(chosen, 1u);
            chosen_key[slot] = keys[j];
            chosen_at[slot] = place_of(j);
        }
    }
    barrier();
}

// All of a short part.
void choose_all() {
    for (uint j = 0u; j < kHeld; ++j) {
        uint slot = place_of(j);
        if (slot < kTopKMostRanked) {
            chosen_key[slot] = keys[j];
            chosen_at[slot] = slot;
        }
    }
    barrier();
}

void main() {
    uint group = group_index();
    if (group >= p.group_count) {
        return;
    }
    row = group;
    first = take_dimension(row, p.parts) * p.part_size;
    end = min(first + p.part_size, p.count);
    load_keys();
    uint candidates = p.k;
    if (p.part_size <= kTopKMostRanked) {
        choose_all();
        candidates = kTopKMostRanked;
    } else {
        choose();
    }
    uint me = gl_LocalInvocationID.x;
    if (me >= candidates) {
        return;
    }
    uint key = chosen_key[me];
    uint at = chosen_at[me];
    uint place = 0u;
    for (uint i = 0u; i < candidates; ++i) {
        place += chosen_key[i] > key || (chosen_key[i] == key && chosen_at[i] < at) ? 1u : 0u;
    }
    if (place < p.k) {
        uint to = group * p.k + place;
        uint index = index_of(at);
        indices[p.indices_offset + to] = index;
        if ((kStage & kTopKStageLast) != 0u) {
            values[p.values_offset + to] = x[p.x_offset + row * p.width + index];
        }
    }
}
