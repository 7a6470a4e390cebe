// SPDX-License-Identifier: Apache-2.0
// What a chat template writes for one question: followed through its statements, and refused where
// that depends on more than is known.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "text/chat_value.h"
#include "text/jinja.h"

namespace vkf::text {

struct ChatWritten {
    ChatText text;
    std::optional<std::string> raised;  ///< what the template says where it refuses these messages
};

/// Follows a template for a user's message, behind a system message where `system` is set. `bos`
/// is its bos_token. Throws Error, which says why, where the text is not known before the messages
/// are, or takes more of Jinja than is followed.
ChatWritten follow_template(const std::vector<JinjaPiece>& pieces, const std::string& bos, bool system);

}  // namespace vkf::text
