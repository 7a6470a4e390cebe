// SPDX-License-Identifier: Apache-2.0
#include "matmul.spv.h"
#include "matmul_lanes4.spv.h"
#include "matmul_lanes8.spv.h"
#include "matmul_shared.spv.h"
#include "matvec.spv.h"
#include "ops/matmul_params.h"
#include "ops/matmul_tiles.h"
#ifdef VKFORMER_GL_KHR_COOPERATIVE_MATRIX
#include "matmul_coopmat.spv.h"
#endif

namespace vkf {

namespace {

using namespace shader;
using namespace support;

const Shader kPlain{"matmul", spirv::kMatmulSpirv};
const Shader kLanes4{"matmul_lanes4", spirv::kMatmulLanes4Spirv};
const Shader kLanes8{"matmul_lanes8", spirv::kMatmulLanes8Spirv};
const Shader kShared{"matmul_shared", spirv::kMatmulSharedSpirv};
const Shader kMatvec{"matvec", spirv::kMatvecSpirv};
#ifdef VKFORMER_GL_KHR_COOPERATIVE_MATRIX
const Shader kCoopmat{"matmul_coopmat", spirv::kMatmulCoopmatSpirv};
constexpr bool kHasCoopmat = true;
#else
const Shader kCoopmat{"matmul_coopmat", {}};
constexpr bool kHasCoopmat = false;
#endif
constexpr const char* kName = kMatmulName;

// --- at record time ------------------------------------------------------------------------------------------------------

/// Where b's k and n dimensions are, counted from the innermost.
struct BAxes {
    std::size_t k, n;
};

BAxes b_axes(bool transpose_b) { return transpose_b ? BAxes{0, 1} : BAxes{1, 0}; }

uint batch_stride(const View& v, std::size_t i) { return v.size[i] == 1 ? 0 : v.stride[i]; }

MatmulPush describe(const Operands& operands) noexcept {
    const auto& params = operands.params<MatmulParams>();
    const View& a = operands[kMatmulBindingA];
    const View& b = operands[kMatmulBindingB];
    const View& bias = operands[kMatmulBindingBias];
    const View& c = operands[kMatmulBindingC];
    const BAxes axes = b_axes(params.transpose_b);
    MatmulPush push{};
    push.m = c.dim(1);
    push.n = c.dim(0);
    push.k = a.dim(0);
    push.batch1 = c.size[1];
    push.batch2 = c.size[2];
    for (std::size_t i = 0; i < 3; ++i) {
        push.a_batch[i] = batch_stride(a, i);
        push.b_batch[i] = batch_stride(b, i);
        push.c_batch[i] = batch_stride(c, i);
    }
    push.a_row = a.step(1);
    push.a_k = a.step(0);
    push.a_offset = a.offset;
    push.b_k = b.step(axes.k);
    push.b_column = b.step(axes.n);
    push.b_offset = b.offset;
    push.c_row = c.step(1);
    push.c_column = c.step(0);
    push.c_offset = c.offset;
    push.bias_stride = params.bias ? bias.step(0) : 0;
    push.bias_offset = bias.offset;
    push.alpha = params.scale;
    return push;
}

/// Turns batches that share b and follow each other in a and c into further rows: (B, T, K) x W is one product of B*T rows.
std::uint64_t fold_batches(MatmulPush& push, std::uint64_t batch0) noexcept {
    std::uint64_t sizes[3] = {batch0, push.batch1, push.batch2};
    for (int inner = 2; inner >= 0; --inner) {
        const bool follows =
            sizes[inner] == 1 || (push.b_batch[inner] == 0 && push.a_batch[inner] == push.m * push.a_row &&
                                  push.c_batch[inner] == push.m * push.c_row);
        if (!follows) {
            break;
        }
        push.m *= static_cast<uint>(sizes[inner]);
        sizes[inner] = 1;
    }
    push.batch1 = static_cast<uint>(sizes[1]);
    push.batch2 = static_cast<uint>(sizes[2]);
    return sizes[0] * sizes[1] * sizes[2];
}

void encode(const Operands& operands, Command& command) noexcept {
    MatmulPush push = describe(operands);
    const View& c = operands[kMatmulBindingC];
    const double outputs = static_cast<double>(c.elements());
    const double k = push.k;
    command.cost(2.0 * outputs * k, 4.0 * (outputs + static_cast<double>(operands[kMatmulBindingA].elements()) +
                                           static_cast<double>(operands[kMatmulBindingB].elements())));
    if (c.elements() == 0) {
        command.push(push);
        command.groups(0);
        return;
    }
    const std::uint64_t batches = fold_batches(push, c.size[0]);
    uint at = 0;  // words: of each kernel the most rows it is for, and the rows and columns of its tile
    while (at + 3 < operands.words.size() && push.m > operands.words[at]) {
        at += 3;
    }
    command.kernel(at / 3);
    command.push(push);
    command.groups(batches * divide_up(push.m, operands.words[at + 1]) * divide_up(push.n, operands.words[at + 2]));
}

// --- at lowering -----------------------------------------------------------------------------------------------------------

bool by_four(const Dim& d) {
    Dim quotient;
    return d == Dim(0) || d.divided_by(Dim(4), quotient);
}

/// True when the value can be read by vec4 along `dim`: unit stride there, everything else a multiple of four.
bool vectorizable(const ValueInfo& v, std::size_t dim) {
    bool good = v.strides[dim] == Dim(1) && by_four(v.shape[dim]) && by_four(v.offset);
    for (std::size_t i = 0; i < v.shape.size(); ++i) {
        good = good && (i == dim || v.shape[i] == Dim(1) || by_four(v.strides[i]));
    }
    return good;
}

static_assert(static_cast<uint>(WeightType::f16) == kPackedF16 && static_cast<uint>(WeightType::bf16) == kPackedBf16 &&
              static_cast<uint>(WeightType::int8) == kPackedInt8 && static_cast<uint>(WeightType::int4) == kPackedInt4);

struct Form {
    bool a_vec;
    uint b_load;
    bool c_vec;
};

Form form_of(const Lowering& l, ValueId a, ValueId b, ValueId bias, ValueId c, const MatmulParams& params) {
    const ValueInfo& bi = l.info(b);
    const std::size_t rank = bi.shape.size();
    const std::size_t k = rank - 1 - b_axes(params.transpose_b).k;
    const std::size_t n = rank - 1 - b_axes(params.transpose_b).n;
    Form f;
    f.a_vec = vectorizable(l.info(a), l.info(a).shape.size() - 1);
    f.b_load = bi.words              ? kMatmulBPacked + static_cast<uint>(l.weight_type(b))
               : vectorizable(bi, k) ? kMatmulBVecK
               : vectorizable(bi, n) ? kMatmulBVecN
                                     : kMatmulBScalar;
    f.c_vec = vectorizable(l.info(c), l.info(c).shape.size() - 1) &&
              (!params.has_third() || vectorizable(l.info(bias), l.info(bias).shape.size() - 1));
    return f;
}

/// Kernels from the one for fewest rows to the one for most, and the tile of each.
struct Choice {
    std::vector<Kernel> kernels;
    std::vector<uint> words;  // as encode() reads them

    void add(const Shader& shader, std::vector<uint> constants, uint most_rows, uint rows, uint columns,
             std::string why) {
        kernels.push_back({&shader, std::move(constants), std::move(why)});
        words.insert(words.end(), {most_rows, rows, columns});
    }
};

constexpr uint kAnyRows = ~0u;
/// Up to so many rows a small tile, which compiles sooner, is fast enough.
constexpr uint kSmallModelRows = 128;
/// With fewer elements of b, a product is over before a further kernel has paid for being compiled.
constexpr std::int64_t kLargeMatrix = 512 * 512;
/// Of large ones, the most rows for which small tiles are faster: two of 8 take less than one of 24.
constexpr std::int64_t kSmallTileRows = 16;

/// Processors: tiles in registers, their loads shared out over the lanes where the subgroup's size is certain. The more rows
/// a tile has, the fewer loads a product needs, and the longer its code takes to compile: the smaller ones serve small models.
void choose_for_processor(Choice& choice, const Capabilities& device, const std::vector<uint>& form,
                          std::int64_t most_rows, bool large, bool one_row) {
    const auto constants = [&](uint local, uint rows) {
        std::vector<uint> out{local, rows};
        out.insert(out.end(), form.begin(), form.end());
        return out;
    };
    const uint lanes = device.subgroup_shuffle ? device.exact_subgroup_size : 0;
    if (one_row) {
        choice.add(kPlain, constants(16, 1), kAnyRows, 1, 64, "a long sum of masked weights: 1x64 tiles");
        return;
    }
    if (large) {  // few rows: each weight is read once, so it is loads that count
        if (lanes == 8) {
            choice.add(kLanes8, constants(8, 1), 1, 1, 32, "one row: 1x32 tiles");
            if (most_rows > 1) {
                choice.add(kLanes8, constants(8, 4), kMatmulFewRows, 4, 32, "few rows: 4x32 tiles");
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
        choice.add(kLanes8, constants(8, 8), static_cast<uint>(small), 8, 32, "processor, subgroups of 8: 8x32 tiles");
        if (most_rows > small) {
            choice.add(kLanes8, constants(8, 24), kAnyRows, 24, 32, "many rows: 24x32 tiles");
        }
    } else if (lanes == 4) {
        choice.add(kLanes4, constants(4, 8), kAnyRows, 8, 16, "processor, subgroups of 4: 8x16 tiles");
    } else {
        choice.add(kPlain, constants(16, 8), kAnyRows, 8, 64, "subgroup size unknown: 8x64 tiles");
    }
}

/// Matrices of a subgroup, down and across, and how many subgroups of a work group lie below and beside each other.
struct CoopmatPlan {
    uint most_rows, mats_down, mats_across, down, across;
};
/// For few rows, some, many: tiles of 32x128, 64x64 and 128x128 where matrices are 16x16.
constexpr CoopmatPlan kCoopmatPlans[] = {{32, 2, 2, 1, 4}, {512, 2, 2, 2, 2}, {kAnyRows, 4, 2, 2, 4}};
/// For processors, and devices too small for those.
constexpr CoopmatPlan kSmallCoopmatPlan{kAnyRows, 2, 1, 1, 2};

void add_coopmat(Choice& choice, const CoopmatTile& t, const std::vector<uint>& form, uint most_rows) {
    std::vector<uint> c{t.invocations(), t.subgroup_rows};
    c.insert(c.end(), form.begin(), form.end());
    c.resize(kMatmulSpecSubgroup + 1, 0);
    c[kMatmulSpecTileRows] = t.rows;
    c[kMatmulSpecTileColumns] = t.columns;
    c[kMatmulSpecTileDepth] = t.depth;
    c[kMatmulSpecMatRows] = t.mat.m;
    c[kMatmulSpecMatColumns] = t.mat.n;
    c[kMatmulSpecMatDepth] = t.mat.k;
    c[kMatmulSpecSubgroupRows] = t.subgroup_rows;
    c[kMatmulSpecSubgroupColumns] = t.subgroup_columns;
    c[kMatmulSpecSubgroup] = t.subgroup;
    choice.add(kCoopmat, std::move(c), most_rows, t.rows, t.columns, "f16 arithmetic, tiles of " + t.str());
    choice.kernels.back().subgroup_size = t.subgroup;
}

void add_coopmat(Choice& choice, const Capabilities& device, const CoopmatPlan& plan, const std::vector<uint>& form) {
    if (const auto tile = coopmat_tile(device, plan.mats_down, plan.mats_across, plan.down, plan.across)) {
        add_coopmat(choice, *tile, form, plan.most_rows);
    }
}

/// Kernels with cooperative matrices, behind those for fewer rows that are there already.
void choose_coopmat(Choice& choice, const Capabilities& device, const std::vector<uint>& form, std::int64_t most_rows) {
    const std::size_t before = choice.kernels.size();
    for (const CoopmatPlan& plan : kCoopmatPlans) {
        if (device.cpu()) {
            break;
        }
        add_coopmat(choice, device, plan, form);
        if (most_rows <= plan.most_rows) {
            break;
        }
    }
    if (choice.kernels.size() == before) {
        add_coopmat(choice, device, kSmallCoopmatPlan, form);
    }
    choice.words[choice.words.size() - 3] = kAnyRows;  // the last serves what is left
}

bool some_tile_fits(const Capabilities& device) {
    const CoopmatPlan& least = kSmallCoopmatPlan;
    return coopmat_tile(device, least.mats_down, least.mats_across, least.down, least.across).has_value();
}

/// What keeps a product of a program for f16 from cooperative matrices; empty: nothing.
std::string no_coopmat(const Capabilities& device, const MatmulParams& params) {
    const bool forced = device.asks_for(kCoopmat.name);
    const std::string lacking = !kHasCoopmat ? "this build has none, for want of a shader compiler that knows them"
                                : !device.cooperative_matrix ? "the device has none, or was not told of them"
                                : !some_tile_fits(device)    ? "the device has none of a shape that fits"
                                                             : "";
    if (forced && !lacking.empty()) {
        fail(kName, "VKFORMER_VARIANT asks for matmul_coopmat, which needs cooperative matrices: " + lacking);
    }
    return !lacking.empty()          ? "no cooperative matrices: " + lacking
           : params.masked_weights   ? "masked weights are multiplied in fp32"
           : device.cpu() && !forced ? "on a processor cooperative matrices are the slower way"
                                     : "";
}

/// GPUs: tiles in shared memory, and sums split over invocations for the few rows of a decoding step.
void choose_for_gpu(Choice& choice, const Capabilities& device, const std::vector<uint>& form,
                    const MatmulParams& params, std::int64_t most_rows, bool coopmat) {
    std::vector<uint> matvec{64, 4};
    matvec.insert(matvec.end(), form.begin(), form.end());
    matvec.resize(kMatmulSpecSplit + 1, 0);
    const uint split = params.transpose_b ? 32 : 1;
    matvec[kMatmulSpecSplit] = split;
    choice.add(kMatvec, matvec, kMatvecMaxRows, kMatvecMaxRows, 64 / split,
               "up to 4 rows: sums split over " + std::to_string(split) + " invocations");
    if (most_rows <= kMatvecMaxRows) {
        return;
    }
    if (coopmat) {
        choose_coopmat(choice, device, form, most_rows);
        return;
    }
    const bool large = device.max_invocations >= 256;
    const uint rows = large ? 64 : 32;
    std::vector<uint> shared{rows * 64 / 16, rows};
    shared.insert(shared.end(), form.begin(), form.end());
    shared.resize(kMatmulSpecTileDepth + 1, 0);
    shared[kMatmulSpecTileRows] = rows;
    shared[kMatmulSpecTileColumns] = 64;
    shared[kMatmulSpecTileDepth] = 16;
    choice.add(kShared, shared, kAnyRows, rows, 64, "tiles of " + std::to_string(rows) + "x64x16 in shared memory");
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

/// Of one of the matrices, at the largest sizes.
std::int64_t most_elements(const Lowering& l, ValueId b) {
    const Shape& s = l.info(b).shape;
    return l.max_of(s[s.size() - 2]) * l.max_of(s.back());
}

/// Rounds of the loops of matmul.comp. Masked weights may take each of a tile's rows once more, for values that are not finite.
std::int64_t rounds_of(std::int64_t k, bool masked, std::int64_t rows) {
    return (k + 3) / 4 * (1 + (masked ? rows : 0)) + 8 * rows;
}

/// A product's tensors; `third` is any of them where there is none.
struct Product {
    ValueId a, b, third, c;
};

/// `note`, where there is one, is told of the first kernel.
void lower_product(Lowering& l, const Product& product, const MatmulParams& params, const std::string& note = {}) {
    const ValueId a = product.a;
    const std::int64_t k = l.max_of(l.info(a).shape.back());
    constexpr std::int64_t kMostTileRows = 24;
    const bool one_row = params.masked_weights && rounds_of(k, true, kMostTileRows) > kMostRounds;
    l.check_rounds(rounds_of(k, params.masked_weights, one_row ? 1 : kMostTileRows),
                   "a sum of " + std::to_string(k) + " products");
    const bool packed = l.weight_type(product.b) != WeightType::f32 && params.transpose_b && !params.masked_weights;
    const ValueId b = packed ? l.words(product.b) : product.b;
    const ValueId c = product.c;
    const std::size_t b_n = l.info(b).shape.size() - 1 - b_axes(params.transpose_b).n;
    const std::int64_t most_rows = rows_at_most(l, b, c);
    const bool large = most_elements(l, product.b) >= kLargeMatrix;
    const bool f16 = l.arithmetic() == Arithmetic::f16;
    const std::string no_f16 = f16 ? no_coopmat(l.device(), params) : "";
    const bool coopmat = f16 && no_f16.empty();
    const std::vector<ValueId> windows = l.chunks(b, b_n);
    std::int64_t first = 0;
    for (const ValueId window : windows) {
        ValueId c_part = c;
        ValueId bias = product.third;
        if (windows.size() > 1) {
            const std::int64_t columns = l.info(window).shape[b_n].constant();
            c_part = l.slice(c, l.info(c).shape.size() - 1, first, columns);
            bias = params.has_third() ? l.slice(bias, l.info(bias).shape.size() - 1, first, columns) : bias;
            first += columns;
        }
        const Form f = form_of(l, a, window, bias, c_part, params);
        // small products on processors do without: one kernel fewer to compile is worth more to them
        const bool c_vec = f.c_vec && !(l.device().cpu() && most_rows <= kSmallModelRows);
        const std::vector<uint> form{f.a_vec ? 1u : 0u, f.b_load, c_vec ? 1u : 0u, static_cast<uint>(params.activation),
                                     params.masked_weights ? 1u : 0u};
        Choice choice;
        if (coopmat && l.device().asks_for(kCoopmat.name)) {
            choose_coopmat(choice, l.device(), form, most_rows);
        } else if (l.device().cpu()) {
            choose_for_processor(choice, l.device(), form, most_rows, large, one_row);
        } else {
            choose_for_gpu(choice, l.device(), form, params, most_rows, coopmat);
        }
        choice.kernels.front().why +=
            (f.a_vec ? "; vec4 a, " : "; scalar a, ") + describe_load(l, window, f.b_load) + note;
        choice.kernels.back().why += no_f16.empty() ? "" : "; fp32, though f16 was asked for: " + no_f16;
        if (params.third != kMatmulThirdBias) {
            for (Kernel& kernel : choice.kernels) {
                kernel.constants.resize(kMatmulSpecThird + 1, 0);
                kernel.constants[kMatmulSpecThird] = params.third;
                kernel.why += params.third == kMatmulThirdTimes ? "; times a tensor" : "; plus a tensor";
            }
        }
        Dispatch& d =
            l.dispatch(std::move(choice.kernels),
                       {{a, Access::read}, {window, Access::read}, {bias, Access::read}, {c_part, Access::read_write}},
                       encode, std::move(choice.words));
        if (params.third != kMatmulThirdBias && windows.size() == 1 && params.activation <= Activation::relu) {
            d.in_place_input = kMatmulBindingBias;
            d.in_place_output = kMatmulBindingC;
        }
    }
}

void lower(Lowering& l) {
    const auto& params = l.params<MatmulParams>();
    const ValueId a = l.input(0);
    lower_product(l, {a, l.input(1), params.has_third() ? l.input(2) : a, l.output(0)}, params);
}

/// One product where weights, and biases, lie behind each other in memory; else one for each weight, of its columns.
void lower_projections(Lowering& l) {
    const auto& params = l.params<MatmulParams>();
    const ValueId a = l.input(0);
    const ValueId c = l.output(0);
    const std::span<const ValueId> inputs(l.node().inputs);
    const auto weights = inputs.subspan(1, params.weights);
    const auto biases = inputs.subspan(1 + params.weights);
    const Lowering::Joined w = l.join(weights);
    const Lowering::Joined b = params.bias ? l.join(biases) : Lowering::Joined{a, {}};
    const std::string& apart = w.apart.empty() ? b.apart : w.apart;
    if (apart.empty()) {
        lower_product(l, {a, w.value, b.value, c}, params,
                      "; " + std::to_string(params.weights) + " weights, one launch");
        return;
    }
    std::int64_t first = 0;
    for (std::size_t i = 0; i < params.weights; ++i) {
        const std::int64_t columns = l.info(weights[i]).shape[0].constant();
        const ValueId part = l.slice(c, l.info(c).shape.size() - 1, first, columns);
        lower_product(l, {a, weights[i], params.bias ? biases[i] : a, part}, params, "; a launch a weight: " + apart);
        first += columns;
    }
}

}  // namespace

const OpType kMatmul{kName, lower};
const OpType kProjections{kProjectionsName, lower_projections};

}  // namespace vkf
