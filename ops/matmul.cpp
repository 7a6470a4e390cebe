// SPDX-License-Identifier: Apache-2.0
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

/// With the strides of a fresh tensor, wherever it begins.
bool lies_densely(const Value& v) {
    const ValueInfo& info = v.graph().values()[v.id()];
    return info.strides == contiguous_strides(info.shape);
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
    for (const Value& other : {options.times, options.plus}) {
        if (other) {
            require(other.shape() == shape && other.dtype() == DType::f32, kName,
                    other.str() + " must be f32 of the result's shape");
        }
    }
    MatmulParams params{options.activation, options.scale, bool(options.bias), options.transpose_b,
                        options.masked_weights};
    const bool room = !options.masked_weights && !options.heads_last;
    const bool times_fused = room && options.times && lies_densely(options.times);
    const bool plus_fused = room && !options.times && options.plus && lies_densely(options.plus);
    if (times_fused || plus_fused) {
        params.other = times_fused ? kMatmulOtherGate : kMatmulOtherResidual;
        if (options.bias) {
            params.other = times_fused ? kMatmulOtherGateBesideBias : kMatmulOtherResidualBesideBias;
        }
        inputs.push_back(times_fused ? options.times : options.plus);
    }
    std::vector<std::size_t> order;
    if (options.heads_last) {
        require(shape.size() >= 4, kName, a.str() + " has no batch and heads to store apart");
        order = {0, shape.size() - 2};
        for (std::size_t i = 1; i + 2 < shape.size(); ++i) {
            order.push_back(i);
        }
        order.push_back(shape.size() - 1);
    }
    Value y = add_op(kMatmul, inputs, params, shape, DType::f32, order);
    y = options.times && !times_fused ? mul(y, options.times) : y;
    return options.plus && !plus_fused ? add(y, options.plus) : y;
}

Value linear(Value x, Value weight, Value bias, Activation activation, Value times, Value plus) {
    require(weight.rank() == 2, "linear", weight.str() + " must be (out, in)");
    if (x.rank() == 1) {
        const auto row = [](const Value& v) { return v ? reshape(v, {1, v.size(-1)}) : v; };
        return reshape(linear(row(x), weight, bias, activation, row(times), row(plus)), {weight.size(0)});
    }
    MatmulOptions o;
    o.bias = bias;
    o.activation = activation;
    o.transpose_b = true;
    o.times = times;
    o.plus = plus;
    return matmul(x, weight, o);
}

std::vector<Value> projections(Value x, const std::vector<Value>& weights, const std::vector<Value>& biases) {
    constexpr const char* kOp = kProjectionsName;
    require(!weights.empty() && (biases.empty() || biases.size() == weights.size()), kOp,
            std::to_string(weights.size()) + " weights and " + std::to_string(biases.size()) +
                " biases: at least one weight, and as many biases or none");
    require_dtype(kOp, x, DType::f32);
    require(x.rank() >= 2, kOp, x.str() + " must be (..., in) of rank 2 or more");
    std::vector<Value> inputs{x};
    Dim columns;
    for (std::size_t i = 0; i < weights.size(); ++i) {
        const Value& w = weights[i];
        require_dtype(kOp, w, DType::f32);
        require(w.rank() == 2 && w.size(0).is_constant() && w.size(1) == x.size(-1), kOp,
                w.str() + " must be (out, in) with a fixed out and the last size of " + x.str());
        columns = columns + w.size(0);
        inputs.push_back(w);
        if (!biases.empty()) {
            require_dtype(kOp, biases[i], DType::f32);
            require(biases[i].shape() == Shape{w.size(0)}, kOp,
                    "bias " + biases[i].str() + " must have a number for each row of " + w.str());
        }
    }
    inputs.insert(inputs.end(), biases.begin(), biases.end());
    const MatmulParams params{.activation = Activation::none,
                              .scale = 1.0f,
                              .bias = !biases.empty(),
                              .transpose_b = true,
                              .masked_weights = false,
                              .weights = weights.size()};
    Shape shape = x.shape();
    shape.back() = columns;
    const Value y = add_op(kProjections, inputs, params, shape);
    std::vector<Value> parts;
    Dim first;
    for (const Value& w : weights) {
        parts.push_back(slice(y, -1, first, w.size(0)));
        first = first + w.size(0);
    }
    return parts;
}

}  // namespace vkf
