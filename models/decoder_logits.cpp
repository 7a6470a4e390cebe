// SPDX-License-Identifier: Apache-2.0
#include "models/decoder_logits.h"

#include "models/blocks/text_run.h"
#include "models/decoder_name.h"
#include "models/decoder_parameters.h"
#include "models/families/family.h"

namespace vkf {

Value decoder_logits(Value tokens, const DecoderModel& model) {
    if (tokens.rank() != 2 || tokens.dtype() != DType::i32) {
        throw Error(tokens.str() + " are no tokens (batch, tokens) of I32", kDecoder);
    }
    const DecoderFacts& facts = facts_of(model);
    const std::int64_t most = tokens.graph().max_of(tokens.size(1));
    if (most > facts.max_positions) {
        throw Error(tokens.str() + " may have texts of " + std::to_string(most) + " tokens; the model takes " +
                        std::to_string(facts.max_positions),
                    kDecoder);
    }
    TextRun run(tokens, most, facts.layers);
    return family_of(model).describe(run, {0, static_cast<std::int64_t>(facts.layers.size())});
}

}  // namespace vkf
