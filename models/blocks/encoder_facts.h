// SPDX-License-Identifier: Apache-2.0
// What a program that runs a text encoder needs to know about it, for every family.
#pragma once

#include <cstdint>
#include <string>

namespace vkf {

struct EncoderFacts {
    std::string model_type = {};  ///< name of the family, as config.json says
    std::int64_t vocab_size = 0, hidden_size = 0;
    std::int64_t max_tokens = 0;  ///< most tokens of a text
    /// Tokens that sentence-transformers cuts a text to, special ones included; 0: not told.
    std::int64_t cut_tokens = 0;
    bool lower_case = false;  ///< true: it makes lower case of a text before it is encoded
};

}  // namespace vkf
