// SPDX-License-Identifier: Apache-2.0
#include "models/encoder_decoder.h"

#include <algorithm>
#include <optional>

#include "layers/parallel.h"
#include "models/blocks/token_ids.h"
#include "models/load_beside.h"
#include "ops/argmax_of_finite.h"
#include "runtime/compile/plan.h"

namespace vkf {

namespace {

constexpr const char* kGenerate = "EncoderDecoder::generate";

/// A cache of one layer's keys or values, shared by the programs through its name.
Value cache_state(Graph& g, const EncoderDecoderConfig& c, const std::string& name, std::int64_t max_batch,
                  std::int64_t capacity) {
    return g.state(name, {max_batch, capacity, c.nhead, c.d_model / c.nhead});
}

std::string cache_name(const char* which, std::int64_t layer) {
    return std::string("cache.") + which + "." + std::to_string(layer);
}

void check_nothing_extra(const WeightLayout& weights, std::initializer_list<const Graph*> graphs) {
    for (const StoredTensor& t : weights.tensors()) {
        const bool known = std::any_of(graphs.begin(), graphs.end(), [&](const Graph* g) {
            return std::any_of(g->storages().begin(), g->storages().end(),
                               [&](const StorageInfo& s) { return s.kind == StorageKind::weight && s.name == t.name; });
        });
        if (!known) {
            throw Error("is not a parameter of the model", "weight " + t.name);
        }
    }
}

void check_config(const EncoderDecoderConfig& c) {
    if (c.nhead < 1 || c.d_model < 1 || c.d_model % c.nhead != 0) {
        throw Error(
            "d_model " + std::to_string(c.d_model) + " does not divide into " + std::to_string(c.nhead) + " heads",
            "EncoderDecoder");
    }
    if (c.max_source < 1 || c.max_target < 2 || c.num_decoder_layers < 1 || c.num_encoder_layers < 0) {
        throw Error("max_source, max_target or a layer count is too small", "EncoderDecoder");
    }
}

}  // namespace

torch::TransformerLayerOptions layer_options(const EncoderDecoderConfig& config) {
    return {.nhead = config.nhead,
            .dim_feedforward = config.dim_feedforward,
            .activation = config.activation,
            .norm_first = config.norm_first,
            .layer_norm_eps = config.layer_norm_eps};
}

void EncoderDecoder::describe_encoder(Graph& graph, const EncoderDecoderConfig& config, std::int64_t max_batch) {
    check_config(config);
    const Dim batch = graph.symbol("batch", max_batch);
    const Dim source = graph.symbol("source", config.max_source);
    const Value tokens = graph.input("source", {batch, source}, DType::i32);
    const Value padding = graph.input("source_padding", {batch, source}, DType::i32);
    const Value embedded =
        embed_tokens(tokens, "src_embed.weight", config.source_vocabulary, config, config.max_source);
    const Value memory = torch::transformer_encoder(embedded, layer_options(config), config.num_encoder_layers,
                                                    "transformer.encoder", {}, padding);
    graph.output("memory", memory);
    // the decoder's cross-attentions look at the memory again each step: what they project of it is
    // kept
    for (std::int64_t i = 0; i < config.num_decoder_layers; ++i) {
        const CachedKv kv = torch::project_memory(
            memory, "transformer.decoder.layers." + std::to_string(i) + ".multihead_attn", config.nhead);
        append({cache_state(graph, config, cache_name("cross_key", i), max_batch, config.max_source),
                cache_state(graph, config, cache_name("cross_value", i), max_batch, config.max_source)},
               transpose(kv.key, 1, 2), transpose(kv.value, 1, 2));
    }
}

void EncoderDecoder::describe_decoder(Graph& graph, const EncoderDecoderConfig& config, std::int64_t max_batch) {
    check_config(config);
    const Dim batch = graph.symbol("batch", max_batch);
    const Dim source = graph.symbol("source", config.max_source);
    const Dim tokens = graph.symbol("tokens", config.max_target);
    const Dim start = graph.symbol("start", config.max_target);
    const Value target = graph.input("target", {batch, tokens}, DType::i32);
    const Value padding = graph.input("source_padding", {batch, source}, DType::i32);
    std::vector<torch::DecoderInputs> inputs;
    for (std::int64_t i = 0; i < config.num_decoder_layers; ++i) {
        const auto cross = [&](const char* which) {
            const Value state = cache_state(graph, config, cache_name(which, i), max_batch, config.max_source);
            return transpose(slice(slice(state, 0, 0, batch), 1, 0, source), 1, 2);
        };
        torch::DecoderInputs in;
        in.memory_key_padding_mask = padding;
        in.tgt_is_causal = true;
        in.cache =
            KvCache{cache_state(graph, config, cache_name("self_key", i), max_batch, config.max_target),
                    cache_state(graph, config, cache_name("self_value", i), max_batch, config.max_target), start};
        in.projected_memory = CachedKv{cross("cross_key"), cross("cross_value")};
        inputs.push_back(in);
    }
    const Value embedded =
        embed_tokens(target, "tgt_embed.weight", config.target_vocabulary, config, config.max_target, start);
    const torch::DecoderResult stack =
        torch::transformer_decoder(embedded, layer_options(config), inputs, "transformer.decoder");
    const Value logits = linear_layer(stack.y, "generator", config.target_vocabulary);
    graph.output("logits", logits);
    graph.output("next", argmax_of_finite(logits));
    graph.output("cross_attention", stack.cross_weights);
}

Value embed_tokens(Value tokens, const std::string& table, std::int64_t vocabulary, const EncoderDecoderConfig& config,
                   std::int64_t max_positions, Dim start) {
    Graph& g = tokens.graph();
    const Value rows = vocab_parallel_embedding(tokens, table, vocabulary, config.d_model, config.embedding_scale);
    const Value positions = sinusoidal_positions(g, max_positions, config.d_model);
    return rows + slice(positions, 0, std::move(start), tokens.size(-1));
}

struct EncoderDecoder::Parts {
    EncoderDecoderConfig config;
    std::int64_t max_batch;
    Graph encoding, decoding;
    Plan encoder_plan, decoder_plan;
    ModelMemory memory;
    std::optional<Program> encoder, decoder;

    /// Describes and plans for weights that lie so. Throws before anything is allocated where the
    /// device has not the memory, or where the weights are more than the model's.
    Parts(const Device& device, const WeightLayout& weights, const EncoderDecoderConfig& c, std::int64_t most)
        : config(c), max_batch(most) {
        describe_encoder(encoding, config, max_batch);
        describe_decoder(decoding, config, max_batch);
        for (const auto& [graph, plan] : {std::pair(&encoding, &encoder_plan), std::pair(&decoding, &decoder_plan)}) {
            *plan = make_plan(*graph, device.capabilities(), weights);
            memory.add(plan->memory);  // the decoder, planned last, names every cache
        }
        check_nothing_extra(weights, {&encoding, &decoding});
        memory.weights = weights.bytes();
        require_memory(device, memory, "EncoderDecoder");
    }

    void compile(const Device& device) {
        CompileOptions options;
        options.state = device.make_state({&encoding, &decoding});
        options.name = "encoder";
        encoder = device.compile(std::move(encoder_plan), options);
        options.name = "decoder";
        decoder = device.compile(std::move(decoder_plan), options);
    }

    void set_weights(const Weights& weights) {
        encoder->set_weights(weights);
        decoder->set_weights(weights);
    }
};

EncoderDecoder::EncoderDecoder(const Device& device, const Weights& weights, const EncoderDecoderConfig& config,
                               std::int64_t max_batch)
    : parts_(std::make_unique<Parts>(device, weights.layout(), config, max_batch)) {
    parts_->compile(device);
    parts_->set_weights(weights);
}

EncoderDecoder::EncoderDecoder(const Device& device, std::span<const HostTensor> tensors,
                               const EncoderDecoderConfig& config, std::int64_t max_batch, const LoadOptions& load) {
    const WeightLayout layout = make_weight_layout(tensors, device.capabilities(), load);
    parts_ = std::make_unique<Parts>(device, layout, config, max_batch);
    parts_->set_weights(load_beside([&] { parts_->compile(device); },
                                    [&] { return device.load(tensors, layout, load.progress, load.pack_on); }));
}

EncoderDecoder::EncoderDecoder(EncoderDecoder&&) noexcept = default;
EncoderDecoder& EncoderDecoder::operator=(EncoderDecoder&&) noexcept = default;
EncoderDecoder::~EncoderDecoder() = default;

const ModelMemory& EncoderDecoder::memory() const noexcept { return parts_->memory; }
Program& EncoderDecoder::encoder() noexcept { return *parts_->encoder; }
Program& EncoderDecoder::decoder() noexcept { return *parts_->decoder; }

std::vector<Decoded> EncoderDecoder::generate(std::span<const std::vector<std::int32_t>> sources, std::int32_t sos,
                                              std::int32_t eos, std::int32_t pad) {
    const EncoderDecoderConfig& c = parts_->config;
    const std::size_t batch = sources.size();
    if (batch == 0) {
        return {};
    }
    std::size_t longest = 0;
    for (const auto& s : sources) {
        longest = std::max(longest, s.size());
        if (s.empty() || s.size() > static_cast<std::size_t>(c.max_source)) {
            throw Error("a source of " + std::to_string(s.size()) + " tokens; 1 to " + std::to_string(c.max_source) +
                            " are possible",
                        kGenerate);
        }
    }
    check_token(sos, c.target_vocabulary, kGenerate);
    check_token(pad, c.source_vocabulary, kGenerate);
    for (const auto& s : sources) {
        for (const std::int32_t id : s) {
            check_token(id, c.source_vocabulary, kGenerate);
        }
    }
    if (batch > static_cast<std::size_t>(parts_->max_batch)) {
        throw Error(
            "a batch of " + std::to_string(batch) + "; the model was made for " + std::to_string(parts_->max_batch),
            kGenerate);
    }
    std::vector<std::int32_t> tokens(batch * longest, pad);
    std::vector<std::int32_t> padding(batch * longest, 1);
    for (std::size_t b = 0; b < batch; ++b) {
        std::copy(sources[b].begin(), sources[b].end(), tokens.begin() + static_cast<std::ptrdiff_t>(b * longest));
        std::fill_n(padding.begin() + static_cast<std::ptrdiff_t>(b * longest), sources[b].size(), 0);
    }
    Program& encoder = *parts_->encoder;
    Program& decoder = *parts_->decoder;
    for (Program* p : {&encoder, &decoder}) {
        p->set("batch", static_cast<std::int64_t>(batch));
        p->set("source", static_cast<std::int64_t>(longest));
    }
    encoder.upload("source", tokens);
    encoder.upload("source_padding", padding);
    encoder.run();

    decoder.set("tokens", 1);
    decoder.upload("source_padding", padding);
    const auto heads = static_cast<std::size_t>(c.nhead);
    std::vector<Decoded> answers(batch);
    std::vector<std::vector<float>> attention(batch);  // (token, head, source) as it comes
    std::vector<bool> done(batch, false);
    std::vector<std::int32_t> last(batch, sos);
    for (std::int64_t position = 0; position + 1 < c.max_target; ++position) {
        decoder.set("start", position);
        decoder.upload("target", last);
        decoder.run();
        last = decoder.download_i32("next");
        const std::vector<float> cross = decoder.download("cross_attention");
        for (std::size_t b = 0; b < batch; ++b) {
            if (done[b]) {
                last[b] = eos;  // a token that there is, whatever the decoder made of it
                continue;
            }
            if (last[b] < 0) {  // as argmax_of_finite() says it
                throw Error("the logits of sequence " + std::to_string(b) + " are not finite", kGenerate);
            }
            answers[b].tokens.push_back(last[b]);
            for (std::size_t h = 0; h < heads; ++h) {
                const auto row = cross.begin() + static_cast<std::ptrdiff_t>((b * heads + h) * longest);
                attention[b].insert(attention[b].end(), row, row + static_cast<std::ptrdiff_t>(sources[b].size()));
            }
            done[b] = last[b] == eos;
        }
        if (std::all_of(done.begin(), done.end(), [](bool d) { return d; })) {
            break;
        }
    }
    for (std::size_t b = 0; b < batch; ++b) {
        const std::size_t steps = answers[b].tokens.size();
        const std::size_t width = sources[b].size();
        answers[b].cross_attention.resize(attention[b].size());
        for (std::size_t t = 0; t < steps; ++t) {
            for (std::size_t h = 0; h < heads; ++h) {
                std::copy_n(attention[b].begin() + static_cast<std::ptrdiff_t>((t * heads + h) * width), width,
                            answers[b].cross_attention.begin() + static_cast<std::ptrdiff_t>((h * steps + t) * width));
            }
        }
    }
    return answers;
}

}  // namespace vkf
