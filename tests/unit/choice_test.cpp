// SPDX-License-Identifier: Apache-2.0
// samples/generate: the choice of how ranks share out a decoder, from made-up measurements.
#include "samples/generate/choice.h"

#include <doctest/doctest.h>

#include <cmath>

namespace {

/// A model of 32 layers of width 4096: a step takes a device 100 ms, a chunk of 256 tokens 1 s; 4
/// chunks, 100 tokens.
Measured measured(double latency, double rate, const std::vector<double>& slower = {1, 1}) {
    Measured m{
        .latency = latency, .rate = rate, .layers = 32, .width = 4096, .chunk_tokens = 256, .chunks = 4, .steps = 100};
    for (const double s : slower) {
        m.step.push_back(0.1 * s);
        m.chunk.push_back(1.0 * s);
    }
    return m;
}

}  // namespace

TEST_SUITE("choice") {
    TEST_CASE("choice: a link as fast as memory makes it tensor parallel, with the times of the model") {
        const Choice c = choose(measured(1e-6, 100e9));
        CHECK(c.way == Way::tensor);
        CHECK(c.one.prompt == doctest::Approx(4.0));
        CHECK(c.one.step == doctest::Approx(0.1));
        CHECK(c.one.all == doctest::Approx(14.0));
        CHECK(c.tensor.step == doctest::Approx(0.05 + 65 * (2e-6 + 4096 * 4 / 100e9) + 4e-6));
        CHECK(c.tensor.prompt == doctest::Approx(4 * (0.5 + 65 * (3e-6 + 256 * 4096 * 4 / 100e9))));
        CHECK(c.layers.step == doctest::Approx(0.1 + 1e-6 + 4096 * 4 / 100e9 + 1e-6));
        // the second half of the first chunk's layers, and then one chunk after the other
        CHECK(c.layers.prompt == doctest::Approx(1.0 + 3 * 0.5).epsilon(0.01));
        CHECK(c.why.find("\ntensor parallel, by the model of time: rank 0 alone 4000 ms and 100 ms a token") !=
              std::string::npos);
    }
    TEST_CASE("choice: a slow link makes it layer parallel where the prompt is worth it, else one device") {
        Measured m = measured(2e-3, 100e6);
        CHECK(choose(m).way == Way::layers);
        m.chunks = 1;
        CHECK(choose(m).way == Way::one);
        m.one_fits = {false, false};
        CHECK(choose(m).way == Way::layers);
        CHECK(std::isinf(choose(m).one.all));
        CHECK(choose(m).why.find("rank 0 alone cannot be") != std::string::npos);
    }
    TEST_CASE("choice: unlike devices have shares by their speeds, and the fastest may be better alone") {
        Measured m = measured(1e-4, 10e9, {3, 1, 1.5});
        const Choice c = choose(m);
        CHECK(c.fastest == 1);
        const std::vector<double> speeds = speeds_of(m);
        CHECK(speeds[0] == doctest::Approx(1.0 / 3));
        CHECK(speeds[1] == doctest::Approx(1.0));
        CHECK(speeds[2] == doctest::Approx(2.0 / 3));
        // each rank's share takes half of what the fastest would take for all
        CHECK(c.tensor.step == doctest::Approx(0.05 + 65 * 2e-4 + 65 * 32768 / 10e9 + 6e-4));
        CHECK(c.layers.step == doctest::Approx(3 * 0.05).epsilon(0.01));
        CHECK(c.way == Way::tensor);
        m.latency = 2e-3;
        m.steps = 1;
        CHECK(choose(m).way == Way::layers);
        m.steps = 1000;
        CHECK(choose(m).way == Way::one);
        CHECK(speeds_of(measured(1e-4, 10e9, {1, 1.2})).empty());
    }
    TEST_CASE("choice: a device alone must have room for all, layers for their part") {
        Measured m = measured(1e-1, 1e6, {3, 1});
        CHECK(choose(m).way == Way::one);
        m.one_fits = {true, false};
        Choice c = choose(m);
        CHECK(c.way == Way::one);
        CHECK(c.fastest == 0);
        CHECK(c.one.step == doctest::Approx(0.3));
        m.one_fits = {false, false};
        CHECK(choose(m).way == Way::layers);
        m.layers_fit = false;
        c = choose(m);
        CHECK(c.way == Way::tensor);
        CHECK(c.why.find("layers cannot be") != std::string::npos);
    }
    TEST_CASE("choice: what cannot be shared out is not chosen") {
        Measured m = measured(1e-6, 100e9);
        m.tensor_fits = false;
        CHECK(choose(m).way != Way::tensor);
        m.layers = 1;
        CHECK(choose(m).way == Way::one);
        CHECK(choose(m).why.find("layers cannot be") != std::string::npos);
        CHECK(choose(measured(1e-6, 1e9, {1})).way == Way::one);
    }
}
