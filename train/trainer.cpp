// SPDX-License-Identifier: Apache-2.0
#include "train/trainer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <optional>
#include <utility>

#include "models/files/safetensors.h"
#include "models/state_file.h"
#include "models/state_tensors.h"
#include "ops/collectives.h"
#include "ops/optimizer_checks.h"
#include "runtime/base/text.h"
#include "runtime/device/insides.h"
#include "runtime/device/program_core.h"
#include "runtime/graph/edit.h"
#include "train/step_graph.h"

namespace vkf {

namespace {

using namespace support;

constexpr std::int32_t kStepsToGrow = 2000;
/// Up to which a loss scale doubles: the squares of gradients that are multiplied by more are not
/// finite, however small these are.
constexpr float kMostLossScale = 0x1p64f;
/// The least and the greatest weight. Gradients are multiplied by it and squared: between these a
/// norm from 1e-10 to 1e10 is one of fp32 all the way.
constexpr float kLeastWeight = 1e-9f, kMostWeight = 1e9f;
constexpr const char* kWeights = "1e-9..1e9";

}  // namespace

struct Trainer::Parts {
    /// What a run goes on from beside the optimizer's numbers.
    struct Progress {
        std::int32_t step = 0;
        std::int32_t good = 0;  ///< steps since the loss scale changed
        float loss_scale = 0.0f;
    };

    std::vector<std::string> names;
    std::vector<std::string> inputs;  ///< those with symbols in their shapes
    State state;
    std::optional<Program> program;
    Graph update_graph;
    std::optional<Program> updates;  ///< where they are apart, to accumulate
    bool scaled = false, accumulates = false;
    bool counts_runs = false;  ///< the graph has the symbol `micro_batch`
    std::shared_ptr<Communicator> communicator;
    std::string described, settings;  ///< parameters and options, which the ranks must have alike
    bool alike = false;               ///< the ranks go on from the same numbers
    bool resumed_in_part = false;     ///< resume() failed when it had written some states
    bool taken_in_part = false;       ///< a step failed when it may have updated some parameters
    Progress progress;
    // of the micro-batches that were accumulated
    std::int64_t micro_batches = 0;
    double weights = 0, losses = 0;

    /// Throws where a weight is not positive, or its squares leave fp32.
    static void check(float weight) {
        if (!(weight > 0.0f) || !std::isfinite(weight)) {
            throw Error("a weight of " + std::to_string(weight) + " is not positive", kTrainer);
        }
        if (weight < kLeastWeight || weight > kMostWeight) {
            throw Error("a weight of " + exact(weight) + " is outside " + kWeights, kTrainer);
        }
    }

    /// Throws where an input has no element: a loss of nothing is no number, and parameters would
    /// take a step before it is there.
    void check_batch() const {
        for (const std::string& input : inputs) {
            const std::vector<std::int64_t> shape = program->shape(input);
            if (std::find(shape.begin(), shape.end(), 0) != shape.end()) {
                throw Error("step " + std::to_string(progress.step) + ": the input " + input + " is " +
                                shape_text(shape) + ", a batch of nothing",
                            kTrainer);
            }
        }
    }

    /// Throws where the loss or the norm would go to a tensor of the caller's: they are read from
    /// the program when the parameters have been updated.
    void check_outputs() const {
        const auto check = [&](const char* output) {
            if (Insides::core(*program).is_bound(StorageKind::output, output)) {
                throw Error(std::string("the output ") + output + " is bound to a tensor, and a step reads it",
                            kTrainer);
            }
        };
        check("loss");
        if (!updates) {
            check("grad_norm");
        }
    }

    /// Gives a number to an input of one element.
    static void upload(Program& to, const char* input, double number) {
        const auto narrow = static_cast<float>(number);
        to.upload(input, std::span<const float>(&narrow, 1));
    }

    double scale() const { return scaled ? static_cast<double>(progress.loss_scale) : 1.0; }

    /// Runs forward and backward, and gives the loss.
    float run(float weight) {
        program->set("step", progress.step);
        if (counts_runs) {
            program->set(kMicroBatch, micro_batches);
        }
        if (updates || communicator) {
            upload(*program, kLossScale, scale() * static_cast<double>(weight));
        } else if (scaled) {
            upload(*program, kLossScale, scale());
        }
        program->run();
        float loss = 0;
        program->download("loss", std::span(&loss, 1));
        ++micro_batches;
        weights += weight;
        losses += static_cast<double>(loss) * weight;
        return loss;
    }

    /// How many submissions have updated parameters.
    std::uint64_t all_updates() { return Insides::core(updates ? *updates : *program).state_writes(); }

    /// Gives all ranks what the first has to go on from.
    void make_alike() {
        if (!communicator || alike) {
            return;
        }
        constexpr double kCompilingSeconds = 600;
        communicator->meet(kCompilingSeconds);
        communicator->agree("set of parameters", described);
        communicator->agree("set of options", settings);
        communicator->agree("step to go on from", std::to_string(progress.step) + ", " + std::to_string(progress.good) +
                                                      " good, loss scale " + exact(progress.loss_scale));
        for (const StoredTensor& t : state.layout().tensors()) {
            std::vector<std::byte> bytes = state.read(t.name);
            communicator->broadcast(bytes);
            if (communicator->rank() != 0) {
                state.write(t.name, bytes);
            }
        }
        alike = true;
    }

    /// Sums over the ranks, which exchange fp32.
    template <std::size_t n>
    std::array<double, n> summed(std::array<double, n> numbers) {
        if (communicator) {
            std::array<float, n> exchanged{};
            std::transform(numbers.begin(), numbers.end(), exchanged.begin(),
                           [](double x) { return static_cast<float>(x); });
            communicator->all_reduce(exchanged);
            std::copy(exchanged.begin(), exchanged.end(), numbers.begin());
        }
        return numbers;
    }

    /// Forgets the micro-batches: the next one's gradients take the place of their sums.
    void drop_micro_batches() noexcept {
        micro_batches = 0;
        weights = losses = 0;
    }

    /// The sums of gradients, which no checkpoint has.
    std::vector<std::string> sums() const {
        std::vector<std::string> out;
        for (std::size_t i = 0; accumulates && i < names.size(); ++i) {
            out.push_back(sum_name(names[i]));
        }
        return out;
    }

    /// Runs what a step ends with, and gives the weights of all micro-batches, and of all ranks.
    double finish(float weight) {
        const double all = summed<1>({weights + static_cast<double>(weight)})[0];
        if (communicator && !updates) {
            upload(*program, kDivisor, all * scale());
        }
        run(weight);
        if (updates) {
            updates->set("step", progress.step);
            upload(*updates, kDivisor, all * scale());
            updates->run();
        }
        return all;
    }

    /// Gives the losses of all ranks, and tells them whether this one's norm is finite: drivers may
    /// round to either side of what is. Throws where ranks differ.
    double all_losses(std::int32_t step, bool finite) {
        const auto [sum, finite_ranks] = summed<2>({std::exchange(losses, 0), finite ? 1.0 : 0.0});
        const double other = finite ? (communicator ? communicator->ranks() : 1.0) : 0.0;
        if (finite_ranks != other) {
            throw Error("step " + std::to_string(step) +
                            ": the norm of the gradients is finite on some ranks and not on others, whose "
                            "parameters are not alike any more",
                        kTrainer);
        }
        return sum;
    }

    /// The norm of the gradients that were used last.
    float norm() {
        Program& last = updates ? *updates : *program;
        float norm = 0;
        last.download("grad_norm", std::span(&norm, 1));
        return norm;
    }

    /// Halves the loss scale, down to 1, or doubles it, up to its most. One beyond that stays.
    void rescale(bool finite) {
        progress.good = finite ? progress.good + 1 : 0;
        float& scale = progress.loss_scale;
        if (!finite) {
            scale = std::max(scale / 2, std::min(scale, 1.0f));
        } else if (progress.good == kStepsToGrow) {
            progress.good = 0;
            scale = std::min(scale * 2, std::max(scale, kMostLossScale));
        }
    }
};

Trainer::Trainer(const Device& device, Graph& graph, Value loss, const std::vector<Value>& parameters,
                 const TrainerOptions& options, const Weights& weights)
    : parts_(std::make_unique<Parts>()) {
    if (!(options.loss_scale >= 0.0f) || !std::isfinite(options.loss_scale)) {
        throw Error("loss_scale = " + std::to_string(options.loss_scale) + " is negative or not finite", kTrainer);
    }
    const bool apart = options.accumulates;
    GraphEdit::Undo undo(graph);
    check_step(graph, loss, parameters, options);
    const std::vector<float> decay_to = decays(parameters, options);
    complete_step(graph, loss, parameters, options, decay_to, apart ? &parts_->update_graph : nullptr);
    for (const Value& parameter : parameters) {
        parts_->names.push_back(parameter_name(parameter));
    }
    for (const StorageInfo& s : graph.storages()) {
        const auto is_symbolic = [](const Dim& size) { return !size.is_constant(); };
        if (s.kind == StorageKind::input && std::any_of(s.shape.begin(), s.shape.end(), is_symbolic)) {
            parts_->inputs.push_back(s.name);
        }
    }
    parts_->scaled = is_scaled(options);
    parts_->accumulates = options.accumulates;
    // one of another maximum is the graph's own: a size
    parts_->counts_runs = std::any_of(graph.symbols().begin(), graph.symbols().end(),
                                      [](const SymbolInfo& s) { return s.name == kMicroBatch && s.max == kMostSteps; });
    parts_->communicator = options.communicator;
    parts_->described = described(parameters);
    parts_->settings = described(options, decay_to);
    parts_->progress.loss_scale = options.loss_scale;
    parts_->state = apart ? device.make_state({&graph, &parts_->update_graph}) : device.make_state({&graph});
    CompileOptions compile{.name = "training step"};
    compile.state = parts_->state;
    compile.arithmetic = options.arithmetic;
    compile.profile = options.profile;
    compile.communicator = apart ? nullptr : options.communicator;
    parts_->program.emplace(device.compile(graph, weights, compile));
    if (apart) {
        compile.name = "update";
        compile.communicator = options.communicator;
        parts_->updates.emplace(device.compile(parts_->update_graph, Weights(), compile));
    }
    undo.keep();
}

Trainer::Trainer(Trainer&&) noexcept = default;
Trainer& Trainer::operator=(Trainer&&) noexcept = default;
Trainer::~Trainer() = default;

Program& Trainer::program() noexcept { return *parts_->program; }
State& Trainer::state() noexcept { return parts_->state; }
const std::vector<std::string>& Trainer::parameters() const noexcept { return parts_->names; }
std::int64_t Trainer::step() const noexcept { return parts_->progress.step; }

float Trainer::accumulate(float weight) {
    if (!parts_->accumulates) {
        throw Error("TrainerOptions::accumulates was not asked for", kTrainer);
    }
    Parts::check(weight);
    check_whole();
    parts_->check_batch();
    parts_->check_outputs();
    parts_->make_alike();
    const std::uint64_t before = Insides::core(*parts_->program).state_writes();
    try {
        return parts_->run(weight);
    } catch (...) {
        if (Insides::core(*parts_->program).state_writes() != before) {  // the sums may have it
            drop_micro_batches();
        }
        throw;
    }
}

TrainingStep Trainer::take_step(float weight) {
    try {
        return finish_step(weight);
    } catch (...) {
        drop_micro_batches();
        throw;
    }
}

void Trainer::drop_micro_batches() noexcept { parts_->drop_micro_batches(); }

TrainingStep Trainer::finish_step(float weight) {
    Parts::Progress& progress = parts_->progress;
    TrainingStep taken;
    Parts::check(weight);
    check_whole();
    parts_->check_batch();
    parts_->check_outputs();
    parts_->make_alike();
    const std::uint64_t before = parts_->all_updates();
    double weights = 0;
    try {
        weights = parts_->finish(weight);
        taken.grad_norm = parts_->norm();
    } catch (...) {
        parts_->taken_in_part = parts_->all_updates() != before;
        throw;
    }
    parts_->weights = 0;
    parts_->micro_batches = 0;
    const bool finite = std::isfinite(taken.grad_norm);
    const std::int32_t number = progress.step;
    progress.step += finite ? 1 : 0;  // the parameters have taken the step, whatever comes
    taken.loss = static_cast<float>(parts_->all_losses(number, finite) / weights);
    const bool good_loss = std::isfinite(taken.loss);
    const bool may_leave_out = parts_->scaled && progress.loss_scale > 1.0f;
    if (!good_loss || (!finite && !may_leave_out)) {
        throw Error("step " + std::to_string(number) + ": the " + (good_loss ? "norm of the gradients" : "loss") +
                        " is not finite; " + (finite ? "the gradients are, and were used" : "no parameter was updated"),
                    kTrainer);
    }
    if (parts_->scaled) {
        parts_->rescale(finite);
    }
    taken.left_out = !finite;
    return taken;
}

void Trainer::check_whole() const {
    if (parts_->resumed_in_part) {
        throw Error("resume() failed when it had written a part; call it again", kTrainer);
    }
    if (parts_->taken_in_part) {
        throw Error("step " + std::to_string(parts_->progress.step) +
                        " failed when parameters may have been updated; resume() goes on from a file",
                    kTrainer);
    }
}

void Trainer::save(const std::filesystem::path& file) {
    check_whole();
    if (parts_->micro_batches > 0) {
        throw Error("save() goes behind take_step(): " + std::to_string(parts_->micro_batches) +
                        " micro-batches are accumulated, which the file would not have",
                    kTrainer);
    }
    const Parts::Progress& p = parts_->progress;
    const std::array<std::int32_t, 3> numbers{p.step, p.good, std::bit_cast<std::int32_t>(p.loss_scale)};
    parts_->state.write(kProgress, std::as_bytes(std::span(numbers)));
    const std::vector<std::string> sums = parts_->sums();
    std::vector<HostTensor> kept;
    for (const StoredTensor& t : parts_->state.layout().tensors()) {
        if (std::find(sums.begin(), sums.end(), t.name) == sums.end()) {
            kept.push_back({t.name, t.dtype, t.shape, {}});
        }
    }
    write_states(file, parts_->state, kept);
}

void Trainer::resume(const std::filesystem::path& file) {
    const StateFile whole(file, parts_->state, parts_->sums());
    const Safetensors& there = whole.tensors();
    for (const StoredTensor& t : parts_->state.layout().tensors()) {
        const HostTensor* saved = there.find(t.name);
        // a part of it would do for restore_state()
        if (saved != nullptr && saved->shape != t.shape) {
            throw Error("state " + t.name + " is " + shape_text(t.shape) + ", the file has " + shape_text(saved->shape),
                        there.file());
        }
    }
    std::array<std::int32_t, 3> numbers{};
    read_bytes(*there.find(kProgress), std::as_writable_bytes(std::span(numbers)));
    Parts::Progress read{numbers[0], numbers[1], std::bit_cast<float>(numbers[2])};
    if (read.step < 0 || read.step > kMostSteps || read.good < 0 || !std::isfinite(read.loss_scale) ||
        read.loss_scale < 0) {
        throw Error(std::string("state ") + kProgress + " holds no number of a step and loss scale", there.file());
    }
    parts_->resumed_in_part = true;
    whole.write(parts_->state);
    parts_->resumed_in_part = parts_->taken_in_part = false;
    if (!parts_->scaled || read.loss_scale == 0.0f) {  // one of the two runs is not scaled
        read.loss_scale = parts_->progress.loss_scale;
    }
    parts_->progress = read;
    drop_micro_batches();
    parts_->alike = false;
}

}  // namespace vkf
