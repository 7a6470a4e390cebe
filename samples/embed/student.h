// SPDX-License-Identifier: Apache-2.0
// A network that knows nothing at first and can learn how to steer: each boid attends to all others
// and makes two numbers of what it saw.
#pragma once

#include "boids.h"

/// The parameters, at random, and what the optimizer remembers of them. Programs that are compiled
/// with this state fly and learn by the same parameters.
vkf::State make_student(const vkf::Device& device, const Flock& flock);

/// The student's own compile_rules(): the same inputs and outputs.
vkf::Program compile_student(const vkf::Device& device, const Flock& flock, const vkf::CompileOptions& options);

/// One step of training: forward, backward and update. Input "moment" (1, boids, 16) is what the
/// rules' layer gives: the flock, and how it should steer. Output "errors" (2): the mean squares of
/// what the student's steering lacks, which is the loss, and of the steering itself. Symbol "step"
/// counts from 0.
vkf::Program compile_lesson(const vkf::Device& device, const Flock& flock, const vkf::CompileOptions& options);
