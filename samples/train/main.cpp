// SPDX-License-Identifier: Apache-2.0
// Trains the encoder-decoder Transformer of samples/dates from nothing, on whatever Vulkan device
// is there. Ctrl-C saves and ends; --resume goes on.
#include <vkformer/vkformer.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <map>
#include <random>
#include <system_error>
#include <utility>

#include "../arguments.h"
#include "../dates_config.h"
#include "dates_task.h"
#include "loss_curve.h"
#include "trainer.h"

#ifdef _WIN32
#include <io.h>
#else
#include <unistd.h>
#endif

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr const char* kCheckpoint = "checkpoint.safetensors";

std::atomic<bool> interrupted{false};

struct Options {
    fs::path out = "dates-trained";
    fs::path config = fs::path(SAMPLE_FOLDER) / ".." / "dates" / "config.json";
    std::string device;
    DatesOptions trainer;
    std::int64_t evaluate = 1000;
    std::int64_t unseen = 500;
    bool resume = false;
    bool check = false;
};

/// The sizes and characters of the model: a copy of samples/dates' file goes beside the weights.
class Model {
public:
    explicit Model(const fs::path& file) : Model(read_dates_config(file)) {}

    std::vector<std::int32_t> encode(const std::string& text) const {
        std::vector<std::int32_t> out;
        for (const char c : text) {
            const auto id = ids_.find(std::string(1, c));
            if (id == ids_.end()) {
                throw std::runtime_error(std::string("the model's vocabulary lacks '") + c + "'");
            }
            out.push_back(id->second);
        }
        out.push_back(eos);
        return out;
    }

    const std::string& text() const { return text_; }

    vkf::EncoderDecoderConfig config;
    std::int32_t pad, sos, eos;

private:
    explicit Model(const DatesConfig& read)
        : config(model_config(read)), pad(read.pad), sos(read.sos), eos(read.eos), text_(read.text) {
        for (const std::string& token : read.vocab) {
            ids_.emplace(token, static_cast<std::int32_t>(ids_.size()));
        }
    }

    std::map<std::string, std::int32_t> ids_;
    std::string text_;
};

struct Batch {
    std::vector<std::int32_t> sources, targets;
};

/// The batch of a step depends on seed and step alone, so that a run that is resumed sees the same.
Batch batch_of(const Model& model, const DatesOptions& o, std::int64_t step) {
    std::mt19937_64 random(o.seed * 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(step) + 1);
    Batch out;
    for (std::int64_t i = 0; i < o.batch; ++i) {
        const DateExample example = random_date(random);
        std::vector<std::int32_t> source = model.encode(example.written), target = model.encode(example.iso);
        target.insert(target.begin(), model.sos);
        for (const auto& [ids, most] : {std::pair{&source, o.source}, std::pair{&target, o.target}}) {
            if (static_cast<std::int64_t>(ids->size()) > most) {
                throw std::runtime_error("\"" + example.written + "\" takes " + std::to_string(ids->size()) +
                                         " ids; the model has room for " + std::to_string(most));
            }
            ids->resize(static_cast<std::size_t>(most), model.pad);
        }
        out.sources.insert(out.sources.end(), source.begin(), source.end());
        out.targets.insert(out.targets.end(), target.begin(), target.end());
    }
    return out;
}

/// The share of unseen dates that the model answers exactly.
double exact_answers(const vkf::Device& device, const Model& model, const DatesTrainer& trainer, std::int64_t count) {
    constexpr std::int64_t kBatch = 50;
    std::vector<std::vector<std::byte>> bytes;
    vkf::EncoderDecoder answers(device, trainer.parameters(bytes), model.config, kBatch);
    std::mt19937_64 random(20240229);  // no step's
    std::int64_t right = 0;
    for (std::int64_t done = 0; done < count; done += kBatch) {
        std::vector<std::vector<std::int32_t>> sources, wanted;
        for (std::int64_t i = done; i < std::min(done + kBatch, count); ++i) {
            const DateExample example = random_date(random);
            sources.push_back(model.encode(example.written));
            wanted.push_back(model.encode(example.iso));
        }
        const std::vector<vkf::Decoded> found = answers.generate(sources, model.sos, model.eos, model.pad);
        for (std::size_t i = 0; i < found.size(); ++i) {
            right += found[i].tokens == wanted[i] ? 1 : 0;
        }
    }
    return static_cast<double>(right) / static_cast<double>(count);
}

bool on_a_terminal() {
#ifdef _WIN32
    return _isatty(_fileno(stdout)) != 0;
#else
    return isatty(fileno(stdout)) != 0;
#endif
}

/// A bar on a terminal; a line now and then elsewhere.
class Progress {
public:
    Progress(std::int64_t first, std::int64_t steps, std::int64_t tokens)
        : first_(first), steps_(steps), tokens_(tokens), bar_(on_a_terminal()) {}

    void show(std::int64_t done, double loss) {
        const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
        const bool due = bar_ ? seconds - shown_ > 0.2 : seconds - shown_ > 10;
        if (!due && done != steps_) {
            return;
        }
        shown_ = seconds;
        const double a_second = static_cast<double>(done - first_) / seconds;
        const auto left = static_cast<long>(static_cast<double>(steps_ - done) / a_second);
        constexpr int kWidth = 30;
        const int full = static_cast<int>(kWidth * done / steps_);
        std::printf("%s[%s%s] step %lld of %lld, loss %.4f, %.0f tokens/s, %ld:%02ld left%s", bar_ ? "\r" : "",
                    std::string(static_cast<std::size_t>(full), '#').c_str(),
                    std::string(static_cast<std::size_t>(kWidth - full), '.').c_str(), static_cast<long long>(done),
                    static_cast<long long>(steps_), loss, a_second * static_cast<double>(tokens_), left / 60, left % 60,
                    bar_ ? "  " : "\n");
        std::fflush(stdout);
    }
    void end_line() const {
        if (bar_) {
            std::printf("\n");
        }
    }

private:
    std::int64_t first_, steps_, tokens_;
    bool bar_;
    Clock::time_point start_ = Clock::now();
    double shown_ = 0;
};

/// Refuses a folder with a model or a checkpoint, which a run from nothing would write over. The
/// configuration that the run is given may be there.
void require_free(const Options& o) {
    if (fs::exists(o.out / kCheckpoint)) {
        throw vkf::Error(
            "has " + std::string(kCheckpoint) + " of an earlier run; --resume goes on, --out needs another folder",
            o.out.string());
    }
    for (const char* name : {"config.json", "model.safetensors"}) {
        std::error_code code;
        if (fs::exists(o.out / name) && !fs::equivalent(o.out / name, o.config, code)) {
            throw vkf::Error("has " + std::string(name) + ", which is not of training; --out needs another folder",
                             o.out.string());
        }
    }
}

/// Makes the folder, and tries to write, before a step is taken for nothing.
void prepare_folder(const fs::path& folder) {
    std::error_code code;
    fs::create_directories(folder, code);
    const fs::path trial = folder / ".train";
    const bool written = std::ofstream(trial).put('\n').good();
    fs::remove(trial, code);
    if (!written) {
        throw vkf::Error("cannot be written", folder.string());
    }
}

void save(const Options& options, const Model& model, DatesTrainer& trainer) {
    std::vector<std::vector<std::byte>> bytes;
    trainer.save(options.out / kCheckpoint);
    vkf::save_safetensors(options.out / "model.safetensors", trainer.parameters(bytes));
    write_file(options.out / "config.json", model.text() + "\n");
}

/// Takes the steps that are left. `curve` gets the loss of each.
void take_steps(const vkf::Device& device, const Options& options, const Model& model, const DatesOptions& o,
                DatesTrainer& trainer, std::vector<CurvePoint>& curve) {
    Progress progress(trainer.step(), o.steps, o.batch * (o.source + o.target - 1));
    double smooth = 0;
    while (trainer.step() < o.steps && !interrupted) {
        const Batch batch = batch_of(model, o, trainer.step());
        const double loss = trainer.take_step(batch.sources, batch.targets);
        smooth = curve.empty() ? loss : 0.95 * smooth + 0.05 * loss;
        curve.push_back({static_cast<double>(trainer.step()), smooth});
        progress.show(trainer.step(), smooth);
        if (options.evaluate > 0 && trainer.step() % options.evaluate == 0) {
            save(options, model, trainer);
            progress.end_line();
            std::printf("step %lld: %.1f %% of %lld unseen dates are right\n", static_cast<long long>(trainer.step()),
                        100 * exact_answers(device, model, trainer, options.unseen),
                        static_cast<long long>(options.unseen));
            std::fflush(stdout);
        }
    }
    progress.end_line();
}

int train(const Options& options) {
    const Model model(options.config);
    if (!options.resume) {
        require_free(options);
    }
    DatesOptions o = options.trainer;
    o.pad = model.pad;
    o.source = std::min(o.source, model.config.max_source);
    o.target = model.config.max_target;
    const vkf::Device device = vkf::Device::create({.select = options.device});
    std::printf("device: %s, %s\n", device.capabilities().name.c_str(), device.capabilities().driver.c_str());
    DatesTrainer trainer(device, model.config, o);
    if (options.resume) {
        trainer.resume(options.out / kCheckpoint);
        std::printf("goes on at step %lld\n", static_cast<long long>(trainer.step()));
    }
    prepare_folder(options.out);
    std::signal(SIGINT, [](int) { interrupted = true; });
    std::vector<CurvePoint> curve;
    const auto keep = [&] {
        save(options, model, trainer);
        if (!curve.empty()) {
            write_loss_curve(options.out / "loss.svg", curve);
        }
    };
    const auto keep_steps = [&, first = trainer.step()] {
        if (trainer.step() > first) {
            keep();
        }
    };
    save_if_it_throws([&] { take_steps(device, options, model, o, trainer, curve); }, keep_steps);
    keep();
    if (interrupted) {
        std::printf("saved after step %lld; --resume goes on\n", static_cast<long long>(trainer.step()));
        return 130;  // as a shell has it
    }
    std::printf("%.1f %% of %lld unseen dates are right; %s has the model: dates --model %s\n",
                100 * exact_answers(device, model, trainer, options.unseen), static_cast<long long>(options.unseen),
                options.out.string().c_str(), options.out.string().c_str());
    for (const std::string& message : device.messages()) {
        std::fprintf(stderr, "validation: %s\n", message.c_str());
        return 1;
    }
    return 0;
}

std::vector<std::byte> all_parameters(const DatesTrainer& trainer) {
    std::vector<std::vector<std::byte>> bytes;
    std::vector<std::byte> all;
    trainer.parameters(bytes);
    for (const std::vector<std::byte>& b : bytes) {
        all.insert(all.end(), b.begin(), b.end());
    }
    return all;
}

/// A few steps: the loss falls, and a run that stops and goes on gives the same bits.
int check(const Options& options) {
    const Model model(options.config);
    DatesOptions o = options.trainer;
    o.pad = model.pad;
    o.source = std::min(o.source, model.config.max_source);
    o.target = model.config.max_target;
    o.batch = 6;
    o.steps = 16;
    o.warmup = 4;
    const vkf::Device device = vkf::Device::create({.select = options.device});
    std::printf("device: %s\n", device.capabilities().name.c_str());
    const fs::path file = fs::temp_directory_path() / ("vkformer-train-" + std::to_string(std::random_device()()));
    int failures = 0;
    const auto expect = [&](bool good, const char* what) {
        std::printf("%s: %s\n", good ? "passed" : "FAILED", what);
        failures += good ? 0 : 1;
    };
    const auto run = [&](DatesTrainer& trainer, std::int64_t until) {
        float loss = 0;
        while (trainer.step() < until) {
            const Batch batch = batch_of(model, o, trainer.step());
            loss = trainer.take_step(batch.sources, batch.targets);
        }
        return loss;
    };
    {
        DatesTrainer whole(device, model.config, o), half(device, model.config, o), rest(device, model.config, o);
        const float first = run(whole, 1), last = run(whole, o.steps);
        std::printf("loss %.3f, after %lld steps %.3f\n", first, static_cast<long long>(o.steps), last);
        expect(last < 0.8f * first, "the loss falls");
        run(half, o.steps / 2);
        half.save(file);
        rest.resume(file);
        run(rest, o.steps);
        expect(all_parameters(whole) == all_parameters(rest), "a run that goes on gives the same bits");
    }
    fs::remove(file);
    for (const std::string& message : device.messages()) {
        std::printf("FAILED validation: %s\n", message.c_str());
        ++failures;
    }
    return failures == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    DatesOptions& t = options.trainer;
    CLI::App app("Trains a Transformer that rewrites dates into ISO 8601, from nothing, on a Vulkan device");
    app.option_defaults()->always_capture_default();
    app.add_option("--out", options.out, "folder for the model, the checkpoint and the loss curve");
    app.add_option("--config", options.config, "sizes and characters, as samples/dates/config.json has them");
    app.add_option("--device", options.device, "index or part of the name of the Vulkan device");
    add_number(app, "--steps", t.steps, "steps of training")->check(CLI::Range(1, 1 << 24));
    add_number(app, "--batch", t.batch, "dates of a step")->check(CLI::Range(1, 4096));
    add_number(app, "--lr", t.learning_rate, "largest learning rate")->check(CLI::NonNegativeNumber);
    add_number(app, "--warmup", t.warmup, "steps until it is reached")->check(CLI::NonNegativeNumber);
    add_number(app, "--seed", t.seed, "of parameters and dates");
    add_number(app, "--evaluate", options.evaluate, "steps between evaluations; 0: at the end alone");
    add_number(app, "--unseen", options.unseen, "dates of an evaluation")->check(CLI::Range(1, 100000));
    app.add_flag("--check", options.check, "take a few steps, and see that they do what they should");
    app.add_flag("--resume", options.resume, "go on from the checkpoint of an earlier run");
    if (const int code = parse_arguments(app, argc, argv); code >= 0) {
        return code;
    }
    try {
        const int code = options.check ? check(options) : train(options);
        end_output();
        return code;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "train: %s\n", e.what());
        return 1;
    }
}
