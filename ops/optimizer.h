// SPDX-License-Identifier: Apache-2.0
// What updates parameters: optimizers, schedules of their learning rate, and clipping of gradients.
// A parameter that is updated is a state; see trainable().
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "../runtime/graph/graph.h"

namespace vkf {

/// Makes weights of a graph states of the same names, which update() may write, and returns them in
/// the order in which the graph names them: each f32 weight whose name fits one of the patterns, in
/// which `*` stands for any characters. Call it when the forward pass is described. The State holds
/// zeros at first: see State::write(). Throws Error naming a pattern that no weight fits.
VKF_API std::vector<Value> trainable(Graph& graph, const std::vector<std::string>& patterns = {"*"});

/// The course of a learning rate. Step t counts from 0.
struct Schedule {
    enum class Kind : std::uint8_t {
        constant,
        linear,  ///< times 1 - t / steps
        cosine,  ///< times (1 + cos(pi t / steps)) / 2
    } kind = Kind::constant;
    std::int64_t warmup = 0;  ///< all kinds: times min((t + 1) / warmup, 1); 0: none
    std::int64_t steps = 0;   ///< linear and cosine: from this step on the rate is 0

    /// The factor of the learning rate at a step.
    VKF_API double at(std::int64_t step) const;
};

/// torch.optim.SGD.
struct Sgd {
    double learning_rate = 1e-3;
    double momentum = 0.0, dampening = 0.0;
    bool nesterov = false;
    double weight_decay = 0.0;  ///< added to the gradient, times the parameter
};

/// torch.optim.AdamW, or torch.optim.Adam where the decay is not decoupled (Kingma and Ba 2015;
/// Loshchilov and Hutter 2019).
struct AdamW {
    double learning_rate = 1e-3;
    double beta1 = 0.9, beta2 = 0.999;
    double eps = 1e-8;
    double weight_decay = 1e-2;
    bool decoupled = true;  ///< false: the decay is added to the gradient
    bool amsgrad = false;
};

/// What one step of an optimizer depends on.
struct UpdateOptions {
    /// The number of the step, from 0: a symbol that is set before each run. Bias corrections and
    /// the schedule follow from it, so that only SGD without dampening or schedule can do without.
    /// A run in which it is negative is an Error.
    Dim step = 0;
    Schedule schedule = {};
    Value learning_rate = {};  ///< (1) f32, a further factor of the learning rate; empty: 1
    /// (1) f32, a factor of all gradients: ClippedNorm::scale. NaN: nothing is updated.
    Value gradient_scale = {};
    float decay_to = 0.0f;  ///< weight decay draws parameters to this number
};

/// Updates parameters, which are whole f32 states, from their gradients. What the optimizer
/// remembers of a parameter NAME (...) is a state NAME.moments (k, elements): for SGD with momentum
/// its buffer; for Adam the averages of the gradient and of its square, and with amsgrad the
/// latter's maximum. Nodes that read a parameter and come later see its new numbers. Throws Error
/// for a parameter that is no such state, belongs to another graph, is given twice or updated
/// already, and where NAME.moments is a parameter too, or something that a node reads.
VKF_API void update(const std::vector<Value>& parameters, const std::vector<Value>& gradients, const AdamW& optimizer,
                    const UpdateOptions& options = {});
VKF_API void update(const std::vector<Value>& parameters, const std::vector<Value>& gradients, const Sgd& optimizer,
                    const UpdateOptions& options = {});

/// Adds gradients up over several runs: to states of their shapes, which take the gradients
/// themselves where `index`, a symbol, is 0. Throws Error as update() does.
VKF_API void accumulate(const std::vector<Value>& sums, const std::vector<Value>& gradients, Dim index);

struct ClippedNorm {
    Value norm;  ///< (1): the 2-norm of all gradients together
    /// (1): min(max_norm / (norm + 1e-6), 1), a factor for each gradient; NaN where the norm is not
    /// finite.
    Value scale;
};

/// torch.nn.utils.clip_grad_norm_. The gradients themselves stay as they are. `loss_scale` (1) f32
/// is what the loss was multiplied by: norm and scale are those of the gradients divided by it.
/// They have no gradient themselves: gradients() of what depends on them is an Error.
VKF_API ClippedNorm clip_grad_norm(const std::vector<Value>& gradients, float max_norm, Value loss_scale = {});

}  // namespace vkf
