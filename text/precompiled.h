// SPDX-License-Identifier: Apache-2.0
// SentencePiece's table of replacements ("precompiled_charsmap"), as Hugging Face's `tokenizers`
// applies it.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace vkf::text {

/// `base64`: 4 bytes that say how long the trie is, the trie (a double array of 32-bit words, Aoe
/// 1989, in Darts-clone's form) and the replacements, each ended by a 0 byte; numbers are
/// little-endian. Throws Error where it is none of these.
std::function<std::string(std::string)> make_precompiled(std::string_view base64);
/// Throws Error where those bytes are not what they should be, so that a reader could leave them.
/// Empty ones are good.
void check_charsmap(std::string_view bytes);

}  // namespace vkf::text
