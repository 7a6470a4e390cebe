// SPDX-License-Identifier: Apache-2.0
// Waits are shares of the limit: a rank that hangs is found first by the one next to it, which then
// names it to the others.
#include "models/layer_split.h"

#include <algorithm>
#include <array>

#include "runtime/device/program.h"

namespace vkf {

namespace {

/// How much of the limit is waited for a rank that may wait for others, `hops` in all; of so many
/// ranks the longest wait is the limit.
double share_of_limit(int hops, int ranks) { return 0.7 + 0.3 * hops / ranks; }

}  // namespace

LayerSplit::LayerSplit(const DecoderPlan& plan)
    : facts_(&plan.model().facts()),
      options_(&plan.options()),
      layers_(plan.layers()),
      first_(layers_.first == 0),
      last_(layers_.first + layers_.count == static_cast<std::int64_t>(facts_->layers.size())),
      apart_(!first_ || !last_) {}

std::vector<LayerCache> LayerSplit::layers() const {
    const auto begin = facts_->layers.begin() + layers_.first;
    return {begin, begin + layers_.count};
}

void LayerSplit::receive(Program& program, std::size_t tokens) {
    if (first_) {
        return;
    }
    Communicator& ranks = *options_->communicator;
    hidden_.resize(tokens * static_cast<std::size_t>(facts_->width));
    ranks.receive(std::as_writable_bytes(std::span(hidden_)), ranks.rank() - 1,
                  share_of_limit(ranks.rank(), ranks.ranks()));
    program.upload("hidden", std::span<const float>(hidden_));
}

void LayerSplit::send(Program& program, std::size_t tokens) {
    if (last_) {
        return;
    }
    Communicator& ranks = *options_->communicator;
    hidden_.resize(tokens * static_cast<std::size_t>(facts_->width));
    program.download("next_hidden", std::span(hidden_));
    ranks.send(std::as_bytes(std::span(hidden_)), ranks.rank() + 1,
               share_of_limit(last_rank() - ranks.rank(), ranks.ranks()));
}

void LayerSplit::share(std::span<std::byte> numbers) {
    Communicator& ranks = *options_->communicator;
    for (int r = 0; last_ && r < last_rank(); ++r) {
        ranks.send(numbers, r);
    }
    if (!last_) {
        ranks.receive(numbers, last_rank());
    }
}

void LayerSplit::share(DecoderAnswers& answers) {
    if (!apart_) {
        return;
    }
    const std::array<std::span<std::byte>, 3> all{std::as_writable_bytes(std::span(answers.next)),
                                                  std::as_writable_bytes(std::span(answers.candidate_tokens)),
                                                  std::as_writable_bytes(std::span(answers.candidate_logits))};
    message_.resize(all[0].size() + all[1].size() + all[2].size());
    auto to = message_.begin();
    for (const std::span<std::byte> part : all) {
        to = std::copy(part.begin(), part.end(), to);
    }
    share(std::span(message_));
    auto from = message_.begin();
    for (const std::span<std::byte> part : all) {
        const auto end = from + static_cast<std::ptrdiff_t>(part.size());
        std::copy(from, end, part.begin());
        from = end;
    }
}

void LayerSplit::share(std::vector<float>& logits) {
    if (apart_) {
        share(std::as_writable_bytes(std::span(logits)));
    }
}

}  // namespace vkf
