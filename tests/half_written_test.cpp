// SPDX-License-Identifier: Apache-2.0
// States of which some are written when a write fails: nothing goes on from them in silence.
#ifndef _WIN32  // which lets nobody shorten a file that is mapped
#include <doctest/doctest.h>

#include <array>
#include <filesystem>
#include <fstream>

#include "models/adapter.h"
#include "ops/gradients.h"
#include "ops/ops.h"
#include "runtime/device/device_core.h"
#include "runtime/device/insides.h"
#include "tests/decoder_models.h"
#include "tests/fake_vulkan.h"
#include "tests/fixtures.h"
#include "tests/op_check.h"
#include "train/fine_tuner.h"

using namespace vkf;
using namespace vkf::test;

TEST_SUITE_BEGIN("half-written");

TEST_CASE("half-written: a file that is cut short while a run is resumed leaves nothing to go on from") {
    const Environment no_validation("VKFORMER_VALIDATION", "0");
    const TemporaryFolder folder;
    const std::filesystem::path file = folder.path() / "run.safetensors";
    fake::Vulkan vulkan;
    {
        const Device own = Device::create({.get_instance_proc_addr = vulkan.entry()});
        // each state is submitted by itself
        Insides::core(own).capabilities.unified_memory = false;
        Graph g;
        const Value error = g.input("x", {300, 400}) * g.weight("w", {300, 400});
        Trainer trainer(own, g, sum(error * error), trainable(g), {.optimizer = AdamW{}});
        const std::vector<float> ones(120000, 1.0f);
        trainer.state().write("w", std::as_bytes(std::span(ones)));
        trainer.program().upload("x", ones);
        trainer.take_step();
        trainer.save(file);
        const float second = trainer.take_step().loss;
        const auto bytes = std::filesystem::file_size(file);
        const std::string whole = read_text(file);
        vulkan.vkQueueSubmit.instead = [&](VkQueue queue, std::uint32_t count, const VkSubmitInfo* infos,
                                           VkFence fence) {
            std::filesystem::resize_file(file, bytes / 3);
            return vulkan.vkQueueSubmit.real(queue, count, infos, fence);
        };
        CHECK(contains(error_of([&] { trainer.resume(file); }), "run.safetensors"));
        vulkan.vkQueueSubmit.instead = nullptr;
        const char* said = "Trainer: resume() failed when it had written a part; call it again";
        CHECK(error_of([&] { trainer.take_step(); }) == said);
        CHECK(error_of([&] { trainer.save(file); }) == said);
        CHECK(trainer.step() == 2);
        std::ofstream(file, std::ios::binary) << whole;
        trainer.resume(file);
        CHECK(trainer.step() == 1);
        CHECK(trainer.take_step().loss == second);
    }
    CHECK(vulkan.live_objects() == 0);
}

TEST_CASE(
    "half-written: an adapter whose file is cut short leaves nothing to run, one that does not fit changes nothing") {
    const Checkpoint checkpoint(kModels / "llama");
    const DecoderModel model = read_decoder(checkpoint);
    const TemporaryFolder folder;
    FineTuneOptions options{.max_batch = 2, .max_tokens = 24};
    options.lora = LoraOptions{.rank = 2, .targets = {"q_proj"}};
    FineTuner(device(), checkpoint, model, options).save(folder.path());
    const Adapter adapter(folder.path());
    const std::vector<std::int32_t> text{1, 2, 3};

    Decoder narrow(device(), load_decoder(device(), checkpoint, model), model,
                   {.lora = LoraOptions{.rank = 1, .targets = {"q_proj"}}});
    narrow.prompt(text);
    const std::array first{narrow.next()[0]};
    CHECK(contains(error_of([&] { narrow.set_adapter(adapter); }), "does not fit"));
    narrow.step(first);

    Graph g;
    const Value state = g.state("model.layers.0.self_attn.q_proj.lora_A.weight", {2});
    g.output("y", scale(copy_into(state, g.input("x", {2})), 2));
    State flat = device().make_state({&g});
    CHECK(contains(error_of([&] { adapter.write(flat); }), "lora_A.weight (2) F32 is no matrix of F32"));

    Decoder decoder(device(), narrow.weights(), model, {.lora = adapter.options()});
    const std::filesystem::path tensors = folder.path() / "adapter_model.safetensors";
    std::filesystem::resize_file(tensors, std::filesystem::file_size(tensors) - 4);
    CHECK(contains(error_of([&] { decoder.set_adapter(adapter); }), "adapter_model.safetensors"));
    CHECK(error_of([&] { decoder.prompt(text); }) ==
          "Decoder: set_adapter() or clear_adapter() failed when it had written a part; call it again");
    decoder.clear_adapter();
    decoder.prompt(text);
    CHECK(decoder.next()[0] == first[0]);
}

TEST_CASE("half-written: what a run was resumed to in part is not saved as a model") {
    const Environment no_validation("VKFORMER_VALIDATION", "0");
    const TemporaryFolder folder;
    fake::Vulkan vulkan;
    {
        const Device own = Device::create({.get_instance_proc_addr = vulkan.entry()});
        Insides::core(own).capabilities.unified_memory = false;
        const Checkpoint checkpoint(kModels / "llama");
        FineTuner tuner(own, checkpoint, read_decoder(checkpoint), {.max_batch = 1, .max_tokens = 8});
        tuner.trainer().save(folder.path() / "run");
        vulkan.vkQueueSubmit.fail(VK_ERROR_OUT_OF_HOST_MEMORY, 3);
        CHECK(contains(error_of([&] { tuner.trainer().resume(folder.path() / "run"); }), "vkQueueSubmit"));
        CHECK(error_of([&] { tuner.save(folder.path() / "model"); }) ==
              "Trainer: resume() failed when it had written a part; call it again");
        CHECK(!std::filesystem::exists(folder.path() / "model"));
        tuner.trainer().resume(folder.path() / "run");
        tuner.save(folder.path() / "model");
    }
    CHECK(vulkan.live_objects() == 0);
}

TEST_SUITE_END();

#endif
