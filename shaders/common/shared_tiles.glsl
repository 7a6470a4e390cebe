// SPDX-License-Identifier: Apache-2.0
// A tile of A and one of B in shared memory, for products on GPUs. The kernel defines TILE_NUMBER
// and TILE_FOUR, what the tiles hold and four of these, and names kTileRows, kTileColumns and
// kTileDepth.
//
// Both tiles have k outermost, so that an invocation reads four rows, or four columns, at one k as
// one TILE_FOUR; four numbers of padding per k keep the transposing stores off a single bank.
#ifndef VKF_SHADERS_COMMON_SHARED_TILES_GLSL
#define VKF_SHADERS_COMMON_SHARED_TILES_GLSL

const uint kThreads = gl_WorkGroupSize.x;
const uint kRowQuads = kTileRows / 4;
const uint kColumnQuads = kTileColumns / 4;
const uint kDepthQuads = kTileDepth / 4;
const uint kRowPitch = kRowQuads + 1;
const uint kColumnPitch = kColumnQuads + 1;
// Quads of columns of an invocation, and of rows, so far apart. Tiles have 64 columns, or 128.
const uint kAcross = kTileColumns / 64;
const uint kAcrossStride = kColumnQuads / kAcross;
const uint kQuads = kRowQuads * kColumnQuads / (kThreads * kAcross);
const uint kQuadStride = kRowQuads / kQuads;
// The fours of a tile of A and of one of B; those that an invocation fetches of them a step.
const uint kFoursOfA = kTileRows * kDepthQuads;
const uint kFoursOfB = kTileColumns * kDepthQuads;
const uint kFetchA = (kFoursOfA + kThreads - 1) / kThreads;
const uint kFetchB = (kFoursOfB + kThreads - 1) / kThreads;

// In single numbers, for invocations side by side each write one of four.
shared TILE_NUMBER a_tile[kTileDepth * kRowPitch * 4];
shared TILE_NUMBER b_tile[kTileDepth * kColumnPitch * 4];

TILE_FOUR a_quad(uint quad) {
    return TILE_FOUR(a_tile[quad * 4], a_tile[quad * 4 + 1], a_tile[quad * 4 + 2], a_tile[quad * 4 + 3]);
}
TILE_FOUR b_quad(uint quad) {
    return TILE_FOUR(b_tile[quad * 4], b_tile[quad * 4 + 1], b_tile[quad * 4 + 2], b_tile[quad * 4 + 3]);
}

// Item i of the invocation's part of a tile that has so many lines of so many items.
uint line_of(uint i, uint items) {
    return (gl_LocalInvocationID.x + i * kThreads) / items;
}
uint item_of(uint i, uint items) {
    return (gl_LocalInvocationID.x + i * kThreads) % items;
}

// What lies behind the end of a tile is fetched as others are, and not staged.
bool has_item(uint i, uint count) {
    return count % kThreads == 0 || gl_LocalInvocationID.x + i * kThreads < count;
}

// Stores item i: four along k of a row of A or a column of B, or four rows or columns at one k.
void stage_a_along_k(uint i, TILE_FOUR four) {
    uint row = line_of(i, kDepthQuads);
    uint depth = item_of(i, kDepthQuads) * 4;
    [[unroll]] for (uint j = 0; j < 4; ++j) {
        a_tile[(depth + j) * kRowPitch * 4 + row] = four[j];
    }
}
void stage_b_along_k(uint i, TILE_FOUR four) {
    uint column = line_of(i, kDepthQuads);
    uint depth = item_of(i, kDepthQuads) * 4;
    [[unroll]] for (uint j = 0; j < 4; ++j) {
        b_tile[(depth + j) * kColumnPitch * 4 + column] = four[j];
    }
}
void stage_a_across_k(uint i, TILE_FOUR four) {
    uint at = (line_of(i, kRowQuads) * kRowPitch + item_of(i, kRowQuads)) * 4;
    [[unroll]] for (uint j = 0; j < 4; ++j) {
        a_tile[at + j] = four[j];
    }
}
void stage_b_across_k(uint i, TILE_FOUR four) {
    uint at = (line_of(i, kColumnQuads) * kColumnPitch + item_of(i, kColumnQuads)) * 4;
    [[unroll]] for (uint j = 0; j < 4; ++j) {
        b_tile[at + j] = four[j];
    }
}

#endif
