// SPDX-License-Identifier: Apache-2.0
// Decoders whose heads, widths and vocabularies are shared out over ranks: as one rank answers.
#include <doctest/doctest.h>

#include <mutex>

#include "models/decoder.h"
#include "tests/decoder_models.h"
#include "tests/ranks.h"

using namespace vkf;
using namespace vkf::test;

namespace {

struct Answers {
    double worst = 0;
    std::vector<std::int32_t> tokens;
    std::uint64_t weights = 0;
    Traffic scoring;
};

/// What each rank of a model answers.
std::vector<Answers> answers_of(const std::filesystem::path& folder, int ranks, std::size_t count,
                                const LoadOptions& load = {}, const DecoderOptions& with = {}) {
    const Expected expected(folder);
    const Checkpoint checkpoint(folder);
    const DecoderModel model = read_decoder(checkpoint);
    std::vector<Answers> all(static_cast<std::size_t>(ranks));
    const auto errors = on_ranks(ranks, [&](const std::shared_ptr<Communicator>& communicator) {
        communicator->limit(120);
        Answers& mine = all[static_cast<std::size_t>(communicator->rank())];
        DecoderOptions options = with;
        options.communicator = communicator;
        options.score = true;
        const DecoderPlan plan(device(), checkpoint, model, options, load);
        Decoder decoder(device(), checkpoint, plan);
        const Traffic before = communicator->traffic();
        mine.worst = worst_error(decoder.score(expected.ids), expected.logits);
        mine.scoring = communicator->traffic();
        mine.scoring.all_reduces -= before.all_reduces;
        mine.scoring.all_reduce_elements -= before.all_reduce_elements;
        mine.tokens = greedy(decoder, expected.prompt, count);
        mine.weights = plan.memory().weights;
    });
    CHECK(joined(errors) == "");
    return all;
}

}  // namespace

TEST_SUITE_BEGIN("parallel decoder");

TEST_CASE("parallel decoder: two, three and four ranks answer as transformers does, for every family") {
    for (const auto& entry : std::filesystem::directory_iterator(kModels)) {
        const std::string name = entry.path().filename().string();
        CAPTURE(name);
        const Expected expected(entry.path());
        for (const int ranks : {2, 3, 4}) {
            CAPTURE(ranks);
            for (const Answers& answers : answers_of(entry.path(), ranks, 64)) {
                CHECK_MESSAGE(answers.worst <= 1.0, name << ": " << answers.worst << " of the tolerance");
                CHECK(answers.tokens == expected.greedy);
            }
        }
    }
}

TEST_CASE("parallel decoder: two all-reduces a layer and one for the words, of tokens x width numbers") {
    const Expected expected(kModels / "llama");
    const Checkpoint checkpoint(kModels / "llama");
    const DecoderModel model = read_decoder(checkpoint);
    const std::size_t layers = model.facts().layers.size();
    const auto width = static_cast<std::size_t>(checkpoint.find("model.norm.weight")->shape[0]);
    for (const Answers& answers : answers_of(kModels / "llama", 2, 1)) {
        CHECK(answers.scoring.all_reduces == 2 * layers + 1);
        CHECK(answers.scoring.all_reduce_elements == (2 * layers + 1) * expected.ids.size() * width);
    }
}

TEST_CASE("parallel decoder: weights and caches kept in fewer bits answer as one rank with the same") {
    for (const char* name : {"llama", "gpt2", "phi3"}) {
        CAPTURE(name);
        for (const WeightType type : {WeightType::f16, WeightType::int8}) {
            CAPTURE(name_of(type));
            const LoadOptions load{.matrices = type};
            const DecoderOptions with{.kv = type};
            const Answers alone = answers_of(kModels / name, 1, 24, load, with).front();
            for (const Answers& answers : answers_of(kModels / name, 2, 24, load, with)) {
                CHECK(answers.tokens == alone.tokens);
                CHECK(answers.weights < alone.weights * 3 / 4);  // norms and positions are whole
            }
        }
    }
}

TEST_CASE("parallel decoder: candidates are the best of all ranks") {
    const std::filesystem::path folder = kModels / "llama";
    const Expected expected(folder);
    Decoder alone = Model(folder).decoder({.candidates = 7});
    alone.prompt(expected.prompt);
    const Candidates want = alone.candidates(0);
    const Checkpoint checkpoint(folder);
    const DecoderModel model = read_decoder(checkpoint);
    const auto errors = on_ranks(3, [&](const std::shared_ptr<Communicator>& communicator) {
        communicator->limit(60);
        const DecoderPlan plan(device(), checkpoint, model, {.candidates = 7, .communicator = communicator});
        Decoder decoder(device(), checkpoint, plan);
        decoder.prompt(expected.prompt);
        const Candidates found = decoder.candidates(0);
        CHECK(std::equal(found.tokens.begin(), found.tokens.end(), want.tokens.begin(), want.tokens.end()));
        for (std::size_t i = 0; i < found.logits.size(); ++i) {
            CHECK(found.logits[i] == doctest::Approx(want.logits[i]).epsilon(1e-4));
        }
    });
    CHECK(joined(errors) == "");
}

TEST_CASE("parallel decoder: what cannot be shared out is refused with the numbers, by every rank") {
    const Checkpoint checkpoint(kModels / "llama");
    const DecoderModel model = read_decoder(checkpoint);
    const auto all_say = [&](int ranks, const DecoderOptions& with, const LoadOptions& load, const char* what) {
        const auto errors = on_ranks(ranks, [&](const std::shared_ptr<Communicator>& communicator) {
            communicator->limit(60);
            DecoderOptions options = with;
            options.communicator = communicator;
            options.chunk += options.max_tokens == 7 ? communicator->rank() : 0;
            const DecoderPlan plan(device(), checkpoint, model, options, load);
        });
        for (const std::string& e : errors) {
            CHECK_MESSAGE(e.find(what) != std::string::npos, e);
        }
    };
    all_say(31, {}, {}, "heads cannot be shared out over 31 ranks");
    all_say(2, {.lora = LoraOptions{.rank = 2, .alpha = 2, .targets = {"q_proj"}}}, {}, "adapter cannot be shared out");
    all_say(2, {.max_tokens = 7, .chunk = 3}, {}, "has another set of options than rank");
    all_say(4, {}, {.matrices = WeightType::int4}, "would end inside a group that shares a scale");
}
