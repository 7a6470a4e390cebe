// SPDX-License-Identifier: Apache-2.0
#include "train/step_graph.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <map>
#include <utility>
#include <variant>

#include "models/files/safetensors_writer.h"
#include "ops/add_op.h"
#include "ops/all_reduce.h"
#include "ops/checks.h"
#include "ops/collectives.h"
#include "ops/gradient.h"
#include "ops/gradients.h"
#include "ops/ops.h"
#include "ops/optimizer_checks.h"
#include "runtime/base/text.h"
#include "runtime/graph/edit.h"
#include "runtime/graph/node.h"
#include "runtime/graph/op.h"
#include "runtime/graph/wanted.h"
#include "train/trainer_options.h"

namespace vkf::support {

std::string sum_name(const std::string& parameter) { return parameter + ".gradient"; }

std::string described(const std::vector<Value>& parameters) {
    std::string text;
    for (const Value& p : parameters) {
        text += parameter_name(p) + " " + p.str() + "\n";
    }
    return text;
}

std::string described(const TrainerOptions& o, const std::vector<float>& decay_to) {
    std::string text = std::string(o.accumulates ? "accumulates, " : "") + "max_norm " + exact(o.max_norm) +
                       ", loss_scale " + exact(o.loss_scale) + ", schedule " +
                       std::to_string(static_cast<int>(o.schedule.kind)) + " " + std::to_string(o.schedule.warmup) +
                       " " + std::to_string(o.schedule.steps);
    const auto add = [&](std::initializer_list<double> numbers) {
        for (const double n : numbers) {
            text += " " + exact(n);
        }
    };
    for (const float number : decay_to) {
        add({number});
    }
    if (const auto* adam = std::get_if<AdamW>(&o.optimizer)) {
        text += ", AdamW";
        add({adam->learning_rate, adam->beta1, adam->beta2, adam->eps, adam->weight_decay, adam->decoupled ? 1.0 : 0.0,
             adam->amsgrad ? 1.0 : 0.0});
    } else if (const auto* sgd = std::get_if<Sgd>(&o.optimizer)) {
        text += ", Sgd";
        add({sgd->learning_rate, sgd->momentum, sgd->dampening, sgd->nesterov ? 1.0 : 0.0, sgd->weight_decay});
    }
    return text;
}

bool is_scaled(const TrainerOptions& options) { return options.loss_scale != 0.0f; }

std::vector<float> decays(const std::vector<Value>& parameters, const TrainerOptions& options) {
    std::vector<float> out;
    for (const Value& p : parameters) {
        out.push_back(options.decay_to ? options.decay_to(parameter_name(p)) : 0.0f);
        if (!std::isfinite(out.back())) {
            throw Error("decay_to of " + p.str() + " is not finite", kTrainer);
        }
    }
    return out;
}

namespace {

/// Updates parameters that are drawn to the same number together.
void add_updates(const std::vector<Value>& parameters, const std::vector<Value>& gradients, const Value& scale,
                 Dim step, const TrainerOptions& options, const std::vector<float>& decay_to) {
    std::map<float, std::pair<std::vector<Value>, std::vector<Value>>> groups;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        auto& [members, found] = groups[decay_to[i]];
        members.push_back(parameters[i]);
        found.push_back(gradients[i]);
    }
    for (const auto& [drawn_to, group] : groups) {
        const UpdateOptions o{
            .step = step, .schedule = options.schedule, .gradient_scale = scale, .decay_to = drawn_to};
        std::visit([&, &members = group.first,
                    &found = group.second](const auto& optimizer) { update(members, found, optimizer, o); },
                   options.optimizer);
    }
}

/// Adds clipping and updates to a graph. `divisor` is what the gradients count too much by.
void add_step(Graph& graph, const std::vector<Value>& parameters, const std::vector<Value>& found, Value divisor,
              const TrainerOptions& options, const std::vector<float>& decay_to) {
    const float max_norm = options.max_norm == 0.0f ? std::numeric_limits<float>::max() : options.max_norm;
    const ClippedNorm clipped = clip_grad_norm(found, max_norm, divisor);
    add_updates(parameters, found, clipped.scale, graph.symbol("step", kMostSteps), options, decay_to);
    graph.output("grad_norm", clipped.norm);
    GraphEdit::state(graph, kProgress, {3}, DType::i32);
}

Value sum_state(Graph& graph, const Value& parameter) {
    return GraphEdit::state(graph, sum_name(parameter_name(parameter)), parameter.shape());
}

/// The elements of a parameter's gradient, whose sizes are numbers.
std::int64_t count_of(const Value& gradient) {
    std::int64_t count = 1;
    for (const Dim& d : gradient.shape()) {
        count *= d.constant();
    }
    return count;
}

/// The sums over the ranks. Small gradients go together, up to so many elements: an exchange of few
/// numbers takes as long as one of some more. The last parameters' come first, whose gradients are
/// there first: they are exchanged while the backward goes on.
std::vector<Value> summed_over_ranks(const std::vector<Value>& gradients) {
    constexpr std::int64_t kBucket = 1 << 18;
    std::vector<Value> sums = gradients;
    for (std::size_t end = gradients.size(); end > 0;) {
        std::int64_t filled = count_of(gradients[end - 1]);
        std::size_t begin = end - 1;
        for (; begin > 0 && filled + count_of(gradients[begin - 1]) <= kBucket; --begin) {
            filled += count_of(gradients[begin - 1]);
        }
        std::vector<Value> flat;
        for (std::size_t i = begin; i < end; ++i) {
            flat.push_back(reshape(dense(gradients[i]), {count_of(gradients[i])}));
        }
        const Value all = all_reduce(flat.size() == 1 ? flat.front() : concat(flat, 0));
        std::int64_t first = 0;
        for (std::size_t i = begin; i < end; first += count_of(gradients[i++])) {
            sums[i] = reshape(slice(all, 0, first, count_of(gradients[i])), gradients[i].shape());
        }
        end = begin;
    }
    return sums;
}

/// Throws where a gradient on its way from the loss to a parameter would pass an all-reduce. Its
/// gradient is that of one loss which all ranks have, and a step's is the mean of one from each.
void check_losses_apart(const Graph& graph, const Value& loss, const std::vector<Value>& parameters) {
    const auto storage_of = [&](ValueId id) { return graph.values()[id].storage; };
    std::vector<bool> depends(graph.storages().size(), false), counts = depends;
    for (const Value& parameter : parameters) {
        depends[storage_of(parameter.id())] = true;
    }
    const auto any = [&](const std::vector<ValueId>& values, const std::vector<bool>& marked) {
        return std::any_of(values.begin(), values.end(), [&](ValueId id) { return marked[storage_of(id)]; });
    };
    const auto passes = [](const NodeInfo& node) { return node.op != nullptr && node.op->gradient != no_gradient; };
    for (const NodeInfo& node : graph.nodes()) {
        if (passes(node) && any(node.inputs, depends)) {
            for (const ValueId out : node.outputs) {
                depends[storage_of(out)] = true;
            }
        }
    }
    counts[storage_of(loss.id())] = true;
    for (auto node = graph.nodes().rbegin(); node != graph.nodes().rend(); ++node) {
        if (!passes(*node) || !any(node->outputs, counts) || !any(node->inputs, depends)) {
            continue;
        }
        if (node->op == &kAllReduce) {
            throw Error("the loss depends on parameters through " + node->label +
                            ": with a communicator each rank has a loss of its own, of its part of the batch",
                        kTrainer);
        }
        for (const ValueId in : node->inputs) {
            counts[storage_of(in)] = true;
        }
    }
}

/// Throws where a run would exchange something: ranks may have unlike numbers of micro-batches.
void check_no_exchange(const Graph& graph, const Value& loss) {
    const std::vector<WantedOutputs> wanted = wanted_outputs(graph);
    const auto storage_of = [&](ValueId id) { return graph.values()[id].storage; };
    std::vector<bool> of_loss(graph.storages().size(), false);
    of_loss[storage_of(loss.id())] = true;
    for (std::size_t n = wanted.size(); n-- > 0;) {
        const NodeInfo& node = graph.nodes()[n];
        const bool needed =
            std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueId id) { return of_loss[storage_of(id)]; });
        if ((needed || wanted[n] != 0) && is_collective(node.op)) {
            throw Error("the loss, an output or a state needs " + node.label +
                            ", and ranks that accumulate may have unlike numbers of micro-batches",
                        kTrainer);
        }
        for (const ValueId in : node.inputs) {
            of_loss[storage_of(in)] = needed || of_loss[storage_of(in)];
        }
    }
}

/// Throws where a state has a name under which no checkpoint keeps it.
void check_kept_names(const Graph& graph) {
    for (const StorageInfo& s : graph.storages()) {
        const std::string fault = s.kind == StorageKind::state ? name_fault(s.name) : std::string();
        if (!fault.empty()) {
            throw Error("no checkpoint can have the state " + printable(s.name) + ": " + fault, kTrainer);
        }
    }
}

/// Throws where something else in the graph has the name of an input, output or state of the step's
/// own, or a symbol of its own another maximum.
void check_own_names(const Graph& graph, const TrainerOptions& options) {
    const bool ranks = options.communicator != nullptr;
    std::vector<std::string> names{"loss", kProgress};
    if (is_scaled(options) || ranks || options.accumulates) {
        names.push_back(kLossScale);
    }
    if (!options.accumulates) {  // the graph of the updates has them otherwise
        names.push_back("grad_norm");
        if (ranks) {
            names.push_back(kDivisor);
        }
    }
    for (const StorageInfo& s : graph.storages()) {
        if (s.kind != StorageKind::constant && s.kind != StorageKind::intermediate &&
            std::find(names.begin(), names.end(), s.name) != names.end()) {
            throw Error("the graph has something of the name " + s.name + ", a name of the step's own", kTrainer);
        }
    }
    for (const SymbolInfo& s : graph.symbols()) {
        if ((s.name == "step" || (options.accumulates && s.name == kMicroBatch)) && s.max != kMostSteps) {
            throw Error("the symbol " + s.name + " has the maximum " + std::to_string(s.max) + "; the step's own has " +
                            std::to_string(kMostSteps),
                        kTrainer);
        }
    }
}

}  // namespace

void check_step(const Graph& graph, const Value& loss, const std::vector<Value>& parameters,
                const TrainerOptions& options) {
    if (parameters.empty()) {
        throw Error("there is no parameter to train", kTrainer);
    }
    if (&loss.graph() != &graph) {
        throw Error("the loss " + loss.str() + " belongs to another graph", kTrainer);
    }
    require_dtype(kTrainer, loss, DType::f32);
    require(elements(loss.shape()) == Dim(1), kTrainer, "the loss " + loss.str() + " is not one number");
    check_parameters(kTrainer, graph, parameters);
    check_own_names(graph, options);
    check_kept_names(graph);
    std::visit([](const auto& optimizer) { check_optimizer(optimizer); }, options.optimizer);
    check_schedule(kTrainer, options.schedule);
    if (options.max_norm != 0.0f) {
        check_max_norm(options.max_norm);
    }
    const bool moments = std::visit([](const auto& optimizer) { return has_moments(optimizer); }, options.optimizer);
    for (const Value& parameter : parameters) {
        if (moments) {
            check_made_state(kTrainer, graph, moments_name(parameter_name(parameter)), parameters);
        }
        if (options.accumulates) {
            check_made_state(kTrainer, graph, sum_name(parameter_name(parameter)), parameters);
        }
    }
    if (options.communicator) {
        check_losses_apart(graph, loss, parameters);
        if (options.accumulates) {
            check_no_exchange(graph, loss);
        }
    }
}

void complete_step(Graph& graph, Value loss, const std::vector<Value>& parameters, const TrainerOptions& options,
                   const std::vector<float>& decay_to, Graph* updates) {
    const bool ranks = options.communicator != nullptr;
    graph.symbol("step", kMostSteps);  // also where the loss alone reads it
    Value seed, loss_scale;
    if (is_scaled(options) || ranks || updates != nullptr) {
        loss_scale = graph.input(kLossScale, {1});
        seed = reshape(loss_scale, loss.shape());
    }
    const std::vector<Value> found = gradients(loss, parameters, seed);
    graph.output("loss", loss);
    if (updates == nullptr) {
        add_step(graph, parameters, ranks ? summed_over_ranks(found) : found,
                 ranks ? graph.input(kDivisor, {1}) : loss_scale, options, decay_to);
        return;
    }
    std::vector<Value> sums, updated, sums_there;
    for (const Value& parameter : parameters) {
        sums.push_back(sum_state(graph, parameter));
        updated.push_back(GraphEdit::state(*updates, parameter_name(parameter), parameter.shape()));
        sums_there.push_back(sum_state(*updates, parameter));
    }
    accumulate(sums, found, graph.symbol(kMicroBatch, kMostSteps));
    add_step(*updates, updated, ranks ? summed_over_ranks(sums_there) : sums_there, updates->input(kDivisor, {1}),
             options, decay_to);
}

}  // namespace vkf::support
