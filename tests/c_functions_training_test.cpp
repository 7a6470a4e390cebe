// SPDX-License-Identifier: Apache-2.0
// C's trainers, fine-tuners and adapters beside those of C++: the same losses, the same files.
#include <filesystem>
#include <limits>
#include <vector>

#include "c/border.h"
#include "models/adapter.h"
#include "models/decoder.h"
#include "models/decoder_logits.h"
#include "models/files/checkpoint.h"
#include "tests/c_functions.h"
#include "tests/device.h"
#include "tests/fixtures.h"
#include "tests/op_check.h"
#include "train/fine_tuner.h"

using namespace vkf;
using namespace vkf::test;

namespace {

using Texts = std::vector<std::vector<std::int32_t>>;

const Texts kTexts{{5, 9, 3, 17, 40, 2}, {8, 1, 60, 60, 7}};
const std::vector<float> kX{1, 2, 3, -1, 0.5f, 0.25f, 0, 4, -2, 1, 1, 1}, kWanted{1, 0, 2, -1, 0.5f, 3, -2, 1},
    kWeight{0.5f, -0.25f, 1, 2, 0.75f, -1}, kBias{0.125f, -0.5f};

std::vector<vkf_tokens> tokens_of(const Texts& texts) {
    std::vector<vkf_tokens> out;
    for (const std::vector<std::int32_t>& text : texts) {
        out.push_back({text.data(), text.size()});
    }
    return out;
}

/// The sum of the squared errors of a linear layer.
Value describe_loss(Graph& g) {
    const Value x = g.input("x", {4, 3}), wanted = g.input("wanted", {4, 2});
    const Value weight = g.weight("layer.weight", {2, 3}), bias = g.weight("layer.bias", {2});
    const Value error = linear(x, weight, bias) + scale(wanted, -1);
    return sum(error * error);
}

/// A trainer of C's for describe_loss(), with its numbers written.
struct TrainerOfC {
    TrainerOfC(vkf_device* device, const vkf_trainer_options* options) {
        OK(vkf_graph_create(&graph));
        const vkf_value loss = c::to_c(describe_loss(*graph));
        vkf_value parameters[2];
        std::uint32_t needed = 0;
        OK(vkf_trainable(graph, 0, nullptr, 2, parameters, &needed));
        OK(vkf_trainer_create(device, graph, loss, needed, parameters, options, nullptr, &trainer));
        OK(vkf_trainer_program(trainer, &program));
        OK(vkf_trainer_state(trainer, &state));
        const vkf_state_part weight{"layer.weight", 0, -1}, bias{"layer.bias", 0, -1};
        OK(vkf_state_write(state, &weight, kWeight.data(), kWeight.size() * sizeof(float)));
        OK(vkf_state_write(state, &bias, kBias.data(), kBias.size() * sizeof(float)));
        OK(vkf_program_upload(program, "x", kX.data(), kX.size()));
        OK(vkf_program_upload(program, "wanted", kWanted.data(), kWanted.size()));
    }
    ~TrainerOfC() {
        vkf_trainer_destroy(trainer);
        vkf_graph_destroy(graph);
    }
    TrainerOfC(const TrainerOfC&) = delete;
    TrainerOfC& operator=(const TrainerOfC&) = delete;

    vkf_graph* graph = nullptr;
    vkf_trainer* trainer = nullptr;
    vkf_program* program = nullptr;
    vkf_state* state = nullptr;
};

Trainer trainer_of_cpp(const TrainerOptions& options) {
    Graph g;
    const Value loss = describe_loss(g);
    Trainer trainer(device(), g, loss, trainable(g), options);
    trainer.state().write("layer.weight", std::as_bytes(std::span(kWeight)));
    trainer.state().write("layer.bias", std::as_bytes(std::span(kBias)));
    trainer.program().upload("x", kX);
    trainer.program().upload("wanted", kWanted);
    return trainer;
}

void check_same(const vkf_training_step& of_c, const TrainingStep& of_cpp) {
    CHECK(of_c.loss == of_cpp.loss);
    CHECK(of_c.grad_norm == of_cpp.grad_norm);
    CHECK(of_c.left_out == of_cpp.left_out);
}

/// Takes steps in both languages.
void check_same_steps(vkf_trainer* of_c, Trainer& of_cpp, int steps) {
    for (int i = 0; i < steps; ++i) {
        CAPTURE(i);
        vkf_training_step taken = sized<vkf_training_step>();
        OK(vkf_trainer_take_step(of_c, 1.0f, &taken));
        check_same(taken, of_cpp.take_step());
    }
    std::int64_t number = -1;
    OK(vkf_trainer_step(of_c, &number));
    CHECK(number == of_cpp.step());
}

void check_same_files(const std::filesystem::path& a, const std::filesystem::path& b) {
    CHECK(read_text(a) == read_text(b));
}

vkf_fine_tune_options small() {
    vkf_fine_tune_options options = sized<vkf_fine_tune_options>();
    options.max_batch = 2;
    options.max_tokens = 8;
    return options;
}

}  // namespace

TEST_SUITE_BEGIN("c functions");

TEST_CASE("c functions: what is lent of nothing is null") {
    auto* program = reinterpret_cast<vkf_program*>(8);
    CHECK(vkf_trainer_program(nullptr, &program) == VKF_ERROR);
    CHECK(program == nullptr);
    auto* state = reinterpret_cast<vkf_state*>(8);
    CHECK(vkf_trainer_state(nullptr, &state) == VKF_ERROR);
    CHECK(state == nullptr);
}

TEST_CASE("c functions: micro-batches add up as in C++") {
    const DeviceOfC on;
    vkf_trainer_options options = sized<vkf_trainer_options>();
    options.accumulates = true;
    const TrainerOfC c(on.device, &options);
    Trainer cpp = trainer_of_cpp({.accumulates = true});
    float loss = 0;
    OK(vkf_trainer_accumulate(c.trainer, 3.0f, &loss));
    CHECK(loss == cpp.accumulate(3.0f));
    check_same_steps(c.trainer, cpp, 2);
    CHECK(vkf_trainer_accumulate(c.trainer, -1.0f, &loss) == VKF_ERROR);
    OK(vkf_trainer_accumulate(c.trainer, 5.0f, &loss));
    OK(vkf_trainer_drop_micro_batches(c.trainer));
    check_same_steps(c.trainer, cpp, 1);
    CHECK(vkf_trainer_drop_micro_batches(nullptr) == VKF_ERROR);
}

TEST_CASE("c functions: a trainer takes the steps of C++'s") {
    const DeviceOfC on;
    vkf_adamw adamw = sized<vkf_adamw>();
    adamw.learning_rate = 0.05;
    adamw.has_weight_decay = true;
    adamw.weight_decay = 0.5;
    std::string asked;
    vkf_trainer_options options = sized<vkf_trainer_options>();
    options.adamw = &adamw;
    options.schedule = {VKF_SCHEDULE_COSINE, 0, 2, 8};
    options.max_norm = 1.5f;
    options.loss_scale = 8;
    options.user = &asked;
    options.decay_to = [](void* user, const char* name) {
        *static_cast<std::string*>(user) += std::string(name) + " ";
        return std::string(name) == "layer.bias" ? 1.0f : 0.0f;
    };
    const TrainerOfC c(on.device, &options);
    CHECK(asked == "layer.weight layer.bias ");
    Trainer same =
        trainer_of_cpp({.optimizer = AdamW{.learning_rate = 0.05, .weight_decay = 0.5},
                        .schedule = {.kind = Schedule::Kind::cosine, .warmup = 2, .steps = 8},
                        .max_norm = 1.5f,
                        .decay_to = [](const std::string& name) { return name == "layer.bias" ? 1.0f : 0.0f; },
                        .loss_scale = 8});
    check_same_steps(c.trainer, same, 3);
    const char* const* names = nullptr;
    std::uint32_t count = 0;
    OK(vkf_trainer_parameters(c.trainer, &names, &count));
    CHECK(std::vector<std::string>(names, names + count) == same.parameters());

    const TemporaryFolder folder;
    const std::filesystem::path of_c = folder.path() / "c.safetensors", of_cpp = folder.path() / "cpp.safetensors";
    OK(vkf_trainer_save(c.trainer, of_c.string().c_str()));
    same.save(of_cpp);
    check_same_files(of_c, of_cpp);
    check_same_steps(c.trainer, same, 2);
    OK(vkf_trainer_resume(c.trainer, of_c.string().c_str()));
    same.resume(of_c);
    check_same_steps(c.trainer, same, 2);
}

TEST_CASE("c functions: trainers by SGD and by default, and what they refuse") {
    const DeviceOfC on;
    {
        const TrainerOfC c(on.device, nullptr);
        Trainer same = trainer_of_cpp({});
        check_same_steps(c.trainer, same, 2);
    }
    vkf_sgd sgd = sized<vkf_sgd>();
    sgd.learning_rate = 0.01;
    sgd.momentum = 0.5;
    vkf_trainer_options options = sized<vkf_trainer_options>();
    options.sgd = &sgd;
    const TrainerOfC c(on.device, &options);
    Trainer same = trainer_of_cpp({.optimizer = Sgd{.learning_rate = 0.01, .momentum = 0.5}});
    check_same_steps(c.trainer, same, 2);

    vkf_program_destroy(c.program);
    CHECK(contains(vkf_last_error(), "the program is its model's or trainer's own"));
    vkf_state_destroy(c.state);
    CHECK(contains(vkf_last_error(), "the state is its trainer's own"));
    vkf_training_step taken{};
    CHECK(vkf_trainer_take_step(c.trainer, 1.0f, &taken) == VKF_ERROR);
    CHECK(contains(vkf_last_error(), "struct_size is not set"));
    CHECK(vkf_trainer_take_step(c.trainer, 1.0f, nullptr) == VKF_ERROR);
    taken.struct_size = sizeof(taken);
    CHECK(vkf_trainer_take_step(nullptr, 1.0f, &taken) == VKF_ERROR);
    CHECK(contains(vkf_last_error(), "trainer is null"));
    std::vector<float> bad = kX;
    bad[0] = std::numeric_limits<float>::infinity();
    OK(vkf_program_upload(c.program, "x", bad.data(), bad.size()));
    CHECK(vkf_trainer_take_step(c.trainer, 1.0f, &taken) == VKF_ERROR);
    CHECK(contains(vkf_last_error(), "Trainer: step 2: "));
    OK(vkf_program_upload(c.program, "x", kX.data(), kX.size()));
    check_same_steps(c.trainer, same, 1);
    CHECK(vkf_trainer_resume(c.trainer, "nowhere") == VKF_ERROR);
    CHECK(contains(vkf_last_error(), "nowhere"));
    CHECK(vkf_trainer_save(c.trainer, nullptr) == VKF_ERROR);
    std::int64_t number = -1;
    CHECK(vkf_trainer_step(nullptr, &number) == VKF_ERROR);
    CHECK(number == -1);

    vkf_graph* graph = nullptr;
    OK(vkf_graph_create(&graph));
    const vkf_value loss = c::to_c(describe_loss(*graph));
    vkf_trainer* none = nullptr;
    CHECK(vkf_trainer_create(on.device, graph, vkf_no_value(), 0, nullptr, nullptr, nullptr, &none) == VKF_ERROR);
    CHECK(contains(vkf_last_error(), "loss is null"));
    CHECK(vkf_trainer_create(on.device, graph, loss, 1, nullptr, nullptr, nullptr, &none) == VKF_ERROR);
    CHECK(contains(vkf_last_error(), "parameters is null"));
    CHECK(vkf_trainer_create(on.device, graph, loss, 0, nullptr, nullptr, nullptr, &none) == VKF_ERROR);
    CHECK(contains(vkf_last_error(), "there is no parameter to train"));
    const vkf_adamw adamw = sized<vkf_adamw>();
    options.adamw = &adamw;
    CHECK(vkf_trainer_create(on.device, graph, loss, 0, nullptr, &options, nullptr, &none) == VKF_ERROR);
    CHECK(contains(vkf_last_error(), "adamw and sgd are both given"));
    CHECK(none == nullptr);
    vkf_graph_destroy(graph);
    vkf_trainer_destroy(nullptr);
}

TEST_CASE("c functions: a fine-tuner takes the steps of C++'s") {
    const DeviceOfC on;
    const std::string folder = source("tests/decoders/llama");
    const std::vector<vkf_tokens> texts = tokens_of(kTexts);
    vkf_trainer_options trained = sized<vkf_trainer_options>();
    trained.max_norm = 1;
    vkf_fine_tune_options options = small();
    options.trainer = &trained;
    vkf_fine_tuner* tuner = nullptr;
    OK(vkf_fine_tuner_create(on.device, folder.c_str(), &options, &tuner));
    const Checkpoint checkpoint{folder};
    FineTuner same(device(), checkpoint, read_decoder(checkpoint),
                   {.max_batch = 2, .max_tokens = 8, .trainer = {.max_norm = 1}});
    vkf_training_step taken = sized<vkf_training_step>();
    for (int i = 0; i < 3; ++i) {
        OK(vkf_fine_tuner_take_step(tuner, 2, texts.data(), &taken));
        check_same(taken, same.take_step(kTexts));
    }
    vkf_trainer* trainer = nullptr;
    OK(vkf_fine_tuner_trainer(tuner, &trainer));
    std::int64_t number = -1;
    OK(vkf_trainer_step(trainer, &number));
    CHECK(number == 3);
    vkf_trainer_destroy(trainer);
    CHECK(contains(vkf_last_error(), "the trainer is its fine-tuner's own"));

    const TemporaryFolder parent;
    const std::filesystem::path of_c = parent.path() / "c", of_cpp = parent.path() / "cpp";
    OK(vkf_fine_tuner_save(tuner, of_c.string().c_str()));
    same.save(of_cpp);
    check_same_files(of_c / "model.safetensors", of_cpp / "model.safetensors");
    OK(vkf_trainer_save(trainer, (of_c / "checkpoint.safetensors").string().c_str()));
    same.trainer().save(of_cpp / "checkpoint.safetensors");
    check_same_files(of_c / "checkpoint.safetensors", of_cpp / "checkpoint.safetensors");

    CHECK(vkf_fine_tuner_take_step(tuner, 0, nullptr, &taken) == VKF_ERROR);
    CHECK(contains(vkf_last_error(), "FineTuner: 0 texts are outside 1..2"));
    CHECK(vkf_fine_tuner_take_step(tuner, 1, nullptr, &taken) == VKF_ERROR);
    CHECK(contains(vkf_last_error(), "texts is null"));
    CHECK(vkf_fine_tuner_take_step(nullptr, 2, texts.data(), &taken) == VKF_ERROR);
    CHECK(vkf_fine_tuner_save(tuner, nullptr) == VKF_ERROR);
    vkf_fine_tuner_destroy(tuner);
    vkf_fine_tuner_destroy(nullptr);
    CHECK(vkf_fine_tuner_create(on.device, "nowhere", &options, &tuner) == VKF_ERROR);
    CHECK(tuner == nullptr);
    CHECK(contains(vkf_last_error(), "nowhere"));
    vkf_lora_options nothing = sized<vkf_lora_options>();
    options.lora = &nothing;
    CHECK(vkf_fine_tuner_create(on.device, folder.c_str(), &options, &tuner) == VKF_ERROR);
    CHECK(contains(vkf_last_error(), "no layer is named"));
}

TEST_CASE("c functions: adapters are learnt, saved, merged and swapped as in C++") {
    const DeviceOfC on;
    const std::string folder = source("tests/decoders/llama");
    const Checkpoint checkpoint{folder};
    const DecoderModel model = read_decoder(checkpoint);
    const std::vector<vkf_tokens> texts = tokens_of(kTexts);
    const char* targets[] = {"q_proj", "model.layers.1.mlp.*"};
    vkf_lora_options lora = sized<vkf_lora_options>();
    lora.rank = 3;
    lora.alpha = 6;
    lora.target_count = 2;
    lora.targets = targets;
    vkf_load_options load = sized<vkf_load_options>();
    load.matrices = VKF_WEIGHT_INT8;
    vkf_adamw adamw = sized<vkf_adamw>();
    adamw.learning_rate = 0.03;
    vkf_trainer_options trained = sized<vkf_trainer_options>();
    trained.adamw = &adamw;
    vkf_fine_tune_options options = small();
    options.lora = &lora;
    options.load = &load;
    options.seed = 7;
    options.trainer = &trained;
    vkf_fine_tuner* tuner = nullptr;
    OK(vkf_fine_tuner_create(on.device, folder.c_str(), &options, &tuner));
    FineTuner same(device(), checkpoint, model,
                   {.max_batch = 2,
                    .max_tokens = 8,
                    .lora = LoraOptions{.rank = 3, .alpha = 6, .targets = {"q_proj", "model.layers.1.mlp.*"}},
                    .load = {.matrices = WeightType::int8},
                    .seed = 7,
                    .trainer = {.optimizer = AdamW{.learning_rate = 0.03}}});
    vkf_training_step taken = sized<vkf_training_step>();
    for (int i = 0; i < 3; ++i) {
        OK(vkf_fine_tuner_take_step(tuner, 2, texts.data(), &taken));
        check_same(taken, same.take_step(kTexts));
    }
    const TemporaryFolder parent;
    const std::filesystem::path of_c = parent.path() / "c", of_cpp = parent.path() / "cpp";
    const std::string adapter = of_c.string();
    OK(vkf_fine_tuner_save(tuner, adapter.c_str()));
    same.save(of_cpp);
    check_same_files(of_c / "adapter_model.safetensors", of_cpp / "adapter_model.safetensors");
    check_same_files(of_c / "adapter_config.json", of_cpp / "adapter_config.json");
    vkf_fine_tuner_destroy(tuner);

    const Adapter read(of_cpp);
    const std::filesystem::path merged = parent.path() / "merged", same_merged = parent.path() / "same merged";
    OK(vkf_adapter_merge(folder.c_str(), merged.string().c_str(), adapter.c_str()));
    merge_adapter(same_merged, checkpoint, model, read);
    check_same_files(merged / "model.safetensors", same_merged / "model.safetensors");
    CHECK(vkf_adapter_merge(folder.c_str(), merged.string().c_str(), "nowhere") == VKF_ERROR);
    CHECK(contains(vkf_last_error(), "nowhere"));
    CHECK(vkf_adapter_merge(folder.c_str(), nullptr, adapter.c_str()) == VKF_ERROR);
    CHECK(contains(vkf_last_error(), "to is null"));

    vkf_lora_options room = sized<vkf_lora_options>();
    room.adapter = adapter.c_str();
    vkf_decoder_options decoding = sized<vkf_decoder_options>();
    decoding.max_tokens = 16;
    decoding.score = true;
    decoding.lora = &room;
    vkf_decoder* decoder = nullptr;
    OK(vkf_decoder_create(on.device, folder.c_str(), nullptr, &decoding, &decoder));
    Decoder same_decoder(device(), load_decoder(device(), checkpoint, model), model,
                         {.max_tokens = 16, .lora = read.options(), .score = true});
    const auto check_scores = [&] {
        const std::vector<float> want = same_decoder.score(kTexts[0]);
        std::vector<float> logits(want.size());
        OK(vkf_decoder_score(decoder, texts.data(), logits.data(), logits.size(), nullptr));
        CHECK(logits == want);
        return want;
    };
    const std::vector<float> bare = check_scores();
    OK(vkf_decoder_set_adapter(decoder, adapter.c_str()));
    same_decoder.set_adapter(read);
    CHECK(check_scores() != bare);
    CHECK(vkf_decoder_set_adapter(decoder, "nowhere") == VKF_ERROR);
    CHECK(vkf_decoder_set_adapter(decoder, nullptr) == VKF_ERROR);
    CHECK(vkf_decoder_set_adapter(nullptr, adapter.c_str()) == VKF_ERROR);
    check_scores();
    OK(vkf_decoder_clear_adapter(decoder));
    same_decoder.clear_adapter();
    CHECK(check_scores() == bare);
    vkf_decoder_destroy(decoder);
    room.rank = 2;
    CHECK(vkf_decoder_create(on.device, folder.c_str(), nullptr, &decoding, &decoder) == VKF_ERROR);
    CHECK(contains(vkf_last_error(), "`adapter` stands in place of rank, alpha and targets"));
}

TEST_CASE("c functions: adapters in a graph are those of C++") {
    const DeviceOfC on;
    const std::string folder = source("tests/decoders/llama");
    const Checkpoint checkpoint{folder};
    const DecoderModel model = read_decoder(checkpoint);
    const Weights weights = load_decoder(device(), checkpoint, model);
    const char* target = "v_proj";
    vkf_lora_options options = sized<vkf_lora_options>();
    options.rank = 2;
    options.target_count = 1;
    options.targets = &target;
    vkf_graph* graph = nullptr;
    OK(vkf_graph_create(&graph));
    vkf_lora* lora = nullptr;
    CHECK(vkf_lora_create(graph, nullptr, &lora) == VKF_ERROR);
    CHECK(contains(vkf_last_error(), "options is null"));
    CHECK(vkf_lora_create(nullptr, &options, &lora) == VKF_ERROR);
    OK(vkf_lora_create(graph, &options, &lora));
    vkf_value values[4], tokens{}, logits{};
    std::uint32_t needed = 0;
    CHECK(vkf_lora_parameters(lora, 4, values, &needed) == VKF_ERROR);
    CHECK(contains(vkf_last_error(), "no linear layer fits \"v_proj\""));
    const vkf_dim shape[] = {vkf_size(1), vkf_size(6)};
    OK(vkf_graph_input(graph, "tokens", VKF_I32, 2, shape, &tokens));
    CHECK(vkf_decoder_logits(tokens, nullptr, &logits) == VKF_ERROR);
    CHECK(vkf_decoder_logits(tokens, "nowhere", &logits) == VKF_ERROR);
    CHECK(contains(vkf_last_error(), "nowhere"));
    CHECK(vkf_decoder_logits(vkf_no_value(), folder.c_str(), &logits) == VKF_ERROR);
    OK(vkf_decoder_logits(tokens, folder.c_str(), &logits));
    OK(vkf_lora_parameters(lora, 1, values, &needed));
    CHECK(needed == 4);
    OK(vkf_lora_parameters(lora, 4, values, &needed));
    vkf_lora_destroy(lora);
    OK(vkf_graph_output("logits", logits));
    const vkf_graph* graphs[] = {graph};
    vkf_state* state = nullptr;
    OK(vkf_state_create(on.device, 1, graphs, &state));

    Graph g;
    const Lora same(g, {.rank = 2, .targets = {"v_proj"}});
    g.output("logits", decoder_logits(g.input("tokens", {1, 6}, DType::i32), model));
    REQUIRE(same.parameters().size() == 4);
    State same_state = device().make_state({&g});
    CompileOptions compile;
    compile.state = same_state;
    Program same_program = device().compile(g, weights, compile);
    vkf_weights shared{weights};
    vkf_compile_options of_c = sized<vkf_compile_options>();
    of_c.state = state;
    vkf_program* program = nullptr;
    OK(vkf_compile(on.device, graph, &shared, &of_c, &program));

    std::vector<float> numbers;
    for (std::uint32_t i = 0; i < 4; ++i) {
        const std::string whole = same.parameters()[i].str(), name = whole.substr(0, whole.find(' '));
        char text[100];
        OK(vkf_value_text(values[i], text, sizeof(text), nullptr));
        CHECK(text == whole);
        numbers.assign(same_state.find(name)->bytes / sizeof(float), 0.25f + 0.125f * static_cast<float>(i));
        const vkf_state_part all{name.c_str(), 0, -1};
        OK(vkf_state_write(state, &all, numbers.data(), numbers.size() * sizeof(float)));
        same_state.write(name, std::as_bytes(std::span(numbers)));
    }
    const auto check_runs = [&] {
        OK(vkf_program_upload_i32(program, "tokens", kTexts[0].data(), kTexts[0].size()));
        OK(vkf_program_run(program));
        same_program.upload("tokens", kTexts[0]);
        same_program.run();
        const std::vector<float> want = same_program.download("logits");
        std::vector<float> got(want.size());
        OK(vkf_program_download(program, "logits", got.data(), got.size(), nullptr));
        CHECK(got == want);
        return want;
    };
    const std::vector<float> adapted = check_runs();
    const TemporaryFolder parent;
    const std::filesystem::path saved = parent.path() / "c", same_saved = parent.path() / "cpp";
    OK(vkf_adapter_save(saved.string().c_str(), state, &options, "a model"));
    save_adapter(same_saved, same_state, {.rank = 2, .targets = {"v_proj"}}, "a model");
    check_same_files(saved / "adapter_model.safetensors", same_saved / "adapter_model.safetensors");
    check_same_files(saved / "adapter_config.json", same_saved / "adapter_config.json");
    OK(vkf_adapter_clear(state));
    clear_adapter(same_state);
    CHECK(check_runs() != adapted);
    OK(vkf_adapter_write(saved.string().c_str(), state));
    Adapter(same_saved).write(same_state);
    check_runs();
    CHECK(vkf_adapter_write(saved.string().c_str(), nullptr) == VKF_ERROR);
    CHECK(contains(vkf_last_error(), "state is null"));
    CHECK(vkf_adapter_write("nowhere", state) == VKF_ERROR);
    CHECK(vkf_adapter_clear(nullptr) == VKF_ERROR);
    CHECK(vkf_adapter_save(saved.string().c_str(), state, nullptr, nullptr) == VKF_ERROR);
    CHECK(contains(vkf_last_error(), "options is null"));
    vkf_program_destroy(program);
    vkf_state_destroy(state);
    vkf_graph_destroy(graph);
}

TEST_SUITE_END();
