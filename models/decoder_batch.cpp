// SPDX-License-Identifier: Apache-2.0
#include "models/decoder_batch.h"

#include <algorithm>

namespace vkf {

namespace {

constexpr const char* kName = "Decoder";

}  // namespace

DecoderBatch::DecoderBatch(const DecoderPlan& plan) : facts_(plan.model().facts()), options_(plan.options()) {}

void DecoderBatch::check_token(std::int32_t id) const {
    if (id < 0 || id >= facts_.vocab_size) {
        throw Error(
            "token " + std::to_string(id) + " is outside the vocabulary of " + std::to_string(facts_.vocab_size),
            kName);
    }
}

void DecoderBatch::check_prompt(const std::vector<std::int32_t>& tokens) const {
    if (tokens.empty()) {
        throw Error("the prompt is empty", kName);
    }
    if (tokens.size() > static_cast<std::size_t>(options_.max_tokens)) {
        throw Error("a prompt of " + std::to_string(tokens.size()) + " tokens; at most " +
                        std::to_string(options_.max_tokens) + " fit",
                    kName);
    }
    std::for_each(tokens.begin(), tokens.end(), [&](std::int32_t id) { check_token(id); });
}

void DecoderBatch::begin(Prompts prompts) {
    if (prompts.empty() || prompts.size() > static_cast<std::size_t>(options_.max_batch)) {
        throw Error("a batch of " + std::to_string(prompts.size()) + "; 1 to " + std::to_string(options_.max_batch) +
                        " are possible",
                    kName);
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
        throw Error("a step follows a prompt that was read to its end", kName);
    }
    if (tokens.size() != size()) {
        throw Error(std::to_string(tokens.size()) + " tokens for " + std::to_string(size()) + " sequences", kName);
    }
    if (room() < 1) {
        throw Error("the cache is full: it holds " + std::to_string(options_.max_tokens) + " tokens", kName);
    }
    for (const std::int32_t id : tokens) {
        check_token(id);
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
