// SPDX-License-Identifier: Apache-2.0
// Tiles of fused attention cover its result exactly once, as tiling_test.cpp counts it of the other
// kernels.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>

#include "ops/attention_gradient_tiles.h"
#include "ops/attention_tiles.h"
#include "ops/gradients.h"
#include "ops/lanes.h"
#include "runtime/base/numbers.h"
#include "shaders/attention.h"
#include "shaders/common/tiles.h"
#include "tests/op_check.h"
#include "tests/tiling_check.h"

namespace vkf::test {

namespace {

using namespace shader;

/// Counts the outputs that one group of attention_coopmat stores of O.
void cover_strips(const AttentionTile& t, uint first_row, uint slice, Cover& cover) {
    // neighbours that share a row of their subgroup's strip; with these, the shader's passes over
    // its rows and the fours of one
    const uint row_lanes = std::clamp(std::bit_floor(t.subgroup / t.subgroup_rows), 1u, 8u);
    const uint rows_each = static_cast<uint>(divide_up(t.subgroup_rows * row_lanes, t.subgroup));
    const uint fours_each = kAttentionMatrixTile / 4 / row_lanes;
    for (uint i = 0; i < t.invocations(); ++i) {
        const uint subgroup = i / t.subgroup, lane = i % t.subgroup;
        for (uint n = 0; n < rows_each; ++n) {
            const uint row = strip_lane_row(lane, t.subgroup, row_lanes, n);
            for (uint m = 0; m < t.blocks * fours_each && row < t.subgroup_rows; ++m) {
                const uint four = strip_lane_four(lane, row_lanes, m % fours_each);
                cover.block(first_row + subgroup * t.subgroup_rows + row,
                            value_column(slice, t.blocks, m / fours_each, kAttentionMatrixTile, four), 1, 4);
            }
        }
    }
}

/// A processor that fuses whatever the sizes, by the kernel it would take for large ones.
Capabilities fusing(Capabilities device) {
    const bool lanes = hands_round(device) && (device.exact_subgroup_size == 4 || device.exact_subgroup_size == 8) &&
                       device.storage_buffers >= 12;
    if (device.cpu() && device.variants.empty()) {
        device.variants = lanes ? "attention_lanes" : "attention_shared";
    }
    return device;
}

std::string attention_mismatch(const Capabilities& device, std::int64_t queries, std::int64_t heads, std::int64_t width,
                               Arithmetic arithmetic) {
    Graph g;
    const Value q = g.input("q", {1, heads, queries, 16}), k = g.input("k", {1, 1, 40, 16}),
                v = g.input("v", {1, 1, 40, width});
    const Plan plan = plan_of(g, contiguous(scaled_dot_product_attention(q, k, v).y), fusing(device), arithmetic);
    Prepared e = prepare(plan, plan.dispatches.front().dispatch);
    const bool in_shared = contains(e.name(), "attention_shared");
    const bool in_matrices = contains(e.name(), "attention_coopmat");
    const bool in_registers = contains(e.name(), "attention_rows");
    const uint lanes = in_shared || in_matrices || in_registers ? 8 : e.local_size();
    const uint tile = 4 * lanes, rows = e.constant(kAttentionSpecRows), blocks = e.constant(kAttentionSpecBlocks);
    const uint all_rows = static_cast<uint>(queries * heads), columns = static_cast<uint>(width);
    Cover cover(all_rows, columns);
    for (uint group = 0; group < e.groups(); ++group) {
        uint rest = group;
        const uint first_row = take_dimension(rest, tiles_over(all_rows, rows)) * rows;
        const uint slice = take_dimension(rest, tiles_over(columns, blocks * tile));
        if (rest != 0) {
            return "a group beyond the batches, or of a split";
        }
        if (in_matrices) {
            const AttentionTile t{.mat = {},
                                  .subgroups = rows / e.constant(kAttentionSpecSubgroupRows),
                                  .subgroup_rows = e.constant(kAttentionSpecSubgroupRows),
                                  .blocks = blocks,
                                  .part = 0,
                                  .subgroup = e.constant(kAttentionSpecSubgroup)};
            CHECK(t.invocations() == e.local_size());
            cover_strips(t, first_row, slice, cover);
            continue;
        }
        for (uint i = 0; i < blocks * tile / 4 && in_registers; ++i) {
            cover.block(first_row, slice * blocks * tile + i * 4, rows, 4);
        }
        for (uint i = 0; i < e.local_size() && !in_registers; ++i) {
            for (uint block = 0; block < blocks; ++block) {
                const uint column = value_column(slice, blocks, block, tile, i % lanes);
                const uint row = in_shared ? pair_row(i, lanes) : 0;
                cover.block(first_row + row, column, in_shared ? 2 : rows, 4);
            }
        }
    }
    const std::string found = cover.mismatch();
    return found.empty() ? found : e.name() + ": " + found;
}

/// Counts the outputs that the kernels for GPUs store of the gradient; `kernels` counts these.
std::string gradient_mismatch(const Capabilities& device, std::int64_t queries, std::int64_t keys, std::int64_t width,
                              Arithmetic arithmetic, int& kernels) {
    Graph g;
    const Value q = g.input("q", {1, 3, queries, 16}), k = g.input("k", {1, 1, keys, 16}),
                v = g.input("v", {1, 1, keys, width}), dy = g.input("dy", {1, 3, queries, width});
    const std::vector<Value> of = gradients(scaled_dot_product_attention(q, k, v).y, {q, k, v}, dy);
    const Plan plan = plan_of(g, contiguous(of.front()), fusing(device), arithmetic);
    for (const auto& planned : plan.dispatches) {
        const std::string name = planned.dispatch.kernels.front().shader->name;
        const bool in_matrices = name == "attention_gradient_coopmat";
        if (!in_matrices && name != "attention_gradient_shared") {
            continue;
        }
        ++kernels;
        Prepared e = prepare(plan, planned.dispatch);
        const bool of_queries = e.constant(kAttentionGradientSpecSide) == kAttentionGradientOfQueries;
        const uint rows = e.constant(kAttentionGradientSpecRows), blocks = e.constant(kAttentionGradientSpecBlocks);
        const uint near = static_cast<uint>(of_queries ? queries * 3 : keys),
                   columns = static_cast<uint>(of_queries ? 16 : std::max<std::int64_t>(16, width));
        Cover cover(near, columns);
        for (uint group = 0; group < e.groups(); ++group) {
            uint rest = group;
            const uint first_row = take_dimension(rest, tiles_over(near, rows)) * rows;
            const uint slice = take_dimension(rest, tiles_over(columns, blocks * kAttentionGradientTile));
            if (rest != 0) {
                return name + ": a group beyond the batches";
            }
            if (in_matrices) {
                const AttentionTile t{.mat = {},
                                      .subgroups = rows / e.constant(kAttentionGradientSpecSubgroupRows),
                                      .subgroup_rows = e.constant(kAttentionGradientSpecSubgroupRows),
                                      .blocks = blocks,
                                      .part = 0,
                                      .subgroup = e.constant(kAttentionGradientSpecSubgroup)};
                CHECK(t.invocations() == e.local_size());
                cover_strips(t, first_row, slice, cover);
                continue;
            }
            constexpr uint kLanes = kAttentionGradientTile / 4, kLines = kAttentionGradientThreads / kLanes;
            for (uint i = 0; i < e.local_size(); ++i) {
                for (uint n = 0; n < rows / kLines * blocks; ++n) {
                    cover.block(first_row + i / kLanes + n / blocks * kLines,
                                value_column(slice, blocks, n % blocks, kAttentionGradientTile, i % kLanes), 1, 4);
                }
            }
        }
        const std::string found = cover.mismatch();
        if (!found.empty()) {
            return name + ": " + found;
        }
    }
    return {};
}

}  // namespace

TEST_SUITE("tiling") {
    TEST_CASE("tiling: attention") {
        for (const Capabilities& device : devices()) {
            if (device.storage_buffers < 12 && device.cpu()) {
                continue;  // composed there
            }
            CAPTURE(device.exact_subgroup_size);
            for (const std::int64_t queries : {1, 7, 33, 70}) {
                for (const std::int64_t width : {4, 30, 64, 200}) {
                    CAPTURE(queries);
                    CAPTURE(width);
                    CHECK(attention_mismatch(device, queries, 3, width, Arithmetic::f32) == "");
                    CHECK(attention_mismatch(device, queries, 3, width, Arithmetic::f16) == "");
                }
            }
        }
    }

    TEST_CASE("tiling: the gradient of attention on GPUs") {
        int kernels = 0;
        for (const Capabilities& device : devices()) {
            CAPTURE(device.exact_subgroup_size);
            for (const std::int64_t rows : {1, 33, 70}) {
                for (const std::int64_t width : {4, 30, 64, 200}) {
                    CAPTURE(rows);
                    CAPTURE(width);
                    CHECK(gradient_mismatch(device, rows, 71 - rows, width, Arithmetic::f32, kernels) == "");
                    CHECK(gradient_mismatch(device, rows, 71 - rows, width, Arithmetic::f16, kernels) == "");
                }
            }
        }
        CHECK(kernels > 100);
        int tiles = 0;
        for (Capabilities device : devices()) {
            for (const MatrixShape& shape : {MatrixShape{16, 16, 16}, {8, 8, 8}, {16, 8, 16}, {32, 32, 16}}) {
                device.matrix_shapes = {shape};
                for (const uint width : {5u, 64u, 100u, 256u}) {
                    if (const auto tile = gradient_matrix_tile(device, 200, width, width)) {
                        ++tiles;
                        CHECK(tile->fits(device));
                        CHECK(tile->part % kAttentionGradientTile == 0);
                        CHECK((!tile->whole || tile->part >= width));
                    }
                }
            }
        }
        CHECK(tiles > 50);
    }

    TEST_CASE("tiling: attention on cooperative matrices of every shape and subgroup size") {
        const MatrixShape shapes[] = {{16, 16, 16}, {8, 8, 8},    {8, 16, 16}, {16, 8, 16},
                                      {32, 32, 16}, {16, 16, 32}, {16, 64, 16}};
        int tiles = 0, by_elements = 0;
        for (const Capabilities& any : devices()) {
            for (std::size_t nth = 0; nth < 2 * std::size(shapes); ++nth) {
                const MatrixShape& shape = shapes[nth / 2];
                const bool elements = nth % 2 != 0;
                for (const auto& [subgroups, blocks] :
                     {std::pair{2u, 1u}, {2u, 4u}, {4u, 2u}, {4u, 4u}, {8u, 2u}, {8u, 4u}}) {
                    Capabilities device = any;
                    device.matrix_shapes = {shape};
                    for (const uint head_dim : {5u, 64u, 100u, 576u}) {
                        const auto tile = attention_tile(device, subgroups, blocks, head_dim, elements);
                        if (!tile) {
                            continue;
                        }
                        ++tiles;
                        CAPTURE(device.matrix_subgroup_size);
                        CHECK(tile->fits(device));
                        CHECK(tile->part * tiles_over(head_dim, tile->part) >= head_dim);
                        if (elements) {
                            ++by_elements;
                            CHECK(tile->part >= head_dim);
                            CHECK(tile->mat.n == tile->mat.k);
                            CHECK(tile->subgroup_rows == tile->mat.m);
                        }
                        Cover cover(tile->rows(), blocks * kAttentionMatrixTile);
                        cover_strips(*tile, 0, 0, cover);
                        CHECK(cover.mismatch() == "");
                    }
                }
            }
        }
        CHECK(tiles > 500);
        CHECK(by_elements > 100);
    }
}

}  // namespace vkf::test
