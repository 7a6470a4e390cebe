// SPDX-License-Identifier: Apache-2.0
// GPT-2's visible characters for bytes (Radford et al. 2019): printable Latin-1 bytes are
// themselves, the other 68 U+0100 and on.
#pragma once

#include <string>
#include <string_view>

namespace vkf::text {

/// Turns each byte into its character.
std::string bytes_to_characters(std::string_view text);
/// Appends the bytes; false, and nothing is appended, where a character stands for none.
bool characters_to_bytes(std::string_view characters, std::string& bytes);

}  // namespace vkf::text
