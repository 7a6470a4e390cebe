// SPDX-License-Identifier: Apache-2.0
// Decoders whose heads, widths and vocabularies are shared out over ranks: as one rank answers.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <limits>
#include <mutex>
#include <numeric>

#include <nlohmann/json.hpp>

#include "layers/sharing.h"
#include "models/decoder.h"
#include "models/files/parameters.h"
#include "tests/decoder_models.h"
#include "tests/fixtures.h"
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
        mine.scoring.all_gathers -= before.all_gathers;
        mine.scoring.broadcasts -= before.broadcasts;
        mine.scoring.bytes -= before.bytes;
        mine.tokens = greedy(decoder, expected.prompt, count);
        mine.weights = plan.memory().weights;
    });
    CHECK(joined(errors) == "");
    return all;
}

/// A model in llama's shape of made-up numbers, with 4 heads of 32 columns, each with a key and
/// value head of its own, and an inner width of 160: wide enough for int4 in unlike parts.
class WideModel {
public:
    WideModel() {
        constexpr std::int64_t kWidth = 64, kHeads = 4, kHeadDim = 32, kInner = 160, kWords = 97;
        nlohmann::json config = nlohmann::json::parse(file_text(kModels / "llama" / "config.json"));
        config.update({{"hidden_size", kWidth},
                       {"num_attention_heads", kHeads},
                       {"num_key_value_heads", kHeads},
                       {"head_dim", kHeadDim},
                       {"intermediate_size", kInner}});
        std::ofstream(path() / "config.json") << config;
        add("model.embed_tokens.weight", {kWords, kWidth});
        for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
            for (const std::string name : {"q_proj", "k_proj", "v_proj"}) {
                add(layer + "self_attn." + name + ".weight", {kHeads * kHeadDim, kWidth});
            }
            add(layer + "self_attn.o_proj.weight", {kWidth, kHeads * kHeadDim});
            add(layer + "mlp.gate_proj.weight", {kInner, kWidth});
            add(layer + "mlp.up_proj.weight", {kInner, kWidth});
            add(layer + "mlp.down_proj.weight", {kWidth, kInner});
            add(layer + "input_layernorm.weight", {kWidth});
            add(layer + "post_attention_layernorm.weight", {kWidth});
        }
        add("model.norm.weight", {kWidth});
        add("lm_head.weight", {kWords, kWidth});
        std::vector<HostTensor> all;
        for (std::size_t i = 0; i < numbers_.size(); ++i) {
            all.push_back({names_[i], DType::f32, shapes_[i], std::as_bytes(std::span(numbers_[i]))});
        }
        save_safetensors(path() / "model.safetensors", all);
    }

    const std::filesystem::path& path() const { return folder_.path(); }

private:
    void add(const std::string& name, const std::vector<std::int64_t>& shape) {
        const std::int64_t count = std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
        std::vector<float> numbers;
        for (std::int64_t i = 0; i < count; ++i) {
            state_ = state_ * 1664525u + 1013904223u;
            numbers.push_back(static_cast<float>(static_cast<std::int32_t>(state_)) *
                              (shape.size() == 1 ? 4e-10f : 8e-11f));
        }
        names_.push_back(name);
        shapes_.push_back(shape);
        numbers_.push_back(std::move(numbers));
    }

    TemporaryFolder folder_;
    std::vector<std::string> names_;
    std::vector<std::vector<std::int64_t>> shapes_;
    std::vector<std::vector<float>> numbers_;
    std::uint32_t state_ = 1;
};

}  // namespace

TEST_SUITE_BEGIN("parallel decoder");

TEST_CASE("parallel decoder: unlike shares answer as transformers does, for every family") {
    for (const auto& entry : std::filesystem::directory_iterator(kModels)) {
        const std::string name = entry.path().filename().string();
        CAPTURE(name);
        const Expected expected(entry.path());
        std::vector<std::vector<double>> shares{{3, 1, 2}};
        if (name == "llama") {  // what shares heads and widths out knows no family
            shares.insert(shares.end(), {{1, 4}, {1, 9, 1, 1}});
        }
        for (const std::vector<double>& speeds : shares) {
            const int ranks = static_cast<int>(speeds.size());
            CAPTURE(ranks);
            const std::vector<Answers> all = answers_of(entry.path(), ranks, 64, {}, {.speeds = speeds});
            for (const Answers& answers : all) {
                CHECK_MESSAGE(answers.worst <= 1.0, name << ": " << answers.worst << " of the tolerance");
                CHECK(answers.tokens == expected.greedy);
            }
            CHECK(all[1].weights != all[0].weights);
            CHECK((all[1].weights > all[0].weights) == (speeds[1] > speeds[0]));
        }
    }
}

TEST_CASE("parallel decoder: unlike shares of weights and caches in fewer bits answer as one rank with the same") {
    const WideModel wide;
    const Checkpoint checkpoint(wide.path());
    const DecoderModel model = read_decoder(checkpoint);
    std::vector<std::int32_t> ids(20);
    std::iota(ids.begin(), ids.end(), 3);
    for (const WeightType type : {WeightType::f32, WeightType::int8, WeightType::int4}) {
        CAPTURE(name_of(type));
        const WeightType kv = type == WeightType::f32 ? type : WeightType::int8;
        const auto score = [&](const std::shared_ptr<Communicator>& c, const std::vector<double>& speeds,
                               std::uint64_t& weights) {
            const DecoderOptions options{.kv = kv, .communicator = c, .speeds = speeds, .score = true};
            const DecoderPlan plan(device(), checkpoint, model, options, {.matrices = type});
            weights = plan.memory().weights;
            Decoder decoder(device(), checkpoint, plan);
            std::vector<float> logits = decoder.score(ids);
            decoder.prompt(ids);
            logits.push_back(static_cast<float>(decoder.next()[0]));
            return logits;
        };
        std::uint64_t whole = 0;
        const std::vector<float> want = score(nullptr, {}, whole);
        for (const std::vector<double>& speeds : {std::vector<double>{}, {3, 1}, {1, 2, 1}}) {
            const std::size_t ranks = speeds.empty() ? 2 : speeds.size();
            CAPTURE(ranks);
            std::vector<std::uint64_t> weights(ranks);
            const auto errors = on_ranks(static_cast<int>(ranks), [&](const std::shared_ptr<Communicator>& c) {
                c->limit(120);
                const double worst = worst_error(score(c, speeds, weights[static_cast<std::size_t>(c->rank())]), want);
                CHECK_MESSAGE(worst <= 1.0, worst << " of the tolerance");
            });
            CHECK(joined(errors) == "");
            if (speeds.size() == 2) {
                CHECK(weights[0] > weights[1] * 2);
                CHECK(weights[0] < whole);
            }
        }
    }
}

TEST_CASE("parallel decoder: the same bits in twenty runs" * doctest::test_suite("many runs")) {
    const Checkpoint checkpoint(kModels / "llama");
    const DecoderModel model = read_decoder(checkpoint);
    const Expected expected(kModels / "llama");
    for (const std::vector<double>& speeds : {std::vector<double>{}, {1, 3, 2}}) {
        const std::size_t ranks = speeds.empty() ? 2 : speeds.size();
        std::vector<std::vector<float>> first(ranks);
        const auto errors = on_ranks(static_cast<int>(ranks), [&](const std::shared_ptr<Communicator>& c) {
            c->limit(120);
            std::vector<float>& mine = first[static_cast<std::size_t>(c->rank())];
            for (int run = 0; run < 20; ++run) {
                const DecoderPlan plan(device(), checkpoint, model,
                                       {.communicator = c, .speeds = speeds, .score = true});
                Decoder decoder(device(), checkpoint, plan);
                const std::vector<float> logits = decoder.score(expected.ids);
                mine = run == 0 ? logits : mine;
                CHECK(logits == mine);
            }
        });
        CHECK(joined(errors) == "");
        for (const std::vector<float>& logits : first) {
            CHECK(logits == first.front());
        }
    }
}

TEST_CASE("parallel decoder: what is shared out is in proportion to speeds, whole, and in order") {
    struct Case {
        std::int64_t size, unit;
        std::vector<double> speeds;
        std::vector<std::int64_t> counts;
    };
    for (const Case& c :
         {Case{16, 1, {3, 1}, {12, 4}}, Case{97, 1, {3, 1}, {73, 24}}, Case{40, 4, {1, 4}, {8, 32}},
          Case{100, 32, {1, 1, 5}, {32, 32, 36}}, Case{5, 1, {1e-300, 1e300}, {1, 4}}, Case{12, 3, {1, 1}, {6, 6}},
          Case{2, 1, {1, 1, 5}, {0, 0, 2}}, Case{262144, 1, {1, 2, 5}, {32768, 65536, 163840}}}) {
        const int ranks = static_cast<int>(c.speeds.size());
        std::int64_t next = 0;
        for (int r = 0; r < ranks; ++r) {
            const Part part = share_of(c.size, {r, ranks, c.speeds}, c.unit);
            CHECK(part.first == next);
            CHECK(part.count == c.counts[static_cast<std::size_t>(r)]);
            next += part.count;
        }
        CHECK(next == c.size);
    }
    // groups that look at one key and value head stay whole
    const HeadSizes sizes{12, 4, 8};
    CHECK(share_of_heads(sizes, {0, 2, {3, 1}}).query == Part{0, 9});
    CHECK(share_of_heads(sizes, {1, 2, {3, 1}}).query == Part{9, 3});
    CHECK(share_of_heads(sizes, {1, 2, {3, 1}}).kv == std::vector<std::int64_t>{3});
    CHECK(shares_of_width(320, {0, 3, {1, 8, 1}}) == std::vector<std::int64_t>{32, 256, 32});
    for (const double wrong : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
        Graph g;
        CHECK_THROWS_WITH_AS(g.set_rank({0, 2, {1, wrong}}),
                             ("parallel: speed " + std::to_string(wrong) + " of a rank is not above 0").c_str(), Error);
    }
    CHECK_THROWS_WITH_AS(share_of(8, {0, 2, {1, 2, 3}}), "parallel: 3 speeds of 2 ranks", Error);
    CHECK_THROWS_WITH_AS(share_of(8, {3, 2}), "parallel: rank 3 is none of 2", Error);
}

TEST_CASE("parallel decoder: sizes below nothing and units of nothing cannot be shared out") {
    for (const std::vector<double>& speeds : {std::vector<double>{}, std::vector<double>{3, 1}}) {
        const Rank rank{0, 2, speeds};
        CHECK_THROWS_WITH_AS(share_of(10, rank, 0), "parallel: 10 things in units of 0 cannot be shared out", Error);
        CHECK_THROWS_WITH_AS(share_of(10, rank, -2), "parallel: 10 things in units of -2 cannot be shared out", Error);
        CHECK_THROWS_WITH_AS(share_of(-1, rank), "parallel: -1 things in units of 1 cannot be shared out", Error);
        CHECK(share_of(0, rank) == Part{0, 0});
    }
}

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
    for (const int ranks : {2, 3}) {
        const std::vector<Answers> all = answers_of(kModels / "llama", ranks, 1);
        const std::vector<std::int64_t> words = shares_of_vocabulary(model.facts().vocab_size, {0, ranks});
        for (std::size_t r = 0; r < all.size(); ++r) {
            const Traffic& scoring = all[r].scoring;
            const std::size_t numbers = (2 * layers + 1) * expected.ids.size() * width;
            CHECK(scoring.all_reduces == 2 * layers + 1);
            CHECK(scoring.all_reduce_elements == numbers);
            // the scores of all words are gathered, and nothing else goes to the other ranks
            CHECK(scoring.all_gathers == 1);
            CHECK(scoring.broadcasts + scoring.sends == 0);
            const std::size_t logits = expected.ids.size() * static_cast<std::size_t>(words[r]);
            CHECK(scoring.bytes == 4 * (numbers + logits) * (all.size() - 1));
        }
    }
}

TEST_CASE("parallel decoder: a rank keeps its share of weights and caches, and a step gathers its best word alone") {
    const Expected expected(kModels / "llama");
    const Checkpoint checkpoint(kModels / "llama");
    const DecoderModel model = read_decoder(checkpoint);
    const std::size_t layers = model.facts().layers.size();
    const auto width = static_cast<std::uint64_t>(model.facts().width);
    std::uint64_t norms = 0;
    for (const std::string& name : checkpoint.names()) {
        const HostTensor& t = *checkpoint.find(name);
        norms += t.shape.size() == 1 ? t.data.size() : 0;
    }
    const ModelMemory whole = DecoderPlan(device(), checkpoint, model, {}).memory();
    for (const int ranks : {2, 4}) {
        CAPTURE(ranks);
        std::vector<ModelMemory> memory(static_cast<std::size_t>(ranks));
        const auto errors = on_ranks(ranks, [&](const std::shared_ptr<Communicator>& c) {
            c->limit(60);
            const DecoderPlan plan(device(), checkpoint, model, {.communicator = c});
            memory[static_cast<std::size_t>(c->rank())] = plan.memory();
            Decoder decoder(device(), checkpoint, plan);
            decoder.prompt(expected.prompt);
            const Traffic before = c->traffic();
            decoder.step(decoder.next());
            const Traffic after = c->traffic();
            const std::uint64_t sums = 2 * layers + 1, others = static_cast<std::uint64_t>(ranks - 1);
            CHECK(after.all_reduces - before.all_reduces == sums);
            CHECK(after.sends + after.broadcasts == before.sends + before.broadcasts);
            // behind the sums, a number and a score of this rank's best word
            CHECK(after.bytes - before.bytes == others * (4 * sums * width + 8));
        });
        CHECK(joined(errors) == "");
        std::uint64_t weights = 0;
        for (const ModelMemory& m : memory) {
            // two key and value heads: one each, or each kept by two
            CHECK(m.cache == whole.cache / 2);
            weights += m.weights;
        }
        // two heads of 8 rows
        const std::uint64_t kv_rows = 2 * layers * 2 * 8 * width * sizeof(float);
        const std::uint64_t twice = ranks == 4 ? kv_rows : 0, others = static_cast<std::uint64_t>(ranks - 1);
        CHECK(weights >= whole.weights + others * norms + twice);
        // and what is between tensors
        CHECK(weights <= whole.weights + others * norms + twice + 4096 * others);
    }
}

TEST_CASE("parallel decoder: a rank with another version, model, or type of weights is named") {
    const Checkpoint checkpoint(kModels / "llama"), other(kModels / "gpt2");
    const DecoderModel model = read_decoder(checkpoint), other_model = read_decoder(other);
    using Other = std::function<void(const std::shared_ptr<Communicator>&)>;
    const std::vector<std::pair<std::string, Other>> cases{
        {"version of vkformer", [](const auto& c) { c->agree("version of vkformer", "0.0.1"); }},
        {"model", [&](const auto& c) { DecoderPlan(device(), other, other_model, {.communicator = c}); }},
        {"type of matrices", [&](const auto& c) {
             DecoderPlan(device(), checkpoint, model, {.communicator = c}, {.matrices = WeightType::int8});
         }}};
    for (const auto& [what, of_other] : cases) {
        const Other& run = of_other;
        const auto errors = on_ranks(2, [&](const std::shared_ptr<Communicator>& c) {
            c->limit(60);
            if (c->rank() == 1) {
                run(c);
            } else {
                DecoderPlan(device(), checkpoint, model, {.communicator = c});
            }
        });
        CHECK(errors[0] == "rank 1: has another " + what + " than rank 0");
        CHECK(errors[1] == "rank 0: has another " + what + " than rank 1");
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
            if (options.max_tokens == 8) {
                options.speeds = {1.0, 1.0 + 1e-15 * communicator->rank()};
            }
            const DecoderPlan plan(device(), checkpoint, model, options, load);
        });
        for (const std::string& e : errors) {
            CHECK_MESSAGE(e.find(what) != std::string::npos, e);
        }
    };
    all_say(31, {}, {}, "heads cannot be shared out over 31 ranks");
    all_say(2, {.lora = LoraOptions{.rank = 2, .alpha = 2, .targets = {"q_proj"}}}, {}, "adapter cannot be shared out");
    all_say(2, {.max_tokens = 7, .chunk = 3}, {}, "has another set of options than rank");
    all_say(2, {.max_tokens = 8}, {}, "has another set of options than rank");
    all_say(2, {.speeds = {1, 2, 3}}, {}, "parallel: 3 speeds of 2 ranks");
    all_say(2, {.speeds = {0, 1}}, {}, "parallel: speed 0.000000 of a rank is not above 0");
    all_say(2, {.candidates = 30, .speeds = {1, 9}}, {}, "candidates = 30 is more than the 9 tokens that a rank of 2");
    all_say(4, {}, {.matrices = WeightType::int4}, "would end inside a group that shares a scale");

    const auto alone = [&](const std::vector<double>& speeds, Split split, bool has_communicator) {
        return joined(on_ranks(1, [&](const std::shared_ptr<Communicator>& communicator) {
            DecoderOptions options{.split = split, .speeds = speeds};
            options.communicator = has_communicator ? communicator : nullptr;
            DecoderPlan(device(), checkpoint, model, options);
        }));
    };
    for (const Split split : {Split::tensor, Split::layers}) {
        for (const bool has_communicator : {false, true}) {
            CHECK(alone({2.5}, split, has_communicator) == "");
            CHECK(alone({std::nan("")}, split, has_communicator) ==
                  "parallel: speed " + std::to_string(std::nan("")) + " of a rank is not above 0");
            CHECK(alone({-1}, split, has_communicator) == "parallel: speed -1.000000 of a rank is not above 0");
            CHECK(alone({-1, 2}, split, has_communicator) == "parallel: 2 speeds of 1 ranks");
        }
    }

    const TemporaryFolder folder;  // 2 heads of 9, where f16 keeps columns in pairs
    std::ofstream(folder.path() / "config.json") << "{}";
    const std::vector<float> numbers(5 * 18);
    save_safetensors(folder.path() / "model.safetensors", std::vector{host_tensor("w", {5, 18}, numbers)});
    Graph g;
    g.set_rank({0, 2});
    linear(g.input("x", {1, 9}), g.weight("w", {5, 9}, Shard{1, 18, {{0, 9}}}));
    const LoadOptions halves{.matrices = WeightType::f16};
    CHECK(error_of([&] {
              find_parameters(g, Checkpoint(folder.path()), {}, halves);
          }).ends_with("a part of its 18 columns would end inside a word of two numbers"));
}
