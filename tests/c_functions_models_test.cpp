// SPDX-License-Identifier: Apache-2.0
// C's models beside those of C++: the same files, the same bits.
#include <algorithm>
#include <limits>
#include <map>

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

    vkf_model_memory memory = sized<vkf_model_memory>();
    OK(vkf_decoder_memory(on.device, folder.c_str(), nullptr, &options, &memory));
    CHECK(memory.weights == plan.memory().weights);
    CHECK(memory.cache == plan.memory().cache);
    CHECK(memory.scratch == plan.memory().scratch);
    CHECK(memory.constants == plan.memory().constants);
    CHECK(memory.transfers == plan.memory().transfers);
    CHECK(memory.total == same.memory().total());
    CHECK(vkf_decoder_memory(on.device, "nowhere", nullptr, nullptr, &memory) == VKF_ERROR);
    CHECK(contains(vkf_last_error(), "nowhere"));
    const double speed = -1;
    options.speeds = &speed;  // of the one rank that there is
    CHECK(vkf_decoder_memory(on.device, folder.c_str(), nullptr, &options, &memory) == VKF_ERROR);
    CHECK(contains(vkf_last_error(), "speed -1.000000 of a rank is not above 0"));
    options.speeds = nullptr;

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
    char lines[64] = "none";
    std::size_t needed = 9;
    OK(vkf_decoder_not_obeyed(decoder, lines, sizeof(lines), &needed));
    CHECK(std::string(lines).empty());
    CHECK(needed == 0);

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
    std::int32_t none = -1;
    float no_logit = 0;
    for (const std::uint64_t sequence : {std::uint64_t{1}, std::numeric_limits<std::uint64_t>::max()}) {
        CHECK(vkf_decoder_candidates(decoder, sequence, &none, &no_logit, 1, nullptr) == VKF_ERROR);
        CHECK(vkf_sampler_choose(sampler, decoder, sequence, &none) == VKF_ERROR);
    }
    std::int32_t four[4] = {-1, -1, -1, -1};
    CHECK(vkf_decoder_candidates(decoder, 0, four, nullptr, 4, nullptr) == VKF_ERROR);
    CHECK(four[0] == -1);
    std::int64_t room = -1;
    OK(vkf_decoder_room(decoder, &room));
    CHECK(room == same.room());

    const TemporaryFolder parent;
    const std::string cache = (parent.path() / "cache.safetensors").string();
    OK(vkf_decoder_save_cache(decoder, cache.c_str()));
    OK(vkf_decoder_prompt(decoder, 1, &tokens));
    OK(vkf_decoder_restore_cache(decoder, cache.c_str()));
    OK(vkf_decoder_append(decoder, &tokens));
    same.append(prompt);
    std::int32_t next = -1;
    OK(vkf_decoder_next(decoder, &next, 1, nullptr));
    CHECK(next == same.next()[0]);
    OK(vkf_decoder_room(decoder, &room));
    CHECK(room == same.room());
    CHECK(vkf_decoder_append(decoder, nullptr) == VKF_ERROR);
    CHECK(vkf_decoder_save_cache(decoder, nullptr) == VKF_ERROR);
    CHECK(vkf_decoder_restore_cache(decoder, "nowhere") == VKF_ERROR);
    CHECK(contains(vkf_last_error(), "nowhere"));

    const std::vector<float> want = same.score(prompt);
    std::vector<float> logits(want.size());
    // asking for the size forgets nothing
    CHECK(vkf_decoder_score(decoder, &tokens, nullptr, 0, &count) == VKF_ERROR);
    CHECK(count == want.size());
    CHECK(vkf_decoder_score(decoder, &tokens, nullptr, count, nullptr) == VKF_ERROR);
    std::int64_t left = -1;
    OK(vkf_decoder_room(decoder, &left));
    CHECK(left == room);
    OK(vkf_decoder_next(decoder, &none, 1, nullptr));
    CHECK(none == next);
    const std::int32_t no_token = -1;
    const vkf_tokens refused{&no_token, 1};
    count = 777;
    CHECK(vkf_decoder_score(decoder, &refused, logits.data(), logits.size(), &count) == VKF_ERROR);
    CHECK(count == 777);
    OK(vkf_decoder_score(decoder, &tokens, logits.data(), logits.size(), &count));
    CHECK(logits == want);
    vkf_sampler_destroy(sampler);
    vkf_decoder_destroy(decoder);

    const std::string saved = (parent.path() / "saved").string();
    std::pair<std::uint64_t, std::uint64_t> written;
    const auto note = [](void* user, std::uint64_t done, std::uint64_t all) {
        *static_cast<std::pair<std::uint64_t, std::uint64_t>*>(user) = {done, all};
    };
    vkf_load_options packed = sized<vkf_load_options>();
    packed.matrices = VKF_WEIGHT_INT8;
    packed.progress = note;
    packed.user = &written;
    packed.pack_on = VKF_PACK_ON_DEVICE;
    CHECK(vkf_decoder_save(folder.c_str(), saved.c_str(), &packed) == VKF_ERROR);
    CHECK(contains(vkf_last_error(), "packed on the host"));
    packed.pack_on = VKF_PACK_BY_DEVICE;
    OK(vkf_decoder_save(folder.c_str(), saved.c_str(), &packed));
    CHECK(written.first > 0);
    CHECK(written.first == written.second);
    OK(vkf_decoder_create(on.device, saved.c_str(), nullptr, nullptr, &decoder));
    vkf_decoder_destroy(decoder);
    CHECK(vkf_decoder_create(on.device, "nowhere", nullptr, nullptr, &decoder) == VKF_ERROR);
    CHECK(decoder == nullptr);
    CHECK(contains(vkf_last_error(), "nowhere"));
}

TEST_CASE("c functions: decoders that share their weights, and their programs") {
    const DeviceOfC on;
    const std::string folder = source("samples/generate");
    vkf_load_options load = sized<vkf_load_options>();
    load.matrices = VKF_WEIGHT_INT8;
    std::uint64_t uploaded = 0;
    load.user = &uploaded;
    load.progress = [](void* user, std::uint64_t done, std::uint64_t) { *static_cast<std::uint64_t*>(user) = done; };
    vkf_weights* weights = nullptr;
    OK(vkf_weights_load_decoder(on.device, folder.c_str(), &load, &weights));
    CHECK(uploaded > 0);
    const Checkpoint checkpoint{folder};
    const DecoderModel model = read_decoder(checkpoint);
    vkf_load_options choosing = sized<vkf_load_options>();
    int chosen = 0;
    choosing.user = &chosen;
    choosing.choose = [](void* user, const vkf_tensor* matrix) {
        *static_cast<int*>(user) += matrix->rank == 2 && matrix->data == nullptr ? 1 : 0;
        return vkf_weight_type{VKF_WEIGHT_INT8};
    };
    vkf_decoder* packed = nullptr;
    OK(vkf_decoder_create(on.device, folder.c_str(), &choosing, nullptr, &packed));
    CHECK(chosen > 0);
    vkf_decoder_destroy(packed);
    vkf_weights* same_choice = nullptr;
    OK(vkf_weights_load_decoder(on.device, folder.c_str(), &choosing, &same_choice));
    std::uint64_t bytes_asked_for = 0, bytes_chosen = 0;
    OK(vkf_weights_bytes(weights, &bytes_asked_for));
    OK(vkf_weights_bytes(same_choice, &bytes_chosen));
    CHECK(bytes_asked_for == bytes_chosen);
    vkf_weights_destroy(same_choice);
    const Weights same_weights = load_decoder(device(), checkpoint, model, {.matrices = WeightType::int8});
    std::uint64_t bytes = 0;
    OK(vkf_weights_bytes(weights, &bytes));
    CHECK(bytes == same_weights.bytes());
    OK(vkf_weights_bytes_of_type(weights, VKF_WEIGHT_INT8, &bytes));
    CHECK(bytes > 0);
    CHECK(bytes == same_weights.bytes(WeightType::int8));
    OK(vkf_weights_bytes_packed_on_device(weights, &bytes));
    CHECK(bytes == same_weights.bytes_packed_on_device());
    CHECK(vkf_weights_bytes_of_type(weights, VKF_WEIGHT_AS_GIVEN, &bytes) == VKF_ERROR);

    vkf_decoder_options options = sized<vkf_decoder_options>();
    options.max_tokens = 32;
    options.chunk = 4;
    options.profile = true;
    vkf_decoder *one = nullptr, *two = nullptr;
    OK(vkf_decoder_create_with_weights(on.device, folder.c_str(), weights, &options, &one));
    options.chunk = 3;
    options.profile = false;
    OK(vkf_decoder_create_with_weights(on.device, folder.c_str(), weights, &options, &two));
    vkf_weights_destroy(weights);
    Decoder same(device(), same_weights, model, {.max_tokens = 32, .chunk = 4});
    const std::vector<std::int32_t> prompt{1, 5, 9, 3, 7};
    const vkf_tokens tokens{prompt.data(), prompt.size()};
    same.prompt(prompt);
    for (vkf_decoder* decoder : {one, two}) {
        OK(vkf_decoder_prompt(decoder, 1, &tokens));
        std::int32_t next = -1;
        OK(vkf_decoder_next(decoder, &next, 1, nullptr));
        CHECK(next == same.next()[0]);
        const vkf_tokens step{&next, 1};
        OK(vkf_decoder_step(decoder, &step));
    }

    const vkf_program *reads = nullptr, *steps = nullptr, *bare = nullptr;
    OK(vkf_decoder_prompt_program(one, &reads));
    OK(vkf_decoder_step_program(one, &steps));
    OK(vkf_decoder_step_program(two, &bare));
    CHECK(reads != steps);
    vkf_program_destroy(const_cast<vkf_program*>(bare));
    CHECK(contains(vkf_last_error(), "the program is its model's or trainer's own"));
    std::uint32_t count = 1;
    OK(vkf_program_times(bare, nullptr, &count));
    CHECK(count == 0);
    vkf_memory_sizes sizes = sized<vkf_memory_sizes>();
    OK(vkf_program_memory(steps, &sizes));
    CHECK(sizes.state == same.step_program().memory().state);
    if (device().capabilities().timestamp_period > 0) {
        for (const vkf_program* program : {reads, steps}) {
            OK(vkf_program_times(program, nullptr, &count));
            REQUIRE(count > 2);
            std::vector<vkf_dispatch_time> times(count, sized<vkf_dispatch_time>());
            count = 2;
            OK(vkf_program_times(program, times.data(), &count));
            CHECK(count == times.size());
            CHECK(times[1].label != nullptr);
            CHECK(times[2].label == nullptr);
            OK(vkf_program_times(program, times.data(), &count));
            std::vector<char> said(100000);
            OK(vkf_program_time_table(program, said.data(), said.size(), nullptr));
            double ms = 0;
            for (const vkf_dispatch_time& t : times) {
                ms += t.ms;
                CHECK(t.flops + t.bytes > 0);
                CHECK(contains(said.data(), t.label));
            }
            CHECK(ms > 0);
        }
    }
    vkf_decoder_destroy(one);
    vkf_decoder_destroy(two);
    CHECK(vkf_decoder_create_with_weights(on.device, folder.c_str(), nullptr, nullptr, &one) == VKF_ERROR);
    CHECK(one == nullptr);
    CHECK(contains(vkf_last_error(), "weights is null"));
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
    vkf_model_memory memory = sized<vkf_model_memory>();
    OK(vkf_text_encoder_memory(encoder, &memory));
    CHECK(memory.total == same.memory().total());
    OK(vkf_text_encoder_embed(encoder, 2, ids, vectors.data(), vectors.size(), &count));
    CHECK(count == want.size());
    CHECK(vectors == want);
    vkf_encoder_facts facts = sized<vkf_encoder_facts>();
    OK(vkf_text_encoder_get(encoder, &facts));
    CHECK(facts.vocab_size == model.facts().vocab_size);
    CHECK(facts.hidden_size == model.facts().hidden_size);
    CHECK(facts.max_tokens == model.facts().max_tokens);
    CHECK(facts.cut_tokens == 0);
    CHECK(!facts.lower_case);
    CHECK(facts.model_type == model.facts().model_type);
    const vkf_program* program = nullptr;
    OK(vkf_text_encoder_program(encoder, &program));
    vkf_memory_sizes sizes = sized<vkf_memory_sizes>();
    OK(vkf_program_memory(program, &sizes));
    CHECK(sizes.scratch == same.program().memory().scratch);
    vkf_text_encoder_destroy(encoder);

    vkf_load_options halves = sized<vkf_load_options>();
    int without_data = 0;
    halves.user = &without_data;
    halves.choose = [](void* user, const vkf_tensor* matrix) {
        *static_cast<int*>(user) += matrix->rank == 2 && matrix->data == nullptr ? 1 : 0;
        return vkf_weight_type{VKF_WEIGHT_F16};
    };
    vkf_weights* shared = nullptr;
    OK(vkf_weights_load_text_encoder(on.device, folder.c_str(), &halves, &shared));
    CHECK(without_data > 0);
    TextEncoder same_halves(device(), load_text_encoder(device(), checkpoint, model, {.matrices = WeightType::f16}),
                            model);
    want.clear();
    for (const std::vector<float>& v : same_halves.embed(texts)) {
        want.insert(want.end(), v.begin(), v.end());
    }
    vkf_text_encoder *one = nullptr, *two = nullptr;
    vkf_text_encoder_options fewer = sized<vkf_text_encoder_options>();
    fewer.max_batch = 1;
    OK(vkf_text_encoder_create_with_weights(on.device, folder.c_str(), shared, nullptr, &one));
    OK(vkf_text_encoder_create_with_weights(on.device, folder.c_str(), shared, &fewer, &two));
    vkf_weights_destroy(shared);
    OK(vkf_text_encoder_embed(one, 2, ids, vectors.data(), vectors.size(), &count));
    CHECK(vectors == want);
    OK(vkf_text_encoder_embed(two, 2, ids, vectors.data(), vectors.size(), &count));
    CHECK(count == want.size());
    vkf_text_encoder_destroy(one);
    vkf_text_encoder_destroy(two);

    const std::string file = source("samples/dates/model.safetensors");
    vkf_weights* weights = nullptr;
    OK(vkf_weights_load_file(on.device, file.c_str(), nullptr, &weights));
    vkf_encoder_decoder_config config = sized<vkf_encoder_decoder_config>();
    config.source_vocabulary = config.target_vocabulary = 62;
    config.d_model = 64;
    config.nhead = 4;
    config.num_encoder_layers = config.num_decoder_layers = 2;
    config.dim_feedforward = 256;
    config.embedding_scale = 8;
    config.max_source = 40;
    config.max_target = 12;
    EncoderDecoder same_dates(device(), device().load(Safetensors(file)), dates_config(), 2);
    const std::vector<std::vector<std::int32_t>> sources{{4, 5, 6, 7, 8}, {9, 10, 11}};
    const std::vector<Decoded> found = same_dates.generate(sources, 1, 2, 0);
    const vkf_tokens source_ids[] = {{sources[0].data(), sources[0].size()}, {sources[1].data(), sources[1].size()}};
    const Safetensors read(file);
    std::vector<vkf_tensor> tensors_of_c;
    for (const HostTensor& t : read.tensors()) {
        tensors_of_c.push_back({t.name.c_str(), t.data.data(), t.data.size(), t.shape.data(),
                                static_cast<std::uint32_t>(t.shape.size()), c::dtype_to_c(t.dtype), VKF_WEIGHT_AS_GIVEN,
                                0});
    }
    for (const char* way : {"weights", "tensors", "a file"}) {
        CAPTURE(way);
        vkf_encoder_decoder* dates = nullptr;
        if (way == std::string_view("weights")) {
            OK(vkf_encoder_decoder_create(on.device, weights, &config, 2, &dates));
        } else if (way == std::string_view("tensors")) {
            OK(vkf_encoder_decoder_load(on.device, static_cast<std::uint32_t>(tensors_of_c.size()), tensors_of_c.data(),
                                        nullptr, &config, 2, &dates));
        } else {
            OK(vkf_encoder_decoder_load_file(on.device, file.c_str(), nullptr, &config, 2, &dates));
        }
        OK(vkf_encoder_decoder_memory(dates, &memory));
        CHECK(memory.total == same_dates.memory().total());
        CHECK(memory.cache == same_dates.memory().cache);
        OK(vkf_encoder_decoder_generate(dates, 2, source_ids, 1, 2, 0));
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
        OK(vkf_encoder_decoder_encoder(dates, &program));
        OK(vkf_program_memory(program, &sizes));
        CHECK(sizes.outputs == same_dates.encoder().memory().outputs);
        OK(vkf_encoder_decoder_decoder(dates, &program));
        OK(vkf_program_memory(program, &sizes));
        CHECK(sizes.outputs == same_dates.decoder().memory().outputs);
        vkf_encoder_decoder_destroy(dates);
    }
    vkf_encoder_decoder* dates = nullptr;
    std::map<std::string, int> asked;
    vkf_load_options choosing = sized<vkf_load_options>();
    choosing.user = &asked;
    choosing.choose = [](void* user, const vkf_tensor* matrix) -> vkf_weight_type {
        return ++(*static_cast<std::map<std::string, int>*>(user))[matrix->name] == 1 ? VKF_WEIGHT_F16 : VKF_WEIGHT_F32;
    };
    OK(vkf_encoder_decoder_load_file(on.device, file.c_str(), &choosing, &config, 2, &dates));
    CHECK(asked.size() > 10);
    CHECK(std::all_of(asked.begin(), asked.end(), [](const auto& one) { return one.second == 1; }));
    vkf_encoder_decoder_destroy(dates);
    CHECK(vkf_encoder_decoder_load_file(on.device, "nowhere", nullptr, &config, 2, &dates) == VKF_ERROR);
    CHECK(dates == nullptr);
    CHECK(contains(vkf_last_error(), "nowhere"));
    vkf_weights_destroy(weights);
}

TEST_SUITE_END();
