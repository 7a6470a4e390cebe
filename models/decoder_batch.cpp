// SPDX-License-Identifier: Apache-2.0
#include "models/decoder_batch.h"

#include <algorithm>

#include "models/blocks/token_ids.h"

namespace vkf {

DecoderBatch::DecoderBatch(const DecoderPlan& plan) : facts_(plan.model().facts()), options_(plan.options()) {}

void DecoderBatch::check_prompt(const std::vector<std::int32_t>& tokens) const {
    if (tokens.empty()) {
        throw Error("the prompt is empty", kDecoder);
    }
    if (tokens.size() > static_cast<std::size_t>(options_.max_tokens)) {
        throw Error("a prompt of " + std::to_string(tokens.size()) + " tokens; at most " +
                        std::to_string(options_.max_tokens) + " fit",
                    kDecoder);
    }
    std::for_each(tokens.begin(), tokens.end(), [&](std::int32_t id) { check_token(id, facts_.vocab_size, kDecoder); });
}

void DecoderBatch::begin(Prompts prompts) {
    if (prompts.empty() || prompts.size() > static_cast<std::size_t>(options_.max_batch)) {
        throw Error("a batch of " + std::to_string(prompts.size()) + "; 1 to " + std::to_string(options_.max_batch) +
                        " are possible",
                    kDecoder);
    }
    std::size_t longest = 0;
    for (const auto& p : prompts) {
        check_prompt(p);
        longest = std::max(longest, p.size());
    }
    finished_ = false;
    length_ = 0;
    longest_prompt_ = longest;
    padding_.clear();
    const auto row = static_cast<std::size_t>(options_.max_tokens);
    keys_.assign(prompts.size() * row, 1);
    for (std::size_t b = 0; b < prompts.size(); ++b) {
        padding_.push_back(longest - prompts[b].size());
        std::fill_n(keys_.begin() + static_cast<std::ptrdiff_t>(b * row), padding_.back(), 0);
    }
}

std::vector<std::int32_t> DecoderBatch::tokens(Prompts prompts, std::size_t first, std::size_t count) const {
    std::vector<std::int32_t> out;
    for (std::size_t b = 0; b < size(); ++b) {
        for (std::size_t i = first; i < first + count; ++i) {
            out.push_back(i < padding_[b] ? 0 : prompts[b][i - padding_[b]]);
        }
    }
    return out;
}

void DecoderBatch::check_step(std::span<const std::int32_t> tokens) const {
    if (!finished_) {
        throw Error("a step follows a prompt that was read to its end", kDecoder);
    }
    if (tokens.size() != size()) {
        throw Error(std::to_string(tokens.size()) + " tokens for " + std::to_string(size()) + " sequences", kDecoder);
    }
    if (room() < 1) {
        throw Error("the cache is full: it holds " + std::to_string(options_.max_tokens) + " tokens", kDecoder);
    }
    for (const std::int32_t id : tokens) {
        check_token(id, facts_.vocab_size, kDecoder);
    }
}

std::span<const std::int32_t> DecoderBatch::next_positions(std::size_t count) {
    positions_.clear();
    for (const std::size_t padding : padding_) {
        for (std::size_t i = 0; i < count; ++i) {
            const std::int64_t at = length_ + static_cast<std::int64_t>(i) - static_cast<std::int64_t>(padding);
            positions_.push_back(static_cast<std::int32_t>(std::max<std::int64_t>(at, 0)));
        }
    }
    return positions_;
}

}  // namespace vkf
