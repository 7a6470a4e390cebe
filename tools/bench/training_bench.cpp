// SPDX-License-Identifier: Apache-2.0
// A step of training: forward, backward, clipping and AdamW of a decoder of ten million parameters,
// on one text.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <stdexcept>

#include "benches.h"
#include "split_times.h"

namespace {

constexpr std::int64_t kVocabulary = 4096, kModelWidth = 320, kModelLayers = 6, kModelHeads = 5, kModelHidden = 864,
                       kTextTokens = 512;
constexpr double kMostOverhead = 0.05, kMostProducts = 2.2, kMostAttention = 3;

/// Llama's layers over `kTextTokens` tokens, and the mean cross-entropy of the next of each.
vkf::Value describe_decoder(vkf::Graph& g) {
    const vkf::Value tokens = g.input("tokens", {1, kTextTokens}, vkf::DType::i32);
    const vkf::Value labels = g.input("labels", {1, kTextTokens}, vkf::DType::i32);
    const auto norm = [&](vkf::Value x, const std::string& name) {
        return vkf::rms_norm(x, g.weight(name + ".weight", {kModelWidth}), kNormEps);
    };
    vkf::Value h = vkf::embedding(tokens, g.weight("embed_tokens.weight", {kVocabulary, kModelWidth}));
    for (std::int64_t i = 0; i < kModelLayers; ++i) {
        const vkf::Scope scope(g, "layers." + std::to_string(i));
        vkf::GroupedQueryAttentionOptions o{.name = "self_attn", .heads = kModelHeads, .kv_heads = kModelHeads};
        o.rope = vkf::Rope{.theta = kRopeTheta, .layout = vkf::RopeLayout::half, .max_positions = kTextTokens};
        h = h + vkf::grouped_query_attention(norm(h, "input_layernorm"), o).y;
        h = h +
            vkf::gated_feed_forward(norm(h, "post_attention_layernorm"), kModelHidden, vkf::Activation::silu, "mlp");
    }
    const vkf::Value logits = vkf::linear(norm(h, "norm"), g.weight("lm_head.weight", {kVocabulary, kModelWidth}));
    return vkf::cross_entropy(logits, labels);
}

/// Writes norms' weights as 1, and matrices as uniform numbers of a standard deviation of 0.02.
/// Returns how many numbers there are.
std::size_t write_parameters(vkf::Trainer& trainer) {
    std::size_t all = 0;
    std::uint32_t seed = 50;
    for (const std::string& name : trainer.parameters()) {
        std::vector<std::byte> bytes = trainer.state().read(name);
        std::vector<float> numbers = random_floats(static_cast<std::int64_t>(bytes.size() / sizeof(float)), seed++);
        for (float& x : numbers) {
            x = name.ends_with("norm.weight") ? 1.0f : x * 0.02f * std::sqrt(3.0f);
        }
        trainer.state().write(name, std::as_bytes(std::span(numbers)));
        all += numbers.size();
    }
    return all;
}

vkf::Trainer make_trainer(const vkf::Device& device, vkf::Graph& g) {
    const vkf::Value loss = describe_decoder(g);
    vkf::TrainerOptions options;
    options.optimizer = vkf::AdamW{.learning_rate = 1e-3};
    options.max_norm = 1.0f;
    options.profile = true;
    return vkf::Trainer(device, g, loss, vkf::trainable(g), options);
}

void upload_text(vkf::Program& program) {
    std::mt19937 random(49);
    std::vector<std::int32_t> text(kTextTokens + 1);
    for (std::int32_t& id : text) {
        id = static_cast<std::int32_t>(random() % kVocabulary);
    }
    program.upload("tokens", std::span<const std::int32_t>(text).first(kTextTokens));
    program.upload("labels", std::span<const std::int32_t>(text).last(kTextTokens));
}

/// The model knows nothing at first, and learns the one text that it is shown.
void check_losses(double first, double last) {
    const double unknown = std::log(static_cast<double>(kVocabulary));
    if (!(std::abs(first - unknown) < 0.5) || !(last < first)) {
        throw std::runtime_error("losses of training are wrong: " + std::to_string(first) + " at first, which is not " +
                                 std::to_string(unknown) + ", and " + std::to_string(last) + " at last");
    }
}

Row training_step(Settings& settings) {
    const std::string name = "training_step_10m";
    vkf::Graph g;
    vkf::Trainer trainer = make_trainer(settings.device, g);
    const std::size_t parameters = write_parameters(trainer);
    upload_text(trainer.program());
    const double first = trainer.take_step().loss;
    double last = first;
    std::vector<double> overhead, products, attention;
    const auto step = [&] {
        const auto start = Clock::now();
        last = trainer.take_step().loss;
        return milliseconds_since(start);
    };
    const double expected = step();
    const auto count = static_cast<std::size_t>(std::clamp(settings.seconds * 1e3 / expected, 5.0, 100.0));
    const std::vector<double> walls = sample(name, count, [&] {
        const double wall = step();
        const DispatchTimes& times = trainer.program().times();
        const auto over_forward = [&](auto counts) {
            const double both = milliseconds_of(times, counts);
            const double back =
                milliseconds_of(times, [&](const vkf::DispatchTime& t) { return counts(t) && is_backward(t); });
            return back / (both - back);
        };
        overhead.push_back(wall / milliseconds_of(times) - 1);
        products.push_back(over_forward(is_product));
        attention.push_back(over_forward(is_attention));
        return wall;
    });
    check_losses(first, last);
    Row row;
    row.name = name;
    row.variant = std::to_string(parameters) + " parameters, " + std::to_string(kTextTokens) + " tokens";
    row.ms = median(walls);
    constexpr double kMiB = 1024 * 1024;
    row.figures = {{"tokens_per_second", kTextTokens / *row.ms * 1e3},
                   {"overhead", median(overhead), kMostOverhead},
                   {"products_backward_over_forward", median(products), kMostProducts},
                   {"attention_backward_over_forward", median(attention), kMostAttention},
                   {"scratch_mib", static_cast<double>(trainer.program().memory().scratch) / kMiB}};
    return row;
}

}  // namespace

std::vector<Bench> training_benches() { return {{"training_step_10m", training_step}}; }
