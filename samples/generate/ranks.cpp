// SPDX-License-Identifier: Apache-2.0
#include "ranks.h"

#include <algorithm>
#include <cstdio>
#include <span>

#include "choice.h"
#include "measure.h"

#ifdef SAMPLE_WITH_MPI
#include <vkformer/mpi.h>
#endif

namespace {

/// What a rank knows of its own device.
struct OfRank {
    double step, chunk;  ///< seconds
    std::int32_t one_fits, tensor_fits;
};

std::vector<OfRank> gathered(vkf::Communicator& ranks, const OfRank& mine) {
    std::vector<OfRank> all(static_cast<std::size_t>(ranks.ranks()));
    all[static_cast<std::size_t>(ranks.rank())] = mine;
    const std::vector<std::uint64_t> bytes(all.size(), sizeof(OfRank));
    ranks.all_gather(std::as_writable_bytes(std::span(all)), bytes);
    return all;
}

}  // namespace

Ranks::Ranks(const std::string& parallel)
    : parallel_(parallel), split_(parallel == "layers" ? vkf::Split::layers : vkf::Split::tensor) {
    if (parallel.empty()) {
        return;
    }
#ifdef SAMPLE_WITH_MPI
    communicator_ = std::make_shared<vkf::Communicator>(vkf::mpi_transport());
#else
    throw vkf::Error("this build has no MPI (Debian and Ubuntu: libopenmpi-dev)", "--" + parallel + "-parallel");
#endif
}

bool Ranks::settle(const vkf::Device& device, const vkf::DecoderFacts& facts, const Work& work,
                   const std::function<vkf::ModelMemory(bool together)>& memory) {
    const bool automatic = parallel_ == "auto";
    if (!communicator_ || communicator_->ranks() == 1 || parallel_ == "tensor") {
        return true;
    }
    const auto prompt = static_cast<std::int64_t>(work.prompt), chunk = std::min(work.chunk, prompt);
    OfRank mine{0, 0, 0, 1};
    double numbers = 0;
    try {
        const vkf::ModelMemory whole = memory(false);
        mine.one_fits = whole.total() <= device.capabilities().device_memory;
        numbers = static_cast<double>(whole.weights) / sizeof(float);
    } catch (const vkf::Error& e) {
        std::fprintf(stderr, "%sone device cannot do it: %s\n", name().c_str(), e.what());
    }
    if (automatic) {
        try {
            const vkf::ModelMemory part = memory(true);
            mine.tensor_fits = part.total() <= device.capabilities().device_memory;
            numbers = std::max(numbers, static_cast<double>(part.weights) / sizeof(float));
        } catch (const vkf::Error& e) {
            mine.tensor_fits = 0;
            std::fprintf(stderr, "%stensor parallel cannot be: %s\n", name().c_str(), e.what());
        }
    }
    constexpr double kLimitSeconds = 10, kMeasuringSeconds = 60;
    communicator_->limit(kMeasuringSeconds);
    // One rank after the other, for they may be on one machine.
    for (int r = 0; r < communicator_->ranks(); ++r) {
        if (r == communicator_->rank()) {
            const DeviceSpeed speed = measure_device(device, chunk);
            mine.step = numbers * speed.step;
            mine.chunk = numbers * speed.chunk;
        }
        communicator_->agree("turn", "");
    }
    Measured m{.layers = static_cast<std::int64_t>(facts.layers.size()),
               .width = facts.width,
               .chunk_tokens = chunk,
               .chunks = (prompt + chunk - 1) / chunk,
               .steps = work.most_answers};
    for (const OfRank& rank : gathered(*communicator_, mine)) {
        m.step.push_back(rank.step);
        m.chunk.push_back(rank.chunk);
        m.one_fits = m.one_fits && rank.one_fits != 0;
        m.tensor_fits = m.tensor_fits && rank.tensor_fits != 0;
    }
    if (automatic) {
        const LinkSpeed link = measure_link(*communicator_);
        m.latency = link.latency;
        m.rate = link.rate;
    }
    communicator_->limit(kLimitSeconds);
    const Choice choice = choose(m);
    // what differs less is the noise of measuring
    const bool alike = *std::min_element(choice.speeds.begin(), choice.speeds.end()) > 0.8;
    speeds_ = alike ? std::vector<double>() : choice.speeds;
    if (!automatic) {
        return true;
    }
    split_ = choice.way == Way::layers ? vkf::Split::layers : vkf::Split::tensor;
    if (first()) {
        std::fprintf(stderr, "%s\n", choice.why.c_str());
    }
    if (choice.way != Way::one) {
        return true;
    }
    const bool own = communicator_->rank() == choice.fastest;
    communicator_ = nullptr;
    speeds_.clear();
    return own;
}

std::string Ranks::name() const {
    return communicator_ ? "rank " + std::to_string(communicator_->rank()) + " of " +
                               std::to_string(communicator_->ranks()) + ": "
                         : "";
}

Ranks::Next Ranks::agreed(Next mine) const {
    if (!communicator_) {
        return mine;
    }
    std::vector<Next> all(static_cast<std::size_t>(communicator_->ranks()));
    all[static_cast<std::size_t>(communicator_->rank())] = mine;
    const std::vector<std::uint64_t> bytes(all.size(), sizeof(Next));
    communicator_->all_gather(std::as_writable_bytes(std::span(all)), bytes);
    Next next{all.front().token, 0};
    for (const Next& n : all) {
        next.stop |= n.stop;
    }
    return next;
}
