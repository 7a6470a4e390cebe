// SPDX-License-Identifier: Apache-2.0
// Decoders whose weights and caches are kept in fewer bits, or that compute in int8.
#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "runtime/graph/packed.h"
#include "tests/believed.h"
#include "tests/decoder_models.h"
#include "tests/op_check.h"

using namespace vkf;
using namespace vkf::test;

namespace {

double mean_square_error(const std::vector<float>& got, const std::vector<float>& want) {
    REQUIRE(got.size() == want.size());
    double sum = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
        const double d = double(got[i]) - want[i];
        sum += d * d;
    }
    return sum / static_cast<double>(got.size());
}

double variance(const std::vector<float>& x) {
    double mean = 0;
    for (const float v : x) {
        mean += v / static_cast<double>(x.size());
    }
    return mean_square_error(x, std::vector<float>(x.size(), static_cast<float>(mean)));
}

}  // namespace

TEST_SUITE_BEGIN("decoder");

TEST_CASE("decoder: the spell model's answers stay what they are in fewer bits") {
    struct Kind {
        WeightType weights, kv;
    };
    using enum WeightType;
    const Checkpoint checkpoint(kSpell);
    const DecoderModel model = read_decoder(checkpoint);
    const auto vocabulary = static_cast<std::size_t>(model.facts().vocab_size);
    const nlohmann::json examples = nlohmann::json::parse(read_text(kSpell / "expected.json"));
    for (const Kind& kind : {Kind{f16, f32}, Kind{bf16, f32}, Kind{int8, f32}, Kind{int4, f32}, Kind{f32, f16},
                             Kind{f32, int8}, Kind{int8, int8}}) {
        const std::string types = std::string(name_of(kind.weights)) + ", " + std::string(name_of(kind.kv));
        CAPTURE(types);
        Decoder decoder(device(), load_decoder(device(), checkpoint, model, {.matrices = kind.weights}), model,
                        {.max_tokens = 96, .kv = kind.kv, .score = true});
        std::size_t wrong = 0, judged = 0;
        for (std::size_t i = 0; i < examples.size(); i += 5) {
            const std::vector<std::int32_t> answer = examples[i].at("output_ids");
            std::vector<std::int32_t> ids = examples[i].at("prompt_ids");
            const std::size_t known = ids.size();
            ids.insert(ids.end(), answer.begin(), answer.end());
            const std::vector<float> logits = decoder.score(ids);
            // greedy, as long as all before were right
            for (std::size_t t = known; t < ids.size(); ++t) {
                const auto row = logits.begin() + static_cast<std::ptrdiff_t>((t - 1) * vocabulary);
                wrong += std::max_element(row, row + model.facts().vocab_size) - row == ids[t] ? 0 : 1;
                ++judged;
            }
        }
        CHECK(judged > 400);
        CHECK(wrong == 0);
    }
}

TEST_CASE("decoder: prompts in int8 arithmetic, where it was asked for, end in the same answers") {
    const Checkpoint checkpoint(kSpell);
    const DecoderModel model = read_decoder(checkpoint);
    const Weights weights = load_decoder(device(), checkpoint, model, {.matrices = WeightType::int8});
    const Believed codes([](Capabilities& c) {
        c.variants = c.cooperative_matrix_int8 ? "matmul_coopmat_int8" : c.integer_dot ? "matmul_dot" : "";
    });
    Decoder exact(device(), weights, model, {.max_tokens = 96});
    Decoder decoder(device(), weights, model, {.max_tokens = 96, .arithmetic = Arithmetic::int8});
    CHECK_FALSE(contains(exact.prompt_program().explain(), "int8 arithmetic"));
    if (device().capabilities().variants.empty()) {
        CHECK(contains(decoder.prompt_program().explain(), "fp32, though int8 was asked for: "));
        cannot_run("integer dot products");
        return;
    }
    CHECK(contains(decoder.prompt_program().explain(), "int8 arithmetic"));
    CHECK(decoder.memory().scratch > exact.memory().scratch);
    const nlohmann::json examples = nlohmann::json::parse(read_text(kSpell / "expected.json"));
    for (std::size_t i = 0; i < examples.size(); i += 40) {
        const std::vector<std::int32_t> want = examples[i].at("output_ids");
        CHECK(greedy(decoder, examples[i].at("prompt_ids"), want.size()) == want);
    }
}

TEST_CASE("decoder: matrices kept in fewer bytes give nearly the same") {
    struct Kind {
        WeightType type;
        double most;  // of the logits' own spread
    };
    for (const char* name : {"llama", "gemma2", "gpt2"}) {
        CAPTURE(name);
        const Expected expected(kModels / name);
        const double spread = variance(expected.logits);
        const Checkpoint checkpoint(kModels / name);
        const DecoderModel model = read_decoder(checkpoint);
        std::uint64_t bytes = ~std::uint64_t{0};
        for (const Kind& kind : {Kind{WeightType::f16, 1e-5}, Kind{WeightType::bf16, 1e-3},
                                 Kind{WeightType::int8, 1e-2}, Kind{WeightType::int4, 0.5}}) {
            const std::string kind_name(name_of(kind.type));
            CAPTURE(kind_name);
            const Weights weights = load_decoder(device(), checkpoint, model, {.matrices = kind.type});
            Decoder decoder(device(), weights, model, {.score = true});
            const std::vector<float> got = decoder.score(expected.ids);
            CHECK(mean_square_error(got, expected.logits) / spread < kind.most);
            const DecoderPlan plan(device(), checkpoint, model, {}, {.matrices = kind.type});
            const std::uint64_t planned = plan.memory().weights;
            CHECK(planned <= bytes);
            bytes = planned;
        }
    }
}

TEST_CASE("decoder: caches kept in other types give nearly the same") {
    struct Kind {
        WeightType type;
        double most;  // of the logits' own spread
    };
    for (const char* name : {"llama3", "mistral", "gemma2", "gpt2"}) {
        CAPTURE(name);
        const Model model(kModels / name);
        const Expected expected(kModels / name);
        const double spread = variance(expected.logits);
        for (const Kind& kind :
             {Kind{WeightType::f16, 1e-6}, Kind{WeightType::bf16, 1e-4}, Kind{WeightType::int8, 1e-3}}) {
            const std::string kind_name(name_of(kind.type));
            CAPTURE(kind_name);
            Decoder decoder = model.decoder({.chunk = 9, .kv = kind.type, .score = true});
            CHECK(mean_square_error(decoder.score(expected.ids), expected.logits) / spread < kind.most);
            const DecoderFacts& facts = model.model.facts();
            const std::uint64_t row =
                4 * packed_row_words(kind.type, static_cast<std::uint64_t>(facts.layers[0].head_dim));
            CHECK(decoder.memory().cache == cache_bytes(facts, 9, row));
            const std::vector<std::int32_t> near = greedy(decoder, expected.prompt, 3);
            CHECK(std::equal(near.begin(), near.end(), expected.greedy.begin()));
        }
    }
    const Model model(kModels / "llama");
    CHECK(contains(error_of([&] { model.decoder({.kv = WeightType::int4}); }), "not int4"));
}

TEST_SUITE_END();
