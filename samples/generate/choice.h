// SPDX-License-Identifier: Apache-2.0
// How ranks are best to share out a decoder: a choice by a model of time, from what was measured.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

/// What is known of the ranks, the link between them, the model and the answer.
struct Measured {
    std::vector<double> step = {};   ///< seconds that each rank's device alone takes for a step
    std::vector<double> chunk = {};  ///< and for a chunk of a prompt
    double latency = 0;              ///< seconds that an empty message takes to another rank
    double rate = 1;                 ///< bytes that go to another rank in a second
    std::int64_t layers = 0, width = 0;
    std::int64_t chunk_tokens = 0, chunks = 0;  ///< of the prompt
    std::int64_t steps = 0;                     ///< tokens of the answer
    /// The whole model fits each of the devices; empty: all of them.
    std::vector<bool> one_fits = {};
    bool tensor_fits = true;  ///< heads and widths can be shared out, and fit
    bool layers_fit = true;   ///< and layers
};

enum class Way { one, tensor, layers };

struct Choice {
    Way way = Way::one;
    /// Seconds for the prompt and for a step; infinite where that way cannot be gone.
    struct Times {
        double prompt = 0, step = 0, all = 0;
    };
    Times one, tensor, layers;
    int fastest = 0;  ///< the rank whose device alone would be the soonest done, of those it fits
    /// One or two lines of what was measured, and the times that follow.
    std::string why;
};

/// Chooses what takes the least time for the prompt and the answer. The model, of n ranks:
///   one     a chunk and a step are the fastest device's.
///   tensor  each device's part, by its speed; and 2 all-reduces a layer and 1, of tokens x width
///           numbers of 4 bytes, each of 2 messages' latency and of the bytes to n - 1 ranks or,
///           for more than 16384 numbers, of 3 and of 2 (n - 1) / n of them; the answer takes 4
///           latencies, and 2 more until all go on with it.
///   layers  each device has a share of the layers by its speed. A step goes through all, with
///           n - 1 messages of width numbers, and the answer takes n - 1 latencies and 2; of chunks
///           that follow each other, each takes as long as the slowest rank's part.
Choice choose(const Measured& m);

/// How fast the ranks' devices are at the prompt and the answer: the fastest's is 1. Empty where
/// none is slower than 0.8, for what differs less is the noise of measuring.
std::vector<double> speeds_of(const Measured& m);
