// SPDX-License-Identifier: Apache-2.0
// Training steps: from a graph that gives a loss to a program that also differentiates it, clips
// the gradients and updates parameters, in one submission where no other rank takes part.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "../runtime/device/device.h"
#include "../runtime/device/program.h"
#include "../runtime/device/state.h"
#include "../runtime/device/weights.h"
#include "trainer_options.h"

namespace vkf {

/// What a step found before it updated anything.
struct TrainingStep {
    float loss = 0.0f;
    float grad_norm = 0.0f;  ///< the 2-norm of all gradients together, before clipping
    bool left_out = false;   ///< true: nothing was updated, because of TrainerOptions::loss_scale
};

/// A Trainer is used by one thread at a time.
class VKF_API Trainer {
public:
    /// Adds gradients and updates to the graph, and compiles it. `parameters` are states: see
    /// trainable(). The graph gets the symbol `step`, the outputs `loss` and `grad_norm`, the input
    /// `loss_scale` where the loss is scaled, runs are accumulated or ranks train together, for
    /// ranks the input `divisor`, and with TrainerOptions::accumulates the symbol `micro_batch`,
    /// the number of the run within its step. A graph that has this symbol, of a maximum of 2^30,
    /// gets 0 for it where steps do not accumulate. A symbol `step` of your own must have this
    /// maximum too. Don't make the loss an output yourself. States are zero at first: write them.
    ///
    /// Throws as gradients() and update() do, for a parameter or a loss of another graph, for a
    /// loss that is not one F32 number, and where one of these names, or that of a state made
    /// beside a parameter, NAME.moments or NAME.gradient, is that of something else in the graph.
    /// Where it throws, the graph is as it was.
    Trainer(const Device& device, Graph& graph, Value loss, const std::vector<Value>& parameters,
            const TrainerOptions& options = {}, const Weights& weights = {});
    Trainer(Trainer&&) noexcept;
    Trainer& operator=(Trainer&&) noexcept;
    ~Trainer();

    /// The program, for its inputs and sizes.
    Program& program() noexcept;
    /// Parameters, and what the optimizer remembers of them.
    State& state() noexcept;
    /// Names of the parameters.
    const std::vector<std::string>& parameters() const noexcept;
    /// The number of the next step, from 0.
    std::int64_t step() const noexcept;

    /// Runs a step on what was uploaded: one submission, and one wait for loss and norm. Throws
    /// Error naming the step where one of them is not finite. Where the gradients are not,
    /// parameters are as before, and the step may be taken again with other data; so it is where an
    /// input has no element, and where loss or grad_norm is bound to a tensor.
    ///
    /// Behind accumulate() the step is of all these micro-batches together: loss and gradients are
    /// the means, in which each counts by its weight, for example its number of labels. The same
    /// holds for the ranks of TrainerOptions::communicator. Weights are from 1e-9 to 1e9; others
    /// are an Error. Where it throws, the micro-batches are dropped: the step begins anew. Where
    /// the device fails when it may have updated parameters, no step runs until resume() succeeds.
    TrainingStep take_step(float weight = 1.0f);
    /// Computes the gradients of a micro-batch, and keeps them for take_step(). Returns its loss.
    /// Throws Error where TrainerOptions::accumulates was not asked for, for a weight outside
    /// 1e-9..1e9, and where the loss is bound to a tensor; the earlier micro-batches stay. Where
    /// the device fails when it may have added to the sums, all micro-batches are dropped.
    float accumulate(float weight = 1.0f);
    /// Forgets what accumulate() has kept: the step begins anew.
    void drop_micro_batches() noexcept;

    /// Writes all that resume() needs: parameters, moments, the number of the step. The file
    /// appears whole or not at all, and does for a run with TrainerOptions::accumulates and one
    /// without. Throws Error between accumulate() and take_step(), whose micro-batches it has no
    /// room for.
    void save(const std::filesystem::path& file);
    /// Goes on where save() was called, bit for bit. Throws Error naming the file where it is
    /// damaged or of other parameters; nothing has changed then. Where the device fails, or the
    /// file is cut short meanwhile, no step runs until this succeeds.
    void resume(const std::filesystem::path& file);

private:
    friend class FineTuner;
    struct Parts;
    /// Throws where resume() or a step has failed in the middle.
    void check_whole() const;
    TrainingStep finish_step(float weight);

    std::unique_ptr<Parts> parts_;
};

}  // namespace vkf
