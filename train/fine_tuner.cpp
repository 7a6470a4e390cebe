// SPDX-License-Identifier: Apache-2.0
#include "train/fine_tuner.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <system_error>
#include <utility>

#include "models/adapter.h"
#include "models/adapter_states.h"
#include "models/blocks/token_ids.h"
#include "models/check_within.h"
#include "models/decoder_logits.h"
#include "models/decoder_parameters.h"
#include "models/files/model_folder.h"
#include "models/load_parameters.h"
#include "runtime/base/paths.h"

namespace vkf {

namespace {

constexpr const char* kFineTuner = "FineTuner";
constexpr std::int32_t kNoLabel = -100;  // CrossEntropyOptions::ignore_index

FineTuneOptions settled(FineTuneOptions o, const DecoderFacts& facts) {
    o.max_tokens = o.max_tokens == 0 ? facts.max_positions : o.max_tokens;
    check_within(kFineTuner, "max_tokens", o.max_tokens, 2, facts.max_positions);
    check_within(kFineTuner, "max_batch", o.max_batch, 1, 4096);
    check_within(kFineTuner, "micro_batch", o.micro_batch, 0, o.max_batch);
    o.micro_batch = o.micro_batch == 0 ? o.max_batch : o.micro_batch;
    o.trainer.accumulates = o.trainer.accumulates || o.micro_batch < o.max_batch;
    if (!o.lora && (o.load.choose || o.load.matrices.value_or(WeightType::f32) != WeightType::f32)) {
        throw Error((o.load.choose ? "load.choose" : "load.matrices = " + std::string(name_of(*o.load.matrices))) +
                        " is for weights that stay as they are: without lora all are trained, in fp32",
                    kFineTuner);
    }
    return o;
}

/// The folder from wherever the process goes.
std::filesystem::path whole_path(const std::filesystem::path& folder) {
    std::error_code code;
    std::filesystem::path whole = std::filesystem::absolute(folder, code);
    return code ? folder : whole;
}

/// The numbers with which torch.nn.Linear, and so PEFT, begins A: uniform, of both signs, to the
/// inverse root of its columns.
std::vector<float> first_numbers(const StoredTensor& a, std::mt19937_64& random) {
    std::vector<float> numbers(static_cast<std::size_t>(a.shape[0] * a.shape[1]));
    const double most = 1.0 / std::sqrt(static_cast<double>(a.shape[1]));
    for (float& x : numbers) {
        x = static_cast<float>((static_cast<double>(random() >> 11) * 0x1p-52 - 1.0) * most);
    }
    return numbers;
}

}  // namespace

struct FineTuner::Parts {
    FineTuneOptions options;
    DecoderModel model;
    std::filesystem::path from;      ///< the model's folder
    std::string given;               ///< its name for adapters, as it was given
    std::vector<Parameter> trained;  ///< parameters, without bytes; none with LoRA
    Graph graph;
    std::optional<Trainer> trainer;

    Parts(const Device& device, const Checkpoint& checkpoint, const DecoderModel& m, const FineTuneOptions& o)
        : options(settled(o, facts_of(m))),
          model(m),
          from(whole_path(checkpoint.folder())),
          given(utf8_name(checkpoint.folder())) {
        options.lora ? adapt(device, checkpoint) : train_all(device, checkpoint);
        // functions that nothing calls from here on, and that may own the tuner
        options.load.progress = nullptr;
        options.load.choose = nullptr;
        options.trainer.decay_to = nullptr;
    }

    Value describe_loss() {
        const Dim batch = graph.symbol("batch", options.micro_batch);
        const Dim tokens = graph.symbol("tokens", options.max_tokens - 1);
        const Value given = graph.input("tokens", {batch, tokens}, DType::i32);
        const Value wanted = graph.input("labels", {batch, tokens}, DType::i32);
        return cross_entropy(decoder_logits(given, model), wanted, {.ignore_index = kNoLabel});
    }

    void train_all(const Device& device, const Checkpoint& checkpoint) {
        const Value loss = describe_loss();
        trained = decoder_parameters(graph, checkpoint, model, {.matrices = WeightType::f32});
        TrainerOptions o = options.trainer;
        if (!o.decay_to) {  // where files keep weights less 1, that is what decays
            o.decay_to = [this](const std::string& name) {
                const auto found = std::find_if(trained.begin(), trained.end(),
                                                [&](const Parameter& p) { return p.kept.name == name; });
                return found != trained.end() && found->add_one ? 1.0f : 0.0f;
            };
        }
        trainer.emplace(device, graph, loss, trainable(graph), o);
        std::uint64_t all = 0, done = 0;
        for (const Parameter& p : trained) {
            all += trainer->state().find(p.kept.name)->bytes;
        }
        for (Parameter& p : trained) {
            const std::vector<float> numbers = numbers_of(p);
            trainer->state().write(p.kept.name, std::as_bytes(std::span(numbers)));
            p.source.data = {};
            done += numbers.size() * sizeof(float);
            if (options.load.progress) {
                options.load.progress(done, all);
            }
        }
    }

    void adapt(const Device& device, const Checkpoint& checkpoint) {
        const Lora lora(graph, *options.lora);
        const Value loss = describe_loss();
        const std::vector<Parameter> parameters = decoder_parameters(graph, checkpoint, model, options.load);
        const Weights weights = load_parameters(device, parameters, layout_of(parameters, device.capabilities()),
                                                options.load.progress, options.load.pack_on);
        trainer.emplace(device, graph, loss, lora.parameters(), options.trainer, weights);
        std::mt19937_64 random(options.seed);
        for (const std::string& name : trainer->parameters()) {
            if (name.ends_with(kLoraA)) {
                const std::vector<float> numbers = first_numbers(*trainer->state().find(name), random);
                trainer->state().write(name, std::as_bytes(std::span(numbers)));
            }
        }
    }

    void check(std::span<const std::vector<std::int32_t>> texts) const {
        if (texts.empty() || std::ssize(texts) > options.max_batch) {
            throw Error(std::to_string(texts.size()) + " texts are outside 1.." + std::to_string(options.max_batch),
                        kFineTuner);
        }
        for (std::size_t i = 0; i < texts.size(); ++i) {
            if (texts[i].size() < 2 || std::ssize(texts[i]) > options.max_tokens) {
                throw Error("text " + std::to_string(i) + " has " + std::to_string(texts[i].size()) +
                                " tokens, which are outside 2.." + std::to_string(options.max_tokens),
                            kFineTuner);
            }
            for (const std::int32_t id : texts[i]) {
                check_token(id, model.facts().vocab_size, kFineTuner);
            }
        }
    }

    /// Uploads all tokens but the last of each text, and for each the one that follows. Returns how
    /// many these are.
    float upload(std::span<const std::vector<std::int32_t>> texts) {
        std::size_t longest = 0;
        for (const std::vector<std::int32_t>& text : texts) {
            longest = std::max(longest, text.size() - 1);
        }
        std::vector<std::int32_t> tokens, labels;
        for (const std::vector<std::int32_t>& text : texts) {
            tokens.insert(tokens.end(), text.begin(), text.end() - 1);
            labels.insert(labels.end(), text.begin() + 1, text.end());
            tokens.insert(tokens.end(), longest + 1 - text.size(), 0);
            labels.insert(labels.end(), longest + 1 - text.size(), kNoLabel);
        }
        Program& program = trainer->program();
        program.set("batch", std::ssize(texts));
        program.set("tokens", static_cast<std::int64_t>(longest));
        program.upload("tokens", tokens);
        program.upload("labels", labels);
        return static_cast<float>(std::count_if(labels.begin(), labels.end(), [](auto id) { return id >= 0; }));
    }
};

FineTuner::FineTuner(const Device& device, const Checkpoint& checkpoint, const DecoderModel& model,
                     const FineTuneOptions& options)
    : parts_(std::make_unique<Parts>(device, checkpoint, model, options)) {}
FineTuner::FineTuner(FineTuner&&) noexcept = default;
FineTuner& FineTuner::operator=(FineTuner&&) noexcept = default;
FineTuner::~FineTuner() = default;

TrainingStep FineTuner::take_step(std::span<const std::vector<std::int32_t>> texts) {
    parts_->check(texts);
    const auto most = static_cast<std::size_t>(parts_->options.micro_batch);
    try {
        for (; texts.size() > most; texts = texts.subspan(most)) {
            const float labels = parts_->upload(texts.first(most));
            parts_->trainer->accumulate(labels);
        }
        const float labels = parts_->upload(texts);
        return parts_->trainer->take_step(labels);
    } catch (...) {
        parts_->trainer->drop_micro_batches();
        throw;
    }
}

Trainer& FineTuner::trainer() noexcept { return *parts_->trainer; }

void FineTuner::save(const std::filesystem::path& folder) const {
    parts_->trainer->check_whole();
    const State& state = parts_->trainer->state();
    if (parts_->options.lora) {
        save_adapter(folder, state, *parts_->options.lora, parts_->given);
        return;
    }
    check_config_is_there(parts_->from);
    make_folder(folder);
    std::vector<HostTensor> tensors;
    for (const Parameter& p : parts_->trained) {
        tensors.push_back({p.source.name, DType::f32, p.source.shape, {}});
    }
    std::vector<float> numbers;
    write_model_folder(folder, parts_->from, tensors, [&](std::size_t i) {
        const Parameter& p = parts_->trained[i];
        const std::vector<std::byte> bytes = state.read(p.kept.name);
        numbers.resize(bytes.size() / sizeof(float));
        std::memcpy(numbers.data(), bytes.data(), bytes.size());
        to_file(p, numbers);
        return std::as_bytes(std::span<const float>(numbers));
    });
}

}  // namespace vkf
