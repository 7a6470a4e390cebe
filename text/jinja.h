// SPDX-License-Identifier: Apache-2.0
// Jinja templates cut in pieces, and the words of their code, as transformers sets Jinja up:
// trim_blocks and lstrip_blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace vkf::text {

/// What stands between two tags, or a tag. Comments are cut out.
struct JinjaPiece {
    enum class Kind : std::uint8_t { text, output, statement };
    Kind kind = Kind::text;
    std::string_view code;  ///< text: as it is written out; else what is between the tag's marks
    /// Of a statement that begins a block, or goes on with it: the piece that goes on with it or
    /// ends it.
    std::size_t next = 0;
};

/// A template without carriage returns, and without the line break at its end.
std::string jinja_lines(std::string_view text);

/// The pieces of a template from jinja_lines(), which must outlive them. Throws Error where a tag
/// or a block does not end, blocks are nested deeper than 64, or there is {% raw %}.
std::vector<JinjaPiece> cut_jinja(std::string_view lines);

struct JinjaToken {
    enum class Kind : std::uint8_t { end, name, number, string, sign };
    Kind kind = Kind::end;
    std::string_view text;  ///< a string's with its quotes
};

/// The token at a place of a tag's code, which moves behind it. Throws Error where a string does
/// not end.
JinjaToken next_token(std::string_view code, std::size_t& at);

/// The characters that a string stands for. Throws Error for an escape that Python does not have,
/// or that stands for no character.
std::string unescaped(std::string_view string);

/// Code or text for a message, in one line: its beginning where it is long.
std::string shown(std::string_view code);

}  // namespace vkf::text
