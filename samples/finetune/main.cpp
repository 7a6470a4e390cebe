// SPDX-License-Identifier: Apache-2.0
// Fine-tunes a Hugging Face checkpoint that decodes (Llama, Mistral, Qwen, Gemma, Phi-3, OLMo 2,
// GPT-2) on whatever Vulkan device is there: all parameters, or LoRA adapters. Ctrl-C saves and
// ends; --resume goes on.
#include <vkformer/vkformer.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "../arguments.h"
#include "texts.h"

#ifdef _WIN32
#include <io.h>
#else
#include <unistd.h>
#endif

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr const char* kCheckpoint = "checkpoint.safetensors";

volatile std::sig_atomic_t interrupted = 0;

void interrupt(int) {
    interrupted = 1;
    std::signal(SIGINT, SIG_DFL);  // a second one ends the program at once
    std::signal(SIGTERM, SIG_DFL);
}

struct Options {
    fs::path model, ids, text, save, resume, json;
    std::int64_t steps = 12, batch = 2, micro_batch = 0, save_every = 0, tokens = 0;
    std::vector<double> betas{0.9, 0.999};
    vkf::AdamW adamw{.learning_rate = 1e-3, .weight_decay = 0.01};
    float clip = 1.0f;
    std::string schedule = "constant";
    std::int64_t warmup = 0;
    std::int64_t lora = 0;
    std::optional<float> lora_alpha;
    std::vector<std::string> lora_targets{"q_proj", "v_proj"};
    std::string weights, arithmetic = "fp32", device;
    float loss_scale = 0.0f;
    std::uint64_t seed = 0;
};

bool on_terminal() {
#ifdef _WIN32
    return _isatty(_fileno(stderr)) != 0;
#else
    return isatty(STDERR_FILENO) != 0;
#endif
}

vkf::FineTuneOptions fine_tune_options(const Options& o) {
    using Kind = vkf::Schedule::Kind;
    static const std::map<std::string, Kind> kSchedules{
        {"constant", Kind::constant}, {"linear", Kind::linear}, {"cosine", Kind::cosine}};
    static const std::map<std::string, vkf::WeightType> kTypes{{"fp32", vkf::WeightType::f32},
                                                               {"fp16", vkf::WeightType::f16},
                                                               {"bf16", vkf::WeightType::bf16},
                                                               {"int8", vkf::WeightType::int8},
                                                               {"int4", vkf::WeightType::int4}};
    vkf::FineTuneOptions out;
    out.max_batch = o.batch;
    out.micro_batch = std::min(o.micro_batch, o.batch);
    out.max_tokens = o.tokens;
    out.seed = o.seed;
    vkf::AdamW adamw = o.adamw;
    adamw.beta1 = o.betas[0];
    adamw.beta2 = o.betas[1];
    out.trainer.optimizer = adamw;
    out.trainer.schedule = {.kind = kSchedules.at(o.schedule), .warmup = o.warmup, .steps = o.steps};
    out.trainer.max_norm = o.clip;
    out.trainer.loss_scale = o.loss_scale;
    out.trainer.arithmetic = o.arithmetic == "fp16" ? vkf::Arithmetic::f16 : vkf::Arithmetic::f32;
    if (o.lora > 0) {
        const float alpha = o.lora_alpha.value_or(static_cast<float>(o.lora));
        out.lora = {.rank = o.lora, .alpha = alpha, .targets = o.lora_targets};
        out.load.matrices = o.weights.empty() ? std::nullopt : std::optional(kTypes.at(o.weights));
    }
    return out;
}

/// Refuses a folder with a model or an adapter that no earlier run of this program left there, so
/// that none is lost; and tries to write, before a step is taken for nothing.
void prepare_folder(const Options& o) {
    std::error_code code;
    if (fs::equivalent(o.save, o.model, code)) {
        throw vkf::Error("has the model that is fine-tuned; --save needs another folder", o.save.string());
    }
    const bool ours = fs::exists(o.save / kCheckpoint);
    for (const char* name : {"config.json", "model.safetensors", "adapter_config.json", "adapter_model.safetensors"}) {
        if (!ours && fs::exists(o.save / name)) {
            throw vkf::Error("has " + std::string(name) + ", which is not of fine-tuning; --save needs another folder",
                             o.save.string());
        }
    }
    const char* other = o.lora > 0 ? "model.safetensors" : "adapter_model.safetensors";
    if (ours && fs::exists(o.save / other)) {
        throw vkf::Error("has " + std::string(other) + " of an earlier run, which trained " +
                             (o.lora > 0 ? "all parameters" : "adapters") + "; --save needs another folder",
                         o.save.string());
    }
    fs::create_directories(o.save, code);
    const fs::path trial = o.save / ".finetune";
    const bool written = std::ofstream(trial).put('\n').good();
    fs::remove(trial, code);
    if (!written) {
        throw vkf::Error("cannot be written", o.save.string());
    }
}

/// The texts of a step: the lines from step * batch on, going round.
Texts batch_of(const Texts& texts, std::int64_t step, std::int64_t batch) {
    Texts out;
    for (std::int64_t i = step * batch; i < (step + 1) * batch; ++i) {
        out.push_back(texts[static_cast<std::size_t>(i) % texts.size()]);
    }
    return out;
}

/// A line a step; on a terminal one that is written over.
void show(const Options& o, const vkf::TrainingStep& taken, std::int64_t step, double tokens_per_second) {
    const bool over = on_terminal() && step < o.steps;
    std::fprintf(stderr, "%sstep %lld of %lld: loss %.4f, gradient norm %.4f, %.0f tokens/s%s%s",
                 on_terminal() ? "\r" : "", static_cast<long long>(step), static_cast<long long>(o.steps), taken.loss,
                 taken.grad_norm, tokens_per_second, taken.left_out ? ", left out" : "", over ? "   " : "\n");
}

void save(const Options& o, vkf::FineTuner& tuner) {
    if (!o.save.empty()) {
        tuner.trainer().save(o.save / kCheckpoint);
        tuner.save(o.save);
    }
}

void write_json(const fs::path& path, const nlohmann::json& report) {
    if (path.empty()) {
        return;
    }
    write_file(path, report.dump(1) + "\n");
}

/// The texts that the options name, cut to what the model takes.
Texts read_texts(const Options& o, const vkf::DecoderFacts& facts) {
    Texts texts = o.text.empty() ? read_id_lines(o.ids, facts) : read_text_lines(o.text, o.model, facts);
    const std::int64_t most = o.tokens == 0 ? facts.max_positions : o.tokens;
    if (const std::size_t longer = cut(texts, most); longer > 0) {
        std::fprintf(stderr, "%zu of %zu texts are cut to %lld tokens\n", longer, texts.size(),
                     static_cast<long long>(most));
    }
    return texts;
}

/// Takes the steps that are left, and tells of them in `report`, also where one throws.
void take_steps(const Options& o, const Texts& texts, vkf::FineTuner& tuner, nlohmann::json& report) {
    vkf::Trainer& trainer = tuner.trainer();
    std::int64_t tokens = 0;
    const Clock::time_point start = Clock::now();
    while (trainer.step() < o.steps && interrupted == 0) {
        const Texts batch = batch_of(texts, trainer.step(), o.batch);
        const vkf::TrainingStep taken = tuner.take_step(batch);
        for (const std::vector<std::int32_t>& text : batch) {
            tokens += static_cast<std::int64_t>(text.size()) - 1;
        }
        const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
        const double rate = static_cast<double>(tokens) / seconds;
        report["tokens_per_second"] = rate;
        show(o, taken, trainer.step(), rate);
        if (taken.left_out) {
            continue;
        }
        report["losses"].push_back(taken.loss);
        report["grad_norms"].push_back(taken.grad_norm);
        if (o.save_every > 0 && trainer.step() % o.save_every == 0) {
            save(o, tuner);
        }
    }
}

/// What adapters have learned under one alpha is not what they are under another.
void require_same_alpha(const fs::path& resumed, float alpha) {
    const fs::path file = resumed / "adapter_config.json";
    std::ifstream in(file);
    const nlohmann::json config = nlohmann::json::parse(in, nullptr, false);
    if (!config.is_object() || !config.contains("lora_alpha") || !config["lora_alpha"].is_number()) {
        throw std::runtime_error(file.string() + ": cannot be read, or has no lora_alpha");
    }
    if (const auto was = config["lora_alpha"].get<float>(); was != alpha) {
        throw std::runtime_error(file.string() + ": lora_alpha is " + nlohmann::json(was).dump() +
                                 ", which --lora-alpha must be to go on; it is " + nlohmann::json(alpha).dump());
    }
}

int fine_tune(Options o) {
    const vkf::Checkpoint checkpoint(o.model);
    const vkf::DecoderModel model = vkf::read_decoder(checkpoint);
    const Texts texts = read_texts(o, model.facts());
    o.tokens = 0;
    for (const std::vector<std::int32_t>& text : texts) {  // memory is for the longest
        o.tokens = std::max(o.tokens, static_cast<std::int64_t>(text.size()));
    }
    if (!o.save.empty()) {
        prepare_folder(o);
    }
    const vkf::Device device = vkf::Device::create({.select = o.device});
    std::fprintf(stderr, "device: %s, %s\n", device.capabilities().name.c_str(), device.capabilities().driver.c_str());
    const vkf::FineTuneOptions options = fine_tune_options(o);
    if (!o.resume.empty() && options.lora) {
        require_same_alpha(o.resume, options.lora->alpha);
    }
    vkf::FineTuner tuner(device, checkpoint, model, options);
    std::fprintf(stderr, "%s: %zu trained tensors, %.1f MiB of scratch\n", model.facts().model_type.c_str(),
                 tuner.trainer().parameters().size(),
                 static_cast<double>(tuner.trainer().program().memory().scratch) / (1 << 20));
    if (!o.resume.empty()) {
        tuner.trainer().resume(o.resume / kCheckpoint);
        std::fprintf(stderr, "goes on at step %lld\n", static_cast<long long>(tuner.trainer().step()));
    }
    if (tuner.trainer().step() >= o.steps) {
        std::fprintf(stderr, "--steps %lld are taken already\n", static_cast<long long>(o.steps));
    }
    std::signal(SIGINT, interrupt);
    std::signal(SIGTERM, interrupt);
    nlohmann::json report{
        {"losses", nlohmann::json::array()}, {"grad_norms", nlohmann::json::array()}, {"tokens_per_second", 0.0}};
    write_json(o.json, report);  // it can be written, then
    const auto keep = [&] {
        save(o, tuner);
        write_json(o.json, report);
    };
    save_if_it_throws([&] { take_steps(o, texts, tuner, report); }, keep);
    keep();
    if (interrupted != 0) {
        std::fprintf(stderr, "\n%s after step %lld\n", o.save.empty() ? "stopped" : "saved; --resume goes on",
                     static_cast<long long>(tuner.trainer().step()));
    }
    for (const std::string& message : device.messages()) {
        std::fprintf(stderr, "validation: %s\n", message.c_str());
    }
    return interrupted != 0 ? 130 : device.messages().empty() ? 0 : 1;
}

void add_options(CLI::App& app, Options& o) {
    app.option_defaults()->always_capture_default();
    app.add_option("model", o.model, "folder with config.json and model.safetensors (or shards)")->required();
    CLI::Option* ids = app.add_option("--ids", o.ids, "file of token ids with spaces between, a text a line");
    app.add_option("--text", o.text, "file of text, a text a line, for the model's tokenizer, begin and end added")
        ->excludes(ids);
    add_number(app, "--steps", o.steps, "steps in all")->check(CLI::Range(1, 1 << 24));
    add_number(app, "--batch", o.batch, "texts of a step")->check(CLI::Range(1, 4096));
    add_number(app, "--micro-batch", o.micro_batch, "texts that run together, in less memory; 0: all of a step")
        ->check(CLI::NonNegativeNumber);
    add_number(app, "--tokens", o.tokens, "tokens to which texts are cut, instead of what the model takes")
        ->check(CLI::Range(2, 1 << 20))
        ->default_str("");
    add_number(app, "--lr", o.adamw.learning_rate, "learning rate")->check(CLI::NonNegativeNumber);
    add_number(app, "--betas", o.betas, "of AdamW, as 0.9,0.999")->delimiter(',')->expected(2);
    add_number(app, "--eps", o.adamw.eps, "of AdamW")->check(CLI::NonNegativeNumber);
    add_number(app, "--weight-decay", o.adamw.weight_decay, "of AdamW")->check(CLI::NonNegativeNumber);
    add_number(app, "--clip", o.clip, "2-norm that all gradients together are clipped to; 0: they are not")
        ->check(CLI::NonNegativeNumber);
    app.add_option("--schedule", o.schedule, "of the learning rate, over all steps")
        ->check(CLI::IsMember({"constant", "linear", "cosine"}));
    add_number(app, "--warmup", o.warmup, "steps until the learning rate is reached")->check(CLI::NonNegativeNumber);
    CLI::Option* lora = add_number(app, "--lora", o.lora, "train adapters of this rank, and leave the model as it is")
                            ->check(CLI::Range(1, 4096))
                            ->default_str("");
    add_number(app, "--lora-alpha", o.lora_alpha, "over the rank, the factor of the adapters; the rank if not given")
        ->check(CLI::PositiveNumber)
        ->needs(lora);
    app.add_option("--lora-targets", o.lora_targets,
                   "the linear layers that have adapters, by the last parts of their names, as q_proj,v_proj")
        ->delimiter(',')
        ->needs(lora);
    app.add_option("--weights", o.weights, "what the model's matrices are kept as beside adapters")
        ->check(CLI::IsMember({"fp32", "fp16", "bf16", "int8", "int4"}))
        ->needs(lora);
    app.add_option("--arithmetic", o.arithmetic, "what products may compute with where the device is faster at it")
        ->check(CLI::IsMember({"fp32", "fp16"}));
    add_number(app, "--loss-scale", o.loss_scale,
               "what the loss is multiplied by at first; steps that overflow are left out, and it adapts")
        ->check(CLI::NonNegativeNumber);
    add_number(app, "--seed", o.seed, "of the adapters' first numbers");
    CLI::Option* saved =
        app.add_option("--save", o.save, "folder for the model or the adapters, and the checkpoint to go on from");
    add_number(app, "--save-every", o.save_every, "steps between savings; 0: at the end alone")
        ->check(CLI::NonNegativeNumber)
        ->needs(saved);
    app.add_option("--resume", o.resume, "folder of an earlier --save, to go on from");
    app.add_option("--json", o.json, "file for losses before each step, gradient norms before clipping, and tokens/s");
    app.add_option("--device", o.device, "index or part of the name of the Vulkan device");
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    CLI::App app("Fine-tunes a Hugging Face checkpoint on a Vulkan device");
    add_options(app, options);
    const auto one_source = [&] {
        if (options.ids.empty() == options.text.empty()) {
            throw CLI::RequiredError("--ids or --text");
        }
    };
    if (const int code = parse_arguments(app, argc, argv, one_source); code >= 0) {
        return code;
    }
    try {
        return fine_tune(std::move(options));
    } catch (const std::exception& e) {
        std::fprintf(stderr, "\nfinetune: %s\n", e.what());
        return 1;
    }
}
