// SPDX-License-Identifier: Apache-2.0
// What a Trainer is told about its steps.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <variant>

#include "../ops/optimizer.h"
#include "../parallel/communicator.h"
#include "../runtime/device/compile_options.h"

namespace vkf {

struct TrainerOptions {
    std::variant<AdamW, Sgd> optimizer = AdamW();
    Schedule schedule = {};
    float max_norm = 0.0f;  ///< to which the 2-norm of all gradients is clipped; 0: not
    /// Gives the number that weight decay draws a parameter of this name to; empty: 0.
    std::function<float(const std::string& name)> decay_to = {};
    /// What the loss is multiplied by before it is differentiated, so that gradients stay within
    /// what f16 holds; 0: by nothing. A step whose gradients are not finite is left out then, and
    /// the factor halved, but not to less than 1; after 2000 steps without one it doubles, but not
    /// to more than 2^64. Where it is 1 or less there is nothing to halve: such a step throws, as
    /// it does without. torch.amp.GradScaler.
    float loss_scale = 0.0f;
    /// True: accumulate() is there, and a step may be made of several runs. The sums of gradients
    /// are states, NAME.gradient, and updates a program of their own.
    bool accumulates = false;
    /// Each of several ranks takes the same steps, on its part of the batch: data parallel, as
    /// torch.nn.parallel.DistributedDataParallel does it. Before the first step all get the first
    /// rank's parameters and moments. Gradients are summed in the order of the ranks, while the
    /// backward goes on where steps do not accumulate; loss and norm are those of the whole batch.
    /// All ranks call take_step() as often. Each rank's loss is of its own part of the batch: one
    /// that depends on parameters through all_reduce() is an Error.
    std::shared_ptr<Communicator> communicator = {};
    Arithmetic arithmetic = Arithmetic::f32;  ///< CompileOptions::arithmetic
    bool profile = false;                     ///< CompileOptions::profile
};

}  // namespace vkf
