// SPDX-License-Identifier: Apache-2.0
// Tiles cover a result exactly once: what ops choose and prepare for devices that are not there,
// counted by the functions of shaders/common/tiles.h, by which the kernels compute where they
// stand.
#include "shaders/common/tiles.h"

#include <doctest/doctest.h>

#include <array>

#include "ops/matmul_tiles.h"
#include "shaders/elementwise.h"
#include "shaders/layer_norm.h"
#include "shaders/matmul.h"
#include "shaders/softmax.h"
#include "tests/device.h"
#include "tests/op_check.h"
#include "tests/tiling_check.h"

namespace vkf::test {

namespace {

using namespace shader;

// --- products ------------------------------------------------------------------------------------

/// A group's invocations compute 4x4 outputs each, or several such quads.
bool in_quads(const Prepared& e) {
    return e.name() == "matmul_shared" || e.name() == "matmul_dot" || e.name() == "matmul_half";
}

/// A group's subgroups compute a part each.
bool in_parts(const Prepared& e) { return contains(e.name(), "matmul_coopmat"); }

/// Each invocation that has an output computes one.
bool in_columns(const Prepared& e) { return e.name() == "matvec_columns" || e.name() == "matvec_columns_subgroups"; }

/// Counts the outputs of C that one group of a product's kernel computes, whose tile has this row
/// and column.
void cover_tile(const Prepared& e, uint tile_m, uint tile_n, Cover& cover) {
    const uint rows = e.constant(kMatmulSpecRows);
    const uint tile_rows = e.constant(kMatmulSpecTileRows), tile_columns = e.constant(kMatmulSpecTileColumns);
    for (uint i = 0; i < e.local_size(); ++i) {
        if (in_quads(e)) {
            const uint across = tile_columns / 64, columns = tile_columns / across;
            const uint quads = tile_rows * columns / 16 / e.local_size();
            for (uint quad = 0; quad < quads * across; ++quad) {
                cover.block(tile_m * tile_rows + quad_row(i, columns) + quad / across * (tile_rows / quads),
                            tile_n * tile_columns + quad_column(i, columns) + quad % across * columns, 4, 4);
            }
        } else if (e.name() == "matvec") {
            const uint split = e.constant(kMatmulSpecSplit);
            if (i % split == 0) {  // where the parts come together
                cover.block(tile_m * rows, split_column(tile_n, e.local_size(), split, i), rows, 1);
            }
        } else if (in_columns(e)) {
            if (i < rows * kMatvecColumns) {
                cover.add(tile_m * rows + i / kMatvecColumns, tile_n * kMatvecColumns + i % kMatvecColumns);
            }
        } else if (e.name() == "matmul_lanes4") {
            for (uint row = 0; row < rows; ++row) {
                cover.block(tile_m * rows + lane_row(row, i), lane_column(tile_n, e.local_size(), i), 1, 4);
            }
        } else if (!in_parts(e)) {
            cover.block(tile_m * rows, lane_column(tile_n, e.local_size(), i), rows, 4);
        }
    }
    if (in_parts(e)) {
        const uint lanes = e.constant(kMatmulSpecSubgroup), mat_rows = e.constant(kMatmulSpecMatRows);
        const uint part_rows = e.constant(kMatmulSpecSubgroupRows);
        const uint part_columns = e.constant(kMatmulSpecSubgroupColumns);
        for (uint i = 0; i < e.local_size(); ++i) {
            const uint subgroup = i / lanes,
                       m = tile_m * tile_rows + part_row(subgroup, tile_columns, part_rows, part_columns);
            const uint n = tile_n * tile_columns + part_column(subgroup, tile_columns, part_columns);
            for (uint strip = 0; strip < part_rows / mat_rows; ++strip) {
                for (uint item = i % lanes; item < mat_rows * part_columns / 4; item += lanes) {
                    cover.block(m + strip * mat_rows + strip_row(item, part_columns),
                                n + strip_column(item, part_columns), 1, 4);
                }
            }
        }
    }
}

/// Each of the parts in which sums are taken has all outputs.
std::string product_mismatch(Prepared e, std::size_t rows, std::size_t columns, std::size_t parts = 1) {
    const auto p = e.push<MatmulPush>();
    const bool tiled = in_quads(e) || in_parts(e);
    const uint tile_rows = tiled ? e.constant(kMatmulSpecTileRows) : e.constant(kMatmulSpecRows);
    const uint tile_columns = tiled                  ? e.constant(kMatmulSpecTileColumns)
                              : in_columns(e)        ? kMatvecColumns
                              : e.name() == "matvec" ? e.local_size() / e.constant(kMatmulSpecSplit)
                                                     : e.local_size() * 4;
    std::vector<Cover> covers(parts, Cover(rows, columns));
    for (uint group = 0; group < e.groups(); ++group) {
        uint rest = group;
        const uint m = take_dimension(rest, tiles_over(p.m, tile_rows));
        const uint n = take_dimension(rest, tiles_over(p.n, tile_columns));
        if (rest >= parts) {
            return "group " + std::to_string(group) + " is of no batch, and no part";
        }
        cover_tile(e, m, n, covers[rest]);
    }
    std::string out;
    for (const Cover& cover : covers) {
        out += cover.mismatch();
    }
    return out;
}

/// An invocation adds up the parts of an output.
std::string merge_mismatch(const Prepared& e, std::size_t rows, std::size_t columns) {
    Cover cover(rows, columns);
    for (uint item = 0; item < e.groups() * e.local_size(); ++item) {
        uint m = item;
        const uint n = take_dimension(m, static_cast<uint>(columns));
        cover.add(m, n);
    }
    return cover.mismatch();
}

std::string product_mismatch(const Capabilities& device, std::int64_t m, std::int64_t n, Arithmetic arithmetic,
                             std::int64_t k = 48) {
    Graph g;
    const Plan plan =
        plan_of(g, matmul(g.input("a", {m, k}), g.input("b", {n, k}), {.transpose_b = true}), device, arithmetic);
    const auto rows = static_cast<std::size_t>(m), columns = static_cast<std::size_t>(n);
    Prepared e = prepare(plan, plan.dispatches.front().dispatch);
    std::size_t parts = 1;
    std::string found;
    if (plan.dispatches.size() > 1) {
        Prepared merge = prepare(plan, plan.dispatches.back().dispatch);
        parts = merge.push<MatmulPush>().k;
        found = merge_mismatch(merge, rows, columns);
    }
    found += product_mismatch(e, rows, columns, parts);
    return found.empty() ? found : e.name() + ": " + found;
}

// --- rows and elements ---------------------------------------------------------------------------

/// How a kernel shares a row: how many invocations, how many fours each holds in registers (0: it
/// goes column by column), and whether these lie beside each other.
struct RowShare {
    uint lanes, held;
    bool fours;
};

std::string rows_mismatch(const Prepared& e, const RowShare& share, std::size_t rows, std::size_t columns) {
    Cover cover(rows, columns);
    for (uint group = 0; group < e.groups(); ++group) {
        for (uint i = 0; i < e.local_size(); ++i) {
            const uint lane = i % share.lanes, row = shared_row(group, e.local_size(), share.lanes, i);
            for (std::size_t column = lane; column < columns && share.held == 0; column += share.lanes) {
                cover.add(row, column);
            }
            for (uint n = 0; n < share.held * 4; ++n) {
                cover.add(row, share.fours ? held_four_place(n / 4, lane, share.lanes) * 4 + n % 4
                                           : held_place(n / 4, n % 4, lane, share.lanes));
            }
        }
    }
    return cover.mismatch();
}

/// `count` items, an invocation's behind each other or a group apart.
std::string items_mismatch(const Prepared& e, uint each, bool a_group_apart, std::size_t count) {
    Cover cover(1, count);
    for (uint group = 0; group < e.groups(); ++group) {
        for (uint i = 0; i < e.local_size(); ++i) {
            const uint first = a_group_apart ? first_strided_item(group, e.local_size(), i, each)
                                             : first_item(group, e.local_size(), i, each);
            for (uint item = 0; item < each; ++item) {
                cover.add(0, first + item * (a_group_apart ? e.local_size() : 1));
            }
        }
    }
    return cover.mismatch();
}

}  // namespace

TEST_SUITE("tiling") {
    TEST_CASE("tiling: products in other tiles than capabilities suggest") {
        bool wide = false, in_registers = false;
        for (Capabilities device : devices()) {
            for (const char* tuning : {"matmul_columns=128", "matmul_staged=0"}) {
                device.tuning = tuning;
                CAPTURE(tuning);
                for (const std::int64_t m : {5, 130, 515}) {
                    for (const std::int64_t n : {65, 130, 516, 1030}) {
                        CAPTURE(m);
                        CAPTURE(n);
                        CHECK(product_mismatch(device, m, n, Arithmetic::f32) == "");
                    }
                }
                Graph g;
                const Plan plan = plan_of(g, linear(g.input("a", {515, 8}), g.input("w", {516, 8})), device);
                const Prepared e = prepare(plan, plan.dispatches.back().dispatch);
                wide = wide || (e.name() == "matmul_shared" && e.local_size() == 256 &&
                                e.constant(kMatmulSpecTileColumns) == 128);
                in_registers = in_registers || (e.name() == "matmul" && !device.cpu() && e.local_size() == 64);
            }
        }
        CHECK(wide);
        CHECK(in_registers);
    }

    TEST_CASE("tiling: products") {
        for (const Capabilities& device : devices()) {
            CAPTURE(device.matrix_subgroup_size);
            CAPTURE(device.cpu());
            for (const std::int64_t m : {1, 3, 5, 17, 40, 130, 515}) {
                for (const std::int64_t n : {1, 31, 65, 130, 516}) {
                    CAPTURE(m);
                    CAPTURE(n);
                    CHECK(product_mismatch(device, m, n, Arithmetic::f32) == "");
                    CHECK(product_mismatch(device, m, n, Arithmetic::f32, 1024) == "");
                }
            }
        }
    }

    TEST_CASE("tiling: products in f16, on cooperative matrices and without") {
        for (const Capabilities& any : devices()) {
            for (const bool matrices : {true, false}) {
                Capabilities device = any;
                device.cooperative_matrix = any.cooperative_matrix && matrices;
                device.variants = !device.cpu() || !device.float16 ? "" : "matmul_half";
                CAPTURE(device.matrix_subgroup_size);
                CAPTURE(device.cpu());
                for (const std::int64_t m : {1, 5, 40, 130}) {
                    for (const std::int64_t n : {1, 65, 516}) {
                        CAPTURE(m);
                        CAPTURE(n);
                        CHECK(product_mismatch(device, m, n, Arithmetic::f16) == "");
                    }
                }
            }
        }
    }

    TEST_CASE("tiling: products of codes, on cooperative matrices and without") {
        const Weights weights = test::load(random_tensor({129, 48}), WeightType::int8);
        for (const Capabilities& any : devices()) {
            for (const bool matrices : {true, false}) {
                Capabilities device = any;
                if (device.cpu() || !device.integer_dot) {
                    continue;
                }
                device.cooperative_matrix_int8 = matrices;
                CAPTURE(device.matrix_subgroup_size);
                for (const std::int64_t m : {5, 40, 130, 515}) {
                    CAPTURE(m);
                    Graph g;
                    g.output("y", linear(g.input("a", {m, 48}), g.weight("w", {129, 48})));
                    const Plan plan = make_plan(g, device, weights.layout(), {.arithmetic = Arithmetic::int8});
                    const Prepared e = prepare(plan, plan.dispatches.back().dispatch);
                    CHECK((e.name() == "matmul_dot" || e.name() == "matmul_coopmat_int8"));
                    CHECK(product_mismatch(e, static_cast<std::size_t>(m), 129) == "");
                }
            }
        }
    }

    TEST_CASE("tiling: products of several batches") {
        for (const Capabilities& device : devices()) {
            Graph g;
            const Value y = matmul(g.input("a", {2, 3, 9, 8}), g.input("b", {2, 3, 8, 37}));
            const Plan plan = plan_of(g, y, device);
            Prepared e = prepare(plan, plan.dispatches.front().dispatch);
            const auto p = e.push<MatmulPush>();
            CHECK(e.groups() % 6 == 0);
            CHECK(p.batch1 * p.batch2 == 6);
        }
    }

    TEST_CASE("tiling: cooperative matrices of every shape and subgroup size") {
        const MatrixShape shapes[] = {{16, 16, 16}, {8, 8, 8},   {8, 16, 16}, {16, 8, 16}, {32, 32, 16},
                                      {16, 16, 32}, {16, 8, 32}, {8, 16, 64}, {8, 4, 8}};
        int tiles = 0, one_stage = 0;
        for (const Capabilities& any : devices()) {
            for (std::size_t nth = 0; nth < 4 * std::size(shapes); ++nth) {
                const MatrixShape& shape = shapes[nth / 4];
                const bool codes = nth % 2 != 0, deep = nth % 4 > 1;
                for (const auto& part :
                     {std::array{2u, 1u, 1u, 2u}, {2u, 2u, 1u, 4u}, {2u, 2u, 2u, 2u}, {4u, 2u, 2u, 4u}}) {
                    Capabilities device = any;
                    (codes ? device.int8_matrix_shapes : device.matrix_shapes) = {shape};
                    const auto tile = coopmat_tile(device, part[0], part[1], part[2], part[3], codes, deep);
                    if (!tile) {
                        continue;
                    }
                    ++tiles;
                    CAPTURE(tile->str());
                    CHECK(tile->fits(device));
                    CHECK((tile->stages == 2 || (deep && tile->stages == 1)));
                    one_stage += tile->stages == 1 ? 1 : 0;
                    const uint part_rows = part[0] * shape.m, part_columns = part[1] * shape.n;
                    CHECK(tile->invocations() == tile->subgroups() * device.matrix_subgroup_size);
                    Cover cover(tile->rows, tile->columns);
                    for (uint i = 0; i < tile->invocations(); ++i) {
                        const uint subgroup = i / tile->subgroup;
                        const uint m = part_row(subgroup, tile->columns, part_rows, part_columns);
                        const uint n = part_column(subgroup, tile->columns, part_columns);
                        for (uint strip = 0; strip < part[0]; ++strip) {
                            for (uint item = i % tile->subgroup; item < shape.m * part_columns / 4;
                                 item += tile->subgroup) {
                                cover.block(m + strip * shape.m + strip_row(item, part_columns),
                                            n + strip_column(item, part_columns), 1, 4);
                            }
                        }
                    }
                    CHECK(cover.mismatch() == "");
                }
            }
        }
        CHECK(tiles > 1000);
        CHECK(one_stage > 100);
    }

    TEST_CASE("tiling: row kernels") {
        int shared = 0;
        for (const Capabilities& device : devices()) {
            for (const std::int64_t rows : {1, 5, 130}) {
                for (const std::int64_t columns : {1, 40, 300, 301, 5000}) {
                    CAPTURE(rows);
                    CAPTURE(columns);
                    const auto r = static_cast<std::size_t>(rows), c = static_cast<std::size_t>(columns);
                    Graph g;
                    const Value x = g.input("x", {rows, columns});
                    const Plan soft = plan_of(g, softmax(x), device);
                    const Prepared s = prepare(soft, soft.dispatches.front().dispatch);
                    CHECK(rows_mismatch(s,
                                        {s.constant(kSoftmaxSpecLanes), s.constant(kSoftmaxSpecHeld),
                                         s.constant(kSoftmaxSpecFours) != 0},
                                        r, c) == "");
                    for (const bool weighted : {false, true}) {
                        Graph h;
                        const Value weight = weighted ? h.input("w", {columns}) : Value();
                        const Plan norm = plan_of(h, layer_norm(h.input("x", {rows, columns}), weight, {}), device);
                        const Prepared n = prepare(norm, norm.dispatches.front().dispatch);
                        const uint fours = n.constant(kNormSpecFours);
                        shared += n.constant(kNormSpecTogether) != 0 ? 1 : 0;
                        CHECK(rows_mismatch(n, {n.constant(kNormSpecLanes), n.constant(kNormSpecHeld), fours != 0}, r,
                                            c) == "");
                    }
                }
            }
        }
        CHECK(shared > 0);
    }

    TEST_CASE("tiling: element by element") {
        for (const Capabilities& device : devices()) {
            for (const std::int64_t width : {1, 7, 64, 1001, 2048}) {
                CAPTURE(width);
                Graph g;
                const Plan plan = plan_of(g, scale(g.input("x", {3, width}), 2.0f), device);
                const Prepared e = prepare(plan, plan.dispatches.front().dispatch);
                const uint fours = e.constant(kElementwiseSpecFours);
                const auto count = static_cast<std::size_t>(3 * width);
                CHECK(items_mismatch(e, fours != 0 ? fours : kElementwisePerInvocation, fours == 0,
                                     fours != 0 ? count / 4 : count) == "");
            }
        }
    }
}

}  // namespace vkf::test
