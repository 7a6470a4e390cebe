// SPDX-License-Identifier: Apache-2.0
// A decoder whose layers lie one behind the other over ranks: which of them are this rank's, and
// what ranks give each other.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "models/decoder_batch.h"
#include "models/decoder_plan.h"
#include "runtime/graph/shard.h"

namespace vkf {

/// What happens between ranks around each run. Does nothing for a decoder that has all layers.
class LayerSplit {
public:
    explicit LayerSplit(const DecoderPlan& plan);

    /// True for the rank that gets tokens, and the one that has answers.
    bool first() const noexcept { return first_; }
    bool last() const noexcept { return last_; }
    /// Layers of this rank.
    std::vector<LayerCache> layers() const;

    /// Before a run over `tokens` tokens in all: gets the hidden states of the rank before.
    void receive(Program& program, std::size_t tokens);
    /// Behind it: gives the next rank what it goes on with.
    void send(Program& program, std::size_t tokens);
    /// Gives every rank the answers of the last, in vectors of the right sizes.
    void share(DecoderAnswers& answers);
    void share(std::vector<float>& logits);

private:
    int last_rank() const { return options_->communicator->ranks() - 1; }
    void share(std::span<std::byte> numbers);

    const DecoderFacts* facts_;
    const DecoderOptions* options_;
    Part layers_;
    bool first_, last_, apart_;
    std::vector<float> hidden_;
    std::vector<std::byte> message_;
};

}  // namespace vkf
