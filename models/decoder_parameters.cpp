// SPDX-License-Identifier: Apache-2.0
#include "models/decoder_parameters.h"

#include "models/families/family.h"

namespace vkf {

ParameterRules decoder_rules(const DecoderModel& model) {
    ParameterRules rules = family_of(model).parameters();
    rules.model_type = model.facts().model_type;
    return rules;
}

std::vector<Parameter> decoder_parameters(const Graph& graph, const Checkpoint& checkpoint, const DecoderModel& model,
                                          const LoadOptions& load) {
    return find_parameters(graph, checkpoint, decoder_rules(model), load);
}

}  // namespace vkf
