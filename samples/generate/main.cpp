// SPDX-License-Identifier: Apache-2.0
// Continues a text with a Hugging Face checkpoint (Llama, Mistral, Qwen, Gemma, Phi-3, OLMo 2,
// GPT-2) on whatever Vulkan device is there. Without arguments a small Llama that is shipped beside
// this file writes a number out in English.
#include <vkformer/vkformer.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <utility>

#ifdef _WIN32
#include <io.h>
#else
#include <unistd.h>
#endif

#include "../arguments.h"
#include "accuracy.h"
#include "check.h"
#include "copy_rate.h"
#include "ranks.h"
#include "text_model.h"

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

volatile std::sig_atomic_t interrupted = 0;

void interrupt(int) {
    interrupted = 1;
    std::signal(SIGINT, SIG_DFL);  // a second one ends the program at once
}

struct Interrupted {};

void stop_if_interrupted() {
    if (interrupted != 0) {
        throw Interrupted();
    }
}

/// Writes to the standard output, at once.
void put(const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
        throw vkf::Error(std::string("cannot be written: ") + std::strerror(errno), "standard output");
    }
}

void print_memory(std::FILE* out, const std::string& rank, const vkf::ModelMemory& m) {
    const auto megabytes = [](std::uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
    std::fprintf(out, "%smemory: %.2f MiB: weights %.2f, cache %.2f, scratch %.2f, tables %.2f, transfers %.2f\n",
                 rank.c_str(), megabytes(m.total()), megabytes(m.weights), megabytes(m.cache), megabytes(m.scratch),
                 megabytes(m.constants), megabytes(m.transfers));
}

vkf::PackOn pack_on(const Options& options) {
    return options.pack_on.empty()     ? vkf::PackOn::by_device
           : options.pack_on == "host" ? vkf::PackOn::host
                                       : vkf::PackOn::device;
}

/// Prints what matrices are kept as, and who packed them.
void print_packing(const vkf::Weights& weights) {
    std::string kept;
    for (const vkf::WeightType type : {vkf::WeightType::f32, vkf::WeightType::f16, vkf::WeightType::bf16,
                                       vkf::WeightType::int8, vkf::WeightType::int4}) {
        if (const std::uint64_t bytes = weights.bytes(type); bytes != 0) {
            char text[64];
            std::snprintf(text, sizeof(text), "%s %.2f", std::string(vkf::name_of(type)).c_str(),
                          static_cast<double>(bytes) / (1 << 20));
            kept += (kept.empty() ? "" : ", ") + std::string(text);
        }
    }
    std::fprintf(stderr, "weights: MiB of %s%s\n", kept.c_str(),
                 weights.bytes_packed_on_device() != 0 ? ", packed on the device" : "");
}

/// Gives options with room for the prompt and what may follow.
vkf::DecoderOptions decoder_options(const Options& options, const vkf::DecoderFacts& facts, std::size_t prompt,
                                    const std::optional<vkf::LoraOptions>& lora, const Ranks& ranks) {
    vkf::DecoderOptions out;
    out.communicator = ranks.communicator();
    out.split = ranks.split();
    out.speeds = ranks.speeds();
    const std::int64_t wanted = static_cast<std::int64_t>(prompt) + options.max_tokens;
    out.max_tokens = std::clamp<std::int64_t>(wanted, 1, facts.max_positions);
    out.chunk = options.chunk;
    out.lora = lora;
    out.profile = !options.trace.empty();
    out.kv = *weight_type(options.kv);
    out.arithmetic = arithmetic(options.arithmetic);
    out.progress = [](std::uint64_t, std::uint64_t) { stop_if_interrupted(); };
    if (options.sampling.temperature > 0) {
        out.candidates = std::min(options.sampling.top_k, facts.vocab_size);
    }
    return out;
}

bool on_terminal() {
#ifdef _WIN32
    return _isatty(_fileno(stderr)) != 0;
#else
    return isatty(STDERR_FILENO) != 0;
#endif
}

/// Shows a bar while weights load, where somebody sees it grow, and ends where that is asked for.
vkf::LoadProgress load_bar(bool wanted = true) {
    return [shown = wanted && on_terminal()](std::uint64_t done, std::uint64_t total) {
        stop_if_interrupted();
        if (!shown) {
            return;
        }
        constexpr int kWidth = 40;
        const int full = static_cast<int>(static_cast<double>(done) / static_cast<double>(total) * kWidth);
        std::fprintf(stderr, "\rweights [%-*.*s] %3d %%%s", kWidth, full, "########################################",
                     full * 100 / kWidth, done == total ? "\r\033[K" : "");
    };
}

struct Speed {
    double first = 0, decode = 0;  ///< seconds
    std::int64_t tokens = 0;
};

void print_speed(const Speed& speed, std::size_t prompt) {
    std::fprintf(stderr, "prompt: %zu tokens, %.1f tokens/s; first token after %.1f ms\n", prompt,
                 static_cast<double>(prompt) / speed.first, speed.first * 1e3);
    if (speed.tokens > 1) {
        std::fprintf(stderr, "answer: %lld tokens, %.1f tokens/s\n", static_cast<long long>(speed.tokens),
                     static_cast<double>(speed.tokens - 1) / speed.decode);
    }
}

/// Prints what a step moves, and what share that is of what copying moves in the same time.
void print_share(const vkf::Device& device, vkf::Decoder& decoder, const Speed& speed) {
    const double bytes = decoder.step_program().cost().bytes;
    const double rate = bytes * static_cast<double>(speed.tokens - 1) / speed.decode;
    const double copy = copy_rate(device);
    std::fprintf(stderr, "step: %.2f MB, %.2f GB/s; the device copies %.2f GB/s: %.0f %%\n", bytes * 1e-6, rate * 1e-9,
                 copy * 1e-9, 100 * rate / copy);
}

/// Prints tokens as they come, until one ends the text, a stop is met, or there is no room. Of
/// several ranks the first draws and prints.
Speed answer(vkf::Decoder& decoder, const Options& options, const std::vector<std::int32_t>& prompt, TextOut& out,
             const Ranks& ranks) {
    vkf::Sampler sampler(options.sampling);
    const std::vector<std::int32_t>& end = decoder.model().facts().end;
    Speed speed;
    auto start = Clock::now();
    decoder.prompt(prompt);
    speed.first = seconds_since(start);
    start = Clock::now();
    while (speed.tokens < options.max_tokens && !out.stopped()) {
        const std::int32_t chosen =
            options.sampling.temperature > 0 ? sampler.choose(decoder.candidates(0)) : decoder.next()[0];
        const auto [next, stop] = ranks.agreed({chosen, interrupted});
        if (stop != 0) {
            interrupted = 1;
            break;
        }
        ++speed.tokens;
        const bool last = !options.ignore_eos && std::find(end.begin(), end.end(), next) != end.end();
        if (!last || options.by_ids) {
            const std::string text = out.push(next);
            put(ranks.first() ? text : "");
        }
        if (last || out.stopped() || speed.tokens == options.max_tokens) {
            break;
        }
        if (decoder.room() == 0) {
            if (!ranks.first()) {
                break;
            }
            std::fprintf(stderr, "\nthe model's %lld positions are full\n",
                         static_cast<long long>(decoder.model().facts().max_positions));
            break;
        }
        decoder.step({&next, 1});
    }
    speed.decode = seconds_since(start);
    const std::string rest = out.finish() + "\n";
    put(ranks.first() ? rest : "");
    return speed;
}

int generate(const Options& options, Ranks& ranks) {
    const vkf::Checkpoint checkpoint(options.model);
    const vkf::DecoderModel model = vkf::read_decoder(checkpoint);
    const vkf::DecoderFacts& facts = model.facts();
    const TextModel texts(options, facts);
    const std::vector<std::int32_t> prompt = texts.prompt_ids(options.prompt);
    if (prompt.empty() || prompt.size() > static_cast<std::size_t>(facts.max_positions)) {
        throw vkf::Error("the prompt has " + std::to_string(prompt.size()) + " tokens; the model takes 1 to " +
                         std::to_string(facts.max_positions));
    }
    const std::optional<vkf::Adapter> adapter =
        options.adapter.empty() ? std::nullopt : std::optional<vkf::Adapter>(std::in_place, options.adapter);
    const vkf::Device device = vkf::Device::create({.select = options.device});
    std::fprintf(stderr, "%sdevice: %s, %s\n", ranks.name().c_str(), device.capabilities().name.c_str(),
                 device.capabilities().driver.c_str());
    Clock::time_point start;
    double loaded = 0;
    const vkf::LoadOptions load{
        .matrices = weight_type(options.weights),
        .pack_on = pack_on(options),
        .progress = [&start, &loaded, show = load_bar(ranks.first())](std::uint64_t done, std::uint64_t total) {
            show(done, total);
            loaded = seconds_since(start);
        }};
    const std::optional<vkf::LoraOptions> lora = adapter ? std::optional(adapter->options()) : std::nullopt;
    for (const std::string& field : facts.not_obeyed) {
        std::fprintf(stderr, "%sgeneration_config.json: %s is not obeyed\n", ranks.name().c_str(), field.c_str());
    }
    const Ranks alone("");
    if (!ranks.settle(device, facts, {prompt.size(), options.chunk, options.max_tokens}, [&](bool together) {
            const vkf::DecoderOptions asked =
                decoder_options(options, facts, prompt.size(), lora, together ? ranks : alone);
            return vkf::DecoderPlan(device, checkpoint, model, asked, load).memory();
        })) {
        return 0;  // another rank answers alone
    }
    const vkf::DecoderPlan plan(device, checkpoint, model, decoder_options(options, facts, prompt.size(), lora, ranks),
                                load);
    print_memory(options.dry_run ? stdout : stderr, ranks.name(), plan.memory());
    vkf::require_memory(device, plan.memory(), "Decoder");
    if (options.dry_run) {
        return 0;
    }
    const std::unique_ptr<TextOut> out = texts.text_out();
    start = Clock::now();
    vkf::Decoder decoder(device, checkpoint, plan);
    if (adapter) {
        decoder.set_adapter(*adapter);
    }
    if (ranks.first()) {
        print_packing(decoder.weights());
        std::fprintf(stderr, "%s: weights after %.2f s, kernels after %.2f s\n", facts.model_type.c_str(), loaded,
                     seconds_since(start));
        print_arithmetic(decoder.prompt_program());
    }
    const Speed speed = answer(decoder, options, prompt, *out, ranks);
    if (!ranks.first()) {
        return interrupted != 0 ? 130 : 0;
    }
    print_speed(speed, prompt.size());
    if (options.copy_rate && speed.tokens > 1) {
        print_share(device, decoder, speed);
    }
    if (!options.trace.empty()) {
        const vkf::Program& timed = speed.tokens > 1 ? decoder.step_program() : decoder.prompt_program();
        replace_file(options.trace, [&](const std::filesystem::path& to) { timed.write_trace(to); });
    }
    return interrupted != 0 ? 130 : 0;
}

/// Saves the matrices as --weights says, in a folder from which they load without being packed
/// again, or with an adapter merged into them. No device is asked.
int save(const Options& options) {
    const vkf::Checkpoint checkpoint(options.model);
    const vkf::DecoderModel model = vkf::read_decoder(checkpoint);
    if (!options.adapter.empty()) {
        vkf::merge_adapter(options.save, checkpoint, model, vkf::Adapter(options.adapter));
        return 0;
    }
    vkf::save_decoder(options.save, checkpoint, model,
                      {.matrices = weight_type(options.weights), .pack_on = pack_on(options), .progress = load_bar()});
    const std::filesystem::path file = options.save / "model.safetensors";
    std::fprintf(stderr, "%s: %.2f MiB\n", file.string().c_str(),
                 static_cast<double>(std::filesystem::file_size(file)) / (1 << 20));
    return 0;
}

void add_options(CLI::App& app, Options& o) {
    app.option_defaults()->always_capture_default();
    app.add_option("model", o.model, "folder with config.json, model.safetensors (or shards) and tokenizer.json");
    CLI::Option* prompt = app.add_option("-p,--prompt", o.prompt, "text to be continued");
    app.add_flag("--chat", o.chat, "put the prompt as a question, as the folder's chat template says");
    app.add_option("--system", o.system, "with this system message before it")->needs("--chat");
    app.add_option("--ids", o.ids, "token ids to be continued instead; ids are printed")
        ->excludes(prompt)
        ->excludes("--chat");
    add_number(app, "-n,--max-tokens", o.max_tokens, "most tokens of the answer")->check(CLI::Range(1, 1 << 20));
    add_number(app, "--temperature", o.sampling.temperature,
               "0: always the likeliest token, which is what holds where nothing is said of draws; above it, a draw "
               "among the likeliest, of which --top-k says how many")
        ->check(CLI::Range(0.0, 100.0));
    add_number(app, "--top-k", o.sampling.top_k,
               "draw among so many of the likeliest, at temperature 1 if no other is given")
        ->check(CLI::Range(1, 128));
    add_number(app, "--top-p", o.sampling.top_p, "and among the fewest of those that reach this share; the same")
        ->check(CLI::Range(1e-6, 1.0));
    add_number(app, "--seed", o.sampling.seed, "of the draws");
    app.add_option("--stop", o.stop, "text that ends the answer, and is not printed; may be given several times")
        ->default_str("");
    app.add_flag("--ignore-eos", o.ignore_eos, "go on where the model would end");
    app.add_flag("--no-bos", o.no_bos, "put no token that begins a text before the prompt");
    add_number(app, "--chunk", o.chunk, "tokens of the prompt that are read together")->check(CLI::Range(1, 1 << 16));
    app.add_option("--device", o.device, "index or part of the name of the Vulkan device");
    app.add_option("--weights", o.weights, "what matrices are kept as, instead of as in the file")
        ->check(CLI::IsMember({"fp32", "fp16", "bf16", "int8", "int4"}));
    app.add_option("--pack-on", o.pack_on, "who packs them, host or device, instead of the device where it is a GPU")
        ->check(CLI::IsMember({"host", "device"}));
    app.add_option("--save", o.save,
                   "write a folder with the matrices packed like that, which loads as it is, and end");
    app.add_option("--adapter", o.adapter, "a LoRA adapter's folder, as PEFT has it; with --save it is merged");
    app.add_option("--kv", o.kv, "what keys and values are kept as")
        ->check(CLI::IsMember({"fp32", "fp16", "bf16", "int8"}));
    app.add_option("--arithmetic", o.arithmetic,
                   "what products of a prompt may compute with where the device is faster at it; int8 with weights "
                   "kept as int8")
        ->check(CLI::IsMember({"fp32", "fp16", "int8"}));
    app.add_option("--profile", o.trace,
                   "where a trace of the last step is written (chrome://tracing); of the prompt's last "
                   "part, where the answer is one token");
    app.add_flag("--copy-rate", o.copy_rate, "say what share of the device's copy rate the steps reached");
    app.add_option("--accuracy", o.texts, "of a file's lines: perplexity with every type of weights and of caches")
        ->check(CLI::ExistingFile);
    CLI::Option* tensor =
        app.add_flag("--tensor-parallel", o.tensor_parallel,
                     "share the model out over the processes that mpirun started, each with a device");
    CLI::Option* layers =
        app.add_flag("--layer-parallel", o.layer_parallel,
                     "give each of those processes some of the layers, one behind the other, by its device's speed")
            ->excludes(tensor);
    app.add_option("--parallel", o.parallel, "the one, the other, or what is measured to be the soonest done")
        ->check(CLI::IsMember({"tensor", "layers", "auto"}))
        ->excludes(tensor)
        ->excludes(layers);
    add_number(app, "--speeds", o.speeds,
               "how fast the processes' devices are, as 3,1: shares are in proportion; else --layer-parallel "
               "measures, and --tensor-parallel takes them for alike")
        ->delimiter(',')
        ->allow_extra_args(false)
        ->option_text("FLOAT,FLOAT...");
    add_number(app, "--limit", o.limit, "most seconds that one process waits for another")
        ->check(CLI::Range(0.01, 1e6));
    app.add_flag("--dry-run", o.dry_run, "print what memory it would take, and end");
    app.add_flag("--check", o.check, "compare with the answers PyTorch gave, in the model's expected.json");
}

/// Options of draws are for draws.
void settle_draws(const CLI::App& app, Options& o) {
    const bool temperature = app.count("--temperature") > 0;
    if (!temperature && app.count("--top-k") + app.count("--top-p") > 0) {
        o.sampling.temperature = 1.0f;
    }
    if (app.count("--seed") > 0 && !(o.sampling.temperature > 0)) {
        throw CLI::ValidationError("--seed", "nothing is drawn; give --temperature, --top-k or --top-p too");
    }
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    CLI::App app("Continues a text with a Hugging Face checkpoint on a Vulkan device");
    add_options(app, options);
    const auto settle = [&] {
        options.by_ids = app.count("--ids") > 0;
        std::erase(options.stop, "");
        settle_draws(app, options);
        const char* flag = options.tensor_parallel  ? "--tensor-parallel"
                           : options.layer_parallel ? "--layer-parallel"
                                                    : "--parallel";
        options.parallel = options.tensor_parallel ? "tensor" : options.layer_parallel ? "layers" : options.parallel;
        if (options.by_ids && (options.check || !options.texts.empty())) {
            throw CLI::ValidationError("--ids", "goes with an answer, not with --check or --accuracy");
        }
        if (!options.parallel.empty() && (options.check || !options.texts.empty() || !options.save.empty())) {
            throw CLI::ValidationError(flag, "goes with an answer, not with --check, --accuracy or --save");
        }
        if (options.dry_run && (options.check || !options.texts.empty() || !options.save.empty())) {
            throw CLI::ValidationError("--dry-run", "goes with an answer, not with --check, --accuracy or --save");
        }
        if (!options.speeds.empty() && options.parallel != "tensor" && options.parallel != "layers") {
            throw CLI::ValidationError("--speeds", "goes with --tensor-parallel or --layer-parallel");
        }
        if (app.count("--limit") != 0 && options.parallel.empty()) {
            throw CLI::ValidationError("--limit", "goes with --tensor-parallel, --layer-parallel or --parallel");
        }
        if (!options.adapter.empty() && (options.check || !options.texts.empty())) {
            throw CLI::ValidationError("--adapter", "--check and --accuracy are of the model alone");
        }
        if (!options.adapter.empty() && !options.save.empty() && !options.weights.empty()) {
            throw CLI::ValidationError("--adapter",
                                       "is merged in the types of the files; --weights goes with another run");
        }
    };
    if (const int code = parse_arguments(app, argc, argv, settle); code >= 0) {
        return code;
    }
    const bool merges = !options.save.empty() && !options.adapter.empty();
    if (options.texts.empty() && !options.check && !merges) {
        std::signal(SIGINT, interrupt);  // nothing else looks whether it was
    }
    std::string rank;
    try {
        Ranks ranks(options.parallel, options.speeds, options.limit);
        rank = ranks.name();
        if (!options.trace.empty()) {
            require_replaceable(options.trace);
        }
        const int code = !options.save.empty()    ? save(options)
                         : !options.texts.empty() ? accuracy(options)
                         : options.check          ? check(options)
                                                  : generate(options, ranks);
        put("");  // what is not written yet
        return code;
    } catch (const Interrupted&) {
        return 130;
    } catch (const std::exception& e) {
        if (interrupted != 0) {
            return 130;  // another rank was told of it first, and has ended
        }
        std::fprintf(stderr, "generate: %s%s\n", rank.c_str(), e.what());
        return 1;
    }
}
