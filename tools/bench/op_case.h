// SPDX-License-Identifier: Apache-2.0
// The ops that are timed: sizes, inputs, cost, and what they must give.
#pragma once

#include <vkformer/vkformer.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

using Numbers = std::vector<double>;

enum class OpKind : std::uint8_t {
    copy,    ///< rows x columns: what the device can move
    matmul,  ///< (rows, inner) x (inner, columns)
    /// (rows, inner) x (columns, inner) transposed: a layer's weight as it is stored
    linear,
    softmax,     ///< rows x columns, as the row ops below
    layer_norm,  ///< with weight and bias
    rms_norm,    ///< with weight
    /// `rows` heads of `inner` tokens of `columns` dimensions, interleaved pairs
    rope,
    attention,           ///< `rows` queries, `inner` keys, heads of `columns` dimensions
    composed_attention,  ///< attention with the matrix of weights in memory
    decoder_layer,       ///< see layer_case.h
};

struct OpCase {
    std::string name;
    OpKind kind;
    std::int64_t rows, inner, columns;
    bool causal = false;      ///< the last query of attention sees all keys
    std::int64_t window = 0;  ///< window of causal attention; 0: all
    /// the type that linear's weight, or attention's keys and values, are kept as
    vkf::WeightType type = vkf::WeightType::f32;
    std::int64_t heads = 8;     ///< heads of attention
    std::int64_t kv_heads = 2;  ///< each shared by heads / kv_heads of these
    vkf::Arithmetic arithmetic = vkf::Arithmetic::f32;
    bool large = false;  ///< work for a whole large GPU; not measured on processors

    bool is_attention() const;
    bool is_product() const { return kind == OpKind::matmul || kind == OpKind::linear; }
    std::string lacking(const vkf::Capabilities& device) const;  ///< see Bench
    bool packed() const { return type != vkf::WeightType::f32; }
    /// Operations of products, without those that a mask hides; 0 where moving the bytes is the
    /// work.
    double flops() const;
    double bytes() const;  ///< each operand once
    std::int64_t outputs() const;
};

/// Operands, the same for every run and every library. Of attention: query, key, value, each
/// (heads, tokens, dimensions).
struct OpData {
    std::vector<float> x, weight, bias;
};

std::vector<OpCase> op_cases();
OpData make_data(const OpCase& op);
/// -1 to 1
std::vector<float> random_floats(std::int64_t count, std::uint32_t seed);

constexpr float kNormEps = 1e-5f;
constexpr double kRopeTheta = 10000.0;

/// The largest |result - reference| / (tolerance (1 + |reference|)), the reference in double
/// precision; products and attention are checked on some 64 of their rows. Infinite for a wrong
/// count and for NaN.
double worst_error(const OpCase& op, const OpData& data, std::span<const float> result, double tolerance);

/// Throws std::runtime_error naming who was wrong, and by how much, where worst_error() is above 1.
void check_result(const std::string& who, const OpCase& op, const OpData& data, std::span<const float> result,
                  double tolerance);

/// worst_error()'s, for ours. Operands that are rounded to f16, and to int8, err by 2^-11 of
/// themselves and by 1/254 of a row's largest: errors that add up like random ones. What attention
/// gives is a mean of so many values, some of them counting more.
double tolerance_of(const OpCase& op);
/// The peer rounds x to 16 or 8 bits beside packed weights, and may sum products in 16.
double tolerance_of_peer(const OpCase& op);
