// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "models/decoder_model.h"
#include "models/files/parameters.h"

namespace vkf {

/// What was read from config.json. Throws Error for a model that read_decoder() did not give.
const DecoderFamily& family_of(const DecoderModel& model);
/// DecoderModel::facts(). Throws likewise, before sizes are compared with those of no model.
const DecoderFacts& facts_of(const DecoderModel& model);

/// The rules of a decoder's files.
ParameterRules decoder_rules(const DecoderModel& model);

/// find_parameters() of a decoder's graph.
std::vector<Parameter> decoder_parameters(const Graph& graph, const Checkpoint& checkpoint, const DecoderModel& model,
                                          const LoadOptions& load);

}  // namespace vkf
