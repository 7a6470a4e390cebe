// SPDX-License-Identifier: Apache-2.0
// C's models beside those of C++: the same files, the same bits.
#include "c/border.h"
#include "models/decoder.h"
#include "models/files/safetensors.h"
#include "models/sampler.h"
#include "models/text_encoder.h"
#include "tests/c_functions.h"
#include "tests/dates_config.h"
#include "tests/device.h"
#include "tests/fixtures.h"
#include "tests/op_check.h"

using namespace vkf;
using namespace vkf::test;

TEST_SUITE_BEGIN("c functions");

TEST_CASE("c functions: decoders and samplers") {
    const DeviceOfC on;
    const std::string folder = source("samples/generate");
    vkf_decoder_options options = sized<vkf_decoder_options>();
    options.max_tokens = 64;
    options.chunk = 16;
    options.candidates = 4;
    options.score = true;
    vkf_decoder* decoder = nullptr;
    OK(vkf_decoder_create(on.device, folder.c_str(), nullptr, &options, &decoder));
    const Checkpoint checkpoint{folder};
    const DecoderPlan plan(device(), checkpoint, read_decoder(checkpoint),
                           {.max_tokens = 64, .chunk = 16, .candidates = 4, .score = true});
    Decoder same(device(), load_decoder(device(), checkpoint, plan), plan);

    vkf_decoder_facts facts = sized<vkf_decoder_facts>();
    OK(vkf_decoder_get(decoder, &facts));
    CHECK(facts.vocab_size == plan.model().facts().vocab_size);
    CHECK(facts.max_positions == plan.model().facts().max_positions);
    CHECK(facts.model_type == plan.model().facts().model_type);
    std::vector<std::int32_t> ends(8);
    std::uint64_t count = 0;
    OK(vkf_decoder_end_tokens(decoder, ends.data(), ends.size(), &count));
    ends.resize(count);
    CHECK(ends == plan.model().facts().end);

    const std::vector<std::int32_t> prompt{1, 5, 9, 3};
    const vkf_tokens tokens{prompt.data(), prompt.size()};
    OK(vkf_decoder_prompt(decoder, 1, &tokens));
    same.prompt(prompt);
    vkf_sampler_options choice = sized<vkf_sampler_options>();
    choice.temperature = 1.0f;
    choice.top_k = 4;
    choice.seed = 5;
    vkf_sampler* sampler = nullptr;
    OK(vkf_sampler_create(&choice, &sampler));
    Sampler same_sampler({.temperature = 1.0f, .top_k = 4, .seed = 5});
    for (int i = 0; i < 6; ++i) {
        std::int32_t next = -1, chosen = -1;
        OK(vkf_decoder_next(decoder, &next, 1, nullptr));
        CHECK(next == same.next()[0]);
        std::int32_t ids[4];
        float logits[4];
        OK(vkf_decoder_candidates(decoder, 0, ids, logits, 4, &count));
        const Candidates best = same.candidates(0);
        CHECK(std::equal(best.tokens.begin(), best.tokens.end(), ids, ids + count));
        CHECK(std::equal(best.logits.begin(), best.logits.end(), logits, logits + count));
        OK(vkf_sampler_choose(sampler, decoder, 0, &chosen));
        const std::int32_t want = same_sampler.choose(best);
        CHECK(chosen == want);
        const vkf_tokens step{&chosen, 1};
        OK(vkf_decoder_step(decoder, &step));
        same.step(std::span(&want, 1));
    }
    std::int64_t room = -1;
    OK(vkf_decoder_room(decoder, &room));
    CHECK(room == same.room());
    const std::vector<float> want = same.score(prompt);
    std::vector<float> logits(want.size());
    OK(vkf_decoder_score(decoder, &tokens, logits.data(), logits.size(), &count));
    CHECK(logits == want);
    vkf_sampler_destroy(sampler);
    vkf_decoder_destroy(decoder);

    const TemporaryFolder parent;
    const std::string saved = (parent.path() / "saved").string();
    OK(vkf_decoder_save(folder.c_str(), saved.c_str(), VKF_WEIGHT_INT8));
    OK(vkf_decoder_create(on.device, saved.c_str(), nullptr, nullptr, &decoder));
    vkf_decoder_destroy(decoder);
    CHECK(vkf_decoder_create(on.device, "nowhere", nullptr, nullptr, &decoder) == VKF_ERROR);
    CHECK(decoder == nullptr);
    CHECK(contains(vkf_last_error(), "nowhere"));
}

TEST_CASE("c functions: texts as vectors, and the encoder-decoder") {
    const DeviceOfC on;
    const std::string folder = source("tests/text/bert");
    vkf_text_encoder* encoder = nullptr;
    OK(vkf_text_encoder_create(on.device, folder.c_str(), nullptr, nullptr, &encoder));
    const Checkpoint checkpoint{folder};
    const TextEncoderModel model = read_text_encoder(checkpoint);
    TextEncoder same(device(), load_text_encoder(device(), checkpoint, model), model);
    const std::vector<std::vector<std::int32_t>> texts{{2, 7, 9, 3}, {2, 5, 3}};
    const vkf_tokens ids[] = {{texts[0].data(), texts[0].size()}, {texts[1].data(), texts[1].size()}};
    std::vector<float> want;
    for (const std::vector<float>& v : same.embed(texts)) {
        want.insert(want.end(), v.begin(), v.end());
    }
    std::vector<float> vectors(want.size());
    std::uint64_t count = 0;
    OK(vkf_text_encoder_embed(encoder, 2, ids, vectors.data(), vectors.size(), &count));
    CHECK(count == want.size());
    CHECK(vectors == want);
    vkf_text_encoder_destroy(encoder);

    const std::string file = source("samples/dates/model.safetensors");
    vkf_weights* weights = nullptr;
    OK(vkf_weights_load_file(on.device, file.c_str(), nullptr, &weights));
    vkf_encoder_decoder_config c = sized<vkf_encoder_decoder_config>();
    c.source_vocabulary = c.target_vocabulary = 62;
    c.d_model = 64;
    c.nhead = 4;
    c.num_encoder_layers = c.num_decoder_layers = 2;
    c.dim_feedforward = 256;
    c.embedding_scale = 8;
    c.max_source = 40;
    c.max_target = 12;
    vkf_encoder_decoder* dates = nullptr;
    OK(vkf_encoder_decoder_create(on.device, weights, &c, 2, &dates));
    EncoderDecoder same_dates(device(), device().load(Safetensors(file)), dates_config(), 2);
    const std::vector<std::vector<std::int32_t>> sources{{4, 5, 6, 7, 8}, {9, 10, 11}};
    const vkf_tokens source_ids[] = {{sources[0].data(), sources[0].size()}, {sources[1].data(), sources[1].size()}};
    OK(vkf_encoder_decoder_generate(dates, 2, source_ids, 1, 2, 0));
    const std::vector<Decoded> found = same_dates.generate(sources, 1, 2, 0);
    for (std::size_t i = 0; i < found.size(); ++i) {
        std::vector<std::int32_t> tokens(16);
        OK(vkf_encoder_decoder_tokens(dates, i, tokens.data(), tokens.size(), &count));
        tokens.resize(count);
        CHECK(tokens == found[i].tokens);
        std::vector<float> looked(found[i].cross_attention.size());
        OK(vkf_encoder_decoder_cross_attention(dates, i, looked.data(), looked.size(), &count));
        CHECK(looked == found[i].cross_attention);
    }
    CHECK(vkf_encoder_decoder_tokens(dates, 2, nullptr, 0, &count) == VKF_ERROR);
    vkf_encoder_decoder_destroy(dates);
    vkf_weights_destroy(weights);
}

TEST_SUITE_END();
