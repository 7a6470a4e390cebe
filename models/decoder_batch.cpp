// SPDX-License-Identifier: Apache-2.0
#include "models/decoder_batch.h"

#include <algorithm>
#include <utility>

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
    check_tokens(tokens);
}

void DecoderBatch::check_tokens(std::span<const std::int32_t> tokens) const {
    for (const std::int32_t id : tokens) {
        check_token(id, facts_.vocab_size, kDecoder);
    }
}

void DecoderBatch::check_finished(const char* what) const {
    if (!finished_) {
        throw Error(std::string(what) + " a prompt that was read to its end", kDecoder);
    }
}

void DecoderBatch::pad(std::vector<std::size_t> padding) {
    padding_ = std::move(padding);
    const auto row = static_cast<std::size_t>(options_.max_tokens);
    keys_.assign(size() * row, 1);
    for (std::size_t b = 0; b < size(); ++b) {
        std::fill_n(keys_.begin() + static_cast<std::ptrdiff_t>(b * row), padding_[b], 0);
    }
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
    std::vector<std::size_t> padding;
    for (const auto& p : prompts) {
        padding.push_back(longest - p.size());
    }
    pad(std::move(padding));
}

void DecoderBatch::restore(std::int64_t length, std::vector<std::size_t> padding) {
    finished_ = false;
    length_ = length;
    pad(std::move(padding));
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
    check_finished("a step follows");
    if (tokens.size() != size()) {
        throw Error(std::to_string(tokens.size()) + " tokens for " + std::to_string(size()) + " sequences", kDecoder);
    }
    if (room() < 1) {
        throw Error("the cache is full: it holds " + std::to_string(options_.max_tokens) + " tokens", kDecoder);
    }
    check_tokens(tokens);
}

std::size_t DecoderBatch::check_append(std::span<const std::int32_t> tokens) const {
    check_finished("more tokens follow");
    if (tokens.empty() || tokens.size() % size() != 0) {
        throw Error(std::to_string(tokens.size()) + " tokens for " + std::to_string(size()) +
                        " sequences; each takes as many, at least one",
                    kDecoder);
    }
    const std::size_t count = tokens.size() / size();
    if (count > static_cast<std::size_t>(room())) {
        throw Error(std::to_string(count) + " more tokens; " + std::to_string(room()) + " of the " +
                        std::to_string(options_.max_tokens) + " that the cache holds are free",
                    kDecoder);
    }
    check_tokens(tokens);
    return count;
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
