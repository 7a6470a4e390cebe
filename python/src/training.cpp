// SPDX-License-Identifier: Apache-2.0
// Gradients, optimizers and training.
#include <vkformer/advanced/node.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <variant>

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/variant.h>

#include "bind.h"
#include "options.h"

namespace py {

namespace {

using V = vkf::Value;
using Vs = std::vector<vkf::Value>;
using Arith = Choice<vkf::Arithmetic>;
using Optimizer = std::variant<vkf::AdamW, vkf::Sgd>;
using Ids = std::vector<std::int32_t>;

/// One thread at a time takes a step; programs of its own share the mutex.
struct Trainer {
    Owned<vkf::Trainer> trainer;
    std::shared_ptr<Mutex> mutex = trainer.get_deleter().mutex;
    std::shared_ptr<Program> program = {};
};
struct FineTuner {
    Owned<vkf::FineTuner> tuner;
    std::shared_ptr<Mutex> mutex = tuner.get_deleter().mutex;
};

std::function<float(const std::string&)> decay_of(const nb::object& function) {
    if (function.is_none()) return {};
    return [shared = held(function)](const std::string& parameter) {
        const Locked lock;
        return cast_as<float>((*shared)(parameter), "decay_to: what its function gave", "a number");
    };
}

vkf::TrainerOptions trainer_options(const Optimizer& optimizer, const std::optional<vkf::Schedule>& schedule,
                                    float max_norm, const nb::object& decay_to, float loss_scale, bool accumulates,
                                    const Arith& arithmetic, bool profile, const Ranks* communicator) {
    return {.optimizer = optimizer,
            .schedule = schedule.value_or(vkf::Schedule()),
            .max_norm = max_norm,
            .decay_to = decay_of(decay_to),
            .loss_scale = loss_scale,
            .accumulates = accumulates,
            .communicator = communicator != nullptr ? communicator->communicator : nullptr,
            .arithmetic = arithmetic,
            .profile = profile};
}

#define TRAINER_TYPES                                                                                          \
    const Optimizer &optimizer, const std::optional<vkf::Schedule>&schedule, float max_norm,                   \
        const nb::object &decay_to, float loss_scale, bool accumulates, const Arith &arithmetic, bool profile, \
        const Ranks *communicator
#define TRAINER_NAMES                                                                                        \
    "optimizer"_a = vkf::AdamW(), "schedule"_a = nb::none(), "max_norm"_a = 0.0f, "decay_to"_a = nb::none(), \
    "loss_scale"_a = 0.0f, "accumulates"_a = false, "arithmetic"_a = Arith{"f32"}, "profile"_a = false,      \
    "communicator"_a = nb::none()
#define TRAINER_VALUES \
    trainer_options(optimizer, schedule, max_norm, decay_to, loss_scale, accumulates, arithmetic, profile, communicator)

void bind_optimizers(nb::module_& m) {
    m.def(
        "gradients", [](V loss, const Vs& values, V seed) { return vkf::gradients(loss, values, seed); }, "loss"_a,
        "values"_a, "seed"_a = nb::none(),
        "The gradients of `loss` at each of the values, as nodes of the graph. loss is one number, or has any shape "
        "where "
        "`seed`, of the same shape, is the gradient that comes in there. torch.autograd.grad(loss, values, seed).");
    m.def("trainable", &vkf::trainable, "graph"_a, "patterns"_a = std::vector<std::string>{"*"},
          "Makes weights of a graph, whose names fit a pattern, states of the same names, which update() may write; in "
          "the "
          "order in which the graph names them.");
    m.def(
        "_not_trainable",
        [](vkf::Graph& graph, const Vs& parameters) {
            for (const V& parameter : parameters) {
                parameter.shape();  // throws where it is of nothing
                // The graph is the caller's to change, though it gives what it holds to be read.
                const vkf::StorageInfo& state = graph.storages()[graph.values()[parameter.id()].storage];
                const_cast<vkf::StorageInfo&>(state).kind = vkf::StorageKind::weight;
            }
        },
        "graph"_a, "parameters"_a, "Makes weights again of what trainable() made states, and no node writes.");
    nb::class_<vkf::Schedule>(m, "Schedule", "The course of a learning rate; step t counts from 0.")
        .def(
            "__init__",
            [](vkf::Schedule* self, const Choice<vkf::Schedule::Kind>& kind, std::int64_t warmup, std::int64_t steps) {
                new (self) vkf::Schedule{.kind = kind, .warmup = warmup, .steps = steps};
            },
            "kind"_a = Choice<vkf::Schedule::Kind>{"constant"}, "warmup"_a = 0, "steps"_a = 0,
            "linear: times 1 - t / steps; cosine: times (1 + cos(pi t / steps)) / 2; all: times min((t + 1) / warmup, "
            "1).")
        .def_prop_ro(
            "kind", [](const vkf::Schedule& s) { return name(s.kind); }, "constant, linear or cosine.")
        .def_ro("warmup", &vkf::Schedule::warmup, "Steps in which the rate grows to its whole.")
        .def_ro("steps", &vkf::Schedule::steps, "Steps after which linear and cosine are 0.")
        .def("at", &vkf::Schedule::at, "step"_a, "The factor of the learning rate at a step.");
    nb::class_<vkf::AdamW>(m, "AdamW", "torch.optim.AdamW, or torch.optim.Adam where the decay is not decoupled.")
        .def(
            "__init__",
            [](vkf::AdamW* self, double lr, std::pair<double, double> betas, double eps, double weight_decay,
               bool decoupled, bool amsgrad) {
                new (self) vkf::AdamW{.learning_rate = lr,
                                      .beta1 = betas.first,
                                      .beta2 = betas.second,
                                      .eps = eps,
                                      .weight_decay = weight_decay,
                                      .decoupled = decoupled,
                                      .amsgrad = amsgrad};
            },
            "lr"_a = 1e-3, "betas"_a = std::pair(0.9, 0.999), "eps"_a = 1e-8, "weight_decay"_a = 1e-2, nb::kw_only(),
            "decoupled"_a = true, "amsgrad"_a = false)
        .def_ro("lr", &vkf::AdamW::learning_rate, "The learning rate.")
        .def_ro("weight_decay", &vkf::AdamW::weight_decay, "What parameters shrink by a step, over the learning rate.")
        .def("__repr__", [](const vkf::AdamW& o) {
            return "AdamW(lr=" + nb::cast<std::string>(nb::repr(nb::float_(o.learning_rate))) + ")";
        });
    nb::class_<vkf::Sgd>(m, "SGD", "torch.optim.SGD.")
        .def(
            "__init__",
            [](vkf::Sgd* self, double lr, double momentum, double dampening, double weight_decay, bool nesterov) {
                new (self) vkf::Sgd{.learning_rate = lr,
                                    .momentum = momentum,
                                    .dampening = dampening,
                                    .nesterov = nesterov,
                                    .weight_decay = weight_decay};
            },
            "lr"_a = 1e-3, "momentum"_a = 0.0, "dampening"_a = 0.0, "weight_decay"_a = 0.0, "nesterov"_a = false)
        .def_ro("lr", &vkf::Sgd::learning_rate, "The learning rate.")
        .def_ro("momentum", &vkf::Sgd::momentum, "The share of the last step's direction that is kept.")
        .def("__repr__", [](const vkf::Sgd& o) {
            return "SGD(lr=" + nb::cast<std::string>(nb::repr(nb::float_(o.learning_rate))) + ")";
        });
    m.def(
        "update",
        [](const Vs& parameters, const Vs& gradients, const Optimizer& optimizer, const vkf::Dim& step,
           const std::optional<vkf::Schedule>& schedule, V learning_rate, V gradient_scale, float decay_to) {
            const vkf::UpdateOptions options{.step = step,
                                             .schedule = schedule.value_or(vkf::Schedule()),
                                             .learning_rate = learning_rate,
                                             .gradient_scale = gradient_scale,
                                             .decay_to = decay_to};
            std::visit([&](const auto& one) { vkf::update(parameters, gradients, one, options); }, optimizer);
        },
        "parameters"_a, "gradients"_a, "optimizer"_a, nb::kw_only(), "step"_a = 0, "schedule"_a = nb::none(),
        "learning_rate"_a = nb::none(), "gradient_scale"_a = nb::none(), "decay_to"_a = 0.0f, kOneGraph,
        "Updates parameters, which are states, from their gradients. step: a symbol, the number of the step from 0.");
    m.def(
        "accumulate",
        [](const Vs& sums, const Vs& gradients, const vkf::Dim& index) { vkf::accumulate(sums, gradients, index); },
        "sums"_a, "gradients"_a, "index"_a, kOneGraph,
        "Adds gradients up over several runs: to states, which take them as they are where `index` is 0.");
    m.def(
        "clip_grad_norm",
        [](const Vs& gradients, float max_norm, V loss_scale) {
            const vkf::ClippedNorm out = vkf::clip_grad_norm(gradients, max_norm, loss_scale);
            return nb::make_tuple(out.norm, out.scale);
        },
        "gradients"_a, "max_norm"_a, "loss_scale"_a = nb::none(),
        nb::sig("def clip_grad_norm(gradients: typing.Sequence[Value], max_norm: float, loss_scale: Value | None = "
                "None) -> tuple[Value, Value]"),
        "The 2-norm of all gradients together, and the factor that clips them. torch.nn.utils.clip_grad_norm_.");
}

void bind_trainer(nb::module_& m) {
    nb::class_<vkf::TrainingStep>(m, "TrainingStep", "What a step found before it updated anything.")
        .def_ro("loss", &vkf::TrainingStep::loss, "The loss of the batch.")
        .def_ro("grad_norm", &vkf::TrainingStep::grad_norm, "The 2-norm of all gradients together, before clipping.")
        .def_ro("left_out", &vkf::TrainingStep::left_out, "True: nothing was updated, because of loss_scale.")
        .def("__float__", [](const vkf::TrainingStep& s) { return s.loss; })
        .def("__repr__", [](const vkf::TrainingStep& s) {
            return "TrainingStep(loss=" + nb::cast<std::string>(nb::repr(nb::float_(s.loss))) +
                   ", grad_norm=" + nb::cast<std::string>(nb::repr(nb::float_(s.grad_norm))) +
                   (s.left_out ? ", left_out=True)" : ")");
        });
    using T = Trainer;
    nb::class_<T>(m, "TrainerCore",
                  "From a graph that gives a loss to a program that also differentiates it, clips gradients and "
                  "updates parameters.")
        .def(nb::new_([](const vkf::Device& device, vkf::Graph& graph, V loss, const Vs& parameters,
                         const vkf::Weights& weights, TRAINER_TYPES) {
                 const vkf::TrainerOptions options = TRAINER_VALUES;
                 return unlocked([&] {
                     return std::make_unique<T>(
                         T{owned(vkf::Trainer(device, graph, loss, parameters, options, weights))});
                 });
             }),
             "device"_a, "graph"_a, "loss"_a, "parameters"_a, "weights"_a = vkf::Weights(), nb::kw_only(),
             TRAINER_NAMES)
        .def(
            "upload",
            [](T& t, const std::string& input, nb::handle data) {
                if (nb::isinstance<vkf::DeviceTensor>(data)) {
                    const auto tensor = nb::cast<vkf::DeviceTensor>(data);
                    return unlocked(*t.mutex, [&] { t.trainer->program().bind(input, tensor); });
                }
                const Array array = wide_array_of(data, input);
                unlocked(*t.mutex, [&] {
                    if (array.dtype == vkf::DType::i32) {
                        t.trainer->program().upload(input, array.as<std::int32_t>());
                    } else {
                        t.trainer->program().upload(input, array.as<float>());
                    }
                });
            },
            "input"_a, "data"_a, "Gives an array, or a Tensor, for an input of the next step.")
        .def(
            "set",
            [](T& t, const std::string& symbol, std::int64_t value) {
                unlocked(*t.mutex, [&] { t.trainer->program().set(symbol, value); });
            },
            "symbol"_a, "value"_a, "Sets the size of a symbol for the next step.")
        .def(
            "program", [](T& t) { return new Program(t.trainer->program(), t.mutex); }, nb::rv_policy::take_ownership,
            nb::keep_alive<0, 1>(), "The program of a step, for explain() and times().")
        .def(
            "state",
            [](T& t) {
                return State{t.trainer->state(), t.mutex};
            },
            "Parameters, and what the optimizer remembers of them.")
        .def(
            "parameters", [](const T& t) { return t.trainer->parameters(); }, "Names of the parameters.")
        .def(
            "step", [](const T& t) { return t.trainer->step(); }, "The number of the next step, from 0.")
        .def(
            "take_step",
            [](T& t, float weight) { return unlocked(*t.mutex, [&] { return t.trainer->take_step(weight); }); },
            "weight"_a = 1.0f,
            "Runs a step on what was uploaded. Behind accumulate() the step is of all micro-batches together.")
        .def(
            "accumulate",
            [](T& t, float weight) { return unlocked(*t.mutex, [&] { return t.trainer->accumulate(weight); }); },
            "weight"_a = 1.0f,
            "Computes the gradients of a micro-batch, and keeps them for take_step(). Returns its loss.")
        .def(
            "drop_micro_batches", [](T& t) { unlocked(*t.mutex, [&] { t.trainer->drop_micro_batches(); }); },
            "Forgets what accumulate() has kept: the step begins anew.")
        .def(
            "save", [](T& t, const std::filesystem::path& file) { unlocked(*t.mutex, [&] { t.trainer->save(file); }); },
            "file"_a, "Writes all that resume() needs; an error between accumulate() and take_step().")
        .def(
            "resume",
            [](T& t, const std::filesystem::path& file) { unlocked(*t.mutex, [&] { t.trainer->resume(file); }); },
            "file"_a, "Goes on where save() was called, bit for bit.");
    using F = FineTuner;
    nb::class_<F>(m, "FineTuner",
                  "Fine-tuning of decoders from Hugging Face folders: all parameters, or LoRA adapters.")
        .def(nb::new_([](const vkf::Device& device, const vkf::Checkpoint& checkpoint, const vkf::DecoderModel& model,
                         std::int64_t max_batch, std::int64_t micro_batch, std::int64_t max_tokens,
                         const std::optional<vkf::LoraOptions>& lora, std::uint64_t seed, TRAINER_TYPES,
                         const std::optional<Choice<vkf::WeightType>>& matrices, const nb::object& choose,
                         const Choice<vkf::PackOn>& pack_on, const nb::object& load_progress) {
                 vkf::FineTuneOptions options{.max_batch = max_batch,
                                              .micro_batch = micro_batch,
                                              .max_tokens = max_tokens,
                                              .lora = lora,
                                              .load = load_options(matrices, choose, pack_on, load_progress),
                                              .seed = seed,
                                              .trainer = TRAINER_VALUES};
                 return unlocked(
                     [&] { return std::make_unique<F>(F{owned(vkf::FineTuner(device, checkpoint, model, options))}); });
             }),
             "device"_a, "checkpoint"_a, "model"_a, nb::kw_only(), "max_batch"_a = 1, "micro_batch"_a = 0,
             "max_tokens"_a = 0, "lora"_a = nb::none(), "seed"_a = 0, TRAINER_NAMES, "matrices"_a = nb::none(),
             "choose"_a = nb::none(), "pack_on"_a = Choice<vkf::PackOn>{"by_device"}, "load_progress"_a = nb::none())
        .def(
            "take_step",
            [](F& f, const std::vector<Ids>& texts) {
                return unlocked(*f.mutex, [&] { return f.tuner->take_step(texts); });
            },
            "texts"_a,
            "Takes a step on texts of token ids. The loss is the mean cross-entropy of every token but the first of "
            "each.")
        .def(
            "step", [](F& f) { return f.tuner->trainer().step(); }, "The number of the next step.")
        .def(
            "trainer_state",
            [](F& f) {
                return State{f.tuner->trainer().state(), f.mutex};
            },
            "Parameters, and what the optimizer remembers of them.")
        .def(
            "parameters", [](F& f) { return f.tuner->trainer().parameters(); }, "Names of the parameters.")
        .def(
            "save_training",
            [](F& f, const std::filesystem::path& file) { unlocked(*f.mutex, [&] { f.tuner->trainer().save(file); }); },
            "file"_a, "Trainer::save().")
        .def(
            "resume_training",
            [](F& f, const std::filesystem::path& file) {
                unlocked(*f.mutex, [&] { f.tuner->trainer().resume(file); });
            },
            "file"_a, "Trainer::resume().")
        .def(
            "save",
            [](const F& f, const std::filesystem::path& folder) { unlocked(*f.mutex, [&] { f.tuner->save(folder); }); },
            "folder"_a, "Writes the model's folder with its parameters in fp32, or PEFT's files of the adapters.");
}

}  // namespace

void bind_training(nb::module_& m) {
    bind_optimizers(m);
    bind_trainer(m);
}

}  // namespace py
