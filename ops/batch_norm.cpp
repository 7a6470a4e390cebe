// SPDX-License-Identifier: Apache-2.0
// Batch statistics from products with a row of ones: composed of other ops, no kernel of its own.
#include <initializer_list>

#include "ops/checks.h"
#include "ops/ops.h"

namespace vkf {

namespace {

using namespace support;

constexpr const char* kName = "batch_norm";

void check_shapes(const Value& x, std::initializer_list<Value> columns, float momentum, float eps) {
    require_dtype(kName, x, DType::f32);
    require(x.rank() == 2, kName, x.str() + " must be (rows, channels)");
    for (const Value& v : columns) {
        require_dtype(kName, v, DType::f32);
        require(v.shape() == Shape{x.size(1)}, kName, v.str() + " must hold one value for each channel of " + x.str());
    }
    check_epsilon(kName, eps);
    check_probability(kName, "momentum", momentum);
}

/// (x - mean) / sqrt(variance + eps) * weight + bias, given x - mean.
Value normalise(Value centred, Value variance, Value weight, Value bias, float eps) {
    const Value eps_value = centred.graph().constant("eps", {1}, std::span<const float>(&eps, 1));
    const Value inverse = activate(variance + eps_value, Activation::rsqrt);
    return centred * (inverse * weight) + bias;
}

Value move_towards(Value old, Value batch, float momentum) {
    return scale(old, 1.0f - momentum) + scale(batch, momentum);
}

}  // namespace

BatchNormResult batch_norm_train(Value x, Value weight, Value bias, Value running_mean, Value running_var,
                                 float momentum, float eps) {
    check_shapes(x, {weight, bias, running_mean, running_var}, momentum, eps);
    require(x.size(0).is_constant() && x.size(0).constant() > 1, kName,
            x.str() + " must have a fixed number of rows above 1");
    const std::int64_t rows = x.size(0).constant();
    const std::vector<float> shares(static_cast<std::size_t>(rows), 1.0f / static_cast<float>(rows));
    const Value average = x.graph().constant("batch_norm_average", {1, rows}, shares);
    const auto column_means = [&](Value v) { return reshape(matmul(average, v), {x.size(1)}); };
    // A mean is rounded, which is much beside what differs in columns far from 0, or in none: what
    // it leaves has a mean of its own.
    const Value mean = column_means(x);
    const Value near = x + scale(mean, -1.0f);
    const Value centred = near + scale(column_means(near), -1.0f);
    const Value variance = column_means(centred * centred);
    const float unbiased = static_cast<float>(static_cast<double>(rows) / static_cast<double>(rows - 1));
    return {normalise(centred, variance, weight, bias, eps), move_towards(running_mean, mean, momentum),
            move_towards(running_var, scale(variance, unbiased), momentum)};
}

Value batch_norm(Value x, Value weight, Value bias, Value running_mean, Value running_var, float eps) {
    check_shapes(x, {weight, bias, running_mean, running_var}, 0.0f, eps);
    return normalise(x + scale(running_mean, -1.0f), running_var, weight, bias, eps);
}

}  // namespace vkf
