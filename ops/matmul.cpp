// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "ops/add_op.h"
#include "ops/checks.h"
#include "ops/gradient.h"
#include "ops/matmul_params.h"
#include "ops/stored_order.h"

namespace vkf {

namespace {

using namespace shader;
using namespace support;

constexpr const char* kName = kMatmulName;

/// The batch dimensions of a and b together.
Shape broadcast_batches(const char* op, const Value& a, const Value& b) {
    const Shape& s = a.shape();
    const Shape& t = b.shape();
    const std::size_t rank = std::max(s.size(), t.size()) - 2;
    Shape out(rank, Dim(1));
    for (std::size_t i = 0; i < rank; ++i) {  // from the innermost batch dimension
        const Dim x = i + 2 < s.size() ? s[s.size() - 3 - i] : Dim(1);
        const Dim y = i + 2 < t.size() ? t[t.size() - 3 - i] : Dim(1);
        require(x == y || x == Dim(1) || y == Dim(1), op,
                "batch dimensions of " + a.str() + " and " + b.str() + " do not broadcast: " + a.graph().str(x) +
                    " against " + a.graph().str(y));
        out[rank - 1 - i] = x == Dim(1) ? y : x;
    }
    return out;
}

Value transposed(Value x) { return transpose(x, -1, -2); }

/// (..., M, K) as one matrix of all rows.
Value all_rows(Value x) {
    Dim rows = 1;
    for (std::size_t i = 0; i + 1 < x.rank(); ++i) {
        rows = rows * x.shape()[i];
    }
    return reshape_or_copy(x, {rows, x.size(-1)});
}

/// One product of a gradient, which lies in memory as `like` does where it has its shape.
Value gradient_product(Value a, Value b, const MatmulParams& of, bool masked, const Value& like) {
    MatmulParams p{Activation::none, of.scale, false, false, masked};
    p.backward = true;
    Shape shape = broadcast_batches(kName, a, b);
    shape.push_back(a.size(-2));
    shape.push_back(b.size(-1));
    const std::vector<std::size_t> order = like.shape() == shape ? order_like(like) : std::vector<std::size_t>();
    return sum_to(add_op(kMatmul, {a, b}, p, shape, DType::f32, order), like.shape());
}

/// A product for the op of that name.
Value multiply(const char* op, Value a, Value b, const MatmulOptions& options) {
    require_dtype(op, a, DType::f32);
    require_dtype(op, b, DType::f32);
    require(a.rank() >= 2 && b.rank() >= 2, op,
            a.str() + " and " + b.str() + " must both be matrices or batches of them");
    require_finite(op, "scale", options.scale);
    const Dim b_k = b.size(options.transpose_b ? -1 : -2);
    const Dim b_n = b.size(options.transpose_b ? -2 : -1);
    require(a.size(-1) == b_k, op,
            "inner sizes of " + a.str() + " and " + b.str() + (options.transpose_b ? " transposed" : "") +
                " differ: " + a.graph().str(a.size(-1)) + " against " + a.graph().str(b_k));
    Shape shape = broadcast_batches(op, a, b);
    shape.push_back(a.size(-2));
    shape.push_back(b_n);
    std::vector<Value> inputs{a, b};
    if (options.bias) {
        require_dtype(op, options.bias, DType::f32);
        require(options.bias.shape() == Shape{b_n}, op,
                "bias " + options.bias.str() + " must have the " + a.graph().str(b_n) + " columns of the result");
        inputs.push_back(options.bias);
    }
    // what the activation is applied to stays visible, to gradients: the epilogue takes it in
    MatmulParams params{Activation::none, options.scale, bool(options.bias), options.transpose_b,
                        options.masked_weights};
    params.masked_gradient = options.masked_gradient;
    std::vector<std::size_t> order;
    if (options.heads_last) {
        require(shape.size() >= 4, op, a.str() + " has no batch and heads to store apart");
        order = {0, shape.size() - 2};
        for (std::size_t i = 1; i + 2 < shape.size(); ++i) {
            order.push_back(i);
        }
        order.push_back(shape.size() - 1);
    }
    const Value y = add_op(kMatmul, inputs, params, shape, DType::f32, order);
    return options.activation == Activation::none ? y : activate(y, options.activation);
}

}  // namespace

/// dA = scale dC B^T and dB = scale A^T dC, batches that an operand lacks summed up. Where weights
/// or what comes in are masked, so are their products.
std::vector<Value> matmul_gradient(const GradientSite& site) {
    const MatmulParams p = site.params<MatmulParams>();
    require(p.activation == Activation::none && !p.has_other(), kName, "an epilogue is no op that people write");
    const Value a = site.input(0), b = site.input(1), dc = site.gradient();
    std::vector<Value> out(site.inputs());
    if (site.wanted(0)) {
        out[0] = gradient_product(dc, p.transpose_b ? b : transposed(b), p, p.masked_gradient, a);
    }
    if (site.wanted(1)) {
        const bool one_b = b.rank() == 2 && a.rank() > 2 && !p.masked_weights;
        const Value rows = one_b ? all_rows(a) : a, d = one_b ? all_rows(dc) : dc;
        // only the first operand's masks are looked at
        const bool a_first = !p.masked_gradient && (p.masked_weights || !p.transpose_b);
        if (a_first) {
            const Value of_columns = p.transpose_b ? transposed(b) : b;
            const Value db = gradient_product(transposed(rows), d, p, p.masked_weights, of_columns);
            out[1] = p.transpose_b ? transposed(db) : db;
        } else {
            const Value of_rows = p.transpose_b ? b : transposed(b);
            const Value db = gradient_product(transposed(d), rows, p, p.masked_gradient, of_rows);
            out[1] = p.transpose_b ? db : transposed(db);
        }
    }
    if (p.bias && site.wanted(2)) {
        out[2] = sum_to(dc, site.input(2).shape());
    }
    return out;
}

Value matmul(Value a, Value b, const MatmulOptions& options) { return multiply(kName, a, b, options); }

Value linear(Value x, Value weight, Value bias, Activation activation) {
    constexpr const char* kLinear = "linear";
    require(weight.rank() == 2, kLinear, weight.str() + " must be (out, in)");
    if (x.rank() == 1) {
        const Value row = linear(reshape(x, {1, x.size(0)}), weight, bias, activation);
        return reshape(row, {weight.size(0)});
    }
    return multiply(kLinear, x, weight, {.bias = bias, .activation = activation, .transpose_b = true});
}

}  // namespace vkf
