// SPDX-License-Identifier: Apache-2.0
#include "layer_case.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <utility>

namespace {

using Floats = std::span<const float>;

constexpr const char* kAttention = "self_attn";
constexpr const char* kFeedForward = "mlp";

std::int64_t head_dim(const OpCase& op) { return op.columns / op.heads; }
std::int64_t hidden(const OpCase& op) { return 4 * op.columns; }
std::int64_t cached_tokens(const OpCase& op) { return op.inner - op.rows; }

std::size_t count(std::int64_t n) { return static_cast<std::size_t>(n); }

Numbers product(Floats weight, const Numbers& x) {
    Numbers y(weight.size() / x.size());
    for (std::size_t i = 0; i < y.size(); ++i) {
        for (std::size_t j = 0; j < x.size(); ++j) {
            y[i] += static_cast<double>(weight[i * x.size() + j]) * x[j];
        }
    }
    return y;
}

Numbers normed(const Numbers& x, Floats weight) {
    double square = 0;
    for (const double v : x) {
        square += v * v / static_cast<double>(x.size());
    }
    Numbers y(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
        y[i] = x[i] / std::sqrt(square + static_cast<double>(kNormEps)) * static_cast<double>(weight[i]);
    }
    return y;
}

/// Turns each head of a row, in pairs (i, i + d/2).
void turn(Numbers& x, std::size_t dim, std::int64_t position) {
    for (std::size_t head = 0; head < x.size(); head += dim) {
        for (std::size_t i = 0; i < dim / 2; ++i) {
            const double angle = static_cast<double>(position) *
                                 std::pow(kRopeTheta, -2.0 * static_cast<double>(i) / static_cast<double>(dim));
            double& a = x[head + i];
            double& b = x[head + i + dim / 2];
            const double turned = a * std::cos(angle) - b * std::sin(angle);
            b = b * std::cos(angle) + a * std::sin(angle);
            a = turned;
        }
    }
}

/// The layer in double precision, its keys and values computed once.
class Reference {
public:
    Reference(const OpCase& op, const OpData& data) : op_(op), data_(data) {
        const std::size_t width = count(op.kv_heads * head_dim(op));
        const std::int64_t cached = cached_tokens(op);
        for (std::int64_t t = 0; t < cached; ++t) {
            const auto at = data.bias.begin() + t * static_cast<std::int64_t>(width);
            keys_.emplace_back(at, at + static_cast<std::ptrdiff_t>(width));
            const auto value = at + layer_cached(op);
            values_.emplace_back(value, value + static_cast<std::ptrdiff_t>(width));
        }
        for (std::int64_t t = 0; t < op.rows; ++t) {
            const Numbers x = normed(input(t), tensor("input_layernorm.weight"));
            keys_.push_back(product(tensor("self_attn.k_proj.weight"), x));
            turn(keys_.back(), count(head_dim(op)), cached + t);
            values_.push_back(product(tensor("self_attn.v_proj.weight"), x));
        }
    }

    Numbers row(std::int64_t t) const {
        Numbers h = input(t);
        add(h, product(tensor("self_attn.o_proj.weight"), attended(t)));
        const Numbers x = normed(h, tensor("post_attention_layernorm.weight"));
        Numbers gate = product(tensor("mlp.gate_proj.weight"), x);
        const Numbers up = product(tensor("mlp.up_proj.weight"), x);
        for (std::size_t i = 0; i < gate.size(); ++i) {
            gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
        }
        add(h, product(tensor("mlp.down_proj.weight"), gate));
        return h;
    }

private:
    Floats tensor(std::string_view name) const { return layer_tensor(op_, data_, name); }

    Numbers input(std::int64_t t) const {
        const auto at = data_.x.begin() + t * op_.columns;
        return {at, at + op_.columns};
    }

    static void add(Numbers& to, const Numbers& x) {
        for (std::size_t i = 0; i < to.size(); ++i) {
            to[i] += x[i];
        }
    }

    Numbers attended(std::int64_t t) const {
        const std::size_t dim = count(head_dim(op_));
        const std::size_t seen = count(cached_tokens(op_) + t + 1);
        Numbers query = product(tensor("self_attn.q_proj.weight"), normed(input(t), tensor("input_layernorm.weight")));
        turn(query, dim, cached_tokens(op_) + t);
        Numbers out(query.size());
        for (std::size_t head = 0; head < count(op_.heads); ++head) {
            const std::size_t from = head / count(op_.heads / op_.kv_heads) * dim;
            Numbers weights(seen);
            double sum = 0;
            for (std::size_t key = 0; key < seen; ++key) {
                double score = 0;
                for (std::size_t i = 0; i < dim; ++i) {
                    score += query[head * dim + i] * keys_[key][from + i];
                }
                // scores are small here
                weights[key] = std::exp(score / std::sqrt(static_cast<double>(dim)));
                sum += weights[key];
            }
            for (std::size_t key = 0; key < seen; ++key) {
                for (std::size_t i = 0; i < dim; ++i) {
                    out[head * dim + i] += weights[key] / sum * values_[key][from + i];
                }
            }
        }
        return out;
    }

    OpCase op_;
    OpData data_;
    std::vector<Numbers> keys_, values_;
};

vkf::KvCache cache_of(vkf::Graph& g, const OpCase& op) {
    return vkf::kv_cache(g, "cache", 1, op.inner, op.kv_heads, head_dim(op), cached_tokens(op));
}

vkf::Value norm(vkf::Graph& g, vkf::Value x, const std::string& name) {
    return rms_norm(x, g.weight(name + ".weight", {x.size(-1)}), kNormEps);
}

}  // namespace

std::vector<LayerTensor> layer_tensors(const OpCase& op) {
    const std::int64_t width = op.columns;
    const std::int64_t kv = op.kv_heads * head_dim(op);
    return {{"input_layernorm.weight", 1, width},        {"self_attn.q_proj.weight", width, width},
            {"self_attn.k_proj.weight", kv, width},      {"self_attn.v_proj.weight", kv, width},
            {"self_attn.o_proj.weight", width, width},   {"post_attention_layernorm.weight", 1, width},
            {"mlp.gate_proj.weight", hidden(op), width}, {"mlp.up_proj.weight", hidden(op), width},
            {"mlp.down_proj.weight", width, hidden(op)}};
}

std::span<const float> layer_tensor(const OpCase& op, const OpData& data, std::string_view name) {
    std::size_t at = 0;
    for (const LayerTensor& t : layer_tensors(op)) {
        const std::size_t size = count(t.rows * t.columns);
        if (t.name == name) {
            return std::span(data.weight).subspan(at, size);
        }
        at += size;
    }
    throw std::invalid_argument("a layer has no " + std::string(name));
}

std::int64_t layer_parameters(const OpCase& op) {
    std::int64_t all = 0;
    for (const LayerTensor& t : layer_tensors(op)) {
        all += t.rows * t.columns;
    }
    return all;
}

std::int64_t layer_cached(const OpCase& op) { return cached_tokens(op) * op.kv_heads * head_dim(op); }

OpData make_layer_data(const OpCase& op) {
    OpData data;
    data.x = random_floats(op.rows * op.columns, 6);
    data.bias = random_floats(2 * layer_cached(op), 7);
    std::uint32_t seed = 8;
    for (const LayerTensor& t : layer_tensors(op)) {
        // variance 1 stays 1
        const float bound = t.rows == 1 ? 1.0f : std::sqrt(3.0f / static_cast<float>(t.columns));
        for (const float v : random_floats(t.rows * t.columns, seed++)) {
            data.weight.push_back(v * bound);
        }
    }
    return data;
}

vkf::Value build_layer(vkf::Graph& g, const OpCase& op) {
    const vkf::Value x = g.input("x", {1, op.rows, op.columns});
    vkf::GroupedQueryAttentionOptions o{.name = kAttention, .heads = op.heads, .kv_heads = op.kv_heads};
    o.rope = vkf::Rope{.theta = kRopeTheta, .layout = kLayerRope, .max_positions = op.inner};
    o.cache = cache_of(g, op);
    const vkf::Value h = x + grouped_query_attention(norm(g, x, "input_layernorm"), o).y;
    return h +
           gated_feed_forward(norm(g, h, "post_attention_layernorm"), hidden(op), vkf::Activation::silu, kFeedForward);
}

vkf::Weights load_layer(const vkf::Device& device, const OpCase& op, const OpData& data) {
    std::vector<vkf::HostTensor> tensors;
    for (const LayerTensor& t : layer_tensors(op)) {
        std::vector<std::int64_t> shape{t.rows, t.columns};
        if (t.rows == 1) {
            shape.erase(shape.begin());
        }
        tensors.push_back({t.name, vkf::DType::f32, std::move(shape), std::as_bytes(layer_tensor(op, data, t.name))});
    }
    return device.load(tensors, {.matrices = op.type});
}

vkf::State fill_layer_cache(const vkf::Device& device, const OpCase& op, const OpData& data, const vkf::Graph& layer) {
    vkf::CompileOptions options;
    options.state = device.make_state({&layer});
    const std::int64_t tokens = cached_tokens(op);
    if (tokens == 0) {
        return options.state;
    }
    vkf::Graph g;
    const vkf::KvCache cache = cache_of(g, op);
    const vkf::Value rows = g.input("rows", {2, tokens, op.kv_heads, head_dim(op)});
    copy_into(slice(cache.key, 1, 0, tokens), slice(rows, 0, 0, 1));
    copy_into(slice(cache.value, 1, 0, tokens), slice(rows, 0, 1, 1));
    vkf::Program program = device.compile(g, {}, options);
    program.upload("rows", data.bias);
    program.run();
    return options.state;
}

std::function<std::vector<double>(std::int64_t row)> layer_reference(const OpCase& op, const OpData& data) {
    const auto reference = std::make_shared<const Reference>(op, data);
    return [reference](std::int64_t row) { return reference->row(row); };
}
