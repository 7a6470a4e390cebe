// SPDX-License-Identifier: Apache-2.0
#include "c/device.h"
#include "ops/gradients.h"
#include "ops/optimizer.h"
#include "runtime/graph/edit.h"
#include "train/fine_tuner.h"
#include "train/trainer.h"

using namespace vkf;
using namespace vkf::c;

struct vkf_trainer {
    explicit vkf_trainer(Trainer made) : own(std::move(made)), trainer(*own) { name_parameters(); }
    explicit vkf_trainer(Trainer* borrowed) : trainer(*borrowed) { name_parameters(); }

    std::optional<Trainer> own;  // empty: of a fine-tuner
    Trainer& trainer;
    std::shared_ptr<vkf_program> program = lent(trainer.program());
    vkf_state state{trainer.state(), true};
    std::vector<const char*> names = {};

private:
    void name_parameters() {
        for (const std::string& name : trainer.parameters()) {
            names.push_back(name.c_str());
        }
    }
};

struct vkf_fine_tuner {
    explicit vkf_fine_tuner(FineTuner made) : tuner(std::move(made)) {}

    FineTuner tuner;
    vkf_trainer trainer{&tuner.trainer()};
};

namespace {

std::vector<Value> values_of(std::uint32_t count, const vkf_value* values, const char* what) {
    std::vector<Value> out;
    for (std::uint32_t i = 0; i < count; ++i) {
        out.push_back(value_of((&need(values, what))[i], what));
    }
    return out;
}

constexpr std::array kSchedules = {Schedule::Kind::constant, Schedule::Kind::linear, Schedule::Kind::cosine};

Schedule schedule_of(const vkf_schedule& s) { return {pick(kSchedules, s.kind, "schedule"), s.warmup, s.steps}; }

UpdateOptions update_options_of(const vkf_update_options* options, std::uint32_t count, const vkf_value* parameters) {
    const vkf_update_options o = read(options);
    UpdateOptions out;
    if (count != 0) {
        out.step = dim_of(o.step, value_of(need(parameters, "parameters"), "parameters").graph());
    }
    out.schedule = schedule_of(o.schedule);
    out.learning_rate = value_or_none(o.learning_rate);
    out.gradient_scale = value_or_none(o.gradient_scale);
    out.decay_to = static_cast<float>(o.decay_to);
    return out;
}

AdamW adamw_of(const vkf_adamw* optimizer) {
    const vkf_adamw o = read(optimizer, "adamw");
    AdamW out;
    out.learning_rate = or_default(o.learning_rate, out.learning_rate);
    out.beta1 = o.has_betas ? o.beta1 : out.beta1;
    out.beta2 = o.has_betas ? o.beta2 : out.beta2;
    out.eps = or_default(o.eps, out.eps);
    out.weight_decay = o.has_weight_decay ? o.weight_decay : out.weight_decay;
    out.decoupled = on_or_default(o.decoupled, out.decoupled);
    out.amsgrad = o.amsgrad;
    return out;
}

Sgd sgd_of(const vkf_sgd* optimizer) {
    const vkf_sgd o = read(optimizer, "sgd");
    Sgd out;
    out.learning_rate = or_default(o.learning_rate, out.learning_rate);
    out.momentum = o.momentum;
    out.dampening = o.dampening;
    out.nesterov = o.nesterov;
    out.weight_decay = o.weight_decay;
    return out;
}

TrainerOptions trainer_options_of(const vkf_trainer_options* options) {
    const vkf_trainer_options o = read(options, "trainer");
    if (o.adamw && o.sgd) {
        throw Error("of vkf_trainer_options, adamw and sgd are both given");
    }
    TrainerOptions out;
    if (o.sgd) {
        out.optimizer = sgd_of(o.sgd);
    } else {
        out.optimizer = adamw_of(o.adamw);
    }
    out.schedule = schedule_of(o.schedule);
    out.max_norm = o.max_norm;
    if (o.decay_to) {
        out.decay_to = [o](const std::string& name) { return o.decay_to(o.user, name.c_str()); };
    }
    out.loss_scale = o.loss_scale;
    out.accumulates = o.accumulates;
    out.arithmetic = arithmetic_of(o.arithmetic);
    out.profile = o.profile;
    if (o.communicator) {
        out.communicator = o.communicator->ranks;
    }
    return out;
}

FineTuneOptions fine_tune_options_of(const vkf_fine_tune_options* options) {
    const vkf_fine_tune_options o = read(options);
    FineTuneOptions out;
    out.max_batch = or_default(o.max_batch, out.max_batch);
    out.micro_batch = o.micro_batch;
    out.max_tokens = o.max_tokens;
    if (o.lora) {
        out.lora = lora_of(o.lora);
    }
    out.load = load_of(o.load);
    out.seed = o.seed;
    out.trainer = trainer_options_of(o.trainer);
    return out;
}

/// Takes a step by `take` once it is known that what it finds can be told.
template <class Take>
vkf_result give_step(const char* function, vkf_training_step* taken, Take&& take) noexcept {
    return guard(function, [&] {
        vkf_training_step& out = need_struct(taken, "the output");
        const TrainingStep step = take();
        fill(out, {0, step.left_out, step.loss, step.grad_norm});
    });
}

template <class Optimizer>
void update_by(std::uint32_t count, const vkf_value* parameters, const vkf_value* found, const Optimizer& optimizer,
               const vkf_update_options* options) {
    update(values_of(count, parameters, "parameters"), values_of(count, found, "gradients"), optimizer,
           update_options_of(options, count, parameters));
}

}  // namespace

vkf_result vkf_gradients(vkf_value loss, uint32_t count, const vkf_value* values, vkf_value seed,
                         vkf_value* gradients) {
    return guard(__func__, [&] {
        // before anything is described
        vkf_value* to = count != 0 ? &need(gradients, "gradients") : nullptr;
        for (const Value& found :
             vkf::gradients(value_of(loss, "loss"), values_of(count, values, "values"), value_or_none(seed))) {
            *to++ = to_c(found);
        }
    });
}

vkf_result vkf_graph_begin_recompute(vkf_graph* graph) {
    return guard(__func__, [&] { need(graph, "graph").begin_recompute(); });
}

vkf_result vkf_graph_end_recompute(vkf_graph* graph) {
    return guard(__func__, [&] { need(graph, "graph").end_recompute(); });
}

vkf_result vkf_trainable(vkf_graph* graph, uint32_t pattern_count, const char* const* patterns, uint32_t count,
                         vkf_value* parameters, uint32_t* needed) {
    return guard(__func__, [&] {
        std::vector<std::string> texts;
        if (pattern_count == 0) {
            texts.emplace_back("*");
        }
        for (std::uint32_t i = 0; i < pattern_count; ++i) {
            texts.emplace_back(text((&need(patterns, "patterns"))[i], "one of the patterns"));
        }
        Graph& described = need(graph, "graph");
        std::uint32_t& all = need(needed, "needed");
        const std::unique_ptr<Graph> trial = GraphEdit::clone(described);
        const auto fitting = static_cast<std::uint32_t>(trainable(*trial, texts).size());
        if (fitting <= count && fitting != 0) {
            vkf_value* to = &need(parameters, "parameters");
            for (const Value& v : trainable(described, texts)) {
                *to++ = to_c(v);
            }
        }
        all = fitting;
    });
}

vkf_result vkf_schedule_at(const vkf_schedule* schedule, int64_t step, double* factor) {
    return guard(__func__, [&] { need(factor, "factor") = schedule_of(need(schedule, "schedule")).at(step); });
}

vkf_result vkf_update_adamw(uint32_t count, const vkf_value* parameters, const vkf_value* gradients,
                            const vkf_adamw* optimizer, const vkf_update_options* options) {
    return guard(__func__, [&] { update_by(count, parameters, gradients, adamw_of(optimizer), options); });
}

vkf_result vkf_update_sgd(uint32_t count, const vkf_value* parameters, const vkf_value* gradients,
                          const vkf_sgd* optimizer, const vkf_update_options* options) {
    return guard(__func__, [&] { update_by(count, parameters, gradients, sgd_of(optimizer), options); });
}

vkf_result vkf_accumulate(uint32_t count, const vkf_value* sums, const vkf_value* gradients, vkf_dim index) {
    return guard(__func__, [&] {
        if (count != 0) {
            Graph& graph = value_of(need(sums, "sums"), "sums").graph();
            accumulate(values_of(count, sums, "sums"), values_of(count, gradients, "gradients"), dim_of(index, graph));
        }
    });
}

vkf_result vkf_clip_grad_norm(uint32_t count, const vkf_value* gradients, float max_norm, vkf_value loss_scale,
                              vkf_value* norm, vkf_value* scale) {
    return guard(__func__, [&] {
        vkf_value& first = need(norm, "norm");
        vkf_value& second = need(scale, "scale");
        const ClippedNorm clipped =
            clip_grad_norm(values_of(count, gradients, "gradients"), max_norm, value_or_none(loss_scale));
        first = to_c(clipped.norm);
        second = to_c(clipped.scale);
    });
}

vkf_result vkf_trainer_create(vkf_device* device, vkf_graph* graph, vkf_value loss, uint32_t count,
                              const vkf_value* parameters, const vkf_trainer_options* options,
                              const vkf_weights* weights, vkf_trainer** trainer) {
    return make(__func__, trainer, [&] {
        const Device& on = need(device, "device").device;
        const TrainerOptions how = trainer_options_of(options);
        return new vkf_trainer(Trainer(on, need(graph, "graph"), value_of(loss, "loss"),
                                       values_of(count, parameters, "parameters"), how,
                                       weights ? Weights(*weights) : Weights()));
    });
}

void vkf_trainer_destroy(vkf_trainer* trainer) {
    if (trainer && !trainer->own) {
        fail(VKF_ERROR, "%s: the trainer is its fine-tuner's own", __func__);
        return;
    }
    delete trainer;
}

vkf_result vkf_trainer_program(vkf_trainer* trainer, vkf_program** program) {
    return give(__func__, program, [&] { return need(trainer, "trainer").program.get(); });
}

vkf_result vkf_trainer_state(vkf_trainer* trainer, vkf_state** state) {
    return give(__func__, state, [&] { return &need(trainer, "trainer").state; });
}

vkf_result vkf_trainer_parameters(const vkf_trainer* trainer, const char* const** names, uint32_t* count) {
    return guard(__func__, [&] {
        const std::vector<const char*>& all = need(trainer, "trainer").names;
        const char* const*& first = need(names, "names");
        need(count, "count") = static_cast<std::uint32_t>(all.size());
        first = all.data();
    });
}

vkf_result vkf_trainer_step(const vkf_trainer* trainer, int64_t* number) {
    return give(__func__, number, [&] { return need(trainer, "trainer").trainer.step(); });
}

vkf_result vkf_trainer_take_step(vkf_trainer* trainer, float weight, vkf_training_step* taken) {
    return give_step(__func__, taken, [&] { return need(trainer, "trainer").trainer.take_step(weight); });
}

vkf_result vkf_trainer_accumulate(vkf_trainer* trainer, float weight, float* loss) {
    return give(__func__, loss, [&] { return need(trainer, "trainer").trainer.accumulate(weight); });
}

vkf_result vkf_trainer_drop_micro_batches(vkf_trainer* trainer) {
    return guard(__func__, [&] { need(trainer, "trainer").trainer.drop_micro_batches(); });
}

vkf_result vkf_trainer_save(vkf_trainer* trainer, const char* path) {
    return guard(__func__, [&] { need(trainer, "trainer").trainer.save(path_of(text(path, "path"))); });
}

vkf_result vkf_trainer_resume(vkf_trainer* trainer, const char* path) {
    return guard(__func__, [&] { need(trainer, "trainer").trainer.resume(path_of(text(path, "path"))); });
}

vkf_result vkf_fine_tuner_create(vkf_device* device, const char* folder, const vkf_fine_tune_options* options,
                                 vkf_fine_tuner** tuner) {
    return make(__func__, tuner, [&] {
        const Device& on = need(device, "device").device;
        const FineTuneOptions how = fine_tune_options_of(options);
        const Checkpoint checkpoint(path_of(text(folder, "folder")));
        return new vkf_fine_tuner(FineTuner(on, checkpoint, read_decoder(checkpoint), how));
    });
}

void vkf_fine_tuner_destroy(vkf_fine_tuner* tuner) { delete tuner; }

vkf_result vkf_fine_tuner_take_step(vkf_fine_tuner* tuner, uint32_t count, const vkf_tokens* texts,
                                    vkf_training_step* taken) {
    return give_step(__func__, taken, [&] {
        FineTuner& t = need(tuner, "tuner").tuner;
        return t.take_step(all_ids_of(count, texts, "texts"));
    });
}

vkf_result vkf_fine_tuner_trainer(vkf_fine_tuner* tuner, vkf_trainer** trainer) {
    return give(__func__, trainer, [&] { return &need(tuner, "tuner").trainer; });
}

vkf_result vkf_fine_tuner_save(const vkf_fine_tuner* tuner, const char* folder) {
    return guard(__func__, [&] { need(tuner, "tuner").tuner.save(path_of(text(folder, "folder"))); });
}
