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
