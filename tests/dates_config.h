// SPDX-License-Identifier: Apache-2.0
// The model of samples/dates.
#pragma once

#include "models/encoder_decoder.h"

namespace vkf::test {

inline EncoderDecoderConfig dates_config() {
    EncoderDecoderConfig c;
    c.source_vocabulary = c.target_vocabulary = 62;
    c.d_model = 64;
    c.nhead = 4;
    c.num_encoder_layers = c.num_decoder_layers = 2;
    c.dim_feedforward = 256;
    c.embedding_scale = 8;
    c.max_source = 40;
    c.max_target = 12;
    return c;
}

}  // namespace vkf::test
