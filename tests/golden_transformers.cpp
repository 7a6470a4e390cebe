// SPDX-License-Identifier: Apache-2.0
// Attention modules of Hugging Face's transformers as this library computes them;
// make_transformers_cases.py writes the cases.
#include <algorithm>
#include <cmath>

#include "tests/golden_systems.h"

namespace vkf::test {

namespace {

/// Reads a model's "rope_parameters".
Rope rope_of(nlohmann::json parameters, std::int64_t head_dim) {
    Rope rope{.theta = parameters.at("rope_theta"), .layout = RopeLayout::half};
    if (parameters.contains("partial_rotary_factor")) {
        rope.rotary_dim = static_cast<std::int64_t>(static_cast<double>(head_dim) *
                                                    parameters["partial_rotary_factor"].get<double>());
    }
    parameters.erase("rope_theta");
    parameters.erase("partial_rotary_factor");
    rope.scaling = rope_scaling_of(parameters);
    return rope;
}

void attention_case(const Device& device, GoldenCase& c) {
    GroupedQueryAttentionOptions o;
    o.heads = c.integer("num_attention_heads");
    o.kv_heads = c.integer("num_key_value_heads");
    o.head_dim = c.integer("head_dim");
    c.integer("hidden_size");  // the tensors have that size
    c.config("attention_bias");
    o.rope = rope_of(c.config("rope_parameters"), o.head_dim);
    o.mask.window = static_cast<std::int64_t>(c.number_or("sliding_window", 0));
    o.softcap = static_cast<float>(c.number_or("attn_logit_softcapping", 0));
    if (!c.config("query_pre_attn_scalar").is_null()) {
        o.scale = static_cast<float>(1.0 / std::sqrt(c.number("query_pre_attn_scalar")));
    }
    if (c.has_param("dense.weight")) {
        o.names[3] = "dense";
    }
    o.bias = c.has_param(o.names[3] + std::string(".bias"));
    o.qkv_bias = c.has_param("q_proj.bias");
    CachedRun run{.prefill = c.integer("prefill"), .steps = c.integer("steps")};
    run.capacity = run.prefill + run.steps;
    run.sinks = c.has_param("sinks");
    run.weights = true;
    run_cached(device, c, o, run);
}

void table_case(const Device&, GoldenCase& c) {
    const std::int64_t head_dim = c.integer("head_dim");
    const std::vector<std::int32_t> positions = c.integers("in.positions");
    Rope rope = rope_of(c.config("rope_parameters"), head_dim);
    rope.max_positions = *std::max_element(positions.begin(), positions.end()) + 1;
    const std::vector<float> table = rope_table(rope, head_dim);
    const std::size_t pairs = table.size() / 2 / static_cast<std::size_t>(rope.max_positions);
    std::vector<float> cos, sin;
    for (const std::int32_t position : positions) {
        for (std::size_t i = 0; i < pairs; ++i) {
            const std::size_t at = 2 * (static_cast<std::size_t>(position) * pairs + i);
            cos.push_back(table[at]);
            sin.push_back(table[at + 1]);
        }
    }
    const std::vector<std::int64_t> shape{static_cast<std::int64_t>(positions.size()),
                                          static_cast<std::int64_t>(pairs)};
    c.result("cos", shape, cos);
    c.result("sin", shape, sin);
}

}  // namespace

const GoldenSystems& transformers_systems() {
    static const GoldenSystems kSystems{
        {"transformers.LlamaAttention", attention_case},   {"transformers.MistralAttention", attention_case},
        {"transformers.Qwen2Attention", attention_case},   {"transformers.Gemma2Attention", attention_case},
        {"transformers.GptOssAttention", attention_case},  {"transformers.PhiAttention", attention_case},
        {"transformers.LlamaRotaryEmbedding", table_case},
    };
    return kSystems;
}

}  // namespace vkf::test
