// SPDX-License-Identifier: Apache-2.0
#include "ops/matmul_choice.h"

#include <algorithm>

#include "matmul.spv.h"
#include "matmul_lanes.spv.h"
#include "matmul_shared.spv.h"
#include "matvec.spv.h"
#include "matvec_columns.spv.h"
#include "ops/fours.h"
#include "ops/lanes.h"
#include "ops/matmul_lanes.h"
#include "ops/row_group.h"
#include "ops/shared_tile.h"
#include "ops/tuned.h"
#include "ops/variants.h"

namespace vkf {

namespace {

using namespace shader;
using namespace support;

const Shader kPlain{"matmul", spirv::kMatmulSpirv};
const Shader kLanes4{"matmul_lanes4", spirv::kMatmulLanesSpirv};
const Shader kLanes8{"matmul_lanes8", spirv::kMatmulLanesSpirv};
const Shader kLanes8Wide{"matmul_lanes8_wide", spirv::kMatmulLanesSpirv, kWideLoads};
const Shader kShared{"matmul_shared", spirv::kMatmulSharedSpirv};
const Shader kMatvec{"matvec", spirv::kMatvecSpirv};
const Shader kColumns{"matvec_columns", spirv::kMatvecColumnsSpirv};
const Shader kColumnsSubgroups{"matvec_columns_subgroups", spirv::kMatvecColumnsSpirv, kBySubgroups};

/// True when the value can be read by vec4 along `dim`: unit stride there, everything else a
/// multiple of four.
bool vectorizable(const ValueInfo& v, std::size_t dim) {
    bool good = v.strides[dim] == Dim(1) && by_four(v.shape[dim]) && by_four(v.offset);
    for (std::size_t i = 0; i < v.shape.size(); ++i) {
        good = good && (i == dim || v.shape[i] == Dim(1) || by_four(v.strides[i]));
    }
    return good;
}

/// Up to so many rows a small tile, which compiles sooner, is fast enough.
constexpr uint kSmallModelRows = 128;
/// The most rows of a large matrix for which small tiles are faster: two of 8 take less than one
/// of 24.
constexpr std::int64_t kSmallTileRows = 16;

/// Rows of a tile with four lanes, and where there are many.
constexpr uint kFourLanesRows = 8, kFourLanesManyRows = 16;
/// Many rows on SwiftShader, where b is f32 or int4: steps of these are more instructions.
constexpr uint kLongStepsRows = 12;

/// Processors: tiles in registers, their loads shared out over the lanes where the subgroup's size
/// is certain. The more rows a tile has, the fewer loads a product needs, and the longer its code
/// takes to compile: the smaller ones serve small models.
void choose_for_processor(Choice& choice, const Capabilities& device, const Constants& form, std::int64_t most_rows,
                          bool large, bool one_row, bool backward) {
    const auto constants = [&](uint local, uint rows) { return with_rows(form, local, rows); };
    const uint lanes = matmul_lanes(device);
    const Shader& eight = takes_wide_lanes(device) ? kLanes8Wide : kLanes8;
    if (one_row) {
        choice.add(kPlain, constants(16, 1), kAnyRows, 1, 64, "a long sum of masked weights: 1x64 tiles");
        return;
    }
    if (large) {  // few rows: each weight is read once, so it is loads that count
        if (lanes == 8) {
            choice.add(eight, constants(8, 1), 1, 1, 32, "one row: 1x32 tiles");
            if (most_rows > 1) {
                choice.add(eight, constants(8, 4), kMatmulFewRows, 4, 32, "few rows: 4x32 tiles");
            }
        } else {
            choice.add(kPlain, constants(16, 1), 1, 1, 64, "one row: 1x64 tiles");
        }
        if (most_rows <= choice.tiles.back().most_rows) {
            return;
        }
    }
    if (lanes == 8) {
        const std::int64_t small = large ? kSmallTileRows : kSmallModelRows;
        choice.add(eight, constants(8, 8), static_cast<uint>(small), 8, 32, "processor, subgroups of 8: 8x32 tiles");
        if (most_rows > small) {
            const Tuned rows = tuned(device, "matmul_rows", backward ? kManyTileRowsBackward : kManyTileRows);
            choice.add(eight, constants(8, rows.value), kAnyRows, rows.value, 32,
                       "many rows: " + std::to_string(rows.value) + "x32 tiles" + rows.note);
        }
        return;
    }
    if (lanes == 4) {
        const uint small = large ? kFourLanesRows : kSmallModelRows;
        choice.add(kLanes4, constants(4, kFourLanesRows), small, kFourLanesRows, 16,
                   "processor, subgroups of 4: 8x16 tiles");
        if (most_rows > small) {
            // rows that are read along m are handed round by shuffles, and 16 take longer then
            const bool along_m = form.values()[kMatmulSpecALoad] == kMatmulAVecM;
            const uint b_load = form.values()[kMatmulSpecBLoad];
            const bool int4 = b_load == kMatmulBPacked + kPackedInt4;
            const bool long_steps = like_swiftshader(device) && (b_load <= kMatmulBPacked || int4);
            const Tuned rows = tuned(device, "matmul_rows",
                                     along_m      ? kFourLanesRows
                                     : long_steps ? kLongStepsRows
                                                  : kFourLanesManyRows);
            Constants of_many = constants(4, rows.value);
            if (int4 && long_steps) {  // where a group's scales are loaded in each round anyway
                of_many.set(kMatmulSpecCodeSteps, 1);
            }
            choice.add(kLanes4, of_many, kAnyRows, rows.value, 16,
                       "many rows: " + std::to_string(rows.value) + "x16 tiles" + rows.note);
        }
        return;
    }
    const Tuned rows = tuned(device, "matmul_rows", 8);
    choice.add(kPlain, constants(16, rows.value), kAnyRows, rows.value, 64,
               "subgroups that are not relied on: " + std::to_string(rows.value) + "x64 tiles" + rows.note);
}

/// Numbers in 16 bytes, by kPacked... of shaders/common/packed.h.
constexpr uint kMatvecNumbers[] = {4, 8, 8, 16, 32};
/// Invocations that share the sums of matvec_columns at least, and at most unless tuning says
/// otherwise.
constexpr uint kFewestSharing = 32, kMostSharing = 128;

/// What keeps a product of few rows from matvec_columns, for explain(); empty: nothing.
std::string no_columns(const Lowering& l, const ProductPart& part, const MatmulParams& params) {
    if (std::string left = l.device().why_left_out(kColumns.name); !left.empty()) {
        return left;
    }
    const ValueInfo& b = l.info(part.product.b);
    const Dim& k = l.info(part.product.a).shape.back();
    const bool along_k = part.form.b_load == kMatmulBVecK || part.form.b_load > kMatmulBPacked;
    if (params.masked_weights || !along_k || part.form.a_load != kMatmulAVecK) {
        return "b is not read along k by vec4";
    }
    const uint numbers = kMatvecNumbers[b.words ? static_cast<uint>(l.weight_type(part.product.b)) : kPackedF32];
    if (!k.is_constant() || k.constant() % numbers != 0 || k.constant() < std::int64_t{kFewestSharing} * numbers) {
        return "sums are not of " + std::to_string(kFewestSharing * numbers) + " products, or more in steps of " +
               std::to_string(numbers);
    }
    return vectorizable(b, b.shape.size() - 1) ? "" : "rows of b begin at odd places";
}

/// Few rows, each invocation 16 bytes of several columns at a time; each has two steps or more
/// where fewer can share the sums.
void choose_columns(Choice& choice, const Capabilities& device, const Constants& form, std::int64_t k,
                    std::int64_t most_rows, const std::string& in_fp32) {
    const auto numbers = kMatvecNumbers[std::max(form.values()[kMatmulSpecBLoad], kMatmulBPacked) - kMatmulBPacked];
    uint by_length = kFewestSharing;
    while (by_length < kMostSharing && k >= std::int64_t{4} * by_length * numbers) {
        by_length *= 2;
    }
    const Tuned sharing = tuned(device, "matvec_split", by_length);
    const bool subgroups = device.subgroup_arithmetic && device.subgroup_size >= kMatvecLeastSubgroup &&
                           !device.leaves_out(kColumnsSubgroups.name);
    for (const uint rows : {1u, 2u, kMatvecMaxRows}) {
        if (rows > 1 && most_rows <= rows / 2) {
            return;
        }
        choice.add(subgroups ? kColumnsSubgroups : kColumns, with_rows(form, sharing.value, rows), rows, rows,
                   kMatvecColumns,
                   std::to_string(rows) + (rows == 1 ? " row" : " rows") + in_fp32 + " by " +
                       std::to_string(kMatvecColumns) + " columns: sums shared by " + std::to_string(sharing.value) +
                       " invocations" + (subgroups ? " and their subgroups" : "") + sharing.note);
    }
}

/// Few rows with any strides.
void choose_matvec(Choice& choice, const Capabilities& device, const Constants& form, const MatmulParams& params,
                   const std::string& in_fp32, const std::string& why) {
    const Tuned sharing = tuned(device, "matvec_split", 32);
    const uint split = params.transpose_b ? sharing.value : 1;
    const uint local = std::max(64u, split);
    Constants matvec = with_rows(form, local, kMatvecMaxRows);
    matvec.set(kMatmulSpecSplit, split);
    choice.add(kMatvec, matvec, kMatvecMaxRows, kMatvecMaxRows, local / split,
               "up to 4 rows" + in_fp32 + ": sums split over " + std::to_string(split) + " invocations, for " + why +
                   (params.transpose_b ? sharing.note : ""));
}

/// Up to so many rows, tiles of 64 rows: more groups, for GPUs of many units. Beyond them tiles of
/// twice as many by as many invocations.
constexpr std::int64_t kTallTileRows = 256;
/// Fewest columns of a product whose tiles may be twice as wide: with fewer, half the groups are
/// too few for a GPU of many units.
constexpr std::int64_t kFewestOfWide = 512;

/// Columns of a tile of 128 rows, for a product of so many columns.
void choose_columns_of_tall(SharedTile& tile, const Capabilities& device, std::int64_t columns) {
    const Tuned wide = tuned(device, "matmul_columns", kSharedColumns);
    const std::uint32_t bytes = shared_tile_bytes(kTallTile, tile.depth, wide.value);
    const std::string asked = std::to_string(wide.value) + " columns";
    if (!wide.chosen || wide.value == kSharedColumns) {
        tile.note_of_tall = wide.note;
    } else if (tile.any_rows && tile.rows != kTallTile) {
        tile.note += ", not tuned: " + asked + " are of tiles of 128 rows";
    } else if (bytes > device.shared_memory) {
        tile.note_of_tall = ", not tuned: " + asked + " by " + std::to_string(tile.depth) + " need " +
                            std::to_string(bytes) + " bytes of shared memory, this device has " +
                            std::to_string(device.shared_memory);
    } else if (columns >= kFewestOfWide) {
        tile.columns_of_tall = wide.value;
        tile.note_of_tall = wide.note;
    }
}

/// Tiles in shared memory, or in registers where those were left out or found slower.
void choose_tiles(Choice& choice, const Lowering& l, const ProductPart& part, const Constants& form) {
    const Capabilities& device = l.device();
    const std::int64_t columns = l.max_of(l.info(part.product.c).shape.back());
    const Tuned staged = tuned(device, "matmul_staged", 1);
    if (!stages_tiles(device)) {
        const uint local = columns > 128 ? 64 : 16, rows = 8;
        choice.add(kPlain, with_rows(form, local, rows), kAnyRows, rows, local * 4,
                   "tiles of 8x" + std::to_string(local * 4) + " in registers" +
                       (staged.chosen && staged.value != 0 ? "" : staged.note));
        return;
    }
    SharedTile tile = shared_tile(device, form);
    if (!staged.chosen) {
        tile.note += staged.note;
    }
    choose_columns_of_tall(tile, device, columns);
    add_shared_tiles(choice, kShared, device, tile, part.most_rows, "", 1);
    // An invocation has up to four quads of rows. Masked weights may take each row once more, for
    // values that are not finite.
    const std::int64_t k = l.max_of(l.info(part.product.a).shape.back());
    const std::int64_t once_more = form.values()[kMatmulSpecAMasked] != 0 ? 16 : 0;
    l.check_rounds((1 + once_more) * (k + 1) + 2 * (k / tile.depth + 1), "a sum of " + std::to_string(k) + " products");
}

/// GPUs: tiles in shared memory, and sums that invocations share for the few rows of a decoding
/// step.
void choose_for_gpu(Choice& choice, const Lowering& l, const ProductPart& part, const Constants& form,
                    const MatmulParams& params, const ReducedArithmetic& reduced) {
    const Capabilities& device = l.device();
    const std::int64_t most_rows = part.most_rows;
    const std::string in_fp32 = reduced.halves ? ", in fp32," : "";
    const std::string why = no_columns(l, part, params);
    if (why.empty()) {
        choose_columns(choice, device, form, l.info(part.product.a).shape.back().constant(), most_rows, in_fp32);
    } else if (!device.leaves_out(kMatvec.name)) {
        choose_matvec(choice, device, form, params, in_fp32, why);
    }
    if (reduced.halves && choice.kernels.empty()) {  // few rows stay in fp32 without them, too
        choose_tiles(choice, l, part, form);
        choice.keep_first(kMatvecMaxRows, "up to 4 rows, in fp32: ");
    }
    if (most_rows <= kMatvecMaxRows && !choice.kernels.empty()) {
        return;
    }
    if (reduced.coopmat) {
        choose_coopmat(choice, device, form, most_rows, reduced);
    } else if (reduced.halves) {
        choose_half(choice, device, form);
    } else {
        choose_tiles(choice, l, part, form);
    }
}

/// Whether a kernel can read a by vec4 along m: it has code for that, and its rows go by four.
bool reads_along_m(const Kernel& kernel) {
    const uint rows = kernel.constants.values()[kMatmulSpecRows];
    const bool in_registers = kernel.shader == &kPlain || kernel.shader == &kLanes4 || kernel.shader == &kLanes8 ||
                              kernel.shader == &kLanes8Wide;
    return kernel.shader == &kShared || (in_registers && rows % 4 == 0 && rows > kMatmulFewRows);
}

std::string describe_a(const Kernel& kernel) {
    switch (kernel.constants.values()[kMatmulSpecALoad]) {
        case kMatmulAVecK: return "vec4 a, ";
        case kMatmulAVecM: return "vec4 a along m, ";
        case kMatmulAHalves: return "a rounded once, ";
        default: return "scalar a, ";
    }
}

std::string describe_load(const Lowering& l, ValueId b, uint load) {
    switch (load) {
        case kMatmulBScalar: return "scalar b";
        case kMatmulBVecK: return "vec4 b along k";
        case kMatmulBVecN: return "vec4 b along n";
        default: return "b kept as " + std::string(name_of(l.weight_type(b)));
    }
}

}  // namespace

ProductForm form_of(const Lowering& l, const Product& product, const MatmulParams& params) {
    const ValueInfo& bi = l.info(product.b);
    const std::size_t rank = bi.shape.size();
    const std::size_t k = rank - 1 - params.b_axes().k;
    const std::size_t n = rank - 1 - params.b_axes().n;
    ProductForm f;
    const auto by_columns = [&](ValueId v) { return vectorizable(l.info(v), l.info(v).shape.size() - 1); };
    const ValueInfo& ai = l.info(product.a);
    f.a_load = by_columns(product.a)                   ? kMatmulAVecK
               : vectorizable(ai, ai.shape.size() - 2) ? kMatmulAVecM
                                                       : kMatmulAScalar;
    f.b_load = bi.words              ? kMatmulBPacked + static_cast<uint>(l.weight_type(product.b))
               : vectorizable(bi, k) ? kMatmulBVecK
               : vectorizable(bi, n) ? kMatmulBVecN
                                     : kMatmulBScalar;
    f.c_vec = by_columns(product.c) && (!params.bias || by_columns(product.bias)) &&
              (!params.has_other() || by_columns(product.other));
    return f;
}

/// Numbers of a page of memory.
constexpr std::int64_t kPage = 4096 / sizeof(float);

std::int64_t parts_of_sums(const ValueInfo& a, const ValueInfo& b, const MatmulParams& params,
                           const std::function<std::int64_t(const Dim&)>& most) {
    const std::size_t last = a.shape.size() - 1;
    const std::size_t b_last = b.shape.size() - 1;
    const std::size_t b_k = b_last - params.b_axes().k;
    const bool down_a = !vectorizable(a, last) && vectorizable(a, last - 1);
    const bool down_b = !b.words && !vectorizable(b, b_k) && vectorizable(b, b_last - params.b_axes().n);
    const std::int64_t k = most(a.shape[last]);
    if (!down_a || !down_b || params.masked_weights || params.activation != Activation::none || params.is_gate() ||
        k <= 2 * kSumPart) {
        return 1;
    }
    const std::int64_t step = std::max(most(a.strides[last]), most(b.strides[b_k]));
    return step >= kPage ? (k + kSumPart - 1) / kSumPart : 1;
}

bool sums_alike(const ValueInfo& view, const ValueInfo& moved, std::size_t k, std::size_t other) {
    const bool down = !vectorizable(view, k) && vectorizable(view, other);
    const bool is_short = view.shape[k].is_constant() && view.shape[k].constant() <= 2 * kSumPart;
    const Dim &before = view.strides[k], &now = moved.strides[k];
    return !down || is_short || before == now ||
           (before.is_constant() && now.is_constant() && (before.constant() >= kPage) == (now.constant() >= kPage));
}

ReducedArithmetic reduced_arithmetic(const Lowering& l, const Product& product, const MatmulParams& params,
                                     std::int64_t most_rows, bool in_parts) {
    ReducedArithmetic out;
    const Capabilities& device = l.device();
    out.elements = by_elements(device, l.arithmetic() == Arithmetic::int8, in_parts);
    std::string no_matrices;
    if (l.arithmetic() == Arithmetic::f16) {
        no_matrices = no_coopmat(device, params, out.elements);
        const std::string no_halves = no_half(device, params);
        out.halves = no_matrices.empty() || no_halves.empty();
        if (!out.halves) {
            out.why_fp32 = no_halves == no_matrices ? no_halves : no_matrices + "; " + no_halves;
        }
    } else if (l.arithmetic() == Arithmetic::int8) {
        no_matrices = no_codes_coopmat(device, out.elements);
        const std::string no_dots = no_dot(device);
        out.why_fp32 = !no_matrices.empty() && !no_dots.empty() ? no_dots + "; " + no_matrices
                                                                : no_codes(l, product.a, product.b, most_rows);
        out.codes = out.why_fp32.empty();
    }
    if (out.halves || out.codes) {
        out.coopmat = no_matrices.empty();
        out.no_coopmat = no_matrices;
    }
    return out;
}

std::vector<uint> Choice::words() const {
    std::vector<uint> out = before;
    for (const Tile& tile : tiles) {
        out.insert(out.end(), {tile.most_rows, tile.rows, tile.columns});
    }
    return out;
}

std::size_t TileWords::kernel_for(std::uint64_t rows) const noexcept {
    std::size_t kernel = 0;
    while (3 * (kernel + 1) < words_.size() && rows > (*this)[kernel].most_rows) {
        ++kernel;
    }
    return kernel;
}

Choice choose(const Lowering& l, const ProductPart& part, const ReducedArithmetic& reduced, const MatmulParams& params,
              const std::string& note) {
    // small products on processors do without: one kernel fewer to compile is worth more to them
    const bool c_vec = part.form.c_vec && !(l.device().cpu() && part.most_rows <= kSmallModelRows);
    const Constants form(0, {{kMatmulSpecALoad, part.form.a_load},
                             {kMatmulSpecBLoad, part.form.b_load},
                             {kMatmulSpecCVec, c_vec ? 1u : 0u},
                             {kMatmulSpecAct, static_cast<uint>(params.activation)},
                             {kMatmulSpecAMasked, params.masked_weights ? 1u : 0u}});
    const bool as_on_gpus = asks_for(l.device(), "matvec_columns");
    Choice choice;
    if (reduced.codes && reduced.coopmat) {
        choose_coopmat(choice, l.device(), form, part.most_rows, reduced);
    } else if (reduced.codes) {
        choose_dot(choice, l.device(), form, part.most_rows);
    } else if (reduced.coopmat && (coopmat_is_forced(l.device()) || part.form.a_load == kMatmulAHalves)) {
        choose_coopmat(choice, l.device(), form, part.most_rows, reduced);
    } else if (reduced.halves && half_is_forced(l.device())) {
        choose_half(choice, l.device(), form);
    } else if (l.device().cpu() && !as_on_gpus) {
        choose_for_processor(choice, l.device(), form, part.most_rows, part.large, part.one_row, params.backward);
    } else {
        choose_for_gpu(choice, l, part, form, params, reduced);
    }
    for (Kernel& kernel : choice.kernels) {
        if (part.form.a_load == kMatmulAVecM && !reads_along_m(kernel)) {
            kernel.constants.set(kMatmulSpecALoad, kMatmulAScalar);
        }
    }
    const std::string loads =
        reduced.codes ? "codes of a and b"
                      : describe_a(choice.kernels.back()) + describe_load(l, part.product.b, part.form.b_load);
    choice.kernels.front().why += "; " + loads + note;
    if (params.has_other()) {
        const bool times = params.is_gate();
        for (Kernel& kernel : choice.kernels) {
            kernel.constants.set(kMatmulSpecOther, params.other);
            kernel.why += times ? "; times a tensor" : "; plus a tensor";
        }
    }
    Kernel& last = choice.kernels.back();
    const bool few = reduced.halves && last.arithmetic == Arithmetic::f32;
    last.why_fp32 = few ? "products of so few rows are bound by loads" : reduced.why_fp32;
    last.why += few || reduced.no_coopmat.empty() ? "" : "; " + reduced.no_coopmat;
    return choice;
}

Constants with_rows(Constants form, uint local_size, uint rows) {
    form.set_local_size(local_size);
    form.set(kMatmulSpecRows, rows);
    return form;
}

namespace {

SharedTile tile_of(const Constants& form, const Tuned& rows, const Tuned& depth) {
    SharedTile out{with_rows(form, rows.value * kSharedColumns / 16, rows.value), rows.value, depth.value,
                   rows.note == depth.note ? rows.note : rows.note + depth.note, rows.chosen};
    out.constants.set(kMatmulSpecTileRows, rows.value);
    out.constants.set(kMatmulSpecTileColumns, kSharedColumns);
    out.constants.set(kMatmulSpecTileDepth, depth.value);
    return out;
}

uint rows_by_capability(const Capabilities& device) { return device.max_invocations >= 256 ? 64 : 32; }

}  // namespace

bool stages_tiles(const Capabilities& device) {
    return !device.leaves_out(kShared.name) && tuned(device, "matmul_staged", 1).value != 0;
}

SharedTile shared_tile(const Capabilities& device, const Constants& form) {
    const uint rows = rows_by_capability(device);
    return tile_of(form, device.cpu() ? Tuned{rows} : tuned(device, "matmul_rows", rows),
                   tuned(device, "matmul_depth", kSharedDepth));
}

SharedTile shared_tile_of(const Capabilities& device, const Constants& form, uint depth) {
    return tile_of(form, {rows_by_capability(device)}, {depth});
}

void add_shared_tiles(Choice& choice, const Shader& shader, const Capabilities& device, const SharedTile& tile,
                      std::int64_t most_rows, const std::string& what, uint numbers, Arithmetic arithmetic) {
    const auto add = [&](uint rows, uint up_to) {
        const uint columns = rows == kTallTile ? tile.columns_of_tall : kSharedColumns;
        const bool wide = columns == kWideColumns;
        const std::string more = rows == kTallTile ? tile.note_of_tall : "";
        Constants constants = tile.constants;
        if (wide) {
            constants.set_local_size(kWideInvocations);
        }
        constants.set(kMatmulSpecRows, rows);
        constants.set(kMatmulSpecTileRows, rows);
        constants.set(kMatmulSpecTileColumns, columns);
        const std::string each = wide ? "8x8" : rows > tile.rows ? "8x4" : "4x4";
        choice.add(shader, std::move(constants), up_to, rows, columns,
                   what + "tiles of " + std::to_string(rows) + "x" + std::to_string(columns) + "x" +
                       std::to_string(tile.depth * numbers) + " in shared memory, " + each + " an invocation" +
                       tile.note + (more == tile.note ? "" : more),
                   arithmetic);
    };
    const bool tall = !tile.any_rows && most_rows > kTallTileRows && 2 * tile.rows == kTallTile &&
                      shared_tile_bytes(kTallTile, tile.depth) <= device.shared_memory;
    add(tile.rows, tall ? static_cast<uint>(kTallTileRows) : kAnyRows);
    if (tall) {
        add(kTallTile, kAnyRows);
    }
}

}  // namespace vkf
