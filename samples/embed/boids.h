// SPDX-License-Identifier: Apache-2.0
// Reynolds' boids (1987) as one Transformer layer with weights set by hand: each rule is a head,
// whose scores fall with the square of the distance, and the feed-forward half limits what each
// rule may say.
#pragma once

#include <vkformer/vkformer.h>

#include <cstdint>
#include <span>
#include <vector>

struct Boid {
    float x, y, vx, vy;
};

/// The rules, in the order of the heads.
enum Rule : std::uint32_t { kAlignment, kCohesion, kSeparation, kFear, kRules };

// Numbers of a token: what simulate.comp writes, then what the heads saw, then the acceleration.
constexpr std::uint32_t kPosition = 0, kVelocity = 2, kSquare = 4, kSeen = 6, kAcceleration = 14, kWidth = 16;

/// A flock whose last `hunters` members are feared by the others.
struct Flock {
    std::uint32_t boids = 0, hunters = 0;
};

/// Places and velocities at the start, the same each time, in a world of this half width and height
/// 2.
std::vector<Boid> start(const Flock& flock, float half_width);

/// Compiles the layer of rules: input "x" (1, boids, 16), whose first five numbers are position,
/// velocity and half the square of the position, the rest 0; outputs "y" (1, boids, 16), which
/// keeps those five, and where 14 and 15 are the acceleration, and "weights" (1, heads, boids,
/// boids).
vkf::Program compile_rules(const vkf::Device& device, const Flock& flock, const vkf::CompileOptions& options);
/// The same layer without the output "weights".
vkf::Program compile_teacher(const vkf::Device& device, const Flock& flock, const vkf::CompileOptions& options);

/// The largest difference between the layer's accelerations and the rules themselves, computed from
/// the same tokens in double precision.
double difference_from_rules(const Flock& flock, std::span<const float> x, std::span<const float> y);

/// How alike the headings of neighbours are: the mean cosine between those of boids that are near
/// each other. Boids at random have 0, a flock close to 1.
double order(std::span<const Boid> boids);
