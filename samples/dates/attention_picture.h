// SPDX-License-Identifier: Apache-2.0
// Attention weights as a picture: one panel per head, output characters against source characters.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

struct AttentionPicture {
    std::string title;                // UTF-8, as are the labels
    std::vector<std::string> source;  // one label per column: a character, or a token such as <eos>
    std::vector<std::string> target;  // one label per row
    int heads = 0;
    std::vector<float> weights;  // (heads, target, source)
};

/// Writes a self-contained SVG. Throws vkf::Error if the sizes disagree, and naming the file where
/// it cannot be written.
void write_svg(const std::filesystem::path& path, const AttentionPicture& picture);
