// SPDX-License-Identifier: Apache-2.0
#include "ops/add_op.h"
#include "ops/checks.h"
#include "ops/matmul_params.h"

namespace vkf {

namespace {

using namespace shader;
using namespace support;

constexpr const char* kName = kMatmulName;

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

Value matmul(Value a, Value b, const MatmulOptions& options) {
    require_dtype(kName, a, DType::f32);
    require_dtype(kName, b, DType::f32);
    require(a.rank() >= 2 && b.rank() >= 2, kName,
            a.str() + " and " + b.str() + " must both be matrices or batches of them");
    require_finite(kName, "scale", options.scale);
    const Dim b_k = b.size(options.transpose_b ? -1 : -2);
    const Dim b_n = b.size(options.transpose_b ? -2 : -1);
    require(a.size(-1) == b_k, kName,
            "inner sizes of " + a.str() + " and " + b.str() + (options.transpose_b ? " transposed" : "") +
                " differ: " + a.graph().str(a.size(-1)) + " against " + a.graph().str(b_k));
    Shape shape = broadcast_batches(a, b);
    shape.push_back(a.size(-2));
    shape.push_back(b_n);
    std::vector<Value> inputs{a, b};
    if (options.bias) {
        require_dtype(kName, options.bias, DType::f32);
        require(options.bias.shape() == Shape{b_n}, kName,
                "bias " + options.bias.str() + " must have the " + a.graph().str(b_n) + " columns of the result");
        inputs.push_back(options.bias);
    }
    MatmulParams params{options.activation, options.scale, bool(options.bias), options.transpose_b,
                        options.masked_weights};
    std::vector<std::size_t> order;
    if (options.heads_last) {
        require(shape.size() >= 4, kName, a.str() + " has no batch and heads to store apart");
        order = {0, shape.size() - 2};
        for (std::size_t i = 1; i + 2 < shape.size(); ++i) {
            order.push_back(i);
        }
        order.push_back(shape.size() - 1);
    }
    return add_op(kMatmul, inputs, params, shape, DType::f32, order);
}

Value linear(Value x, Value weight, Value bias, Activation activation) {
    require(weight.rank() == 2, "linear", weight.str() + " must be (out, in)");
    if (x.rank() == 1) {
        const Value row = linear(reshape(x, {1, x.size(0)}), weight, bias, activation);
        return reshape(row, {weight.size(0)});
    }
    return matmul(x, weight, {.bias = bias, .activation = activation, .transpose_b = true});
}

}  // namespace vkf
