// SPDX-License-Identifier: Apache-2.0
// The forward pass of a decoder over whole texts, without caches: what is trained.
#pragma once

#include "../ops/ops.h"
#include "decoder_model.h"

namespace vkf {

/// Gives the logits (batch, tokens, vocabulary) after each of the tokens (batch, tokens) i32, each
/// text from its beginning. Texts of a batch that are shorter may be filled up behind with any
/// token: none sees what comes later. Parameters are weights under the checkpoint's names. Throws
/// Error where texts may be longer than the model takes.
VKF_API Value decoder_logits(Value tokens, const DecoderModel& model);

}  // namespace vkf
