// SPDX-License-Identifier: Apache-2.0
#include "ops/optimizer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "ops/add_op.h"
#include "ops/checks.h"
#include "ops/fours.h"
#include "ops/optimizer_checks.h"
#include "optimizer.spv.h"
#include "runtime/base/numbers.h"
#include "runtime/compile/lowering.h"
#include "runtime/graph/edit.h"
#include "shaders/optimizer.h"

namespace vkf {

namespace {

using namespace shader;
using namespace support;

const Shader kShader{"optimizer", spirv::kOptimizerSpirv};
constexpr const char* kName = "update";
constexpr uint kLocalSize = 64;

struct OptimizerParams {
    uint kind;
    AdamW adam = {};
    Sgd sgd = {};
    Schedule schedule = {};
    bool factors = false;
    float decay_to = 0.0f;

    bool is_adam() const { return kind == kOptimizerAdam || kind == kOptimizerAmsgrad; }
    /// Rows of the moments.
    std::int64_t moments() const {
        switch (kind) {
            case kOptimizerSgd:
            case kOptimizerAccumulate: return 0;
            case kOptimizerAdam: return 2;
            case kOptimizerAmsgrad: return 3;
            default: return 1;
        }
    }
};

/// The view that tells the step's number: it is one longer.
constexpr std::size_t kStepOperand = 4;

void describe(const OptimizerParams& params, std::int64_t step, OptimizerPush& push) noexcept {
    if (params.kind == kOptimizerAccumulate) {
        push.beta1 = step == 0 ? 0.0f : 1.0f;
        return;
    }
    const double course = params.schedule.at(step);
    if (!params.is_adam()) {
        const Sgd& o = params.sgd;
        push.rate = static_cast<float>(o.learning_rate * course);
        push.l2 = static_cast<float>(o.weight_decay);
        push.beta1 = static_cast<float>(o.momentum);
        // the buffer begins as the first gradient
        push.beta1_rest = static_cast<float>(step == 0 ? 1.0 : 1.0 - o.dampening);
        return;
    }
    const AdamW& o = params.adam;
    const double t = static_cast<double>(step + 1);
    push.rate = static_cast<float>(o.learning_rate * course / (1.0 - std::pow(o.beta1, t)));
    push.decay = o.decoupled ? static_cast<float>(o.learning_rate * course * o.weight_decay) : 0.0f;
    push.l2 = o.decoupled ? 0.0f : static_cast<float>(o.weight_decay);
    push.beta1 = static_cast<float>(o.beta1);
    push.beta1_rest = static_cast<float>(1.0 - o.beta1);
    push.beta2 = static_cast<float>(o.beta2);
    push.beta2_rest = static_cast<float>(1.0 - o.beta2);
    push.correction = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(o.beta2, t)));
    push.eps = static_cast<float>(o.eps);
}

/// Word: 1 where an item is four elements.
void prepare(const Operands& operands, Command& command) noexcept {
    const View& parameter = operands[kOptimizerBindingParameter];
    const View& moments = operands[kOptimizerBindingMoments];
    const bool fours = operands.words[0] != 0;
    OptimizerPush push{};
    push.count = static_cast<uint>(parameter.elements() / (fours ? 4 : 1));
    push.stride = moments.dim(0);
    push.parameter_offset = parameter.offset;
    push.gradient_offset = operands[kOptimizerBindingGradient].offset;
    push.moments_offset = moments.offset;
    push.factors_offset = operands[kOptimizerBindingFactors].offset;
    push.decay_to = operands.params<OptimizerParams>().decay_to;
    describe(operands.params<OptimizerParams>(), static_cast<std::int64_t>(operands[kStepOperand].dim(0)) - 1, push);
    command.push(push);
    command.groups(divide_up(push.count, kLocalSize * kOptimizerItems));
    const double elements = static_cast<double>(parameter.elements());
    command.cost(elements * 12, elements * 28);
}

/// Inputs: the gradient, the view that tells the step, the factors where there are some. Outputs:
/// the parameter, and the moments where there are some.
void lower(Lowering& l) {
    const auto& params = l.params<OptimizerParams>();
    const ValueId parameter = l.output(0), gradient = l.input(0);
    const bool has_moments = params.moments() != 0;
    const ValueId moments = has_moments ? l.output(1) : gradient;
    const ValueId factors = params.factors ? l.input(2) : gradient;
    l.check_range(parameter);  // before its gradient, which has no name
    l.check_range(moments);
    const auto whole_fours = [&](ValueId id) {
        return by_four(elements(l.info(id).shape)) && by_four(l.info(id).offset);
    };
    const bool fours =
        whole_fours(parameter) && whole_fours(gradient) && (!has_moments || by_four(l.info(moments).shape[1]));
    Dispatch& d = l.dispatch({{&kShader,
                               {kLocalSize,
                                {{kOptimizerSpecKind, params.kind},
                                 {kOptimizerSpecFactors, params.factors ? 1u : 0u},
                                 {kOptimizerSpecFours, fours ? 1u : 0u}}},
                               fours ? "by fours" : "element by element"}},
                             {{parameter, Access::read_write},
                              {gradient, Access::read},
                              {moments, has_moments ? Access::read_write : Access::read},
                              {factors, Access::read}},
                             prepare, {fours ? 1u : 0u});
    d.sizes_of = {l.input(1)};
}

constexpr OpType kUpdate{.name = kName, .lower = lower};

bool is_of(const Graph& g, ValueId value, StorageId storage) { return g.values()[value].storage == storage; }

/// True where a node of the graph updates the parameter already, or keeps its moments there.
bool is_updated(const Graph& g, StorageId parameter) {
    return std::any_of(g.nodes().begin(), g.nodes().end(), [&](const NodeInfo& node) {
        return node.op == &kUpdate && std::any_of(node.outputs.begin(), node.outputs.end(),
                                                  [&](ValueId out) { return is_of(g, out, parameter); });
    });
}

bool is_read(const Graph& g, StorageId storage) {
    return std::any_of(g.nodes().begin(), g.nodes().end(), [&](const NodeInfo& node) {
        return std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId in) { return is_of(g, in, storage); });
    });
}

void check_gradient(const char* op, const Value& parameter, const Value& gradient) {
    require(&gradient.graph() == &parameter.graph(), op,
            "gradient " + gradient.str() + " belongs to another graph than " + parameter.str());
    require_dtype(op, gradient, DType::f32);
    require(gradient.shape() == parameter.shape(), op,
            "gradient " + gradient.str() + " does not have the shape of " + parameter.str());
}

/// Checks the number of a step, in each run where it depends on symbols whether it is one.
void check_step(const char* op, Graph& g, const Dim& step) {
    require_symbols(op, g, step);
    std::vector<std::int64_t> maxima;
    for (const SymbolInfo& symbol : g.symbols()) {
        maxima.push_back(symbol.max);
    }
    const std::string what = "the number of a step, " + g.str(step);
    require(step.upper_bound(maxima) >= 0, op, what + ", is negative");
    const std::int64_t most = std::numeric_limits<std::uint32_t>::max() - 1;  // see length_of()
    require(step.upper_bound(maxima) <= most, op, what + ", may exceed 2^32 - 2");
    if (step.lower_bound(maxima) < 0) {
        g.constrain(Dim(0), step, op + (": " + what));
    }
}

/// The number n as a view that is n + 1 long, which is how a dispatch learns it.
Value length_of(Graph& g, const Dim& n) {
    const float zero = 0.0f;
    return broadcast_to(g.constant("step", {1}, std::span<const float>(&zero, 1)), {n + Dim(1)});
}

/// The factors of gradient and learning rate, (2); empty where neither is given.
Value factors_of(Graph& g, const UpdateOptions& options) {
    if (!options.gradient_scale && !options.learning_rate) {
        return {};
    }
    const float one = 1.0f;
    const auto number = [&](const Value& v, const char* what) {
        if (!v) {
            return g.constant("one", {1}, std::span<const float>(&one, 1));
        }
        require_dtype(kName, v, DType::f32);
        require(v.shape() == Shape{1}, kName, std::string(what) + " " + v.str() + " must be one number, (1)");
        return v;
    };
    return concat({number(options.gradient_scale, "gradient_scale"), number(options.learning_rate, "learning_rate")},
                  0);
}

void update_all(const char* op, const std::vector<Value>& parameters, const std::vector<Value>& gradients,
                OptimizerParams p, const UpdateOptions& options) {
    require(parameters.size() == gradients.size(), op,
            std::to_string(parameters.size()) + " parameters have " + std::to_string(gradients.size()) + " gradients");
    check_schedule(op, options.schedule);
    require_finite(op, "decay_to", options.decay_to);
    const bool counts = p.is_adam() || p.kind == kOptimizerAccumulate || p.sgd.dampening != 0.0 ||
                        options.schedule.warmup > 0 || options.schedule.kind != Schedule::Kind::constant;
    require(!counts || !(options.step == Dim(0)), op,
            p.kind == kOptimizerAccumulate
                ? "the index is the number 0: it is a symbol, of which 0 begins the sums anew"
                : "UpdateOptions::step is not given, on which the optimizer or the schedule depends");
    if (parameters.empty()) {
        return;
    }
    Graph& g = parameters.front().graph();
    check_parameters(op, g, parameters);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        check_gradient(op, parameters[i], gradients[i]);
        if (p.moments() != 0) {
            check_made_state(op, g, moments_name(parameter_name(parameters[i])), parameters);
        }
    }
    GraphEdit::Undo undo(g);
    check_step(op, g, options.step);
    const Value factors = factors_of(g, options);
    const Value step = length_of(g, options.step);
    p.schedule = options.schedule;
    p.factors = bool(factors);
    p.decay_to = options.decay_to;
    const auto shared = params(p);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        std::vector<OutputSpec> outputs{{DType::f32, {}, {}, parameters[i]}};
        if (p.moments() != 0) {
            const Value moments = GraphEdit::state(g, moments_name(parameter_name(parameters[i])),
                                                   {p.moments(), elements(parameters[i].shape())});
            outputs.push_back({DType::f32, {}, {}, moments});
        }
        std::vector<Value> inputs{dense(gradients[i]), step};
        if (factors) {
            inputs.push_back(factors);
        }
        g.add_node(kUpdate, inputs, shared, outputs);
    }
    undo.keep();
}

/// True for what is finite as the float that kernels get.
bool is_float(double number) { return std::abs(number) <= std::numeric_limits<float>::max(); }

void check_not_negative(const char* what, double number) {
    require(is_float(number) && number >= 0, kName,
            std::string(what) + " = " + std::to_string(number) + " is negative or not finite");
}

void check_rate(double learning_rate, double weight_decay) {
    check_not_negative("learning_rate", learning_rate);
    check_not_negative("weight_decay", weight_decay);
}

}  // namespace

double Schedule::at(std::int64_t step) const {
    const double ramp =
        warmup > 0 ? std::min((static_cast<double>(step) + 1.0) / static_cast<double>(warmup), 1.0) : 1.0;
    if (kind == Kind::constant) {
        return ramp;
    }
    const double done =
        static_cast<double>(std::min(step, steps)) / static_cast<double>(std::max<std::int64_t>(steps, 1));
    constexpr double kPi = 3.14159265358979323846;
    return ramp * (kind == Kind::linear ? 1.0 - done : 0.5 * (1.0 + std::cos(kPi * done)));
}

void support::check_optimizer(const AdamW& optimizer) {
    check_rate(optimizer.learning_rate, optimizer.weight_decay);
    for (const auto& [beta, what] : {std::pair{optimizer.beta1, "beta1"}, std::pair{optimizer.beta2, "beta2"}}) {
        require(beta >= 0 && beta < 1, kName, std::string(what) + " = " + std::to_string(beta) + " is not in 0..1");
    }
    check_not_negative("eps", optimizer.eps);
}

void support::check_optimizer(const Sgd& optimizer) {
    check_rate(optimizer.learning_rate, optimizer.weight_decay);
    check_not_negative("momentum", optimizer.momentum);
    require(is_float(optimizer.dampening), kName,
            "dampening = " + std::to_string(optimizer.dampening) + " is not finite");
    require(!optimizer.nesterov || (optimizer.momentum > 0 && optimizer.dampening == 0), kName,
            "Nesterov momentum needs a momentum and no dampening");
}

void support::check_schedule(const char* op, const Schedule& schedule) {
    require(schedule.kind == Schedule::Kind::constant || schedule.steps > 0, op,
            "a schedule that is not constant needs its number of steps");
    require(schedule.warmup >= 0, op, "warmup is negative");
}

void support::check_parameters(const char* op, const Graph& graph, const std::vector<Value>& parameters) {
    std::set<StorageId> given;
    for (const Value& parameter : parameters) {
        require(&parameter.graph() == &graph, op, parameter.str() + " belongs to another graph");
        const ValueInfo& info = graph.values()[parameter.id()];
        const StorageInfo& storage = graph.storages()[info.storage];
        require(!is_updated(graph, info.storage), op, parameter.str() + " is updated already");
        require_dtype(op, parameter, DType::f32);
        require(storage.kind == StorageKind::state, op,
                parameter.str() + " is not a state, so it cannot be written: see trainable()");
        require(is_contiguous(parameter) && info.offset == Dim(0) && info.shape == storage.shape, op,
                parameter.str() + " is a part of a state; the whole is updated");
        require(given.insert(info.storage).second, op, parameter.str() + " is given twice");
    }
}

std::string support::parameter_name(const Value& parameter) {
    const Graph& g = parameter.graph();
    return g.storages()[g.values()[parameter.id()].storage].name;
}

std::string support::moments_name(const std::string& parameter) { return parameter + ".moments"; }
bool support::has_moments(const AdamW&) { return true; }
bool support::has_moments(const Sgd& optimizer) { return optimizer.momentum != 0.0; }

void support::check_made_state(const char* op, const Graph& graph, const std::string& name,
                               const std::vector<Value>& parameters) {
    const auto named = [&](const StorageInfo& s) {
        return s.name == name && s.kind != StorageKind::constant && s.kind != StorageKind::intermediate;
    };
    const auto found = std::find_if(graph.storages().begin(), graph.storages().end(), named);
    if (found == graph.storages().end()) {
        return;
    }
    const auto id = static_cast<StorageId>(found - graph.storages().begin());
    const bool taken = found->kind != StorageKind::state || is_updated(graph, id) || is_read(graph, id) ||
                       std::any_of(parameters.begin(), parameters.end(),
                                   [&](const Value& parameter) { return is_of(graph, parameter.id(), id); });
    require(!taken, op, "the name of a state of its own, " + name + ", is that of something else in the graph");
}

void update(const std::vector<Value>& parameters, const std::vector<Value>& gradients, const AdamW& optimizer,
            const UpdateOptions& options) {
    check_optimizer(optimizer);
    update_all(kName, parameters, gradients,
               {.kind = optimizer.amsgrad ? kOptimizerAmsgrad : kOptimizerAdam, .adam = optimizer}, options);
}

void update(const std::vector<Value>& parameters, const std::vector<Value>& gradients, const Sgd& optimizer,
            const UpdateOptions& options) {
    check_optimizer(optimizer);
    const uint kind = !has_moments(optimizer) ? kOptimizerSgd
                      : optimizer.nesterov    ? kOptimizerNesterov
                                              : kOptimizerMomentum;
    update_all(kName, parameters, gradients, {.kind = kind, .sgd = optimizer}, options);
}

void accumulate(const std::vector<Value>& sums, const std::vector<Value>& gradients, Dim index) {
    update_all("accumulate", sums, gradients, {.kind = kOptimizerAccumulate}, {.step = std::move(index)});
}

}  // namespace vkf
