// SPDX-License-Identifier: Apache-2.0
#include "check.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <span>

#include "text_model.h"

namespace {

std::vector<std::int32_t> answer(vkf::Decoder& decoder, const std::vector<std::int32_t>& prompt) {
    const std::vector<std::int32_t>& end = decoder.model().facts().end;
    std::vector<std::int32_t> ids;
    decoder.prompt(prompt);
    for (;;) {
        ids.push_back(decoder.next()[0]);
        if (std::find(end.begin(), end.end(), ids.back()) != end.end() || decoder.room() == 0) {
            return ids;
        }
        decoder.step(std::span(ids).last(1));
    }
}

#ifdef SAMPLE_WITH_TEXT
std::string text_of(const TextModel& texts, const std::vector<std::int32_t>& ids) {
    const std::unique_ptr<TextOut> out = texts.text_out();
    std::string text;
    for (const std::int32_t id : ids) {
        text += out->push(id);
    }
    return text + out->finish();
}
#endif

}  // namespace

int check(const Options& options) {
    const vkf::Device device = vkf::Device::create({.select = options.device});
    std::printf("device: %s\n", device.capabilities().name.c_str());
    const vkf::Checkpoint checkpoint(options.model);
    const vkf::DecoderModel model = vkf::read_decoder(checkpoint);
    const vkf::DecoderPlan plan(device, checkpoint, model,
                                {.kv = *weight_type(options.kv), .arithmetic = arithmetic(options.arithmetic)},
                                {.matrices = weight_type(options.weights)});
    vkf::Decoder decoder(device, checkpoint, plan);
    print_arithmetic(decoder.prompt_program());
    const auto examples = nlohmann::json::parse(vkf::read_text(options.model / "expected.json"));
    const TextModel texts(options, model.facts());
    std::size_t wrong = 0;
    for (const auto& e : examples) {
        const std::string prompt = e.at("prompt");
        bool good = answer(decoder, e.at("prompt_ids")) == e.at("output_ids").get<std::vector<std::int32_t>>();
#ifdef SAMPLE_WITH_TEXT
        good = good && texts.prompt_ids(prompt) == e.at("prompt_ids").get<std::vector<std::int32_t>>() &&
               prompt + text_of(texts, e.at("output_ids")) == e.at("text").get<std::string>();
#endif
        wrong += good ? 0 : 1;
        if (!good) {
            std::printf("FAILED \"%s\"\n", prompt.c_str());
        }
    }
    std::printf("%zu of %zu answers as PyTorch's\n", examples.size() - wrong, examples.size());
    for (const std::string& message : device.messages()) {
        std::printf("FAILED validation: %s\n", message.c_str());
        ++wrong;
    }
    return wrong == 0 ? 0 : 1;
}
