// SPDX-License-Identifier: Apache-2.0
// Which part of a result an invocation computes. Kernels compute it by these functions, and the
// tests count by them, on the host, that every output is computed once (tests/tiling_test.cpp).
#ifndef VKF_SHADERS_COMMON_TILES_H
#define VKF_SHADERS_COMMON_TILES_H

#include "types.h"

#ifdef __cplusplus
#define VKF_INOUT_UINT uint&
namespace vkf::shader {
#else
#define VKF_INOUT_UINT inout uint
#endif

// The number of tiles that cover a size.
VKF_FUNCTION uint tiles_over(uint size, uint tile) {
    return (size + tile - 1u) / tile;
}

// The index along the innermost remaining dimension; `rest` becomes the index over the outer ones.
// size > 0.
VKF_FUNCTION uint take_dimension(VKF_INOUT_UINT rest, uint size) {
    uint outer = rest / size;
    uint index = rest - outer * size;
    rest = outer;
    return index;
}

// matmul: the first of a lane's four columns, of tiles that are four columns a lane wide.
VKF_FUNCTION uint lane_column(uint tile, uint lanes, uint lane) {
    return (tile * lanes + lane) * 4u;
}

// matmul with four lanes: the row of a lane's i-th sums.
VKF_FUNCTION uint lane_row(uint i, uint lane) {
    return i ^ lane;
}

// matmul_shared: the first of an invocation's four rows, or of its first four of several, and of
// its four columns within the tile, which is that wide.
VKF_FUNCTION uint quad_row(uint invocation, uint columns) {
    return invocation / (columns / 4u) * 4u;
}
VKF_FUNCTION uint quad_column(uint invocation, uint columns) {
    return invocation % (columns / 4u) * 4u;
}

// matvec: an invocation's column, `split` neighbours sharing one.
VKF_FUNCTION uint split_column(uint tile, uint local_size, uint split, uint invocation) {
    return tile * (local_size / split) + invocation / split;
}

// matmul_coopmat: where a subgroup's part of the tile begins.
VKF_FUNCTION uint part_row(uint subgroup, uint tile_columns, uint part_rows, uint part_columns) {
    return subgroup / (tile_columns / part_columns) * part_rows;
}
VKF_FUNCTION uint part_column(uint subgroup, uint tile_columns, uint part_columns) {
    return subgroup % (tile_columns / part_columns) * part_columns;
}
// The row and first column of the strip's item, four outputs of a strip of the part that is that
// many columns wide.
VKF_FUNCTION uint strip_row(uint item, uint columns) {
    return item / (columns / 4u);
}
VKF_FUNCTION uint strip_column(uint item, uint columns) {
    return item % (columns / 4u) * 4u;
}

// The row of an invocation in row kernels, where `lanes` neighbours share one.
VKF_FUNCTION uint shared_row(uint group, uint local_size, uint lanes, uint invocation) {
    return group * (local_size / lanes) + invocation / lanes;
}

// The place in a row of a lane's i-th four, where it holds fours in registers, counted in fours;
// and of the j-th element of that, where it holds elements instead that lie `lanes` apart.
VKF_FUNCTION uint held_four_place(uint i, uint lane, uint lanes) {
    return lane + i * lanes;
}
VKF_FUNCTION uint held_place(uint i, uint j, uint lane, uint lanes) {
    return lane + (4u * i + j) * lanes;
}

// The first of an invocation's `each` items that lie behind each other, in kernels that go element
// by element.
VKF_FUNCTION uint first_item(uint group, uint local_size, uint invocation, uint each) {
    return (group * local_size + invocation) * each;
}
// The first of an invocation's `each` items, one of each group-sized stride, in kernels that go
// element by element.
VKF_FUNCTION uint first_strided_item(uint group, uint local_size, uint invocation, uint each) {
    return group * local_size * each + invocation;
}

// The first, in attention, of a lane's four columns of a block of the values, `tile` columns wide,
// of a slice of so many blocks.
VKF_FUNCTION uint value_column(uint slice, uint blocks, uint block, uint tile, uint lane) {
    return (slice * blocks + block) * tile + lane * 4u;
}
// attention_shared: the first of an invocation's two rows of the group.
VKF_FUNCTION uint pair_row(uint invocation, uint lanes) {
    return invocation / lanes * 2u;
}
// attention_coopmat: rows of its subgroup's strip that a lane has, one a pass (there may be fewer),
// and its fours of them; `row_lanes` neighbours share a row, and every subgroup size is a multiple
// of that.
VKF_FUNCTION uint strip_lane_row(uint lane, uint subgroup, uint row_lanes, uint pass) {
    return lane / row_lanes + pass * (subgroup / row_lanes);
}
VKF_FUNCTION uint strip_lane_four(uint lane, uint row_lanes, uint pass) {
    return lane % row_lanes + pass * row_lanes;
}

#ifdef __cplusplus
}  // namespace vkf::shader
#endif

#endif
