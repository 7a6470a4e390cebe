// SPDX-License-Identifier: Apache-2.0
#include "models/text_encoder.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "models/blocks/token_ids.h"
#include "models/families/family.h"
#include "models/load_beside.h"
#include "models/load_parameters.h"
#include "ops/ops.h"
#include "runtime/base/map_file.h"
#include "runtime/base/paths.h"
#include "runtime/compile/plan.h"

namespace vkf {

namespace {

namespace fs = std::filesystem;

constexpr const char* kTextEncoder = "TextEncoder";

OwnedJson read_file(const fs::path& path) { return parse_config(file_text(path, kMostConfigBytes), utf8_name(path)); }

/// Reads modules.json; says whether it names a Pooling.
bool read_modules(const fs::path& path) {
    const OwnedJson modules = read_file(path);
    if (!modules.is_array()) {
        throw Error("is not a list of modules", utf8_name(path));
    }
    bool pools = false;
    for (std::size_t i = 0; i < modules.size(); ++i) {
        ConfigReader r(modules[i], utf8_name(path), "[" + std::to_string(i) + "].");
        const std::string type = r.text("type", "");
        const std::string kind = type.substr(type.rfind('.') + 1);
        if (kind == "Pooling") {
            r.only("path", "1_Pooling");
            pools = true;
        } else if (kind != "Transformer" && kind != "Normalize") {
            r.fail("type", "is not a module that is known (Transformer, Pooling, Normalize)");
        }
    }
    return pools;
}

/// Reads 1_Pooling/config.json; says whether the first token's state counts, not the mean.
bool read_pooling(const fs::path& path) {
    const OwnedJson root = read_file(path);
    ConfigReader r(root, utf8_name(path));
    for (const char* name : {"pooling_mode_max_tokens", "pooling_mode_mean_sqrt_len_tokens",
                             "pooling_mode_weightedmean_tokens", "pooling_mode_lasttoken"}) {
        r.only(name, false);
    }
    r.only("include_prompt", true);
    const std::string mode = r.text("pooling_mode", "");  // of later files
    const bool first = r.flag("pooling_mode_cls_token", mode == "cls");
    const bool mean = r.flag("pooling_mode_mean_tokens", mode.empty() || mode == "mean");
    if (!mode.empty()) {
        r.only("pooling_mode_cls_token", mode == "cls");
        r.only("pooling_mode_mean_tokens", mode == "mean");
    }
    if (first == mean) {
        const char* field = first ? "pooling_mode_cls_token" : "pooling_mode_mean_tokens";
        r.fail(mode.empty() ? field : "pooling_mode",
               "is not supported: either the mean or the first token makes a text's vector");
    }
    r.find("word_embedding_dimension");
    r.find("embedding_dimension");
    r.finish();
    return first;
}

/// The names under which sentence-transformers looks for how texts are encoded, in its order.
constexpr const char* kSentenceConfigs[] = {"sentence_bert_config.json", "sentence_roberta_config.json",
                                            "sentence_distilbert_config.json"};

/// Reads such a file.
void read_sentence_config(const fs::path& path, EncoderFacts& facts) {
    const OwnedJson root = read_file(path);
    ConfigReader r(root, utf8_name(path));
    facts.lower_case = r.flag("do_lower_case", false);
    const std::int64_t otherwise = facts.lower_case ? facts.max_tokens : 0;
    facts.cut_tokens = std::min(r.has("max_seq_length") ? r.size("max_seq_length") : otherwise, facts.max_tokens);
}

TextEncoderOptions settled(TextEncoderOptions o, const TextEncoderModel& model) {
    family_of(model);  // throws where the model is empty
    const EncoderFacts& facts = model.facts();
    o.max_tokens = o.max_tokens == 0 ? facts.max_tokens : o.max_tokens;
    if (o.max_batch < 1 || o.max_tokens < 1 || o.max_tokens > facts.max_tokens) {
        throw Error("max_batch = " + std::to_string(o.max_batch) + ", max_tokens = " + std::to_string(o.max_tokens) +
                        "; at least 1 each, and the model takes " + std::to_string(facts.max_tokens) + " tokens",
                    kTextEncoder);
    }
    return o;
}

/// (batch, 1, E) -> (batch, E), each of length 1.
Value unit_rows(Value x, std::int64_t width) {
    const auto factor = static_cast<float>(1.0 / std::sqrt(static_cast<double>(width)));
    // Without a weight, rms_norm() gives length sqrt(E).
    const Value unit = scale(rms_norm(x, {}, 1e-24f), factor);
    return reshape(unit, {x.size(0), width});
}

std::vector<Parameter> parameters_of(const Graph& graph, const Checkpoint& checkpoint, const TextEncoderModel& model,
                                     const LoadOptions& load) {
    ParameterRules rules = family_of(model).parameters();
    rules.model_type = model.facts().model_type;
    return find_parameters(graph, checkpoint, rules, load);
}

/// Plans the graph. Throws, before anything is allocated, where it does not fit.
Plan plan_of(const Device& device, const Graph& graph, const WeightLayout& weights, const TextEncoderOptions& options,
             ModelMemory& memory) {
    Plan plan = make_plan(graph, device.capabilities(), weights, {.arithmetic = options.arithmetic});
    memory.add(plan.memory);
    memory.weights = weights.bytes();
    require_memory(device, memory, kTextEncoder);
    return plan;
}

Program compiled(const Device& device, Plan plan) {
    CompileOptions compile;
    compile.name = "text encoder";
    return device.compile(std::move(plan), compile);
}

Program with_weights(const Device& device, const Weights& weights, const TextEncoderModel& model,
                     const TextEncoderOptions& options, ModelMemory& memory) {
    Graph graph;
    describe_text_encoder(graph, model, options);
    Program program = compiled(device, plan_of(device, graph, weights.layout(), options, memory));
    program.set_weights(weights);
    return program;
}

Program while_loading(const Device& device, const Checkpoint& checkpoint, const TextEncoderModel& model,
                      const TextEncoderOptions& options, const LoadOptions& load, ModelMemory& memory) {
    Graph graph;
    describe_text_encoder(graph, model, options);
    const std::vector<Parameter> parameters = parameters_of(graph, checkpoint, model, load);
    const WeightLayout layout = layout_of(parameters, device.capabilities());
    Plan plan = plan_of(device, graph, layout, options, memory);
    std::optional<Program> program;
    const Weights weights =
        load_beside([&] { program = compiled(device, std::move(plan)); },
                    [&] { return load_parameters(device, parameters, layout, load.progress, load.pack_on); });
    program->set_weights(weights);
    return std::move(*program);
}

}  // namespace

TextEncoderModel read_text_encoder(const Checkpoint& checkpoint) {
    const OwnedJson root = parse_config(checkpoint.config(), checkpoint.config_file());
    ConfigReader r(root, checkpoint.config_file());
    const Family& family = find_family(r, &Family::encoder, "an encoder");
    TextEncoderModel model;
    model.family_ = family.encoder(r);
    model.facts_ = model.family_->facts();
    model.facts_.model_type = r.text("model_type", "");
    r.finish();
    for (const char* name : kSentenceConfigs) {
        if (const fs::path path = checkpoint.folder() / name; is_there(path)) {
            read_sentence_config(path, model.facts_);
            break;
        }
    }
    const fs::path modules = checkpoint.folder() / "modules.json";
    const fs::path pooling = checkpoint.folder() / "1_Pooling" / "config.json";
    const bool pools = is_there(modules) && read_modules(modules);
    model.takes_first_token_ = (pools || is_there(pooling)) && read_pooling(pooling);
    return model;
}

const EncoderFamily& family_of(const TextEncoderModel& model) {
    if (!model.family_) {
        throw Error("the model is empty: read_text_encoder() gives one", "TextEncoderModel");
    }
    return *model.family_;
}

bool takes_first_token(const TextEncoderModel& model) noexcept { return model.takes_first_token_; }

void describe_text_encoder(Graph& graph, const TextEncoderModel& model, const TextEncoderOptions& options) {
    const TextEncoderOptions o = settled(options, model);
    const Dim batch = graph.symbol("batch", o.max_batch);
    const Dim tokens = graph.symbol("tokens", o.max_tokens);
    const Value keys = reshape(graph.input("keys", {batch, tokens}, DType::i32), {batch, 1, 1, tokens});
    const Value ids = graph.input("tokens", {batch, tokens}, DType::i32);
    const Value hidden = family_of(model).describe(ids, keys);
    graph.output("hidden", hidden);
    const Value pooled = takes_first_token(model)
                             ? slice(hidden, 1, 0, 1)
                             : matmul(graph.input("shares", {batch, 1, tokens}), hidden, {.masked_weights = true});
    graph.output("embedding", unit_rows(pooled, model.facts().hidden_size));
}

Weights load_text_encoder(const Device& device, const Checkpoint& checkpoint, const TextEncoderModel& model,
                          const LoadOptions& load) {
    Graph graph;
    describe_text_encoder(graph, model, {.max_batch = 1, .max_tokens = 1});
    const std::vector<Parameter> parameters = parameters_of(graph, checkpoint, model, load);
    ModelMemory memory;
    const WeightLayout layout = layout_of(parameters, device.capabilities());
    memory.weights = layout.bytes();
    require_memory(device, memory, kTextEncoder);
    return load_parameters(device, parameters, layout, load.progress, load.pack_on);
}

TextEncoder::TextEncoder(const Device& device, const Weights& weights, const TextEncoderModel& model,
                         const TextEncoderOptions& options)
    : model_(model),
      options_(settled(options, model)),
      program_(with_weights(device, weights, model_, options_, memory_)) {}

TextEncoder::TextEncoder(const Device& device, const Checkpoint& checkpoint, const TextEncoderModel& model,
                         const TextEncoderOptions& options, const LoadOptions& load)
    : model_(model),
      options_(settled(options, model)),
      program_(while_loading(device, checkpoint, model_, options_, load, memory_)) {}

void TextEncoder::check(const std::vector<std::int32_t>& text) const {
    if (text.empty() || text.size() > static_cast<std::size_t>(options_.max_tokens)) {
        throw Error("a text of " + std::to_string(text.size()) + " tokens; 1 to " +
                        std::to_string(options_.max_tokens) + " are possible",
                    kTextEncoder);
    }
    for (const std::int32_t id : text) {
        check_token(id, model_.facts().vocab_size, kTextEncoder);
        if (id == family_of(model_).refused()) {
            throw Error(
                "a text has the padding's token " + std::to_string(id) + ", which takes no position in this model",
                kTextEncoder);
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
    std::vector<float> shares(tokens.size(), -0.0f);  // padding leaves no trace
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
    if (!takes_first_token(model_)) {
        program_.upload("shares", shares);
    }
    program_.run();
    return program_.download("embedding");
}

std::vector<std::vector<float>> TextEncoder::embed(std::span<const std::vector<std::int32_t>> texts) {
    for (const auto& t : texts) {
        check(t);
    }
    std::vector<std::vector<float>> out;
    const auto width = static_cast<std::size_t>(model_.facts().hidden_size);
    for (std::size_t first = 0; first < texts.size();) {
        const std::size_t count = std::min(texts.size() - first, static_cast<std::size_t>(options_.max_batch));
        const std::vector<float> all = run(texts.subspan(first, count));
        for (std::size_t b = 0; b < count; ++b) {
            const std::span<const float> vector = std::span(all).subspan(b * width, width);
            if (!std::all_of(vector.begin(), vector.end(), [](float x) { return std::isfinite(x); })) {
                throw Error("the vector of text " + std::to_string(first + b) + " is not finite", kTextEncoder);
            }
            out.emplace_back(vector.begin(), vector.end());
        }
        first += count;
    }
    return out;
}

}  // namespace vkf
