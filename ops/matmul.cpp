// SPDX-License-Identifier: Apache-2.0
#include "shaders/matmul.h"
#include "matmul.spv.h"
#include "matmul_lanes4.spv.h"
#include "matmul_lanes8.spv.h"
#include "matmul_shared.spv.h"
#include "matvec.spv.h"
#include "ops/support.h"

namespace vkf {

namespace {

using namespace shader;
using namespace support;

const Shader kPlain{"matmul", spirv::kMatmulSpirv};
const Shader kLanes4{"matmul_lanes4", spirv::kMatmulLanes4Spirv};
const Shader kLanes8{"matmul_lanes8", spirv::kMatmulLanes8Spirv};
const Shader kShared{"matmul_shared", spirv::kMatmulSharedSpirv};
const Shader kMatvec{"matvec", spirv::kMatvecSpirv};
constexpr const char* kName = "matmul";

struct MatmulParams {
    Activation activation;
    float scale;
    bool bias, transpose_b, masked_weights;
};

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
    f.b_load = vectorizable(bi, k) ? kMatmulBVecK : vectorizable(bi, n) ? kMatmulBVecN : kMatmulBScalar;
    f.c_vec = vectorizable(l.info(c), l.info(c).shape.size() - 1) &&
              (!params.bias || vectorizable(l.info(bias), l.info(bias).shape.size() - 1));
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

/// Processors: tiles in registers, their loads shared out over the lanes where the subgroup's size is certain. The more rows
/// a tile has, the fewer loads a product needs, and the longer its code takes to compile: the smaller ones serve small models.
void choose_for_processor(Choice& choice, const Capabilities& device, const std::vector<uint>& form,
                          std::int64_t most_rows) {
    const auto constants = [&](uint local, uint rows) {
        std::vector<uint> out{local, rows};
        out.insert(out.end(), form.begin(), form.end());
        return out;
    };
    const uint lanes = device.subgroup_shuffle ? device.exact_subgroup_size : 0;
    if (lanes == 8) {
        choice.add(kLanes8, constants(8, 8), kSmallModelRows, 8, 32, "processor, subgroups of 8: 8x32 tiles");
        if (most_rows > kSmallModelRows) {
            choice.add(kLanes8, constants(8, 24), kAnyRows, 24, 32, "many rows: 24x32 tiles");
        }
    } else if (lanes == 4) {
        choice.add(kLanes4, constants(4, 8), kAnyRows, 8, 16, "processor, subgroups of 4: 8x16 tiles");
    } else {
        choice.add(kPlain, constants(16, 8), kAnyRows, 8, 64, "subgroup size unknown: 8x64 tiles");
    }
}

/// GPUs: tiles in shared memory, and sums split over invocations for the few rows of a decoding step.
void choose_for_gpu(Choice& choice, const Capabilities& device, const std::vector<uint>& form,
                    const MatmulParams& params, std::int64_t most_rows) {
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

void lower(Lowering& l) {
    const auto& params = l.params<MatmulParams>();
    const ValueId a = l.input(0);
    const ValueId b = l.input(1);
    const ValueId c = l.output(0);
    const std::size_t b_n = l.info(b).shape.size() - 1 - b_axes(params.transpose_b).n;
    const std::int64_t most_rows = rows_at_most(l, b, c);
    const std::vector<ValueId> windows = l.chunks(b, b_n);
    std::int64_t first = 0;
    for (const ValueId window : windows) {
        ValueId c_part = c;
        ValueId bias = params.bias ? l.input(2) : a;
        if (windows.size() > 1) {
            const std::int64_t columns = l.info(window).shape[b_n].constant();
            c_part = l.slice(c, l.info(c).shape.size() - 1, first, columns);
            bias = params.bias ? l.slice(bias, 0, first, columns) : bias;
            first += columns;
        }
        const Form f = form_of(l, a, window, bias, c_part, params);
        // small products on processors do without: one kernel fewer to compile is worth more to them
        const bool c_vec = f.c_vec && !(l.device().cpu() && most_rows <= kSmallModelRows);
        const std::vector<uint> form{f.a_vec ? 1u : 0u, f.b_load, c_vec ? 1u : 0u, static_cast<uint>(params.activation),
                                     params.masked_weights ? 1u : 0u};
        Choice choice;
        if (l.device().cpu()) {
            choose_for_processor(choice, l.device(), form, most_rows);
        } else {
            choose_for_gpu(choice, l.device(), form, params, most_rows);
        }
        choice.kernels.front().why +=
            std::string(f.a_vec ? "; vec4 a, " : "; scalar a, ") + (f.b_load == kMatmulBVecK   ? "vec4 b along k"
                                                                    : f.b_load == kMatmulBVecN ? "vec4 b along n"
                                                                                               : "scalar b");
        l.dispatch(std::move(choice.kernels),
                   {{a, Access::read}, {window, Access::read}, {bias, Access::read}, {c_part, Access::read_write}},
                   encode, std::move(choice.words));
    }
}

constexpr OpType kMatmul{kName, lower};

/// The batch dimensions of a and b together.
Shape broadcast_batches(const Value& a, const Value& b) {
    const Shape& s = a.shape();
    const Shape& t = b.shape();
    const std::size_t rank = std::max(s.size(), t.size()) - 2;
    Shape out(rank, Dim(1));
    for (std::size_t i = 0; i < rank; ++i) {  // from the innermost batch dimension
        const Dim x = i + 2 < s.size() ? s[s.size() - 3 - i] : Dim(1);
        const Dim y = i + 2 < t.size() ? t[t.size() - 3 - i] : Dim(1);
        require(x == y || x == Dim(1) || y == Dim(1), kName,
                "batch dimensions of " + a.str() + " and " + b.str() + " do not broadcast: " + a.graph().str(x) +
                    " against " + a.graph().str(y));
        out[rank - 1 - i] = x == Dim(1) ? y : x;
    }
    return out;
}

}  // namespace

Value matmul(Value a, Value b, const MatmulOptions& o) {
    require_dtype(kName, a, DType::f32);
    require_dtype(kName, b, DType::f32);
    require(a.rank() >= 2 && b.rank() >= 2, kName,
            a.str() + " and " + b.str() + " must both be matrices or batches of them");
    require_finite(kName, "scale", o.scale);
    const Dim b_k = b.size(o.transpose_b ? -1 : -2);
    const Dim b_n = b.size(o.transpose_b ? -2 : -1);
    require(a.size(-1) == b_k, kName,
            "inner sizes of " + a.str() + " and " + b.str() + (o.transpose_b ? " transposed" : "") +
                " differ: " + a.graph().str(a.size(-1)) + " against " + a.graph().str(b_k));
    Shape shape = broadcast_batches(a, b);
    shape.push_back(a.size(-2));
    shape.push_back(b_n);
    std::vector<Value> inputs{a, b};
    if (o.bias) {
        require_dtype(kName, o.bias, DType::f32);
        require(o.bias.shape() == Shape{b_n}, kName,
                "bias " + o.bias.str() + " must have the " + a.graph().str(b_n) + " columns of the result");
        inputs.push_back(o.bias);
    }
    std::vector<std::size_t> order;
    if (o.heads_last) {
        require(shape.size() >= 4, kName, a.str() + " has no batch and heads to store apart");
        order = {0, shape.size() - 2};
        for (std::size_t i = 1; i + 2 < shape.size(); ++i) {
            order.push_back(i);
        }
        order.push_back(shape.size() - 1);
    }
    return add_op(kMatmul, inputs, MatmulParams{o.activation, o.scale, bool(o.bias), o.transpose_b, o.masked_weights},
                  shape, DType::f32, order);
}

Value linear(Value x, Value weight, Value bias, Activation activation) {
    require(weight.rank() == 2, "linear", weight.str() + " must be (out, in)");
    if (x.rank() == 1) {
        return reshape(linear(reshape(x, {1, x.size(0)}), weight, bias, activation), {weight.size(0)});
    }
    MatmulOptions o;
    o.bias = bias;
    o.activation = activation;
    o.transpose_b = true;
    return matmul(x, weight, o);
}

}  // namespace vkf
