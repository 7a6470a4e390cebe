// SPDX-License-Identifier: Apache-2.0
// What a Trainer adds to the graph of a loss: gradients, their sums over micro-batches and ranks,
// clipping and updates; and what it asks of these before.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/graph/graph.h"

namespace vkf {

struct TrainerOptions;

namespace support {

inline constexpr const char* kTrainer = "Trainer";
/// The state that keeps a Trainer's progress in a checkpoint; no node reads it.
inline constexpr const char* kProgress = "trainer.progress";
inline constexpr std::int64_t kMostSteps = std::int64_t{1} << 30;
inline constexpr const char* kMicroBatch = "micro_batch";
/// Inputs of the step's own: what the loss is multiplied by, and what gradients are divided by.
inline constexpr const char* kLossScale = "loss_scale";
inline constexpr const char* kDivisor = "divisor";

/// Names and shapes.
std::string described(const std::vector<Value>& parameters);
/// What ranks must have alike for their parameters to stay so.
std::string described(const TrainerOptions& options, const std::vector<float>& decay_to);

bool is_scaled(const TrainerOptions& options);
/// What each parameter is drawn to.
std::vector<float> decays(const std::vector<Value>& parameters, const TrainerOptions& options);
/// The state that adds up a parameter's gradient over micro-batches.
std::string sum_name(const std::string& parameter);

/// Throws where there is no step of that kind, before the graph has anything of one.
void check_step(const Graph& graph, const Value& loss, const std::vector<Value>& parameters,
                const TrainerOptions& options);
/// Completes the graph of a loss, and describes the updates in `updates` where these are apart.
void complete_step(Graph& graph, Value loss, const std::vector<Value>& parameters, const TrainerOptions& options,
                   const std::vector<float>& decay_to, Graph* updates);

}  // namespace support

}  // namespace vkf
