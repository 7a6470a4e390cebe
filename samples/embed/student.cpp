// SPDX-License-Identifier: Apache-2.0
#include "student.h"

#include <cmath>
#include <random>
#include <string>

namespace {

// Of each head; a place has one number more in a score.
constexpr std::int64_t kPlace = 3, kValue = 4;
constexpr std::int64_t kHidden = 64;

struct Steering {
    vkf::Value acceleration;  // (1, boids, 2)
    vkf::Value weights;       // (1, heads, boids, boids)
};

/// From tokens (1, boids, 16), of which it reads positions and velocities; who hunts can be seen,
/// too. A score is -|u - u'|^2 + b' for a boid's u and another's u' and b' (L2 attention: Kim,
/// Papamakarios and Mnih 2021), and what is made of what a boid sees is made of its difference from
/// the boid's own. So the same flock elsewhere is steered the same way, whatever the parameters.
Steering steer(vkf::Graph& g, vkf::Value tokens, const Flock& flock) {
    const std::int64_t n = flock.boids, heads = kRules;
    std::vector<float> hunts(flock.boids);
    for (std::uint32_t i = flock.boids - flock.hunters; i < flock.boids; ++i) {
        hunts[i] = 1;
    }
    const float per_unit[] = {10, 10, 4, 4};  // neighbours differ by about 1
    const vkf::Value facts = vkf::slice(tokens, 2, kPosition, 4) * g.constant("per unit", {4}, per_unit);
    const vkf::Value x = vkf::concat({facts, g.constant("who hunts", {1, n, 1}, hunts)}, 2);
    const vkf::Value u = vkf::split_heads(vkf::linear_layer(x, "place", heads * kPlace, false), heads);
    const vkf::Value b = vkf::split_heads(vkf::linear_layer(x, "notice", heads, false), heads);
    const vkf::Value own = vkf::linear_layer(x, "value", heads * kValue, false);
    const vkf::Value one =
        g.constant("one", {1, heads, n, 1}, std::vector<float>(static_cast<std::size_t>(heads * n), 1));
    // 2 u u' - |u'|^2 + b': what is missing is the same for all that a boid looks at
    const vkf::Value query = vkf::concat({vkf::scale(u, 2), one}, 3);
    const vkf::Value key = vkf::concat({u, b + vkf::scale(vkf::sum_to(u * u, {1, heads, n, 1}), -1)}, 3);
    const vkf::AttentionResult a =
        vkf::scaled_dot_product_attention(query, key, vkf::split_heads(own, heads), {.scale = 1.0f});
    const vkf::Value seen = vkf::merge_heads(a.y) + vkf::scale(own, -1);
    const vkf::Value hidden = vkf::linear_layer(seen, "linear1", kHidden, true, vkf::Activation::tanh);
    return {vkf::linear_layer(hidden, "linear2", 2), a.weights};
}

void describe_flight(vkf::Graph& g, const Flock& flock) {
    const vkf::Value x = g.input("x", {1, flock.boids, kWidth});
    const Steering s = steer(g, x, flock);
    vkf::trainable(g);
    // What it looks at is drawn as a colour: its own heading.
    g.output("y", vkf::concat({vkf::slice(x, 2, 0, kSeen), vkf::slice(x, 2, kVelocity, 2),
                               vkf::slice(x, 2, kSeen + 2, kAcceleration - kSeen - 2), s.acceleration},
                              2));
    g.output("weights", s.weights);
}

void describe_lesson(vkf::Graph& g, const Flock& flock) {
    const vkf::Value moment = g.input("moment", {1, flock.boids, kWidth});
    const vkf::Value wanted = vkf::slice(moment, 2, kAcceleration, 2);
    const vkf::Value error = steer(g, moment, flock).acceleration + vkf::scale(wanted, -1);
    const float share = 1.0f / static_cast<float>(2 * flock.boids);
    const vkf::Value loss = vkf::scale(vkf::sum(error * error), share);
    const std::vector<vkf::Value> parameters = vkf::trainable(g);
    const std::vector<vkf::Value> gradients = vkf::gradients(loss, parameters);
    vkf::update(parameters, gradients, vkf::AdamW{.learning_rate = 1e-2, .beta2 = 0.99, .weight_decay = 0},
                {.step = g.symbol("step", std::int64_t{1} << 30),
                 .schedule = {.warmup = 20},
                 .gradient_scale = vkf::clip_grad_norm(gradients, 1.0f).scale});
    g.output("errors", vkf::concat({loss, vkf::scale(vkf::sum(wanted * wanted), share)}, 0));
}

}  // namespace

vkf::State make_student(const vkf::Device& device, const Flock& flock) {
    vkf::Graph flight, lesson;
    describe_flight(flight, flock);
    describe_lesson(lesson, flock);
    vkf::State state = device.make_state({&flight, &lesson});
    std::mt19937 random(3);
    for (const char* name : {"place", "notice", "value", "linear1", "linear2"}) {
        const std::string weight = std::string(name) + ".weight";
        const std::vector<std::int64_t>& shape = state.find(weight)->shape;
        // Glorot and Bengio 2010; biases begin at 0
        const float most = std::sqrt(6.0f / static_cast<float>(shape[0] + shape[1]));
        std::vector<float> numbers(static_cast<std::size_t>(shape[0] * shape[1]));
        for (float& number : numbers) {
            number = most * (static_cast<float>(random() >> 8) * 0x1p-23f - 1.0f);
        }
        state.write(weight, std::as_bytes(std::span(numbers)));
    }
    return state;
}

vkf::Program compile_student(const vkf::Device& device, const Flock& flock, const vkf::CompileOptions& options) {
    vkf::Graph g;
    describe_flight(g, flock);
    return device.compile(g, vkf::Weights(), options);
}

vkf::Program compile_lesson(const vkf::Device& device, const Flock& flock, const vkf::CompileOptions& options) {
    vkf::Graph g;
    describe_lesson(g, flock);
    return device.compile(g, vkf::Weights(), options);
}
