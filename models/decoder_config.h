// SPDX-License-Identifier: Apache-2.0
// What a decoder-only Transformer is made of, as a Hugging Face config.json says. One description for every architecture:
// gpt2, llama, mistral, qwen2, qwen3, gemma2.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "../ops/ops.h"

namespace vkf {

/// Where a checkpoint keeps a layer's parameters; "" where there is none.
struct DecoderNames {
    std::string base = "model.";  ///< before all but `head`; some files leave it out
    std::string embedding = "embed_tokens", positions, layers = "layers", norm = "norm", head = "lm_head";
    // below layers.N
    std::string attention_norm = "input_layernorm", attention = "self_attn";
    std::string feed_forward_norm = "post_attention_layernorm", feed_forward = "mlp";
    std::string attention_output_norm, feed_forward_output_norm;
    // below attention and feed_forward
    std::string fused_qkv, output = "o_proj", gate = "gate_proj", up = "up_proj", down = "down_proj";
};

enum class NormKind : std::uint8_t {
    rms,
    rms_one_plus,  ///< Gemma's: the weight is kept less 1
    layer,
};

struct DecoderConfig {
    std::string model_type;
    std::int64_t vocab_size = 0, hidden_size = 0, intermediate_size = 0;
    std::int64_t layers = 0, heads = 0, kv_heads = 0, head_dim = 0;
    std::int64_t max_positions = 0;  ///< tokens it was trained for

    NormKind norm = NormKind::rms;
    float norm_eps = 1e-6f;
    Activation activation = Activation::silu;
    bool gated = true;  ///< down(activation(gate x) * up x) instead of down(activation(up x))
    float embedding_scale = 1.0f;
    std::optional<Rope> rope;  ///< empty: learned positions, added to the embeddings
    bool qkv_bias = false, output_bias = false, feed_forward_bias = false;
    bool qk_norm = false;               ///< RMSNorm of each head's query and key (Qwen 3)
    bool transposed_weights = false;    ///< matrices lie as (in, out) in the file (GPT-2's Conv1D)
    bool tied_embeddings = false;       ///< the embedding is the last matrix too
    float attention_scale = 0.0f;       ///< 0: 1/sqrt(head_dim)
    float attention_softcap = 0.0f;     ///< 0: none
    float logit_softcap = 0.0f;         ///< of the final logits; 0: none
    std::vector<std::int64_t> windows;  ///< a layer: how many keys a query sees; 0: all
    std::vector<std::int32_t> end;      ///< ids that end a text
    std::optional<std::int32_t> begin;  ///< id that begins one
    DecoderNames names;
};

/// Reads config.json, of today's generation (rope_parameters) or the one before (rope_theta, rope_scaling). Throws Error, its where()
/// being `file`, for an architecture that is not known, and for a field that is not known or has a value that would change the numbers in
/// a way that is not.
VKF_API DecoderConfig read_decoder_config(std::string_view json, const std::string& file);

class Checkpoint;
/// The same of a checkpoint, whose generation_config.json, where there is one, says which ids end a text.
VKF_API DecoderConfig read_decoder_config(const Checkpoint& checkpoint);

}  // namespace vkf
