// SPDX-License-Identifier: Apache-2.0
// What update() and clip_grad_norm() ask of their arguments, for those who must know before they
// add anything to a graph.
#pragma once

#include <string>
#include <vector>

#include "runtime/graph/graph.h"

namespace vkf {
struct AdamW;
struct Schedule;
struct Sgd;
}  // namespace vkf

namespace vkf::support {

void check_optimizer(const AdamW& optimizer);
void check_optimizer(const Sgd& optimizer);
void check_schedule(const char* op, const Schedule& schedule);
void check_max_norm(float max_norm);

/// Throws Error naming a parameter of another graph, one that is no whole state of fp32, is updated
/// already, or is given twice.
void check_parameters(const char* op, const Graph& graph, const std::vector<Value>& parameters);
/// The name of the state that a parameter is.
std::string parameter_name(const Value& parameter);

/// The state in which an optimizer remembers something of a parameter.
std::string moments_name(const std::string& parameter);
/// True where it remembers something.
bool has_moments(const AdamW& optimizer);
bool has_moments(const Sgd& optimizer);
/// Throws Error where the graph has another use for the name of a state that is made beside one of
/// the parameters: one of them has it, or another that is updated, a node reads what has it, or
/// that is no state.
void check_made_state(const char* op, const Graph& graph, const std::string& name,
                      const std::vector<Value>& parameters);

}  // namespace vkf::support
