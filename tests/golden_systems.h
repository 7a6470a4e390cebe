// SPDX-License-Identifier: Apache-2.0
// The golden systems by name, and what several of them share.
#pragma once

#include <map>
#include <string>

#include "layers/attention.h"
#include "tests/golden_case.h"

namespace vkf::test {

using GoldenSystems = std::map<std::string, void (*)(const Device&, GoldenCase&)>;

const GoldenSystems& attention_systems();
const GoldenSystems& module_systems();
/// Single ops, with their gradients.
const GoldenSystems& op_systems();
/// Modules of Hugging Face's transformers.
const GoldenSystems& transformers_systems();
/// The systems of packed and paged sequences, and of score mods.
const GoldenSystems& sequence_systems();

/// "none", "relu", "gelu", "gelu_tanh", "silu", "tanh" or "sigmoid".
Activation activation_of(const std::string& name);
/// Reads "interleaved" or "half".
RopeLayout rope_layout_of(const std::string& name);
/// An object of the keys that model configurations have; null: none.
RopeScaling rope_scaling_of(const nlohmann::json& scaling);

struct CachedRun {
    std::int64_t prefill = 1, steps = 0;  ///< one run of so many tokens, then so many runs of one
    std::int64_t capacity = 1;
    bool sinks = false;    ///< a parameter "sinks" (H)
    bool weights = false;  ///< of the first run, as a result
};

/// Runs grouped-query attention over input "x" through one program and its cache, which another
/// reads back. head_dim must be given.
void run_cached(const Device& device, GoldenCase& c, GroupedQueryAttentionOptions options, const CachedRun& run);

}  // namespace vkf::test
