// SPDX-License-Identifier: Apache-2.0
#include "ops/matmul_split.h"

#include <algorithm>

#include "matmul_merge.spv.h"
#include "ops/fours.h"
#include "ops/tuned.h"
#include "runtime/base/numbers.h"

namespace vkf {

namespace {

using namespace shader;
using namespace support;

const Shader kMerge{"matmul_merge", spirv::kMatmulMergeSpirv};

/// As many groups keep a large GPU busy, and one that shares memory with its processor.
constexpr uint kGroups = 128, kIntegratedGroups = 32;

/// True for kernel `i` where a run that divides sums may take it.
bool serves(const std::vector<Tile>& tiles, std::size_t i) {
    return tiles[i].most_rows > kMatvecMaxRows && (i == 0 || tiles[i - 1].most_rows < kMostSplitRows);
}

/// The kernels of a product that a run which divides its sums may take.
Choice dividing(const Choice& whole) {
    Choice out;
    out.before = whole.before;
    for (std::size_t i = 0; i < whole.kernels.size(); ++i) {
        if (serves(whole.tiles, i)) {
            out.kernels.push_back(whole.kernels[i]);
            out.tiles.push_back(whole.tiles[i]);
        }
    }
    return out;
}

/// Outputs of a group at most.
std::int64_t most_outputs(const std::vector<Tile>& tiles) {
    std::int64_t most = 0;
    for (const Tile& tile : tiles) {
        most = std::max(most, std::int64_t{tile.rows} * tile.columns);
    }
    return most;
}

bool is_matrix(const ValueInfo& v) {
    return std::all_of(v.shape.begin(), v.shape.end() - 2, [](const Dim& d) { return d == Dim(1); });
}

bool is_dense(const ValueInfo& v) { return is_contiguous(v.shape, v.strides); }

/// Numbers along k in an element of b.
uint numbers_of_element(const Lowering& l, ValueId b) {
    if (!l.info(b).words) {
        return 1;
    }
    switch (l.weight_type(b)) {
        case WeightType::int8: return 4;
        case WeightType::int4: return 8;
        default: return 2;
    }
}

/// True where a product can be divided, as far as its tensors go.
bool divisible(const Lowering& l, const ProductPart& part, const ReducedArithmetic& reduced,
               const MatmulParams& params) {
    const ValueInfo &a = l.info(part.product.a), &b = l.info(part.product.b), &c = l.info(part.product.c);
    // The scales of int8 and int4 lie behind all codes of a row. The kernel that stands in for
    // matmul_shared does not find them in a part of it.
    const bool scaled = numbers_of_element(l, part.product.b) > 2;
    const bool found = !scaled || reduced.halves || stages_tiles(l.device());
    return !params.masked_weights && found && is_matrix(b) && is_dense(a) && is_dense(c) &&
           a.shape.back().is_constant() && a.shape.back().constant() >= 2 * std::int64_t{kFewestPartProducts};
}

}  // namespace

std::uint64_t SplitSums::groups_of(std::uint64_t rows, uint columns) const noexcept {
    const Tile tile = tiles[tiles.kernel_for(rows)];
    return divide_up(rows, tile.rows) * divide_up(columns, tile.columns);
}

uint SplitSums::parts(std::uint64_t rows, uint columns) const noexcept {
    if (columns == 0 || rows <= kMatvecMaxRows || rows > kMostSplitRows) {
        return 1;
    }
    const std::uint64_t whole = groups_of(rows, columns);
    // int4's groups have a scale each; f16 is read by eight
    const uint step = numbers == 8 ? kPackedGroup : numbers == 2 ? 8 : 4;
    uint parts = 1;
    while (2 * parts <= kMostSumParts && whole * 2 * parts <= groups && k % (step * 2 * parts) == 0 &&
           k / (2 * parts) >= kFewestPartProducts) {
        parts *= 2;
    }
    return parts;
}

SplitWhen choose_split(Choice& whole, const Lowering& l, const ProductPart& part, const ReducedArithmetic& reduced,
                       const MatmulParams& params) {
    const Capabilities& device = l.device();
    if (device.cpu() || reduced.codes || part.most_rows <= kMatvecMaxRows || device.leaves_out(kMerge.name) ||
        !divisible(l, part, reduced, params)) {
        return SplitWhen::never;
    }
    const Tuned groups =
        tuned(device, "matmul_groups", device.type == DeviceType::integrated ? kIntegratedGroups : kGroups);
    const Shape& c = l.info(part.product.c).shape;
    const auto columns = static_cast<uint>(l.max_of(c.back()));
    bool ever = false;
    for (std::size_t i = 0; i < whole.kernels.size(); ++i) {
        ever = ever || (serves(whole.tiles, i) && 2 * divide_up(columns, whole.tiles[i].columns) <= groups.value);
    }
    if (!ever) {
        return SplitWhen::never;
    }
    Choice divided = whole;
    divided.before = {groups.value, numbers_of_element(l, part.product.b),
                      static_cast<uint>(l.info(part.product.a).shape.back().constant())};
    const bool constant = std::all_of(c.begin(), c.end(), [](const Dim& d) { return d.is_constant(); });
    if (constant && SplitSums(divided.words()).parts(static_cast<std::uint64_t>(part.most_rows), columns) == 1) {
        return SplitWhen::never;
    }
    whole = std::move(divided);
    whole.kernels.front().why +=
        "; divided into parts that make up to " + std::to_string(groups.value) + " groups" + groups.note;
    return constant ? SplitWhen::always : SplitWhen::by_rows;
}

void lower_split(Lowering& l, const Product& product, const MatmulParams& params, const Choice& whole) {
    const ValueInfo c = l.info(product.c);
    const std::vector<uint> words = whole.words();
    Choice parts = dividing(whole);
    std::int64_t rows = kMostSplitRows;
    if (is_matrix(c)) {
        rows = std::min(rows, l.max_of(c.shape[c.shape.size() - 2]));
    }
    const std::int64_t most =
        std::min(SplitSums(words).groups * most_outputs(parts.tiles), kMostSumParts * rows * l.max_of(c.shape.back()));
    const ValueId sums = l.scratch(DType::f32, {Dim(most)});
    for (Kernel& kernel : parts.kernels) {
        kernel.constants.set(kMatmulSpecAct, kActNone);
        kernel.constants.set(kMatmulSpecOther, kMatmulOtherNone);
        kernel.constants.set(kMatmulSpecCVec, by_four(c.shape.back()) ? 1 : 0);
        kernel.why = "parts of the sums: " + kernel.why;
    }
    const Binding a{product.a, Access::read}, part{sums, Access::read}, to{product.c, Access::write};
    Dispatch& d = l.dispatch(std::move(parts.kernels), {a, {product.b, Access::read}, a, {sums, Access::write}},
                             prepare_part_sums, parts.words());
    d.sizes_of = {product.c};
    const Kernel merge{
        &kMerge,
        {kMergeLanes, {{kMatmulSpecAct, static_cast<uint>(params.activation)}, {kMatmulSpecOther, params.other}}},
        "adds up the parts of the sums, in their order"};
    const Binding other{product.other, Access::read};
    if (params.other_beside_bias()) {
        l.dispatch({merge}, {part, part, {product.bias, Access::read}, to, other}, prepare_merged_sums, words);
        return;
    }
    const Binding bias_or_other = params.has_other() ? other : params.bias ? Binding{product.bias, Access::read} : part;
    l.dispatch({merge}, {part, part, bias_or_other, to}, prepare_merged_sums, words);
}

}  // namespace vkf
