// SPDX-License-Identifier: Apache-2.0
#include "train/trainer.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <optional>

#include "models/state_file.h"
#include "ops/gradients.h"
#include "ops/ops.h"

namespace vkf {

namespace {

constexpr const char* kTrainer = "Trainer";
/// The state that keeps Parts::Progress in a checkpoint; no node reads it.
constexpr const char* kProgress = "trainer.progress";
constexpr std::int64_t kMostSteps = std::int64_t{1} << 30;
constexpr std::int32_t kStepsToGrow = 2000;

std::string parameter_name(const Value& parameter) {
    const Graph& g = parameter.graph();
    return g.storages()[g.values()[parameter.id()].storage].name;
}

bool is_scaled(const TrainerOptions& options) { return options.loss_scale != 0.0f; }

/// Updates parameters that are drawn to the same number together.
void add_updates(const std::vector<Value>& parameters, const std::vector<Value>& gradients, const Value& scale,
                 Dim step, const TrainerOptions& options) {
    std::map<float, std::pair<std::vector<Value>, std::vector<Value>>> groups;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        auto& [members, found] = groups[options.decay_to ? options.decay_to(parameter_name(parameters[i])) : 0.0f];
        members.push_back(parameters[i]);
        found.push_back(gradients[i]);
    }
    for (const auto& [decay_to, group] : groups) {
        const UpdateOptions o{
            .step = step, .schedule = options.schedule, .gradient_scale = scale, .decay_to = decay_to};
        std::visit([&, &members = group.first,
                    &found = group.second](const auto& optimizer) { update(members, found, optimizer, o); },
                   options.optimizer);
    }
}

/// Completes the graph of a loss.
void complete(Graph& graph, Value loss, const std::vector<Value>& parameters, const TrainerOptions& options) {
    if (parameters.empty()) {
        throw Error("there is no parameter to train", kTrainer);
    }
    Value seed, loss_scale;
    if (is_scaled(options)) {
        loss_scale = graph.input("loss_scale", {1});
        seed = reshape(loss_scale, loss.shape());
    }
    const std::vector<Value> found = gradients(loss, parameters, seed);
    const float max_norm = options.max_norm == 0.0f ? std::numeric_limits<float>::max() : options.max_norm;
    const ClippedNorm clipped = clip_grad_norm(found, max_norm, loss_scale);
    add_updates(parameters, found, clipped.scale, graph.symbol("step", kMostSteps), options);
    graph.output("loss", loss);
    graph.output("grad_norm", clipped.norm);
    graph.state(kProgress, {3}, DType::i32);
}

}  // namespace

struct Trainer::Parts {
    /// What a run goes on from beside the optimizer's numbers.
    struct Progress {
        std::int32_t step = 0;
        std::int32_t good = 0;  ///< steps since the loss scale changed
        float loss_scale = 0.0f;
    };

    std::vector<std::string> names;
    State state;
    std::optional<Program> program;
    bool scaled;
    Progress progress;

    /// Halves or doubles the loss scale.
    void rescale(bool finite) {
        progress.good = finite ? progress.good + 1 : 0;
        if (!finite) {
            progress.loss_scale = std::max(progress.loss_scale / 2, 1.0f);
        } else if (progress.good == kStepsToGrow) {
            progress.good = 0;
            progress.loss_scale *= 2;
        }
    }
};

Trainer::Trainer(const Device& device, Graph& graph, Value loss, const std::vector<Value>& parameters,
                 const TrainerOptions& options, const Weights& weights)
    : parts_(std::make_unique<Parts>()) {
    if (!(options.loss_scale >= 0.0f) || !std::isfinite(options.loss_scale)) {
        throw Error("loss_scale = " + std::to_string(options.loss_scale) + " is negative or not finite", kTrainer);
    }
    complete(graph, loss, parameters, options);
    for (const Value& parameter : parameters) {
        parts_->names.push_back(parameter_name(parameter));
    }
    parts_->scaled = is_scaled(options);
    parts_->progress.loss_scale = options.loss_scale;
    parts_->state = device.make_state({&graph});
    CompileOptions compile{.name = "training step"};
    compile.state = parts_->state;
    compile.arithmetic = options.arithmetic;
    compile.profile = options.profile;
    parts_->program.emplace(device.compile(graph, weights, compile));
}

Trainer::Trainer(Trainer&&) noexcept = default;
Trainer& Trainer::operator=(Trainer&&) noexcept = default;
Trainer::~Trainer() = default;

Program& Trainer::program() noexcept { return *parts_->program; }
State& Trainer::state() noexcept { return parts_->state; }
const std::vector<std::string>& Trainer::parameters() const noexcept { return parts_->names; }
std::int64_t Trainer::step() const noexcept { return parts_->progress.step; }

TrainingStep Trainer::take_step() {
    Parts::Progress& progress = parts_->progress;
    Program& program = *parts_->program;
    program.set("step", progress.step);
    if (parts_->scaled) {
        program.upload("loss_scale", std::span<const float>(&progress.loss_scale, 1));
    }
    program.run();
    TrainingStep taken;
    program.download("loss", std::span(&taken.loss, 1));
    program.download("grad_norm", std::span(&taken.grad_norm, 1));
    const bool finite = std::isfinite(taken.grad_norm);
    if (!std::isfinite(taken.loss) || (!finite && !parts_->scaled)) {
        const bool loss = !std::isfinite(taken.loss);
        // where the gradients are finite all the same, parameters have moved
        throw Error(std::string("step ") + std::to_string(progress.step) + ": the " +
                        (loss ? "loss is " + std::to_string(taken.loss)
                              : "norm of the gradients is " + std::to_string(taken.grad_norm)) +
                        (finite ? "" : "; no parameter was updated"),
                    kTrainer);
    }
    if (parts_->scaled) {
        parts_->rescale(finite);
    }
    taken.left_out = !finite;
    progress.step += finite ? 1 : 0;
    return taken;
}

void Trainer::save(const std::filesystem::path& file) {
    const Parts::Progress& p = parts_->progress;
    const std::array<std::int32_t, 3> numbers{p.step, p.good, std::bit_cast<std::int32_t>(p.loss_scale)};
    parts_->state.write(kProgress, std::as_bytes(std::span(numbers)));
    save_state(file, parts_->state);
}

void Trainer::resume(const std::filesystem::path& file) {
    restore_state(file, parts_->state);
    std::array<std::int32_t, 3> numbers{};
    const std::vector<std::byte> bytes = parts_->state.read(kProgress);
    std::memcpy(numbers.data(), bytes.data(), sizeof numbers);
    parts_->progress = {numbers[0], numbers[1], std::bit_cast<float>(numbers[2])};
}

}  // namespace vkf
