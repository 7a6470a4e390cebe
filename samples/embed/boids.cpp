// SPDX-License-Identifier: Apache-2.0
#include "boids.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <string>

namespace {

constexpr std::uint32_t kHeadDim = kWidth / kRules, kHidden = 4 * kRules;

struct RuleNumbers {
    double sigma;   // how far it looks
    double score;   // added to the scores of others, against looking at oneself
    double limit;   // of the difference between what is seen and oneself, along each axis
    double weight;  // of that difference in the acceleration
};
constexpr RuleNumbers kNumbers[kRules] = {
    {0.12, 0.0, 0.30, 5.0},    // velocities of neighbours
    {0.25, 0.0, 0.12, 5.0},    // their places
    {0.04, 0.0, 0.03, -80.0},  // those too near
    {0.16, 2.5, 0.25, -16.0},  // hunters
};

/// The vectors that a rule looks at.
std::uint32_t subject(std::uint32_t rule) { return rule == kAlignment ? kVelocity : kPosition; }

/// Boids see boids, and fear hunters; all see themselves, who take the weight that nobody near
/// wants.
bool sees(const Flock& flock, std::uint32_t rule, std::uint32_t query, std::uint32_t key) {
    const bool hunter = key >= flock.boids - flock.hunters;
    return query == key || hunter == (rule == kFear);
}

/// Matrices as torch.nn.Linear has them, (out, in), by name.
class LayerWeights {
public:
    LayerWeights() {
        for (const char* name : {"q_proj", "k_proj", "v_proj", "out_proj"}) {
            add(name, kWidth, kWidth);
        }
        add("linear1", kHidden, kWidth);
        add("linear2", kWidth, kHidden);
        for (std::uint32_t rule = 0; rule < kRules; ++rule) {
            attend(rule);
            limit(rule);
        }
    }

    vkf::Weights load(const vkf::Device& device) const {
        std::vector<vkf::HostTensor> tensors;
        for (const auto& [name, t] : tensors_) {
            tensors.push_back({name, vkf::DType::f32, t.shape, std::as_bytes(std::span(t.data))});
        }
        return device.load(tensors);
    }

private:
    struct Tensor {
        std::vector<std::int64_t> shape;
        std::vector<float> data;
    };

    void add(const std::string& name, std::int64_t out, std::int64_t in) {
        tensors_[name + ".weight"] = {{out, in}, std::vector<float>(static_cast<std::size_t>(out * in))};
        tensors_[name + ".bias"] = {{out}, std::vector<float>(static_cast<std::size_t>(out))};
    }

    float& weight(const std::string& name, std::uint32_t out, std::uint32_t in) {
        Tensor& t = tensors_.at(name + ".weight");
        return t.data[out * static_cast<std::size_t>(t.shape[1]) + in];
    }

    float& bias(const std::string& name, std::uint32_t out) { return tensors_.at(name + ".bias").data[out]; }

    /// Query (p, 1) / sigma^2 and key (p', -|p'|^2 / 2) give -|p - p'|^2 / (2 sigma^2), but for
    /// what is the same for every key. The scores' own scale is 1 / sqrt(4).
    void attend(std::uint32_t rule) {
        const std::uint32_t row = rule * kHeadDim;
        const float sharp = static_cast<float>(2.0 / (kNumbers[rule].sigma * kNumbers[rule].sigma));
        for (std::uint32_t axis = 0; axis < 2; ++axis) {
            weight("q_proj", row + axis, kPosition + axis) = sharp;
            weight("k_proj", row + axis, kPosition + axis) = 1;
            weight("v_proj", row + axis, subject(rule) + axis) = 1;
            weight("out_proj", kSeen + 2 * rule + axis, row + axis) = 1;
        }
        bias("q_proj", row + 2) = sharp;
        weight("k_proj", row + 2, kSquare) = -1;
    }

    /// Two hidden numbers an axis: relu(u + m) - relu(u - m) - m is u between -m and m, where u is
    /// what is seen less oneself.
    void limit(std::uint32_t rule) {
        const auto [sigma, score, most, factor] = kNumbers[rule];
        for (std::uint32_t axis = 0; axis < 2; ++axis) {
            for (std::uint32_t side = 0; side < 2; ++side) {
                const std::uint32_t hidden = 4 * rule + 2 * axis + side;
                weight("linear1", hidden, kSeen + 2 * rule + axis) = 1;
                weight("linear1", hidden, subject(rule) + axis) = -1;
                bias("linear1", hidden) = static_cast<float>(side == 0 ? most : -most);
                weight("linear2", kAcceleration + axis, hidden) = static_cast<float>(side == 0 ? factor : -factor);
            }
            bias("linear2", kAcceleration + axis) -= static_cast<float>(factor * most);
        }
    }

    std::map<std::string, Tensor> tensors_;
};

/// Which boids a head may look at, (heads, boids, boids): -inf where one is not.
std::vector<float> sight(const Flock& flock) {
    std::vector<float> bias;
    for (std::uint32_t rule = 0; rule < kRules; ++rule) {
        for (std::uint32_t query = 0; query < flock.boids; ++query) {
            for (std::uint32_t key = 0; key < flock.boids; ++key) {
                const bool other = query != key;
                bias.push_back(!sees(flock, rule, query, key) ? -std::numeric_limits<float>::infinity()
                               : other                        ? static_cast<float>(kNumbers[rule].score)
                                                              : 0.0f);
            }
        }
    }
    return bias;
}

/// The layer, with its output "y". Returns the attention weights.
vkf::Value describe(vkf::Graph& g, const Flock& flock) {
    const std::int64_t n = flock.boids;
    const vkf::Value x = g.input("x", {1, n, kWidth});
    const vkf::Mask mask{.bias = g.constant("who sees whom", {kRules, n, n}, sight(flock))};
    const vkf::AttentionResult a = vkf::multi_head_attention(x, x, x, {.heads = kRules, .mask = mask});
    const vkf::Value seen = x + a.y;
    g.output("y", seen + vkf::feed_forward(seen, kHidden, vkf::Activation::relu));
    return a.weights;
}

}  // namespace

std::vector<Boid> start(const Flock& flock, float half_width) {
    std::mt19937 random(7);
    const auto number = [&] { return static_cast<float>(random() >> 8) * 0x1p-23f - 1.0f; };
    std::vector<Boid> boids(flock.boids);
    for (Boid& b : boids) {
        b = {0.85f * half_width * number(), 0.85f * number(), 0.5f * number(), 0.5f * number()};
    }
    return boids;
}

vkf::Program compile_rules(const vkf::Device& device, const Flock& flock, const vkf::CompileOptions& options) {
    vkf::Graph g;
    g.output("weights", describe(g, flock));
    return device.compile(g, LayerWeights().load(device), options);
}

vkf::Program compile_teacher(const vkf::Device& device, const Flock& flock, const vkf::CompileOptions& options) {
    vkf::Graph g;
    describe(g, flock);
    return device.compile(g, LayerWeights().load(device), options);
}

double difference_from_rules(const Flock& flock, std::span<const float> x, std::span<const float> y) {
    double largest = 0;
    for (std::uint32_t i = 0; i < flock.boids; ++i) {
        const float* own = &x[i * kWidth];
        double acceleration[2] = {};
        for (std::uint32_t rule = 0; rule < kRules; ++rule) {
            double sum = 0, seen[2] = {};
            for (std::uint32_t j = 0; j < flock.boids; ++j) {
                if (!sees(flock, rule, i, j)) {
                    continue;
                }
                const float* other = &x[j * kWidth];
                const double dx = static_cast<double>(own[0]) - other[0], dy = static_cast<double>(own[1]) - other[1];
                const RuleNumbers& r = kNumbers[rule];
                const double near = std::exp((i == j ? 0 : r.score) - (dx * dx + dy * dy) / (2 * r.sigma * r.sigma));
                sum += near;
                for (std::uint32_t axis = 0; axis < 2; ++axis) {
                    seen[axis] += near * (static_cast<double>(other[subject(rule) + axis]) - own[subject(rule) + axis]);
                }
            }
            for (std::uint32_t axis = 0; axis < 2; ++axis) {
                const double most = kNumbers[rule].limit;
                acceleration[axis] += kNumbers[rule].weight * std::clamp(seen[axis] / sum, -most, most);
            }
        }
        for (std::uint32_t axis = 0; axis < 2; ++axis) {
            const double difference = std::abs(y[i * kWidth + kAcceleration + axis] - acceleration[axis]);
            largest = difference <= largest ? largest : difference;  // a NaN stays
        }
    }
    return largest;
}

double order(std::span<const Boid> boids) {
    constexpr float kNear = 0.2f;
    double sum = 0;
    std::size_t pairs = 0;
    for (const Boid& a : boids) {
        for (const Boid& b : boids) {
            if (&a != &b && std::hypot(a.x - b.x, a.y - b.y) < kNear) {
                const double speeds = static_cast<double>(std::hypot(a.vx, a.vy)) * std::hypot(b.vx, b.vy);
                sum += (static_cast<double>(a.vx) * b.vx + static_cast<double>(a.vy) * b.vy) / std::max(speeds, 1e-12);
                ++pairs;
            }
        }
    }
    return pairs == 0 ? 0 : sum / static_cast<double>(pairs);
}
