// SPDX-License-Identifier: Apache-2.0
// Decoders whose layers lie one behind the other over ranks: as one rank answers.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <fstream>
#include <mutex>

#include <nlohmann/json.hpp>

#include "layers/sharing.h"
#include "models/decoder.h"
#include "models/files/safetensors.h"
#include "tests/decoder_models.h"
#include "tests/fixtures.h"
#include "tests/ranks.h"

using namespace vkf;
using namespace vkf::test;

namespace {

struct LayerAnswers {
    std::vector<float> logits;
    std::vector<std::int32_t> tokens;
    ModelMemory memory;
    Traffic planned, scored, answered;  ///< what had been sent after each
};

/// What each rank of a model answers that has its layers one behind the other.
std::vector<LayerAnswers> answers_by_layers(const std::filesystem::path& folder, int ranks, std::size_t count,
                                            const LoadOptions& load = {}, const DecoderOptions& with = {}) {
    const Expected expected(folder);
    const Checkpoint checkpoint(folder);
    const DecoderModel model = read_decoder(checkpoint);
    std::vector<LayerAnswers> all(static_cast<std::size_t>(ranks));
    const auto errors = on_ranks(ranks, [&](const std::shared_ptr<Communicator>& communicator) {
        communicator->limit(120);
        LayerAnswers& mine = all[static_cast<std::size_t>(communicator->rank())];
        DecoderOptions options = with;
        options.communicator = communicator;
        options.split = Split::layers;
        options.score = true;
        const DecoderPlan plan(device(), checkpoint, model, options, load);
        Decoder decoder(device(), checkpoint, plan);
        mine.planned = communicator->traffic();
        mine.logits = decoder.score(expected.ids);
        mine.scored = communicator->traffic();
        mine.tokens = greedy(decoder, expected.prompt, count);
        mine.answered = communicator->traffic();
        mine.memory = plan.memory();
    });
    CHECK(joined(errors) == "");
    return all;
}

/// A copy of a model whose layers all stand there twice, the second time behind the others.
class TwiceAsDeep {
public:
    explicit TwiceAsDeep(const std::filesystem::path& folder) {
        const Checkpoint file(folder);
        nlohmann::json config = nlohmann::json::parse(file_text(folder / "config.json"));
        const char* count = config.contains("n_layer") ? "n_layer" : "num_hidden_layers";
        const int layers = config[count];
        config[count] = 2 * layers;
        if (config.contains("layer_types") && config["layer_types"].is_array()) {
            const nlohmann::json types = config["layer_types"];
            config["layer_types"].insert(config["layer_types"].end(), types.begin(), types.end());
        }
        std::ofstream(path() / "config.json") << config;
        std::vector<HostTensor> tensors;
        for (const std::string& name : file.names()) {
            const HostTensor& t = *file.find(name);
            tensors.push_back(t);
            for (const std::string before : {"layers.", "h."}) {
                for (int i = 0; i < layers; ++i) {
                    const std::string layer = before + std::to_string(i) + ".";
                    const std::size_t at = t.name.find(layer);
                    if (at == 0 || (at != std::string::npos && t.name[at - 1] == '.')) {
                        tensors.push_back(t);
                        tensors.back().name.replace(at, layer.size(), before + std::to_string(i + layers) + ".");
                    }
                }
            }
        }
        save_safetensors(path() / "model.safetensors", tensors);
        std::filesystem::copy(folder / "expected.safetensors", path());
    }

    const std::filesystem::path& path() const { return folder_.path(); }

private:
    TemporaryFolder folder_;
};

/// A transport that tells of each exchange before and behind it.
class ToldTransport final : public Transport {
public:
    using Tell = std::function<void(bool before, std::size_t bytes_out, std::size_t bytes_in)>;
    ToldTransport(std::unique_ptr<Transport> inner, Tell tell) : inner_(std::move(inner)), tell_(std::move(tell)) {}

    int rank() const noexcept override { return inner_->rank(); }
    int ranks() const noexcept override { return inner_->ranks(); }
    void limit(double seconds) noexcept override { inner_->limit(seconds); }
    void exchange(std::span<const Outgoing> out, std::span<const Incoming> in) override {
        std::size_t sent = 0, received = 0;
        std::for_each(out.begin(), out.end(), [&](const Outgoing& o) { sent += o.bytes.size(); });
        std::for_each(in.begin(), in.end(), [&](const Incoming& i) { received += i.bytes.size(); });
        tell_(true, sent, received);
        inner_->exchange(out, in);
        tell_(false, sent, received);
    }

private:
    std::unique_ptr<Transport> inner_;
    Tell tell_;
};

}  // namespace

TEST_SUITE_BEGIN("layer split");

TEST_CASE("layer split: two ranks answer as transformers does, for every family") {
    for (const auto& entry : std::filesystem::directory_iterator(kModels)) {
        const std::string name = entry.path().filename().string();
        CAPTURE(name);
        const Expected expected(entry.path());
        for (const LayerAnswers& answers : answers_by_layers(entry.path(), 2, 64)) {
            const double worst = worst_error(answers.logits, expected.logits);
            CHECK_MESSAGE(worst <= 1.0, name << ": " << worst << " of the tolerance");
            CHECK(answers.tokens == expected.greedy);
        }
    }
}

TEST_CASE("layer split: three and four ranks of models twice as deep answer as one does, for every family") {
    for (const auto& entry : std::filesystem::directory_iterator(kModels)) {
        CAPTURE(entry.path().filename().string());
        const TwiceAsDeep model(entry.path());
        const LayerAnswers alone = answers_by_layers(model.path(), 1, 64).front();
        for (const int ranks : {3, 4}) {
            CAPTURE(ranks);
            for (const LayerAnswers& answers : answers_by_layers(model.path(), ranks, 64)) {
                CHECK(worst_error(answers.logits, alone.logits) <= 1.0);
                CHECK(answers.tokens == alone.tokens);
            }
        }
    }
}

TEST_CASE("layer split: hidden states go to the next rank once a run, the answers back, and nothing else") {
    const TwiceAsDeep deep(kModels / "llama");
    const std::filesystem::path& folder = deep.path();
    const Expected expected(folder);
    const DecoderFacts facts = read_decoder(Checkpoint(folder)).facts();
    constexpr std::uint64_t kSteps = 5;
    const auto words = static_cast<std::uint64_t>(facts.vocab_size), width = static_cast<std::uint64_t>(facts.width);
    const std::uint64_t scored = expected.ids.size(), prompt = expected.prompt.size();
    constexpr int ranks = 3;
    const auto all = answers_by_layers(folder, ranks, kSteps);
    for (int r = 0; r < ranks; ++r) {
        CAPTURE(r);
        const LayerAnswers& a = all[static_cast<std::size_t>(r)];
        const bool last = r == ranks - 1;
        const auto others = static_cast<std::uint64_t>(ranks - 1);
        CHECK(a.scored.sends - a.planned.sends == (last ? others : 1));
        CHECK(a.scored.bytes - a.planned.bytes == 4 * scored * (last ? words * others : width));
        // the prompt and the steps behind it, each with a token as its answer
        CHECK(a.answered.sends - a.scored.sends == kSteps * (last ? others : 1));
        CHECK(a.answered.bytes - a.scored.bytes == 4 * (last ? kSteps * others : (prompt + kSteps - 1) * width));
        CHECK(a.answered.all_reduces + a.answered.all_gathers + a.answered.broadcasts == 0);
    }
}

TEST_CASE("layer split: a rank has the weights and caches of its layers, and no others") {
    for (const char* name : {"llama", "gpt2", "gemma3"}) {
        CAPTURE(name);
        const std::filesystem::path folder = kModels / name;
        const Checkpoint checkpoint(folder);
        const DecoderModel model = read_decoder(checkpoint);
        const ModelMemory whole = answers_by_layers(folder, 1, 1).front().memory;
        const auto all = answers_by_layers(folder, 2, 1);
        CHECK(all[0].memory.cache + all[1].memory.cache == whole.cache);
        // tied words are on the first rank and on the last
        const auto words = static_cast<std::uint64_t>(model.facts().vocab_size * model.facts().width) * 4;
        const std::uint64_t both = all[0].memory.weights + all[1].memory.weights;
        CHECK(both >= whole.weights);
        CHECK(both <= whole.weights + words + 4096);
        for (const LayerAnswers& a : all) {
            CHECK(a.memory.weights < whole.weights);
        }
    }
}

TEST_CASE("layer split: weights and caches kept in fewer bits answer as one rank with the same") {
    for (const char* name : {"llama", "gpt2", "gemma2"}) {
        CAPTURE(name);
        for (const auto& types : {std::pair{WeightType::int8, WeightType::f16}, {WeightType::int4, WeightType::int8}}) {
            const WeightType type = types.first, kv = types.second;
            CAPTURE(name_of(type));
            const LoadOptions load{.matrices = type};
            const LayerAnswers alone = answers_by_layers(kModels / name, 1, 24, load, {.kv = kv}).front();
            for (const LayerAnswers& answers : answers_by_layers(kModels / name, 2, 24, load, {.kv = kv})) {
                CHECK(answers.tokens == alone.tokens);
                CHECK(answers.logits == alone.logits);
            }
        }
    }
}

TEST_CASE("layer split: the same bits in twenty runs, in chunks, with unlike shares" *
          doctest::test_suite("many runs")) {
    const TwiceAsDeep deep(kModels / "llama");
    const DecoderOptions with{.chunk = 3, .speeds = {1.0, 4.0}};
    std::vector<float> first;
    for (int run = 0; run < 20; ++run) {
        for (const LayerAnswers& answers : answers_by_layers(deep.path(), 2, 1, {}, with)) {
            first = first.empty() ? answers.logits : first;
            CHECK(answers.logits == first);
        }
    }
    CHECK(worst_error(first, answers_by_layers(deep.path(), 1, 1).front().logits) <= 1.0);
}

TEST_CASE("layer split: several texts side by side, candidates, and what follows a prompt") {
    for (const char* name : {"llama", "gpt2", "gemma3"}) {
        CAPTURE(name);
        const std::filesystem::path folder = kModels / name;
        const Expected expected(folder);
        const Checkpoint checkpoint(folder);
        const DecoderModel model = read_decoder(checkpoint);
        const std::vector<std::vector<std::int32_t>> prompts{expected.prompt, {expected.prompt[0]}};
        const DecoderOptions with{.max_batch = 2, .chunk = 4, .candidates = 5};
        const auto answer = [&](const DecoderOptions& options) {
            Decoder decoder(device(), checkpoint, DecoderPlan(device(), checkpoint, model, options));
            std::vector<std::int32_t> out;
            const auto note = [&] {
                out.insert(out.end(), decoder.next().begin(), decoder.next().end());
                for (const std::size_t b : {0, 1}) {
                    const Candidates c = decoder.candidates(b);
                    out.insert(out.end(), c.tokens.begin(), c.tokens.end());
                }
            };
            decoder.prompt(prompts);
            note();
            for (int i = 0; i < 3; ++i) {
                decoder.step(decoder.next());
                note();
            }
            decoder.append(std::vector<std::int32_t>{5, 6, 7, 8, 9, 10, 11, 12, 13, 14});
            note();
            return out;
        };
        const std::vector<std::int32_t> want = answer(with);
        const auto errors = on_ranks(2, [&](const std::shared_ptr<Communicator>& communicator) {
            communicator->limit(120);
            DecoderOptions options = with;
            options.communicator = communicator;
            options.split = Split::layers;
            const std::vector<std::int32_t> found = answer(options);
            CHECK(found == want);
        });
        CHECK(joined(errors) == "");
    }
}

TEST_CASE("layer split: an append that progress ends leaves all ranks alike, whichever has the windows") {
    for (const char* name : {"llama", "qwen2_window"}) {
        CAPTURE(name);
        const Checkpoint checkpoint(kModels / name);
        const DecoderModel model = read_decoder(checkpoint);
        std::array<std::size_t, 2> answers{};
        std::array<std::int64_t, 2> rooms{};
        const auto errors = on_ranks(2, [&](const std::shared_ptr<Communicator>& communicator) {
            communicator->limit(120);
            bool enough = false;
            DecoderOptions options{.max_tokens = 40, .chunk = 4, .communicator = communicator, .split = Split::layers};
            options.progress = [&](std::uint64_t, std::uint64_t) {
                if (enough) {
                    throw Error("enough");
                }
            };
            Decoder decoder(device(), checkpoint, DecoderPlan(device(), checkpoint, model, options));
            const std::vector<std::int32_t> text(12, 1);
            decoder.prompt(text);
            enough = true;
            CHECK(error_of([&] { decoder.append(text); }) == "enough");
            const auto rank = static_cast<std::size_t>(communicator->rank());
            answers[rank] = decoder.next().size();
            rooms[rank] = decoder.room();
            enough = false;
            decoder.prompt(text);
        });
        CHECK(joined(errors) == "");
        CHECK(answers[0] == answers[1]);
        CHECK(rooms[0] == rooms[1]);
        CHECK(answers[0] == (std::string(name) == "llama" ? 1 : 0));
    }
}

TEST_CASE("layer split: a rank reads the next chunk of a prompt while the one behind it works on this one") {
    const std::filesystem::path folder = kModels / "llama";
    const Expected expected(folder);
    const Checkpoint checkpoint(folder);
    const DecoderModel model = read_decoder(checkpoint);
    const auto bytes = static_cast<std::size_t>(3 * model.facts().width) * sizeof(float);
    std::mutex mutex;
    std::condition_variable changed;
    int computed = 0, received = 0;  // chunks of the first rank, and of the second
    bool together = true;
    const auto tell = [&](bool before, std::size_t sent, std::size_t got) {
        std::unique_lock lock(mutex);
        if (before && sent > bytes) {
            ++computed;
            changed.notify_all();
        }
        // The second rank holds what it has of a chunk back until the first has computed the next.
        if (!before && got > bytes && ++received < 3) {
            together =
                changed.wait_for(lock, std::chrono::seconds(60), [&] { return computed > received; }) && together;
        }
    };
    std::vector<std::unique_ptr<Transport>> transports = local_transports(2);
    for (std::unique_ptr<Transport>& t : transports) {
        t = std::make_unique<ToldTransport>(std::move(t), tell);
    }
    const auto errors = on_ranks(std::move(transports), [&](const std::shared_ptr<Communicator>& communicator) {
        communicator->limit(120);
        const DecoderPlan plan(device(), checkpoint, model,
                               {.chunk = 3, .communicator = communicator, .split = Split::layers});
        Decoder decoder(device(), checkpoint, plan);
        decoder.prompt(std::vector<std::int32_t>(expected.ids.begin(), expected.ids.begin() + 12));
    });
    CHECK(joined(errors) == "");
    CHECK(together);
    CHECK(computed == 4);
}

TEST_CASE("layer split: layers are shared out in proportion to speeds, or refused with the numbers") {
    const auto counts = [](std::int64_t layers, int ranks, const std::vector<double>& speeds) {
        std::vector<std::int64_t> all;
        std::int64_t next = 0;
        for (int r = 0; r < ranks; ++r) {
            const Part part = share_of_layers(layers, {r, ranks, speeds});
            CHECK(part.first == next);
            next += part.count;
            all.push_back(part.count);
        }
        CHECK(next == layers);
        return all;
    };
    using Counts = std::vector<std::int64_t>;
    CHECK(counts(16, 2, {}) == Counts{8, 8});
    CHECK(counts(7, 3, {}) == Counts{3, 2, 2});
    CHECK(counts(16, 2, {3, 1}) == Counts{12, 4});
    CHECK(counts(32, 3, {1, 5, 2}) == Counts{4, 20, 8});
    CHECK(counts(4, 3, {1e-3, 1, 1e3}) == Counts{1, 1, 2});
    const Checkpoint checkpoint(kModels / "llama");
    const DecoderModel model = read_decoder(checkpoint);
    const auto all_say = [&](int ranks, const DecoderOptions& with, const char* what) {
        const auto errors = on_ranks(ranks, [&](const std::shared_ptr<Communicator>& communicator) {
            communicator->limit(60);
            DecoderOptions options = with;
            options.communicator = communicator;
            options.split = options.max_tokens == 7 && communicator->rank() == 1 ? Split::tensor : Split::layers;
            const DecoderPlan plan(device(), checkpoint, model, options);
        });
        for (const std::string& e : errors) {
            CHECK_MESSAGE(e.find(what) != std::string::npos, e);
        }
    };
    all_say(31, {}, "layers cannot be shared out over 31 ranks");
    all_say(2, {.speeds = {1, 2, 3}}, "3 speeds of 2 ranks");
    all_say(2, {.speeds = {1, 0}}, "of a rank is not above 0");
    all_say(2, {.max_tokens = 7}, "has another set of options than rank");
    all_say(2, {.lora = LoraOptions{.rank = 2, .alpha = 2, .targets = {"q_proj"}}}, "adapter cannot be shared out");
}

TEST_CASE("layer split: a rank that ends or hangs is named by all others, wherever it stands") {
    const TwiceAsDeep deep(kModels / "gemma3");
    const Expected expected(deep.path());
    const Checkpoint checkpoint(deep.path());
    const DecoderModel model = read_decoder(checkpoint);
    constexpr int kRanks = 3;
    for (const bool hangs : {false, true}) {
        for (int bad = 0; bad < kRanks; ++bad) {
            CAPTURE(bad);
            CAPTURE(hangs);
            std::mutex mutex;
            std::condition_variable changed;
            int ended = 0;
            const auto errors = on_ranks(kRanks, [&](const std::shared_ptr<Communicator>& communicator) {
                communicator->limit(60);
                const DecoderPlan plan(device(), checkpoint, model,
                                       {.communicator = communicator, .split = Split::layers});
                Decoder decoder(device(), checkpoint, plan);
                decoder.prompt(expected.prompt);
                communicator->limit(hangs ? 2 : 60);
                if (communicator->rank() == bad && !hangs) {
                    throw Error("device lost");
                }
                std::unique_lock lock(mutex);
                if (communicator->rank() == bad) {
                    CHECK(changed.wait_for(lock, std::chrono::seconds(60), [&] { return ended == kRanks - 1; }));
                    throw Error("hung");
                }
                lock.unlock();
                std::string error;
                try {
                    for (;;) {
                        decoder.step(decoder.next());
                    }
                } catch (const Error& e) {
                    error = e.what();
                }
                lock.lock();
                ++ended;
                changed.notify_all();
                throw Error(error);
            });
            for (int r = 0; r < kRanks; ++r) {
                const std::string& e = errors[static_cast<std::size_t>(r)];
                CHECK_MESSAGE((r == bad || e.find("rank " + std::to_string(bad) + ": ") == 0), r << ": " << e);
            }
        }
    }
}

TEST_CASE("layer split: where the answers of a prompt do not come there are none") {
    const Checkpoint checkpoint(kModels / "gemma3");
    const DecoderModel model = read_decoder(checkpoint);
    const std::vector<std::int32_t> prompt{1, 2, 3};
    const auto errors = on_ranks(2, [&](const std::shared_ptr<Communicator>& communicator) {
        communicator->limit(60);
        const DecoderPlan plan(
            device(), checkpoint, model,
            {.max_tokens = 16, .candidates = 2, .communicator = communicator, .split = Split::layers});
        Decoder decoder(device(), checkpoint, plan);
        decoder.prompt(prompt);
        CHECK(decoder.next().size() == 1);
        if (communicator->rank() == 1) {  // takes what the other computes, and sends no answer
            std::vector<std::byte> hidden(prompt.size() * static_cast<std::size_t>(model.facts().width) *
                                          sizeof(float));
            communicator->receive(hidden, 0);
            communicator->send(std::vector<std::byte>(1), 0);
            return;
        }
        CHECK_THROWS_AS(decoder.prompt(prompt), Error);
        CHECK(decoder.next().empty());
        CHECK_THROWS_AS(decoder.candidates(0), Error);
    });
    CHECK(errors[0] == "");
}

TEST_SUITE_END();
