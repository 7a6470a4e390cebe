// SPDX-License-Identifier: Apache-2.0
// What whoever runs a text encoder needs to know about it, whatever its family.
#pragma once

#include <cstdint>
#include <string>

namespace vkf {

struct EncoderFacts {
    std::string model_type = {};  ///< as config.json says
    std::int64_t vocab_size = 0, hidden_size = 0;
    std::int64_t max_tokens = 0;  ///< of a text
};

}  // namespace vkf
