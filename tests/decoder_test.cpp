// SPDX-License-Identifier: Apache-2.0
// Decoders against `transformers`: logits, greedy continuations, chunks, batches.
#include "models/decoder.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>

#include "runtime/graph/packed.h"
#include "tests/allocations.h"
#include "tests/decoder_models.h"
#include "tests/fake_vulkan.h"
#include "tests/fixtures.h"
#include "tests/op_check.h"
#include "tests/ranks.h"

using namespace vkf;
using namespace vkf::test;

TEST_SUITE_BEGIN("decoder");

TEST_CASE("decoder: every architecture's logits and 64 greedy tokens are transformers'") {
    int models = 0;
    for (const auto& entry : std::filesystem::directory_iterator(kModels)) {
        const std::string name = entry.path().filename().string();
        CAPTURE(name);
        const Expected expected(entry.path());
        Decoder decoder = Model(entry.path()).decoder({.score = true});
        const double worst = worst_error(decoder.score(expected.ids), expected.logits);
        CHECK_MESSAGE(worst <= 1.0, name << ": " << worst << " of the tolerance");
        ++models;
    }
    CHECK(models == 14);
}

TEST_CASE("decoder: a prompt in chunks gives the same as whole, and a step the same as a prompt") {
    for (const char* name : {"llama", "mistral", "gemma2", "gemma3", "phi3", "olmo2", "gpt2"}) {
        CAPTURE(name);
        const Model model(kModels / name);
        const Expected expected(kModels / name);
        for (const std::int64_t chunk : {1, 7, 13, 40}) {
            CAPTURE(chunk);
            Decoder decoder = model.decoder({.max_tokens = 110, .chunk = chunk, .score = true});
            CHECK(worst_error(decoder.score(expected.ids), expected.logits) <= 1.0);
            CHECK(greedy(decoder, expected.prompt, 64) == expected.greedy);
        }
    }
}

TEST_CASE("decoder: programs of a plan's graphs with its sizes answer as the decoder does") {
    constexpr std::int64_t kTokens = 90, kChunk = 8;
    for (const char* name : {"llama", "mistral", "gemma3"}) {
        CAPTURE(name);
        const Model model(kModels / name);
        const Expected expected(kModels / name);
        const DecoderPlan plan(device(), model.checkpoint, model.model, {.max_tokens = kTokens, .chunk = kChunk});
        const Graph &prompt = plan.graph(DecoderTask::prompt), &step = plan.graph(DecoderTask::step);
        const State caches = device().make_state({&prompt, &step});
        Program prompts = device().compile(prompt, model.weights, {.state = caches});
        Program steps = device().compile(step, model.weights, {.state = caches});
        std::int64_t start = 0;
        const auto run = [&](Program& program, DecoderTask task, std::span<const std::int32_t> tokens) {
            const std::int64_t count = std::ssize(tokens);
            for (const auto& [size, value] : plan.sizes(task, 1, start, count)) {
                program.set(size, value);
            }
            program.upload("tokens", tokens);
            program.run();
            start += count;
            std::int32_t next = 0;
            program.download("next", std::span(&next, 1));
            return next;
        };
        std::vector<std::int32_t> answer;
        std::int32_t next = 0;
        for (std::span<const std::int32_t> rest(expected.prompt); !rest.empty();) {
            const std::size_t count = std::min<std::size_t>(rest.size(), kChunk);
            next = run(prompts, DecoderTask::prompt, rest.first(count));
            rest = rest.subspan(count);
        }
        while (answer.size() < expected.greedy.size() && start < kTokens) {
            answer.push_back(next);
            next = run(steps, DecoderTask::step, std::span(&answer.back(), 1));
        }
        REQUIRE(answer.size() > 60);
        CHECK(std::equal(answer.begin(), answer.end(), expected.greedy.begin()));
        for (const auto& [batch, at, tokens] :
             {std::array<std::int64_t, 3>{2, 0, 1}, {1, -1, 1}, {1, 0, kChunk + 1}, {1, kTokens, 1}, {1, 0, 0}}) {
            CHECK(contains(error_of([&, b = batch, s = at, t = tokens] { plan.sizes(DecoderTask::prompt, b, s, t); }),
                           "the plan is for batches of up to 1, 8 tokens a run and 90 in all"));
        }
        CHECK(contains(error_of([&] { plan.sizes(DecoderTask::score, 1, 0, 1); }), "score was not asked for"));
    }
}

TEST_CASE("decoder: sequences of a batch answer as they do alone") {
    for (const char* name : {"llama3", "mistral", "qwen3", "gemma2", "gemma3", "phi3", "olmo2", "gpt2"}) {
        CAPTURE(name);
        const Model model(kModels / name);
        const Expected expected(kModels / name);
        std::vector<std::vector<std::int32_t>> prompts;
        for (const std::size_t length : {11u, 3u, 1u, 26u}) {
            prompts.emplace_back(expected.ids.begin(), expected.ids.begin() + static_cast<std::ptrdiff_t>(length));
        }
        Decoder alone = model.decoder({.max_tokens = 100});
        Decoder together = model.decoder({.max_batch = 5, .max_tokens = 100, .chunk = 8, .candidates = 3});
        together.prompt(prompts);
        const auto answers = continued(together, 40);
        for (std::size_t b = 0; b < prompts.size(); ++b) {
            CHECK(answers[b] == greedy(alone, prompts[b], 40));
            CHECK(together.candidates(b).tokens[0] == together.next()[b]);
        }
    }
}

TEST_CASE("decoder: the spell model writes numbers as PyTorch does") {
    const Model model(kSpell);
    Decoder decoder = model.decoder({.max_batch = 1, .score = true});
    const Expected expected(kSpell);
    CHECK(worst_error(decoder.score(expected.ids), expected.logits) <= 1.0);
    Decoder many = model.decoder({.max_batch = 8, .max_tokens = 96});
    const nlohmann::json examples = nlohmann::json::parse(read_text(kSpell / "expected.json"));
    const std::vector<std::int32_t> alone = examples[0].at("output_ids");
    CHECK(greedy(decoder, examples[0].at("prompt_ids"), alone.size()) == alone);
    std::size_t wrong = 0;
    for (std::size_t first = 0; first < examples.size(); first += 8) {
        std::vector<std::vector<std::int32_t>> prompts;
        for (std::size_t i = first; i < std::min(first + 8, examples.size()); ++i) {
            prompts.push_back(examples[i].at("prompt_ids"));
        }
        std::vector<std::vector<std::int32_t>> wanted;
        std::size_t longest = 0;
        for (std::size_t b = 0; b < prompts.size(); ++b) {
            wanted.push_back(examples[first + b].at("output_ids"));
            longest = std::max(longest, wanted.back().size());
        }
        many.prompt(prompts);
        const auto answers = continued(many, longest);
        for (std::size_t b = 0; b < prompts.size(); ++b) {
            const bool same = std::equal(wanted[b].begin(), wanted[b].end(), answers[b].begin());
            wrong += same ? 0 : 1;
        }
    }
    CHECK(examples.size() == 200);
    CHECK(wrong == 0);
}

TEST_CASE("decoder: a step allocates nothing anywhere, submits once and waits once") {
    struct Kind {
        const char* name;
        DecoderOptions options;
    };
    fake::Vulkan vulkan;
    {
        const Device own = Device::create({.get_instance_proc_addr = vulkan.entry()});
        for (const Kind& kind :
             {Kind{"gemma2", {.max_tokens = 60, .chunk = 4, .candidates = 5, .kv = WeightType::int8}},
              Kind{"gpt2", {.max_batch = 3, .max_tokens = 60}}, Kind{"llama", {.max_tokens = 60}}}) {
            const std::string model_name = kind.name;
            CAPTURE(model_name);
            const Checkpoint checkpoint(kModels / kind.name);
            const DecoderModel model = read_decoder(checkpoint);
            Decoder decoder(own, load_decoder(own, checkpoint, model, {.matrices = WeightType::f16}), model,
                            kind.options);
            std::vector<std::vector<std::int32_t>> prompts{{1, 5, 9, 4, 4, 7}};
            for (std::int64_t b = 1; b < kind.options.max_batch; ++b) {
                prompts.push_back({3, 4});
            }
            decoder.prompt(prompts);
            std::vector<std::int32_t> tokens(prompts.size(), 7);
            decoder.step(tokens);  // which makes what the later ones use
            const auto forbidden = [&] {
                return vulkan.vkAllocateMemory.calls + vulkan.vkCreateBuffer.calls +
                       vulkan.vkCreateComputePipelines.calls + vulkan.vkCreateShaderModule.calls +
                       vulkan.vkCreateDescriptorPool.calls + vulkan.vkAllocateDescriptorSets.calls +
                       vulkan.vkAllocateCommandBuffers.calls + vulkan.vkCreateCommandPool.calls +
                       vulkan.vkCreateFence.calls + vulkan.vkQueueWaitIdle.calls;
            };
            const std::uint64_t calls = forbidden();
            const std::uint64_t submits = vulkan.vkQueueSubmit.calls, waits = vulkan.vkWaitForFences.calls;
            std::uint64_t allocated = 0;
            for (int i = 0; i < 40; ++i) {
                const allocations::Counter counter;
                decoder.step(tokens);
                std::copy(decoder.next().begin(), decoder.next().end(), tokens.begin());
                allocated += counter.count();
            }
            CHECK(allocated == 0);
            CHECK(forbidden() == calls);
            CHECK(vulkan.vkQueueSubmit.calls == submits + 40);
            CHECK(vulkan.vkWaitForFences.calls == waits + 40);
            CHECK(decoder.room() == 60 - 6 - 41);
        }
        for (const std::string& message : own.messages()) {
            FAIL_CHECK(message);
        }
    }
    CHECK(vulkan.live_objects() == 0);
}

TEST_CASE("decoder: layers with a window keep it in a ring, and answer the same") {
    struct Kind {
        const char* name;
        WeightType kv;
    };
    for (const Kind& kind :
         {Kind{"mistral", WeightType::f32}, Kind{"qwen2_window", WeightType::f32}, Kind{"gemma2", WeightType::f32},
          Kind{"gemma3", WeightType::f32}, Kind{"phi3", WeightType::f32}, Kind{"mistral", WeightType::f16},
          Kind{"gemma2", WeightType::int8}}) {
        const std::string model_name = kind.name;
        CAPTURE(model_name);
        const Model model(kModels / kind.name);
        const Expected expected(kModels / kind.name);
        const DecoderFacts& facts = model.model.facts();
        const std::uint64_t row =
            kind.kv == WeightType::f32
                ? 4 * static_cast<std::uint64_t>(facts.layers[0].head_dim)
                : 4 * packed_row_words(kind.kv, static_cast<std::uint64_t>(facts.layers[0].head_dim));
        Decoder whole = model.decoder({.chunk = 128, .kv = kind.kv, .score = true});
        const std::vector<float> logits = whole.score(expected.ids);
        const std::vector<std::int32_t> answer = greedy(whole, expected.ids, 80);
        for (const std::int64_t chunk : {1, 2, 5, 16, 33}) {
            CAPTURE(chunk);
            Decoder ring = model.decoder({.chunk = chunk, .kv = kind.kv, .score = true});
            CHECK(ring.memory().cache == cache_bytes(facts, chunk, row));
            CHECK(worst_error(ring.score(expected.ids), logits) <= 1.0);
            CHECK(greedy(ring, expected.ids, 80) == answer);  // goes round many times
            CHECK(greedy(ring, expected.prompt, 3) ==
                  std::vector<std::int32_t>(greedy(whole, expected.prompt, 3)));  // begins again
        }
        if (kind.kv != WeightType::f32) {
            continue;  // where a text is padded, keys turn by other angles, and round to others
        }
        std::vector<std::vector<std::int32_t>> prompts;
        for (const std::size_t length : {40u, 3u, 21u}) {
            prompts.emplace_back(expected.ids.begin(), expected.ids.begin() + static_cast<std::ptrdiff_t>(length));
        }
        Decoder together = model.decoder({.max_batch = 3, .chunk = 6, .kv = kind.kv});
        together.prompt(prompts);
        const auto answers = continued(together, 60);
        for (std::size_t b = 0; b < prompts.size(); ++b) {
            CHECK(answers[b] == greedy(whole, prompts[b], 60));
        }
    }
}

TEST_CASE("decoder: reading and loading tell how far they are, and end where they are told to") {
    struct Enough {};
    const Model model(kModels / "llama");
    const Expected expected(kModels / "llama");
    std::vector<std::uint64_t> read;
    std::size_t most = 9;
    DecoderOptions options{.max_tokens = 100, .chunk = 4};
    options.progress = [&](std::uint64_t done, std::uint64_t all) {
        CHECK(all == expected.prompt.size());
        read.push_back(done);
        if (read.size() >= most) {
            throw Enough();
        }
    };
    Decoder decoder = model.decoder(options);
    CHECK(greedy(decoder, expected.prompt, 64) == expected.greedy);
    CHECK(read == std::vector<std::uint64_t>{4, 8, 11});
    most = 5;
    CHECK_THROWS_AS(decoder.prompt(expected.prompt), Enough);
    CHECK(read.size() == 5);
    most = 99;
    CHECK(greedy(decoder, expected.prompt, 64) == expected.greedy);  // begins again
    const auto enough = [](std::uint64_t, std::uint64_t) { throw Enough(); };
    CHECK_THROWS_AS(load_decoder(device(), model.checkpoint, model.model, {.progress = enough}), Enough);
}

TEST_CASE("decoder: logits that are not finite are refused, and the sequence is named") {
    const TemporaryFolder folder;
    std::filesystem::copy_file(kModels / "llama" / "config.json", folder.path() / "config.json");
    const Safetensors whole(kModels / "llama" / "model.safetensors");
    std::vector<HostTensor> tensors(whole.tensors().begin(), whole.tensors().end());
    const auto table = std::find_if(tensors.begin(), tensors.end(),
                                    [](const HostTensor& t) { return t.name == "model.embed_tokens.weight"; });
    REQUIRE(table != tensors.end());
    std::vector<float> rows = values_of<float>(*table);
    rows[static_cast<std::size_t>(5 * table->shape[1])] = std::nanf("");  // of token 5
    table->data = std::as_bytes(std::span(rows));
    save_safetensors(folder.path() / "model.safetensors", tensors, whole.metadata());
    const Model model(folder.path());
    const std::vector<std::vector<std::int32_t>> good{{1, 2}, {3, 4}}, bad{{1, 2}, {3, 5}};
    for (const std::int64_t candidates : {0, 3}) {
        for (const Arithmetic arithmetic : {Arithmetic::f32, Arithmetic::f16}) {
            Decoder decoder =
                model.decoder({.max_batch = 2, .max_tokens = 16, .candidates = candidates, .arithmetic = arithmetic});
            decoder.prompt(good);
            CHECK(decoder.next().size() == 2);
            const std::string said = error_of([&] { decoder.prompt(bad); });
            CHECK(contains(said, "Decoder: the logits of sequence 1 are not finite"));
            CHECK(contains(said, "fp16") == (arithmetic == Arithmetic::f16));
            CHECK(decoder.next().empty());
            decoder.prompt(good);
            CHECK(contains(error_of([&] { decoder.step(std::vector<std::int32_t>{5, 4}); }), "of sequence 0"));
            CHECK(contains(error_of([&] { decoder.append(std::vector<std::int32_t>{1, 5}); }), "of sequence 1"));
            CHECK(decoder.room() == 14);  // neither was read
            decoder.append(std::vector<std::int32_t>{1, 4});
            CHECK(decoder.room() == 13);
        }
    }
    const Checkpoint checkpoint(folder.path());
    const auto errors = on_ranks(2, [&](const std::shared_ptr<Communicator>& communicator) {
        const DecoderPlan plan(device(), checkpoint, model.model, {.communicator = communicator});
        Decoder(device(), checkpoint, plan).prompt(bad[1]);
    });
    CHECK(contains(joined(errors), "the logits of sequence 0 are not finite"));
}

TEST_CASE("decoder: prompts and tokens that cannot be are refused") {
    Decoder decoder = Model(kModels / "llama").decoder({.max_batch = 2, .max_tokens = 8});
    using Ids = std::vector<std::int32_t>;
    CHECK(contains(error_of([&] { decoder.prompt(Ids{}); }), "Decoder: the prompt is empty"));
    CHECK(contains(error_of([&] { decoder.prompt(Ids(9, 1)); }), "a prompt of 9 tokens; at most 8 fit"));
    CHECK(contains(error_of([&] { decoder.prompt(Ids{1, 97}); }), "token 97 is outside the vocabulary of 97"));
    CHECK(contains(error_of([&] { decoder.prompt(Ids{-1}); }), "token -1"));
    CHECK(contains(error_of([&] { decoder.prompt(std::vector<Ids>(3, Ids{1})); }), "a batch of 3"));
    CHECK(contains(error_of([&] { decoder.prompt(std::vector<Ids>{}); }), "a batch of 0"));
    CHECK(contains(error_of([&] { decoder.score({1}); }), "score was not asked for"));
    CHECK(contains(error_of([&] { decoder.step(Ids{1}); }), "a step follows a prompt"));
    decoder.prompt(Ids(7, 1));
    CHECK(contains(error_of([&] { decoder.candidates(0); }), "DecoderOptions::candidates is 0"));
    CHECK(contains(error_of([&] { decoder.step(Ids{1, 2}); }), "2 tokens for 1 sequences"));
    decoder.step(Ids{3});
    CHECK(contains(error_of([&] { decoder.step(Ids{3}); }), "the cache is full"));
    const Model model(kModels / "llama");
    Decoder likely = model.decoder({.max_tokens = 8, .candidates = 3});
    CHECK(contains(error_of([&] { likely.candidates(0); }), "no candidates of sequence 0; there is no answer"));
    likely.prompt(Ids{1, 2});
    CHECK(contains(error_of([&] { likely.candidates(1); }), "no candidates of sequence 1; there are 1"));
    CHECK(contains(error_of([&] { model.decoder({.max_tokens = 129}); }), "max_tokens = 129 is outside 1..128"));
    CHECK(contains(error_of([&] { model.decoder({.candidates = 98}); }), "candidates = 98"));
}
