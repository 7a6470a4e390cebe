// SPDX-License-Identifier: Apache-2.0
// The texts that a decoder reads side by side: how they are padded, and how far they are read.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/decoder_name.h"
#include "models/decoder_plan.h"

namespace vkf {

/// The tokens of one text each.
using Prompts = std::span<const std::vector<std::int32_t>>;

/// The answers of the last run; all empty while a prompt is read, and after a score.
struct DecoderAnswers {
    std::vector<std::int32_t> next = {};  ///< (batch)
    std::vector<std::int32_t> candidate_tokens = {};
    std::vector<float> candidate_logits = {};  ///< both (batch, candidates)
};

/// Sequences of a batch end together: shorter ones are padded in front.
class DecoderBatch {
public:
    /// One text of a decoder of this plan, of which nothing is read yet.
    explicit DecoderBatch(const DecoderPlan& plan);

    /// Begins with these prompts, of which nothing is read yet. Throws Error for a batch, a prompt
    /// or a token that the decoder does not take.
    void begin(Prompts prompts);
    /// `count` tokens of each of these prompts from `first` on, padding included: (size, count).
    std::vector<std::int32_t> tokens(Prompts prompts, std::size_t first, std::size_t count) const;
    /// Notes that more tokens of each sequence are to be read; they end with finish().
    void resume() noexcept { finished_ = false; }
    /// Notes that the tokens of begin() or resume() are read to their end.
    void finish() noexcept { finished_ = true; }
    /// Goes back to so many tokens of each sequence, which were read to their end.
    void rewind(std::int64_t length) noexcept {
        length_ = length;
        finished_ = true;
    }
    /// Goes on behind so many tokens of each sequence, padding included, which the caches hold.
    /// They are not read to their end until finish(). The sizes must fit.
    void restore(std::int64_t length, std::vector<std::size_t> padding);
    /// Throws Error where no prompts are read to their end, where these are not one more token of
    /// each sequence, and where there is no room for it.
    void check_step(std::span<const std::int32_t> tokens) const;
    /// Checks likewise more tokens of each sequence (size, count) for append; returns their count.
    std::size_t check_append(std::span<const std::int32_t> tokens) const;
    /// Notes that so many more tokens of each sequence are read.
    void advance(std::size_t count) noexcept { length_ += static_cast<std::int64_t>(count); }

    std::size_t size() const noexcept { return padding_.size(); }
    /// Tokens in front of each sequence.
    const std::vector<std::size_t>& padding() const noexcept { return padding_; }
    bool finished() const noexcept { return finished_; }
    std::size_t longest_prompt() const noexcept { return longest_prompt_; }
    /// Tokens read of each sequence, padding included.
    std::int64_t length() const noexcept { return length_; }
    /// Tokens that may follow.
    std::int64_t room() const noexcept { return options_.max_tokens - length_; }
    /// (size, max_tokens): 1, or 0 where a sequence is padded.
    std::span<const std::int32_t> keys() const noexcept { return keys_; }
    /// (size, count): where the next tokens stand in their sequences; padding stands at 0. Valid
    /// until it is called again; allocates nothing for as many tokens as before.
    std::span<const std::int32_t> next_positions(std::size_t count);

private:
    void check_prompt(const std::vector<std::int32_t>& tokens) const;
    void check_tokens(std::span<const std::int32_t> tokens) const;
    void check_finished(const char* what) const;
    void pad(std::vector<std::size_t> padding);

    const DecoderFacts& facts_;
    const DecoderOptions& options_;
    bool finished_ = false;
    std::int64_t length_ = 0;
    std::size_t longest_prompt_ = 0;
    std::vector<std::size_t> padding_{0};  ///< tokens in front of each sequence
    std::vector<std::int32_t> keys_;
    std::vector<std::int32_t> positions_;
};

}  // namespace vkf
