// SPDX-License-Identifier: Apache-2.0
#include "matmul.spv.h"
#include "matmul_lanes4.spv.h"
#include "matmul_lanes8.spv.h"
#include "matmul_lanes8_wide.spv.h"
#include "matmul_shared.spv.h"
#include "matvec.spv.h"
#include "ops/add_op.h"
#include "ops/checks.h"
#include "ops/fours.h"
#include "ops/matmul_choice.h"
#include "ops/packed_rows.h"
#include "ops/shared_tile.h"
#include "ops/tuned.h"
#include "shaders/common/rounds.h"

namespace vkf {

namespace {

using namespace shader;
using namespace support;

const Shader kPlain{"matmul", spirv::kMatmulSpirv};
const Shader kLanes4{"matmul_lanes4", spirv::kMatmulLanes4Spirv};
const Shader kLanes8{"matmul_lanes8", spirv::kMatmulLanes8Spirv};
const Shader kLanes8Wide{"matmul_lanes8_wide", spirv::kMatmulLanes8WideSpirv};
const Shader kShared{"matmul_shared", spirv::kMatmulSharedSpirv};
const Shader kMatvec{"matvec", spirv::kMatvecSpirv};

/// True when the value can be read by vec4 along `dim`: unit stride there, everything else a
/// multiple of four.
bool vectorizable(const ValueInfo& v, std::size_t dim) {
    bool good = v.strides[dim] == Dim(1) && by_four(v.shape[dim]) && by_four(v.offset);
    for (std::size_t i = 0; i < v.shape.size(); ++i) {
        good = good && (i == dim || v.shape[i] == Dim(1) || by_four(v.strides[i]));
    }
    return good;
}

struct Form {
    uint a_load, b_load;
    bool c_vec;
};

/// A product's tensors; `bias` and `other` are any of them where there is none.
struct Product {
    ValueId a, b, bias, other, c;
};

Form form_of(const Lowering& l, const Product& product, const MatmulParams& params) {
    const ValueInfo& bi = l.info(product.b);
    const std::size_t rank = bi.shape.size();
    const std::size_t k = rank - 1 - params.b_axes().k;
    const std::size_t n = rank - 1 - params.b_axes().n;
    Form f;
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

/// Up to so many rows a small tile, which compiles sooner, is fast enough.
constexpr uint kSmallModelRows = 128;
/// With fewer elements of b, a product is over before a further kernel has paid for being compiled.
constexpr std::int64_t kLargeMatrix = 512 * 512;
/// The most rows of a large matrix for which small tiles are faster: two of 8 take less than one
/// of 24.
constexpr std::int64_t kSmallTileRows = 16;

/// Rows of a tile for many rows, with 8 lanes. With a third more, a kernel takes a fifth longer to
/// compile and 6 to 9 % less time to run.
constexpr uint kManyTileRows = 24, kManyTileRowsBackward = 32;

/// Processors: tiles in registers, their loads shared out over the lanes where the subgroup's size
/// is certain. The more rows a tile has, the fewer loads a product needs, and the longer its code
/// takes to compile: the smaller ones serve small models.
void choose_for_processor(Choice& choice, const Capabilities& device, const Constants& form, std::int64_t most_rows,
                          bool large, bool one_row, bool backward) {
    const auto constants = [&](uint local, uint rows) { return with_rows(form, local, rows); };
    const uint lanes = device.subgroup_shuffle ? device.exact_subgroup_size : 0;
    const Shader& eight = device.int64 ? kLanes8Wide : kLanes8;
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
        if (most_rows <= choice.words[choice.words.size() - 3]) {
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
    const Tuned rows = tuned(device, "matmul_rows", 8);
    const std::string tile = std::to_string(rows.value) + "x";
    if (lanes == 4) {
        choice.add(kLanes4, constants(4, rows.value), kAnyRows, rows.value, 16,
                   "processor, subgroups of 4: " + tile + "16 tiles" + rows.note);
    } else {
        choice.add(kPlain, constants(16, rows.value), kAnyRows, rows.value, 64,
                   "subgroup size unknown: " + tile + "64 tiles" + rows.note);
    }
}

/// The way in which a product is computed under a program's arithmetic.
struct Reduced {
    /// the numbers that are multiplied, where they are not fp32
    bool halves = false, codes = false;
    bool coopmat = false;    ///< on cooperative matrices
    std::string why_fp32;    ///< though less was asked for
    std::string no_coopmat;  ///< why not on them, where it is not fp32
};

/// GPUs: tiles in shared memory, and sums split over invocations for the few rows of a decoding
/// step.
void choose_for_gpu(Choice& choice, const Capabilities& device, const Constants& form, const MatmulParams& params,
                    std::int64_t most_rows, const Reduced& reduced) {
    Constants matvec = with_rows(form, 64, kMatvecMaxRows);
    const Tuned sharing = tuned(device, "matvec_split", 32);
    const uint split = params.transpose_b ? sharing.value : 1;
    matvec.set(kMatmulSpecSplit, split);
    choice.add(kMatvec, matvec, kMatvecMaxRows, kMatvecMaxRows, 64 / split,
               std::string("up to 4 rows") + (reduced.halves ? ", in fp32" : "") + ": sums split over " +
                   std::to_string(split) + " invocations" + (params.transpose_b ? sharing.note : ""));
    if (most_rows <= kMatvecMaxRows) {
        return;
    }
    if (reduced.coopmat) {
        choose_coopmat(choice, device, form, most_rows);
    } else if (reduced.halves) {
        choose_half(choice, device, form);
    } else {
        SharedTile tile = shared_tile(device, form);
        choice.add(kShared, std::move(tile.constants), kAnyRows, tile.rows, kSharedColumns,
                   "tiles of " + std::to_string(tile.rows) + "x64x" + std::to_string(tile.depth) + " in shared memory" +
                       tile.note);
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

Reduced reduced(const Lowering& l, const Product& product, const MatmulParams& params, std::int64_t most_rows) {
    Reduced out;
    const Capabilities& device = l.device();
    std::string no_matrices;
    if (l.arithmetic() == Arithmetic::f16) {
        no_matrices = no_coopmat(device, params);
        const std::string no_halves = no_half(device, params);
        out.halves = no_matrices.empty() || no_halves.empty();
        if (!out.halves) {
            out.why_fp32 = no_halves == no_matrices ? no_halves : no_matrices + "; " + no_halves;
        }
    } else if (l.arithmetic() == Arithmetic::int8) {
        no_matrices = no_codes_coopmat(device);
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

/// The part of a product that a window on b's columns gives.
struct Part {
    Product product;
    Form form;
    std::int64_t most_rows;
    bool large, one_row;
};

Choice choose(const Lowering& l, const Part& part, const Reduced& reduced, const MatmulParams& params,
              const std::string& note) {
    // small products on processors do without: one kernel fewer to compile is worth more to them
    const bool c_vec = part.form.c_vec && !(l.device().cpu() && part.most_rows <= kSmallModelRows);
    const Constants form(0, {{kMatmulSpecALoad, part.form.a_load},
                             {kMatmulSpecBLoad, part.form.b_load},
                             {kMatmulSpecCVec, c_vec ? 1u : 0u},
                             {kMatmulSpecAct, static_cast<uint>(params.activation)},
                             {kMatmulSpecAMasked, params.masked_weights ? 1u : 0u}});
    Choice choice;
    if (reduced.codes && reduced.coopmat) {
        choose_coopmat(choice, l.device(), form, part.most_rows, true);
    } else if (reduced.codes) {
        choose_dot(choice, l.device(), form);
    } else if (reduced.coopmat && coopmat_is_forced(l.device())) {
        choose_coopmat(choice, l.device(), form, part.most_rows);
    } else if (reduced.halves && half_is_forced(l.device())) {
        choose_half(choice, l.device(), form);
    } else if (l.device().cpu()) {
        choose_for_processor(choice, l.device(), form, part.most_rows, part.large, part.one_row, params.backward);
    } else {
        choose_for_gpu(choice, l.device(), form, params, part.most_rows, reduced);
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
    const bool few = reduced.halves && choice.kernels.back().shader == &kMatvec;
    Kernel& last = choice.kernels.back();
    last.why_fp32 = few ? "products of so few rows are bound by loads" : reduced.why_fp32;
    last.why += few || reduced.no_coopmat.empty() ? "" : "; " + reduced.no_coopmat;
    return choice;
}

Dispatch& dispatch(Lowering& l, const Product& p, const MatmulParams& params, Choice choice, Prepare prepare) {
    const Binding a{p.a, Access::read}, b{p.b, Access::read}, c{p.c, Access::read_write}, other{p.other, Access::read};
    if (params.other_beside_bias()) {
        return l.dispatch(std::move(choice.kernels), {a, b, {p.bias, Access::read}, c, other}, prepare,
                          std::move(choice.words));
    }
    const Binding bias_or_other = params.has_other() ? other : Binding{p.bias, Access::read};
    return l.dispatch(std::move(choice.kernels), {a, b, bias_or_other, c}, prepare, std::move(choice.words));
}

/// True when c has more rows than mat-vecs are for in every run.
bool always_many_rows(const Lowering& l, ValueId c) {
    const Shape& s = l.info(c).shape;
    std::int64_t rows = 1;
    for (std::size_t i = 0; i + 1 < s.size(); ++i) {
        if (!s[i].is_constant()) {
            return false;
        }
        rows *= s[i].constant();
    }
    return rows > kMatvecMaxRows;
}

/// `note`, where there is one, is told of the first kernel.
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
    const Reduced less = reduced(l, {a, b, product.bias, product.other, c}, params, most_rows);
    const bool few = less.codes && !always_many_rows(l, c);
    const ValueId codes = less.codes ? codes_of(l, a) : a;
    const bool along_k = is_summed_in_parts(l.info(b), params);
    const std::size_t b_k = l.info(b).shape.size() - 1 - params.b_axes().k;
    const std::vector<ValueId> windows = along_k ? l.chunks(b, b_k, 4) : l.chunks(b, b_n);
    const bool cut = windows.size() > 1;
    std::int64_t first = 0;
    for (const ValueId window : windows) {
        Part part{{a, window, product.bias, product.other, c}, {}, most_rows, large, one_row};
        MatmulParams of = params;
        const bool further = along_k && window != windows.front();
        const std::int64_t length = cut ? l.info(window).shape[along_k ? b_k : b_n].constant() : 0;
        const auto cut_last = [&](ValueId v) { return l.slice(v, l.info(v).shape.size() - 1, first, length); };
        if (cut && along_k) {  // the sums so far are the residual of the next part
            require(params.activation == Activation::none && !params.is_gate(), kMatmulName,
                    "a product whose sums are taken in parts has an activation or a gate");
            part.product.a = cut_last(a);
            if (further) {
                of.bias = false;
                of.other = kMatmulOtherResidual;
                part.product.other = c;
            }
        } else if (cut) {
            part.product.c = cut_last(c);
            part.product.bias = params.bias ? cut_last(product.bias) : product.bias;
            part.product.other = params.has_other() ? cut_last(product.other) : product.other;
        }
        first += length;
        part.form = form_of(l, part.product, of);
        std::string why = note;
        if (cut && along_k) {
            why += "; one of " + std::to_string(windows.size()) + " parts of the sums, for want of larger bindings";
        }
        if (few) {
            Part rows = part;
            rows.most_rows = kMatvecMaxRows;
            dispatch(l, rows.product, of, choose(l, rows, {}, of, why), prepare_few_rows);
        }
        Choice choice = choose(l, part, less, of, why);
        Product operands = part.product;
        operands.a = less.codes ? codes : operands.a;
        const Prepare how = less.codes ? prepare_codes : further ? prepare_further_part : prepare_product;
        Dispatch& d = dispatch(l, operands, of, std::move(choice), how);
        const auto elsewhere = [&](ValueId v) { return l.info(v).storage != l.info(operands.other).storage; };
        if (params.has_other() && !cut && params.activation <= Activation::relu && !few &&
            // others read of a and b what one writes of c
            elsewhere(operands.a) && elsewhere(operands.b)) {
            d.in_place_input = params.other_beside_bias() ? kMatmulBindingOther : kMatmulBindingBias;
            d.in_place_output = kMatmulBindingC;
        }
    }
}

void lower(Lowering& l) {
    const auto& params = l.params<MatmulParams>();
    const ValueId a = l.input(0);
    const ValueId last = l.node().inputs.back();
    lower_product(l, {a, l.input(1), params.bias ? l.input(2) : a, params.has_other() ? last : a, l.output(0)}, params);
}

std::string declined(const Capabilities& device, const NodeInfo& node, WantedOutputs) {
    const bool five = static_cast<const MatmulParams*>(node.params.get())->other_beside_bias();
    return five && device.storage_buffers <= kMatmulBindingOther
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

/// Whether the epilogue's other operand is laid out like the result.
bool can_read(const NodeInfo& node, std::size_t i, const ValueInfo& view) {
    const auto& params = *static_cast<const MatmulParams*>(node.params.get());
    const bool other = params.has_other() && i + 1 == node.inputs.size();
    return !other || view.strides == contiguous_strides(view.shape);
}

}  // namespace

Constants with_rows(Constants form, uint local_size, uint rows) {
    form.set_local_size(local_size);
    form.set(kMatmulSpecRows, rows);
    return form;
}

SharedTile shared_tile(const Capabilities& device, const Constants& form) {
    const uint by_capability = device.max_invocations >= 256 ? 64 : 32;
    const Tuned rows = device.cpu() ? Tuned{by_capability, ""} : tuned(device, "matmul_rows", by_capability);
    const Tuned depth = tuned(device, "matmul_depth", kSharedDepth);
    SharedTile out{with_rows(form, rows.value * kSharedColumns / 16, rows.value), rows.value, depth.value,
                   rows.note.empty() ? depth.note : rows.note};
    out.constants.set(kMatmulSpecTileRows, rows.value);
    out.constants.set(kMatmulSpecTileColumns, kSharedColumns);
    out.constants.set(kMatmulSpecTileDepth, depth.value);
    return out;
}

const OpType kMatmul{.name = kMatmulName,
                     .lower = lower,
                     .declined = declined,
                     .decompose = decompose,
                     .join = join_projections,
                     .can_read = can_read,
                     .gradient = matmul_gradient};
const OpType kProjections{.name = kProjectionsName, .lower = lower_projections, .can_read = can_read_any};

}  // namespace vkf
