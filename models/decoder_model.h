// SPDX-License-Identifier: Apache-2.0
// A decoder-only Transformer as a Hugging Face config.json describes it, of any family in
// models/families.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "../runtime/base/export.h"
#include "blocks/decoder_facts.h"
#include "files/checkpoint.h"

namespace vkf {

class DecoderFamily;

/// A model is cheap to copy, and immutable. One that read_decoder() did not give is of no use:
/// whatever takes it throws Error.
class VKF_API DecoderModel {
public:
    const DecoderFacts& facts() const noexcept { return facts_; }

private:
    friend DecoderModel read_decoder(std::string_view text, const std::string& file);
    friend DecoderModel read_decoder(const Checkpoint& checkpoint);
    friend const DecoderFamily& family_of(const DecoderModel& model);

    std::shared_ptr<const DecoderFamily> family_;
    DecoderFacts facts_;
};

/// Reads config.json, of today's generation (rope_parameters) or the one before (rope_theta,
/// rope_scaling). Throws Error, its where() being `file`, for a model_type that no family has, for
/// an unknown field, and for a value that would change the numbers and is not supported.
VKF_API DecoderModel read_decoder(std::string_view text, const std::string& file);
/// Reads a checkpoint's. Its generation_config.json, where there is one, says which ids begin and
/// end a text; where neither file does, transformers' default of the family holds. What else it
/// says of an answer is not obeyed: DecoderFacts::not_obeyed.
VKF_API DecoderModel read_decoder(const Checkpoint& checkpoint);

}  // namespace vkf
