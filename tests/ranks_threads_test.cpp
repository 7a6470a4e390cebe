// SPDX-License-Identifier: Apache-2.0
// Ranks in threads of one process, each on a device of its own where there are several: those of
// two drivers, side by side.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "models/decoder_plan.h"
#include "ops/collectives.h"
#include "ops/ops.h"
#include "tests/decoder_models.h"
#include "tests/ranks.h"
#include "train/trainer.h"

using namespace vkf;
using namespace vkf::test;

namespace {

/// A device of a rank: one after the other of those there are.
Device device_of(int rank) {
    static const std::size_t count = Device::list().size();
    DeviceOptions options;
    options.select = std::to_string(static_cast<std::size_t>(rank) % count);
    return Device::create(options);
}

/// Shares a decoder out over so many ranks, and compares each rank's scores and first tokens with
/// what transformers gave.
void check_decoder(const std::string& name, int ranks, std::int64_t tokens) {
    CAPTURE(name);
    CAPTURE(ranks);
    const Expected expected(kModels / name);
    const Checkpoint checkpoint(kModels / name);
    const DecoderModel model = read_decoder(checkpoint);
    std::vector<double> worst(static_cast<std::size_t>(ranks), NAN);
    std::vector<std::vector<std::int32_t>> chosen(worst.size());
    const auto errors = on_ranks(ranks, [&](const std::shared_ptr<Communicator>& c) {
        c->limit(300);
        const auto r = static_cast<std::size_t>(c->rank());
        const Device own = device_of(c->rank());
        const DecoderPlan plan(own, checkpoint, model, {.communicator = c, .score = true});
        Decoder decoder(own, checkpoint, plan);
        worst[r] = worst_error(decoder.score(expected.ids), expected.logits);
        chosen[r] = greedy(decoder, expected.prompt, tokens);
    });
    REQUIRE(joined(errors) == "");
    for (std::size_t r = 0; r < worst.size(); ++r) {
        CHECK(worst[r] <= 1.0);
        CHECK(std::equal(chosen[r].begin(), chosen[r].end(), expected.greedy.begin()));
    }
}

}  // namespace

TEST_SUITE("threads") {
    // VKFORMER_MIXED=all takes every family, 2 to 4 ranks and 64 tokens: a quarter of an hour.
    TEST_CASE("threads: a decoder shared out over devices of several drivers answers as transformers does") {
        const char* const mixed = std::getenv("VKFORMER_MIXED");
        if (!mixed || std::string_view(mixed) != "all") {
            check_decoder("llama", 2, 16);
            check_decoder("gpt2", 2, 16);
            return;
        }
        for (const auto& entry : std::filesystem::directory_iterator(kModels)) {
            for (const int ranks : {2, 3, 4}) {
                check_decoder(entry.path().filename().string(), ranks, 64);
            }
        }
    }

    TEST_CASE("threads: each collective goes on while devices of several drivers compute, run after run") {
        constexpr std::int64_t kRows = 3, kWidth = 7;
        const auto errors = on_ranks(3, [&](const std::shared_ptr<Communicator>& c) {
            c->limit(300);
            const Device own = device_of(c->rank());
            Graph g;
            g.set_rank({c->rank(), c->ranks()});
            const Value x = g.input("x", {kRows, kWidth}), mine = scale(x, 2.0f);
            Value meanwhile = x;
            for (int i = 0; i < 4; ++i) {
                meanwhile = scale(relu(meanwhile), 0.5f);
            }
            const Value gathered = concat(all_gather(mine, std::vector<std::int64_t>(3, kWidth)), -1);
            const Value told = broadcast(mine, 2), sum = all_reduce(mine);
            g.output("y", sum + told + meanwhile);
            g.output("all", gathered);
            g.output("same ids", broadcast(g.input("ids", {2}, DType::i32)));
            Program program = own.compile(g, {}, {.communicator = c});
            for (int run = 0; run < 20; ++run) {
                const auto of_rank = [run](int rank) { return static_cast<float>(16 * (run + rank + 1)); };
                program.upload("x", std::vector<float>(kRows * kWidth, of_rank(c->rank())));
                program.upload("ids", std::vector<std::int32_t>(2, run + c->rank()));
                program.run();
                const float sums = 2 * (of_rank(0) + of_rank(1) + of_rank(2)), tells = 2 * of_rank(2);
                const std::vector<float> y = program.download("y"), all = program.download("all");
                REQUIRE(y == std::vector<float>(y.size(), sums + tells + of_rank(c->rank()) / 16));
                for (std::size_t i = 0; i < all.size(); ++i) {
                    REQUIRE(all[i] == 2 * of_rank(static_cast<int>(i / kWidth % 3)));
                }
                REQUIRE(program.download_i32("same ids") == std::vector<std::int32_t>(2, run));
            }
        });
        CHECK(joined(errors) == "");
    }

    TEST_CASE("threads: ranks on devices of several drivers take the same steps, gradients exchanged meanwhile") {
        constexpr std::int64_t kWidth = 512;
        std::vector<std::vector<std::byte>> after(2);
        std::vector<float> losses(2);
        const auto errors = on_ranks(2, [&](const std::shared_ptr<Communicator>& c) {
            c->limit(300);
            const auto r = static_cast<std::size_t>(c->rank());
            const Device own = device_of(c->rank());
            Graph graph;
            Value x = graph.input("x", {4, kWidth});
            for (const char* name : {"first", "second"}) {
                x = relu(linear(x, graph.weight(name, {kWidth, kWidth})));
            }
            Trainer trainer(own, graph, sum(x * x), trainable(graph), {.communicator = c});
            for (const std::string& name : trainer.parameters()) {
                std::vector<float> numbers(kWidth * kWidth);
                for (std::size_t k = 0; k < numbers.size(); ++k) {
                    numbers[k] = std::sin(static_cast<float>(k)) * 0.1f;
                }
                trainer.state().write(name, std::as_bytes(std::span(numbers)));
            }
            trainer.program().upload("x", std::vector<float>(4 * kWidth, static_cast<float>(1 + c->rank())));
            for (int step = 0; step < 3; ++step) {
                losses[r] = trainer.take_step().loss;
            }
            after[r] = trainer.state().read("first");
        });
        REQUIRE(joined(errors) == "");
        CHECK(losses[0] == losses[1]);
        CHECK(after[0].size() == kWidth * kWidth * sizeof(float));
        // Sums of gradients are the same bits; each driver updates with arithmetic of its own.
        std::vector<float> mine(kWidth * kWidth), other(mine.size());
        std::memcpy(mine.data(), after[0].data(), after[0].size());
        std::memcpy(other.data(), after[1].data(), after[1].size());
        for (std::size_t i = 0; i < mine.size(); ++i) {
            REQUIRE(std::abs(mine[i] - other[i]) < 1e-5f);
        }
    }
}
