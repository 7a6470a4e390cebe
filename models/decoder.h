// SPDX-License-Identifier: Apache-2.0
// Runs a decoder: prompts in chunks, then a token a step, with caches of keys and values.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "../runtime/device/device.h"
#include "../runtime/device/program.h"
#include "adapter.h"
#include "decoder_plan.h"

namespace vkf {

/// Likely next tokens, best first.
struct Candidates {
    std::span<const std::int32_t> tokens;
    std::span<const float> logits;
    std::int64_t vocab_size = 0;  ///< tokens that there are; 0: not told
};

/// A decoder is compiled for a device. It must not be used by several threads at once.
class VKF_API Decoder {
public:
    /// Loads the plan's weights, and compiles its programs meanwhile. Throws Error before it
    /// allocates anything where the plan's memory does not fit the device, and as load_decoder()
    /// does.
    Decoder(const Device& device, const Checkpoint& checkpoint, const DecoderPlan& plan);
    /// Takes weights that are loaded already. Throws Error naming one that lies otherwise than
    /// planned.
    Decoder(const Device& device, const Weights& weights, const DecoderPlan& plan);
    /// Makes a plan of its own.
    Decoder(const Device& device, const Weights& weights, const DecoderModel& model,
            const DecoderOptions& options = {});
    Decoder(Decoder&&) noexcept;
    Decoder& operator=(Decoder&&) noexcept;
    ~Decoder();

    /// Forgets what the cache holds and reads prompts, of lengths of their own, in chunks. What a
    /// sequence answers does not depend on the others, but for what a cache in fewer bits rounds:
    /// rotary keys are turned by their row, where prompts that are shorter than the longest begin
    /// later, and rounded then. Throws Error for an empty prompt, one that does not fit, or a token
    /// outside the vocabulary.
    void prompt(std::span<const std::vector<std::int32_t>> prompts);
    /// Reads the prompt of one sequence.
    void prompt(const std::vector<std::int32_t>& tokens);
    /// Reads more tokens of each sequence, (batch, count), behind what the cache holds: the next
    /// turn of a chat, or what follows a prompt that was restored. Reads in chunks, and answers, as
    /// prompt() does. Throws Error where no prompt was read to its end, where not every sequence
    /// gets as many, at least one, where they do not fit, or for a token outside the vocabulary.
    /// Where it throws, also DecoderOptions::progress, everything is as it was before, unless the
    /// model has sliding windows and a chunk was read: then prompt() begins anew.
    void append(std::span<const std::int32_t> tokens);
    /// One more token of each sequence, behind prompt(), score() or another step: one submission,
    /// one wait, and from the second step on no allocation, of the host's neither. Where it throws,
    /// the token is not read.
    void step(std::span<const std::int32_t> tokens);

    /// The likeliest next token of each sequence, after prompt() and step(). These throw Error
    /// where its logit is not finite, as where weights are damaged. Empty then, while a prompt is
    /// read, and after score().
    std::span<const std::int32_t> next() const noexcept;
    /// The `candidates` likeliest of a sequence.
    Candidates candidates(std::size_t sequence) const;
    /// Tokens that may follow before the cache is full.
    std::int64_t room() const noexcept;

    /// Takes in an adapter, in place of the one before, without compiling anything; needs
    /// DecoderOptions::lora. What the cache holds is forgotten. Throws Error as Adapter::write()
    /// does, and the adapter before stays then. Where that had written a part, nothing runs until
    /// this or clear_adapter() succeeds.
    void set_adapter(const Adapter& adapter);
    /// Answers as the model alone again. What the cache holds is forgotten.
    void clear_adapter();

    /// Writes what the cache holds, and no more of it, to a safetensors file that appears whole or
    /// not at all. Throws Error naming the file where it cannot be written.
    void save_cache(const std::filesystem::path& file) const;
    /// Goes on from a file of save_cache() as the decoder that wrote it would: with the same bits
    /// where its max_tokens and chunk were the same, else within the tolerance of docs/numerics.md,
    /// since the kernels of attention depend on the rows of a cache and of a run. That one may have
    /// had another max_batch, max_tokens or chunk: what is in the file must fit, and so must a ring
    /// that has been filled. It may have had more candidates. The file says nothing of the weights,
    /// nor of an adapter, which must be the same. Throws Error naming the file, the
    /// tensor and the sizes where the file is of another model, of another type of cache, does not
    /// fit, or is damaged; the decoder is as before then.
    void restore_cache(const std::filesystem::path& file);

    /// Logits (tokens, vocabulary) after each token of a text, which the cache then holds. Needs
    /// DecoderOptions::score.
    std::vector<float> score(const std::vector<std::int32_t>& tokens);

    const DecoderModel& model() const noexcept;
    const ModelMemory& memory() const noexcept;
    const Weights& weights() const noexcept;
    Program& prompt_program() noexcept;
    Program& step_program() noexcept;

private:
    struct Parts;
    std::unique_ptr<Parts> parts_;
};

}  // namespace vkf
