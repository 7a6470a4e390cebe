// SPDX-License-Identifier: Apache-2.0
#include "models/text_encoder.h"

#include <algorithm>
#include <cmath>

#include "layers/attention.h"
#include "models/require_memory.h"

namespace vkf {

namespace {

constexpr const char* kName = "TextEncoder";

TextEncoderOptions settled(TextEncoderOptions o, const TextEncoderConfig& c) {
    o.max_tokens = o.max_tokens == 0 ? c.max_tokens() : o.max_tokens;
    if (o.max_batch < 1 || o.max_tokens < 1 || o.max_tokens > c.max_tokens()) {
        throw Error("max_batch = " + std::to_string(o.max_batch) + ", max_tokens = " + std::to_string(o.max_tokens) +
                        "; at least 1 each, and the model takes " + std::to_string(c.max_tokens()) + " tokens",
                    kName);
    }
    return o;
}

class Description {
public:
    Description(Graph& graph, const TextEncoderConfig& config, const TextEncoderOptions& options)
        : g_(graph),
          c_(config),
          batch_(g_.symbol("batch", options.max_batch)),
          tokens_(g_.symbol("tokens", options.max_tokens)) {}

    void run() {
        const Value keys = g_.input("keys", {batch_, tokens_}, DType::i32);
        keys_ = reshape(keys, {batch_, 1, 1, tokens_});
        Value h = embed();
        for (std::int64_t i = 0; i < c_.layers; ++i) {
            h = layer(h, i);
        }
        g_.output("hidden", h);
        const Value mean = matmul(g_.input("shares", {batch_, 1, tokens_}), h);
        // RMSNorm without a weight gives length sqrt(E)
        const Value unit =
            scale(rms_norm(mean, {}, 1e-24f), static_cast<float>(1.0 / std::sqrt(double(c_.hidden_size))));
        g_.output("embedding", reshape(unit, {batch_, c_.hidden_size}));
    }

private:
    Value table(const std::string& name, std::int64_t rows) {
        return g_.weight(c_.names.base + name + ".weight", {rows, c_.hidden_size});
    }

    Value norm(Value x, const std::string& name) {
        const Scope scope(g_, name);
        return layer_norm(x, g_.weight("weight", {c_.hidden_size}), g_.weight("bias", {c_.hidden_size}), c_.norm_eps);
    }

    Value embed() {
        Value h = embedding(g_.input("tokens", {batch_, tokens_}, DType::i32), table(c_.names.words, c_.vocab_size));
        h = h + slice(table(c_.names.positions, c_.position_rows), 0, c_.first_position, tokens_);
        if (!c_.names.token_types.empty()) {
            h = h + slice(table(c_.names.token_types, c_.token_types), 0, 0, 1);
        }
        return norm(h, c_.names.base + c_.names.norm);
    }

    Value layer(Value h, std::int64_t i) {
        const TextEncoderNames& n = c_.names;
        const Scope scope(g_, n.base + n.layers + "." + std::to_string(i));
        GroupedQueryAttentionOptions o{.heads = c_.heads, .kv_heads = c_.heads, .causal = false, .bias = true};
        o.keys = keys_;
        o.residual = h;
        o.one_launch = true;  // load_text_encoder() keeps parameters in the order in which they are named here
        const std::string* names[4] = {&n.query, &n.key, &n.value, &n.attention_output};
        std::transform(std::begin(names), std::end(names), o.names, [](const std::string* s) { return s->c_str(); });
        h = norm(grouped_query_attention(h, o).y, n.attention_norm);
        const Value hidden = linear_layer(h, n.up, c_.intermediate_size, true, c_.activation);
        return norm(linear_layer(hidden, n.down, c_.hidden_size, true, Activation::none, {}, h), n.output_norm);
    }

    Graph& g_;
    const TextEncoderConfig& c_;
    Dim batch_, tokens_;
    Value keys_;
};

/// Refused, where it does not fit, before anything is allocated.
Program compiled(const Device& device, const Weights& weights, const TextEncoderConfig& config,
                 const TextEncoderOptions& options) {
    Graph graph;
    describe_text_encoder(graph, config, options);
    DecoderMemory memory;
    add(memory, make_plan(graph, device.capabilities(), weights.layout(), {.arithmetic = options.arithmetic}).memory);
    memory.weights = weights.bytes();
    require_memory(device, memory, kName);
    CompileOptions compile;
    compile.name = "text encoder";
    compile.arithmetic = options.arithmetic;
    return device.compile(graph, weights, compile);
}

}  // namespace

void describe_text_encoder(Graph& graph, const TextEncoderConfig& config, const TextEncoderOptions& options) {
    Description(graph, config, settled(options, config)).run();
}

TextEncoder::TextEncoder(const Device& device, const Weights& weights, const TextEncoderConfig& config,
                         const TextEncoderOptions& options)
    : config_(config), options_(settled(options, config)), program_(compiled(device, weights, config_, options_)) {}

void TextEncoder::check(const std::vector<std::int32_t>& text) const {
    if (text.empty() || text.size() > static_cast<std::size_t>(options_.max_tokens)) {
        throw Error("a text of " + std::to_string(text.size()) + " tokens; 1 to " +
                        std::to_string(options_.max_tokens) + " are possible",
                    kName);
    }
    for (const std::int32_t id : text) {
        if (id < 0 || id >= config_.vocab_size) {
            throw Error(
                "token " + std::to_string(id) + " is outside the vocabulary of " + std::to_string(config_.vocab_size),
                kName);
        }
    }
}

std::vector<float> TextEncoder::run(std::span<const std::vector<std::int32_t>> texts) {
    std::size_t longest = 0;
    for (const auto& t : texts) {
        longest = std::max(longest, t.size());
    }
    std::vector<std::int32_t> tokens(texts.size() * longest, 0);
    std::vector<std::int32_t> keys(tokens.size(), 0);
    std::vector<float> shares(tokens.size(), 0.0f);
    for (std::size_t b = 0; b < texts.size(); ++b) {
        const auto at = static_cast<std::ptrdiff_t>(b * longest);
        std::copy(texts[b].begin(), texts[b].end(), tokens.begin() + at);
        std::fill_n(keys.begin() + at, texts[b].size(), 1);
        std::fill_n(shares.begin() + at, texts[b].size(), 1.0f / static_cast<float>(texts[b].size()));
    }
    program_.set("batch", static_cast<std::int64_t>(texts.size()));
    program_.set("tokens", static_cast<std::int64_t>(longest));
    program_.upload("tokens", tokens);
    program_.upload("keys", keys);
    program_.upload("shares", shares);
    program_.run();
    return program_.download("embedding");
}

std::vector<std::vector<float>> TextEncoder::embed(std::span<const std::vector<std::int32_t>> texts) {
    for (const auto& t : texts) {
        check(t);
    }
    std::vector<std::vector<float>> out;
    const auto width = static_cast<std::size_t>(config_.hidden_size);
    for (std::size_t first = 0; first < texts.size();) {
        const std::size_t count = std::min(texts.size() - first, static_cast<std::size_t>(options_.max_batch));
        const std::vector<float> all = run(texts.subspan(first, count));
        for (std::size_t b = 0; b < count; ++b) {
            const auto at = all.begin() + static_cast<std::ptrdiff_t>(b * width);
            out.emplace_back(at, at + static_cast<std::ptrdiff_t>(width));
        }
        first += count;
    }
    return out;
}

}  // namespace vkf
