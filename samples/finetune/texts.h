// SPDX-License-Identifier: Apache-2.0
// What a model is fine-tuned on: a text a line.
#pragma once

#include <vkformer/vkformer.h>

#include <cstdint>
#include <filesystem>
#include <vector>

using Texts = std::vector<std::vector<std::int32_t>>;

/// Reads a file of token ids with spaces between, a text a line; empty lines are left out. Throws
/// vkf::Error naming file and line for what is no id of the model, and for a text of less than two
/// ids.
Texts read_id_lines(const std::filesystem::path& file, const vkf::DecoderFacts& facts);
/// Reads a file of text, which the model's tokenizer makes ids of, with the tokens that begin and
/// end a text where the model has them; empty lines are left out. Throws vkf::Error naming file
/// and line, or what the folder lacks.
Texts read_text_lines(const std::filesystem::path& file, const std::filesystem::path& model,
                      const vkf::DecoderFacts& facts);
/// Cuts texts to `most` tokens, and returns how many were longer.
std::size_t cut(Texts& texts, std::int64_t most);
