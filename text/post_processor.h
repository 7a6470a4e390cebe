// SPDX-License-Identifier: Apache-2.0
// The special tokens around a text: tokenizer.json's "post_processor".
#pragma once

#include <vector>

#include "text/json.h"
#include "text/model.h"

namespace vkf::text {

struct Affixes {
    std::vector<TokenId> before, after;
};

/// Throws Error naming a kind that is not known, or a template that does not hold the text once.
Affixes read_post_processor(const Json& part);

}  // namespace vkf::text
