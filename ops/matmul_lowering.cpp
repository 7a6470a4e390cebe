// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string_view>

#include "ops/add_op.h"
#include "ops/checks.h"
#include "ops/matmul_choice.h"
#include "ops/matmul_split.h"
#include "ops/packed_rows.h"
#include "runtime/compile/pack_lanes.h"
#include "shaders/common/rounds.h"

namespace vkf {

namespace {

using namespace shader;
using namespace support;

/// With fewer elements of b, a product is over before a further kernel has paid for being compiled.
constexpr std::int64_t kLargeMatrix = 512 * 512;

/// Rows of one product at the largest sizes; batches that share b may become rows.
std::int64_t rows_at_most(const Lowering& l, ValueId b, ValueId c) {
    const Shape& b_shape = l.info(b).shape;
    const Shape& c_shape = l.info(c).shape;
    const bool shared = std::all_of(b_shape.begin(), b_shape.end() - 2, [](const Dim& d) { return d == Dim(1); });
    std::int64_t rows = l.max_of(c_shape[c_shape.size() - 2]);
    for (std::size_t i = 0; shared && i + 2 < c_shape.size(); ++i) {
        rows *= l.max_of(c_shape[i]);
    }
    return rows;
}

/// The elements of one of the matrices, at the largest sizes.
std::int64_t most_elements(const Lowering& l, ValueId b) {
    const Shape& s = l.info(b).shape;
    return l.max_of(s[s.size() - 2]) * l.max_of(s.back());
}

/// Rounds of the loops of matmul.comp. Masked weights may take each of a tile's rows once more, for
/// values that are not finite.
std::int64_t rounds_of(std::int64_t k, bool masked, std::int64_t rows) {
    return (k + 3) / 4 * (1 + (masked ? rows : 0)) + 8 * rows;
}

Dispatch& dispatch(Lowering& l, const Product& p, const MatmulParams& params, Choice choice, Prepare prepare) {
    const Binding a{p.a, Access::read}, b{p.b, Access::read}, c{p.c, Access::read_write}, other{p.other, Access::read};
    if (params.other_beside_bias()) {
        return l.dispatch(std::move(choice.kernels), {a, b, {p.bias, Access::read}, c, other}, prepare, choice.words());
    }
    const Binding bias_or_other = params.has_other() ? other : Binding{p.bias, Access::read};
    return l.dispatch(std::move(choice.kernels), {a, b, bias_or_other, c}, prepare, choice.words());
}

/// True when c has more than so many rows in every run.
bool always_more_rows(const Lowering& l, ValueId c, std::int64_t few) {
    const Shape& s = l.info(c).shape;
    std::int64_t rows = 1;
    for (std::size_t i = 0; i + 1 < s.size(); ++i) {
        if (!s[i].is_constant()) {
            return false;
        }
        rows *= s[i].constant();
    }
    return rows > few;
}

/// Whether a is rounded to f16 once for all tiles of c: for many of them, and with many rows.
bool rounds_once(const Lowering& l, ValueId a, ValueId b, ValueId c, const ReducedArithmetic& reduced,
                 std::int64_t most_rows) {
    constexpr std::int64_t kFewestColumns = 1024;
    const Shape &a_shape = l.info(a).shape, &b_shape = l.info(b).shape;
    const bool shared = std::all_of(b_shape.begin(), b_shape.end() - 2, [](const Dim& d) { return d == Dim(1); });
    return reduced.halves && reduced.coopmat && !l.device().cpu() && shared && most_rows > kMostUnpackedRows &&
           l.max_of(l.info(c).shape.back()) >= kFewestColumns && a_shape.size() <= kMostCodesRank &&
           a_shape.back().is_constant() && a_shape.back().constant() % 8 == 0 &&
           !l.device().leaves_out(kPackedRows.name);
}

std::int64_t sum_parts(const Lowering& l, const ProductPart& part, const MatmulParams& params) {
    return l.device().cpu() ? parts_of_sums(l.info(part.product.a), l.info(part.product.b), params,
                                            [&](const Dim& d) { return l.max_of(d); })
                            : 1;
}

/// Adds up the parts of the sums that follow part 0.
void lower_further_sums(Lowering& l, ProductPart part, MatmulParams params, std::int64_t parts) {
    params.bias = false;
    params.other = kMatmulOtherResidual;
    part.product.other = part.product.c;
    part.form = form_of(l, part.product, params);
    for (std::int64_t i = 1; i < parts; ++i) {
        Choice choice =
            choose(l, part, {}, params, "; part " + std::to_string(i + 1) + " of the sums, if they are so long");
        choice.before = {static_cast<uint>(i)};
        dispatch(l, part.product, params, std::move(choice), prepare_sum_part);
    }
}

/// Lets c take the other operand's memory, in the only dispatch that writes c, where no group reads
/// there what another has written.
void take_place_of_other(const Lowering& l, Dispatch& d, const Product& product, const MatmulParams& params) {
    const auto elsewhere = [&](ValueId v) { return l.info(v).storage != l.info(product.other).storage; };
    // nothing says that an operation on a matrix's elements is called once for each
    const bool once = std::none_of(d.kernels.begin(), d.kernels.end(), [](const Kernel& k) {
        return std::string_view(k.shader->name).ends_with("_elements");
    });
    if (params.has_other() && params.activation <= Activation::relu && once && elsewhere(product.a) &&
        elsewhere(product.b)) {
        d.in_place_input = params.other_beside_bias() ? kMatmulBindingOther : kMatmulBindingBias;
        d.in_place_output = kMatmulBindingC;
    }
}

/// A sum is taken in parts for one of three reasons, of which a product never has two: b is larger
/// than a descriptor and is cut along k (`cut_k`); a processor's cache holds no more of a and b at
/// a time (`sums`); a GPU has too few rows for all of its groups (`split`). `note`, where there is
/// one, is told of the first kernel.
void lower_product(Lowering& l, const Product& product, const MatmulParams& params, const std::string& note = {}) {
    const ValueId a = product.a;
    const std::int64_t k = l.max_of(l.info(a).shape.back());
    const std::int64_t tile_rows = params.backward || l.device().tuned("matmul_rows") ? kMatmulMaxRows : kManyTileRows;
    const bool one_row = params.masked_weights && rounds_of(k, true, tile_rows) > kMostRounds;
    l.check_rounds(rounds_of(k, params.masked_weights, one_row ? 1 : tile_rows),
                   "a sum of " + std::to_string(k) + " products");
    const bool packed = l.weight_type(product.b) != WeightType::f32 && params.transpose_b && !params.masked_weights;
    // a gradient goes along the columns of the weights, which packed ones cannot be read by
    const bool turned = l.weight_type(product.b) != WeightType::f32 && !params.transpose_b;
    const ValueId b = packed ? l.words(product.b) : turned ? numbers_of(l, product.b) : product.b;
    const ValueId c = product.c;
    const std::size_t b_n = l.info(b).shape.size() - 1 - params.b_axes().n;
    const std::int64_t most_rows = rows_at_most(l, b, c);
    const bool large = most_elements(l, product.b) >= kLargeMatrix;
    const bool along_k = is_summed_in_parts(l.info(b), params);
    const std::size_t b_k = l.info(b).shape.size() - 1 - params.b_axes().k;
    const std::vector<ValueId> windows = along_k ? l.chunks(b, b_k, 4) : l.chunks(b, b_n);
    const bool cut = windows.size() > 1, cut_k = cut && along_k;
    const ReducedArithmetic reduced =
        reduced_arithmetic(l, {a, b, product.bias, product.other, c}, params, most_rows, cut_k);
    const bool few = reduced.codes && !always_more_rows(l, c, kMatvecMaxRows);
    const ValueId codes = reduced.codes ? codes_of(l, a) : a;
    const bool rounded_a = !cut_k && rounds_once(l, a, b, c, reduced, most_rows);
    const bool always_rounded = rounded_a && always_more_rows(l, c, kMostUnpackedRows);
    const ValueId halves = rounded_a ? halves_of(l, a, kMostUnpackedRows) : a;
    std::int64_t first = 0;
    for (const ValueId window : windows) {
        ProductPart part{{a, window, product.bias, product.other, c}, {}, most_rows, large, one_row};
        MatmulParams part_params = params;
        const bool further = along_k && window != windows.front();
        const std::int64_t length = cut ? l.info(window).shape[along_k ? b_k : b_n].constant() : 0;
        const auto cut_last = [&](ValueId v) { return l.slice(v, l.info(v).shape.size() - 1, first, length); };
        if (cut_k) {  // the sums so far are the residual of the next part
            require(params.activation == Activation::none && !params.is_gate(), kMatmulName,
                    "a product whose sums are taken in parts has an activation or a gate");
            part.product.a = cut_last(a);
            if (further) {
                part_params.bias = false;
                part_params.other = kMatmulOtherResidual;
                part.product.other = c;
            }
        } else if (cut) {
            part.product.c = cut_last(c);
            part.product.bias = params.bias ? cut_last(product.bias) : product.bias;
            part.product.other = params.has_other() ? cut_last(product.other) : product.other;
        }
        first += length;
        part.form = form_of(l, part.product, part_params);
        std::string why = note;
        if (cut_k) {
            why += "; one of " + std::to_string(windows.size()) + " parts of the sums, for want of larger bindings";
        }
        if (few) {
            ProductPart rows = part;
            rows.most_rows = kMatvecMaxRows;
            dispatch(l, rows.product, part_params, choose(l, rows, {}, part_params, why), prepare_few_rows);
        }
        if (rounded_a) {
            ProductPart of_rounded = part;
            of_rounded.product.a = halves;
            of_rounded.form.a_load = kMatmulAHalves;
            Dispatch& d = dispatch(l, of_rounded.product, part_params, choose(l, of_rounded, reduced, part_params, why),
                                   prepare_halves);
            if (always_rounded && !cut) {
                take_place_of_other(l, d, of_rounded.product, part_params);
            }
        }
        if (always_rounded) {
            continue;
        }
        part.most_rows = rounded_a ? kMostUnpackedRows : most_rows;
        const std::int64_t sums = cut || reduced.halves || reduced.codes ? 1 : sum_parts(l, part, part_params);
        if (sums > 1) {
            why += "; the first of " + std::to_string(sums) + " parts of the sums, whose rows stay in a cache";
        }
        Choice choice = choose(l, part, reduced, part_params, why);
        if (sums > 1) {
            choice.before = {0};
        }
        Product operands = part.product;
        operands.a = reduced.codes ? codes : operands.a;
        const SplitWhen split =
            cut || sums > 1 ? SplitWhen::never : choose_split(choice, l, part, reduced, part_params);
        if (split != SplitWhen::never) {
            lower_split(l, operands, part_params, choice);
        }
        if (split == SplitWhen::always) {
            continue;
        }
        const Prepare how = sums > 1                    ? prepare_sum_part
                            : split != SplitWhen::never ? (rounded_a ? prepare_unpacked_whole_sums : prepare_whole_sums)
                            : rounded_a                 ? prepare_unpacked
                            : reduced.codes             ? prepare_codes
                            : further                   ? prepare_further_part
                                                        : prepare_product;
        Dispatch& d = dispatch(l, operands, part_params, std::move(choice), how);
        if (!cut && !few && !rounded_a && split == SplitWhen::never) {
            take_place_of_other(l, d, operands, params);
        }
        lower_further_sums(l, part, part_params, sums);
    }
}

void lower(Lowering& l) {
    const auto& params = l.params<MatmulParams>();
    const ValueId a = l.input(0);
    const ValueId last = l.node().inputs.back();
    lower_product(l, {a, l.input(1), params.bias ? l.input(2) : a, params.has_other() ? last : a, l.output(0)}, params);
}

std::string declined(const Capabilities& device, const NodeInfo& node, WantedOutputs) {
    const auto& params = *static_cast<const MatmulParams*>(node.params.get());
    if (params.divided && device.cpu()) {
        return "a processor takes its sums in parts, which a residual would come between";
    }
    return params.other_beside_bias() && device.storage_buffers <= kMatmulBindingOther
               ? "the device has " + std::to_string(device.storage_buffers) + " storage buffers a stage, not " +
                     std::to_string(kMatmulBindingOther + 1)
               : "";
}

/// The product with its bias, and then the other tensor.
std::vector<Value> decompose(Graph& graph, const NodeInfo& node, WantedOutputs) {
    MatmulParams params = *static_cast<const MatmulParams*>(node.params.get());
    std::vector<Value> inputs;
    for (const ValueId id : node.inputs) {
        inputs.emplace_back(graph, id);
    }
    const Value other = inputs.back();
    inputs.pop_back();
    const bool times = params.is_gate();
    params.other = kMatmulOtherNone;
    params.divided = false;
    const Value product = add_op(kMatmul, inputs, params, other.shape());
    return {times ? mul(product, other) : add(product, other)};
}

/// One product of weights, and biases, that lie behind each other in memory.
void lower_projections(Lowering& l) {
    const auto& params = l.params<MatmulParams>();
    const ValueId a = l.input(0);
    const std::span<const ValueId> inputs(l.node().inputs);
    const ValueId weights = l.join(inputs.subspan(1, params.weights));
    const ValueId biases = params.bias ? l.join(inputs.subspan(1 + params.weights)) : a;
    lower_product(l, {a, weights, biases, a, l.output(0)}, params,
                  "; " + std::to_string(params.weights) + " weights, one launch");
}

/// The epilogue's other operand is laid out like the result.
bool can_read(const NodeInfo& node, std::size_t i, const ValueInfo& view, const ValueInfo& moved) {
    const auto& params = *static_cast<const MatmulParams*>(node.params.get());
    if (params.has_other() && i + 1 == node.inputs.size()) {
        return moved.strides == contiguous_strides(moved.shape);
    }
    const std::size_t last = view.shape.size() - 1;
    return i == 0   ? sums_alike(view, moved, last, last - 1)
           : i == 1 ? sums_alike(view, moved, last - params.b_axes().k, last - params.b_axes().n)
                    : true;
}

}  // namespace

const OpType kMatmul{.name = kMatmulName,
                     .lower = lower,
                     .declined = declined,
                     .decompose = decompose,
                     .join = join_projections,
                     .can_read = can_read,
                     .gradient = matmul_gradient};
const OpType kProjections{.name = kProjectionsName, .lower = lower_projections, .can_read = can_read_any};

}  // namespace vkf
