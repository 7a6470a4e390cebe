// SPDX-License-Identifier: Apache-2.0
// The processes that answer together, where mpirun started several.
#pragma once

#include <vkformer/vkformer.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "choice.h"

/// The ranks of a run: one that draws and prints, and others that do what it does.
class Ranks {
public:
    /// One rank where `parallel` is empty, else those that mpirun started, which share the model
    /// out as it says: "tensor", "layers", or "auto". Throws vkf::Error in a build without MPI.
    /// `speeds` are those of the devices, where they are not to be measured; `limit` is the
    /// longest wait for another rank, in seconds.
    explicit Ranks(const std::string& parallel, const std::vector<double>& speeds = {}, double limit = 10);

    struct Work {
        std::size_t prompt;                ///< tokens
        std::int64_t chunk, most_answers;  ///< tokens of a part of the prompt, and of the answer
    };
    /// Measures devices and, for "auto", the link; prints what is chosen and why. `memory` gives
    /// what the model would take of this rank's device, with the others as split() and speeds()
    /// say then, or alone. False: another rank answers alone, and this one has nothing to do.
    bool settle(const vkf::Device& device, const vkf::DecoderFacts& facts, const Work& work,
                const std::function<vkf::ModelMemory(bool together)>& memory);

    /// Null where there are no others to speak with.
    const std::shared_ptr<vkf::Communicator>& communicator() const { return communicator_; }
    vkf::Split split() const { return split_; }
    /// How fast the ranks' devices are; empty where that makes no difference.
    const std::vector<double>& speeds() const { return speeds_; }
    /// Whether this one prints.
    bool first() const { return !communicator_ || communicator_->rank() == 0; }
    /// "rank 1 of 2: ", empty where there is one only.
    std::string name() const;

    struct Next {
        std::int32_t token;
        std::int32_t stop;  ///< 1: this rank was interrupted
    };
    /// Gives the first rank's token, and stops where any of them does.
    Next agreed(Next mine) const;

private:
    Measured measured_devices(const vkf::Device& device, const vkf::DecoderFacts& facts, const Work& work) const;
    void find_what_fits(const vkf::Device& device, const std::function<vkf::ModelMemory(bool together)>& memory,
                        Measured& m);
    bool take(const Choice& choice);

    std::shared_ptr<vkf::Communicator> communicator_;
    std::string parallel_;
    vkf::Split split_ = vkf::Split::tensor;
    std::vector<double> speeds_;
    double limit_;
};
