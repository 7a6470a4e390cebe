// SPDX-License-Identifier: Apache-2.0
// The encoder-decoder Transformer (Vaswani et al. 2017) around torch.nn.Transformer: embeddings,
// sinusoidal positions, layers, a linear generator; and greedy decoding with caches. Parameter
// names: src_embed.weight, tgt_embed.weight, transformer.*, generator.*.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "../layers/torch.h"
#include "../runtime/device/device.h"
#include "../runtime/device/program.h"
#include "model_memory.h"

namespace vkf {

struct EncoderDecoderConfig {
    std::int64_t source_vocabulary = 0, target_vocabulary = 0;
    std::int64_t d_model = 512;
    std::int64_t nhead = 8;
    std::int64_t num_encoder_layers = 6, num_decoder_layers = 6;
    std::int64_t dim_feedforward = 2048;
    Activation activation = Activation::relu;
    bool norm_first = false;
    float layer_norm_eps = 1e-5f;
    float embedding_scale = 1.0f;                 ///< usually sqrt(d_model)
    std::int64_t max_source = 0, max_target = 0;  ///< tokens
};

/// Computes embedding row * embedding_scale + sinusoidal position: tokens (B, L) i32 -> (B, L,
/// d_model). `table` names the weight. The first token has position `start`. Of several
/// ranks each has a part of the table, and an all-reduce adds up.
VKF_API Value embed_tokens(Value tokens, const std::string& table, std::int64_t vocabulary,
                           const EncoderDecoderConfig& config, std::int64_t max_positions, Dim start = 0);
/// The layers of the configuration, for torch::transformer*.
VKF_API torch::TransformerLayerOptions layer_options(const EncoderDecoderConfig& config);

/// The sequence that greedy decoding found for one source.
struct Decoded {
    std::vector<std::int32_t> tokens;  ///< without <sos>; with <eos> where it came
    /// Cross-attention weights of the last layer: (heads, tokens, source), without the source's
    /// padding.
    std::vector<float> cross_attention;
};

/// An encoder and a decoder, compiled for a device, which share weights and caches. They must not
/// be used by several threads at once.
class VKF_API EncoderDecoder {
public:
    /// Throws when `weights` lacks a parameter, has it in another shape, or has one the model does
    /// not name; and before it allocates anything where the model does not fit the device's memory.
    EncoderDecoder(const Device& device, const Weights& weights, const EncoderDecoderConfig& config,
                   std::int64_t max_batch = 1);
    /// Loads the weights itself, and compiles while they upload. Throws likewise.
    EncoderDecoder(const Device& device, std::span<const HostTensor> tensors, const EncoderDecoderConfig& config,
                   std::int64_t max_batch = 1, const LoadOptions& load = {});
    EncoderDecoder(EncoderDecoder&&) noexcept;
    EncoderDecoder& operator=(EncoderDecoder&&) noexcept;
    ~EncoderDecoder();

    /// The two programs as graphs: see encoder() and decoder() for inputs, sizes and outputs. They
    /// share states "cache.*".
    static void describe_encoder(Graph& graph, const EncoderDecoderConfig& config, std::int64_t max_batch);
    static void describe_decoder(Graph& graph, const EncoderDecoderConfig& config, std::int64_t max_batch);

    /// Decodes greedily: begins with `sos` and takes the likeliest token each time, until `eos` or
    /// until there are max_target tokens, sos and eos included. Sources of a batch may differ in
    /// length, and each answer ends on its own. An answer does not depend on what else is in the
    /// batch. `pad` fills the rest of shorter sources. Throws Error where the logit of the
    /// likeliest token is not finite, as where weights are damaged.
    std::vector<Decoded> generate(std::span<const std::vector<std::int32_t>> sources, std::int32_t sos,
                                  std::int32_t eos, std::int32_t pad);

    const ModelMemory& memory() const noexcept;
    /// The encoder: inputs source (batch, source) i32 and source_padding (batch, source) i32;
    /// output memory (batch, source, E).
    Program& encoder() noexcept;
    /// The decoder: inputs target (batch, tokens) i32 and source_padding; sizes batch, source,
    /// tokens, start; outputs logits (batch, tokens, V), next (batch, tokens) i32, which is ~id
    /// where the logit of the likeliest id is not finite, and cross_attention (batch, heads,
    /// tokens, source).
    Program& decoder() noexcept;

private:
    struct Parts;
    std::unique_ptr<Parts> parts_;
};

}  // namespace vkf
