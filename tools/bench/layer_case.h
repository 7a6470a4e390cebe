// SPDX-License-Identifier: Apache-2.0
// One layer of a Llama: RMSNorm, grouped-query attention with RoPE over a cache, RMSNorm, SwiGLU.
// Of its OpCase, `rows` tokens follow `inner - rows` cached ones; width `columns`, the hidden width
// four times that.
#pragma once

#include <functional>
#include <string_view>

#include "op_case.h"

constexpr vkf::RopeLayout kLayerRope = vkf::RopeLayout::half;

/// A parameter, by the name that Hugging Face gives it. All lie one behind the other in
/// OpData::weight.
struct LayerTensor {
    const char* name;
    std::int64_t rows, columns;  ///< a norm's weight has one row
};

std::vector<LayerTensor> layer_tensors(const OpCase& op);
/// The parameter of that name in `data`.
std::span<const float> layer_tensor(const OpCase& op, const OpData& data, std::string_view name);

/// The number of numbers in all parameters, and in all cached keys.
std::int64_t layer_parameters(const OpCase& op);
std::int64_t layer_cached(const OpCase& op);

/// `weight`: the parameters; `bias`: the cached keys, turned, and behind them the values, each
/// (inner - rows, kv_heads, dimensions).
OpData make_layer_data(const OpCase& op);

vkf::Value build_layer(vkf::Graph& g, const OpCase& op);
vkf::Weights load_layer(const vkf::Device& device, const OpCase& op, const OpData& data);
/// The state of `layer`, with the cached keys and values in it.
vkf::State fill_layer_cache(const vkf::Device& device, const OpCase& op, const OpData& data, const vkf::Graph& layer);

/// Gives each row of the layer's result, in double precision.
std::function<std::vector<double>(std::int64_t row)> layer_reference(const OpCase& op, const OpData& data);
