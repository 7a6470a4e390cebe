// SPDX-License-Identifier: Apache-2.0
#include "c/border.h"
#include "ops/gradients.h"
#include "ops/optimizer.h"
#include "runtime/graph/edit.h"

using namespace vkf;
using namespace vkf::c;

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
        const std::vector<Value> found =
            vkf::gradients(value_of(loss, "loss"), values_of(count, values, "values"), value_or_none(seed));
        for (std::uint32_t i = 0; i < count; ++i) {
            (&need(gradients, "gradients"))[i] = to_c(found[i]);
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
        all = static_cast<std::uint32_t>(trainable(*trial, texts).size());
        if (all > count) {
            return;
        }
        const std::vector<Value> found = trainable(described, texts);
        for (std::uint32_t i = 0; i < all; ++i) {
            (&need(parameters, "parameters"))[i] = to_c(found[i]);
        }
    });
}

vkf_result vkf_schedule_at(const vkf_schedule* schedule, int64_t step, double* factor) {
    return guard(__func__, [&] { need(factor, "factor") = schedule_of(need(schedule, "schedule")).at(step); });
}

vkf_result vkf_update_adamw(uint32_t count, const vkf_value* parameters, const vkf_value* gradients,
                            const vkf_adamw* optimizer, const vkf_update_options* options) {
    return guard(__func__, [&] {
        const vkf_adamw o = read(optimizer);
        AdamW out;
        out.learning_rate = or_default(o.learning_rate, out.learning_rate);
        out.beta1 = o.has_betas ? o.beta1 : out.beta1;
        out.beta2 = o.has_betas ? o.beta2 : out.beta2;
        out.eps = or_default(o.eps, out.eps);
        out.weight_decay = o.has_weight_decay ? o.weight_decay : out.weight_decay;
        out.decoupled = on_or_default(o.decoupled, out.decoupled);
        out.amsgrad = o.amsgrad;
        update_by(count, parameters, gradients, out, options);
    });
}

vkf_result vkf_update_sgd(uint32_t count, const vkf_value* parameters, const vkf_value* gradients,
                          const vkf_sgd* optimizer, const vkf_update_options* options) {
    return guard(__func__, [&] {
        const vkf_sgd o = read(optimizer);
        Sgd out;
        out.learning_rate = or_default(o.learning_rate, out.learning_rate);
        out.momentum = o.momentum;
        out.dampening = o.dampening;
        out.nesterov = o.nesterov;
        out.weight_decay = o.weight_decay;
        update_by(count, parameters, gradients, out, options);
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
