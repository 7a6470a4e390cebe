// SPDX-License-Identifier: Apache-2.0
#include "ranks.h"

#include <algorithm>
#include <cstdio>
#include <span>

#include "measure.h"

#ifdef SAMPLE_WITH_MPI
#include <vkformer/mpi.h>
#endif

namespace {

/// What each rank has.
template <class OfRank>
std::vector<OfRank> gathered(vkf::Communicator& ranks, const OfRank& mine) {
    std::vector<OfRank> all(static_cast<std::size_t>(ranks.ranks()));
    all[static_cast<std::size_t>(ranks.rank())] = mine;
    const std::vector<std::uint64_t> bytes(all.size(), sizeof(OfRank));
    ranks.all_gather(std::as_writable_bytes(std::span(all)), bytes);
    return all;
}

/// What of the model a rank's device has room for.
struct Fitting {
    double whole = 0, part = 0;  ///< numbers of weights, alone and of its layers
    std::int32_t one = 0, tensor = 0, layers = 0;
};

}  // namespace

Ranks::Ranks(const std::string& parallel, const std::vector<double>& speeds, double limit)
    : parallel_(parallel),
      split_(parallel == "layers" ? vkf::Split::layers : vkf::Split::tensor),
      speeds_(speeds),
      limit_(limit) {
    if (parallel.empty()) {
        return;
    }
#ifdef SAMPLE_WITH_MPI
    communicator_ = std::make_shared<vkf::Communicator>(vkf::mpi_transport());
    communicator_->limit(limit);
#else
    throw vkf::Error("this build has no MPI (Debian and Ubuntu: libopenmpi-dev)", "--" + parallel + "-parallel");
#endif
}

Measured Ranks::measured_devices(const vkf::Device& device, const vkf::DecoderFacts& facts, const Work& work) const {
    const auto prompt = static_cast<std::int64_t>(work.prompt), chunk = std::min(work.chunk, prompt);
    DeviceSpeed mine{};
    // One rank after the other, for they may be on one machine.
    for (int r = 0; r < communicator_->ranks(); ++r) {
        if (r == communicator_->rank()) {
            mine = measure_device(device, chunk);
        }
        communicator_->agree("turn", "");
    }
    Measured m{.layers = static_cast<std::int64_t>(facts.layers.size()),
               .width = facts.width,
               .chunk_tokens = chunk,
               .chunks = (prompt + chunk - 1) / chunk,
               .steps = work.most_answers};
    for (const DeviceSpeed& speed : gathered(*communicator_, mine)) {
        m.step.push_back(speed.step);
        m.chunk.push_back(speed.chunk);
    }
    return m;
}

void Ranks::find_what_fits(const vkf::Device& device, const std::function<vkf::ModelMemory(bool together)>& memory,
                           Measured& m) {
    Fitting mine;
    const auto fits = [&](const char* way, bool together, double* numbers) -> std::int32_t {
        try {
            const vkf::ModelMemory planned = memory(together);
            if (numbers) {
                *numbers = static_cast<double>(planned.weights) / sizeof(float);
            }
            return planned.total() <= device.capabilities().device_memory ? 1 : 0;
        } catch (const vkf::Error& e) {
            std::fprintf(stderr, "%s%s cannot be: %s\n", name().c_str(), way, e.what());
            return 0;
        }
    };
    mine.one = fits("one device", false, &mine.whole);
    split_ = vkf::Split::tensor;
    mine.tensor = fits("tensor parallel", true, nullptr);
    split_ = vkf::Split::layers;
    mine.layers = fits("layer parallel", true, &mine.part);
    double whole = 0, parts = 0;
    for (const Fitting& of : gathered(*communicator_, mine)) {
        m.one_fits.push_back(of.one != 0);
        m.tensor_fits = m.tensor_fits && of.tensor != 0;
        m.layers_fit = m.layers_fit && of.layers != 0;
        whole = std::max(whole, of.whole);
        parts += of.part;
    }
    const double numbers = std::max(whole, parts);
    for (std::size_t r = 0; r < m.step.size(); ++r) {
        m.step[r] *= numbers;
        m.chunk[r] *= numbers;
    }
}

bool Ranks::take(const Choice& choice) {
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

bool Ranks::settle(const vkf::Device& device, const vkf::DecoderFacts& facts, const Work& work,
                   const std::function<vkf::ModelMemory(bool together)>& memory) {
    const bool automatic = parallel_ == "auto";
    if (!communicator_ || communicator_->ranks() == 1 || parallel_ == "tensor" || !speeds_.empty()) {
        return true;
    }
    constexpr double kMeasuringSeconds = 60;
    communicator_->limit(std::max(limit_, kMeasuringSeconds));
    Measured m = measured_devices(device, facts, work);
    speeds_ = speeds_of(m);
    if (!automatic) {
        communicator_->limit(limit_);
        return true;
    }
    find_what_fits(device, memory, m);
    const LinkSpeed link = measure_link(*communicator_);
    m.latency = link.latency;
    m.rate = link.rate;
    communicator_->limit(limit_);
    return take(choose(m));
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
    const std::vector<Next> all = gathered(*communicator_, mine);
    Next next{all.front().token, 0};
    for (const Next& n : all) {
        next.stop |= n.stop;
    }
    return next;
}
