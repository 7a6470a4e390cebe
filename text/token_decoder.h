// SPDX-License-Identifier: Apache-2.0
// From tokens back to text: tokenizer.json's "decoder".
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "text/json.h"

namespace vkf::text {

using TokenDecoder = std::function<std::vector<std::string>(std::vector<std::string>)>;

/// Makes a decoder of tokens, which is never empty: null gives one that puts spaces between. The
/// text is what it gives, joined. Throws Error naming a kind that is not known.
TokenDecoder make_token_decoder(const Json& part);

}  // namespace vkf::text
