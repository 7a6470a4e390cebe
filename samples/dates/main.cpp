// SPDX-License-Identifier: Apache-2.0
// Rewrites dates as people write them into ISO 8601 with a small trained encoder-decoder
// Transformer, on whatever Vulkan device is there, and draws what the decoder looked at.
#include <vkformer/vkformer.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "../arguments.h"
#include "attention_picture.h"
#include "vocabulary.h"

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point start) {
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

struct Options {
    std::vector<std::string> dates = {"the 3rd of March, 1999", "Fri, 20 Nov 2026", "31.12.1987", "July 4, 1976"};
    fs::path model = SAMPLE_FOLDER;
    std::string device;
    fs::path picture;  ///< empty: none is drawn
    std::int64_t batch = 1;
    bool explain = false;
    bool check = false;
};

/// Loads the model and answers in batches.
class Dates {
public:
    Dates(const vkf::Device& device, const fs::path& folder, std::int64_t batch)
        : vocabulary_(folder / "config.json"),
          model_(device, vkf::Safetensors(folder / "model.safetensors"), model_config(vocabulary_.config()), batch),
          batch_(static_cast<std::size_t>(batch)) {}

    const Vocabulary& vocabulary() const { return vocabulary_; }
    vkf::EncoderDecoder& model() { return model_; }

    std::vector<vkf::Decoded> answer(const std::vector<std::string>& texts) {
        std::vector<std::vector<std::int32_t>> sources;
        for (const std::string& text : texts) {
            sources.push_back(vocabulary_.encode(text));
        }
        std::vector<vkf::Decoded> answers;
        for (std::size_t first = 0; first < sources.size(); first += batch_) {
            const std::size_t count = std::min(batch_, sources.size() - first);
            const std::span part(sources.data() + first, count);
            for (vkf::Decoded& d : model_.generate(part, vocabulary_.sos(), vocabulary_.eos(), vocabulary_.pad())) {
                answers.push_back(std::move(d));
            }
        }
        return answers;
    }

private:
    Vocabulary vocabulary_;
    vkf::EncoderDecoder model_;
    std::size_t batch_;
};

void draw(const fs::path& path, const Dates& dates, const std::string& text, const vkf::Decoded& answer) {
    AttentionPicture picture;
    const Vocabulary& v = dates.vocabulary();
    picture.title = "“" + text + "” → " + v.decode(answer.tokens);
    for (const std::int32_t id : v.encode(text)) {
        picture.source.push_back(v.token(id));
    }
    for (const std::int32_t id : answer.tokens) {
        picture.target.push_back(v.token(id));
    }
    picture.heads = v.config().nhead;
    picture.weights = answer.cross_attention;
    write_svg(path, picture);
}

int rewrite(const Options& options) {
    const auto start = Clock::now();
    const vkf::Device device = vkf::Device::create({.select = options.device});
    const vkf::Capabilities& caps = device.capabilities();
    std::printf("device: %s, %s%s\n", caps.name.c_str(), caps.driver.c_str(),
                caps.minimum_profile ? ", minimum profile" : "");
    Dates dates(device, options.model, options.batch);
    const std::vector<vkf::Decoded> first = dates.answer({options.dates.front()});
    std::printf("first answer after %.0f ms (device, weights, kernels, and the date)\n", milliseconds_since(start));

    const auto timed = Clock::now();
    const std::vector<vkf::Decoded> answers = dates.answer(options.dates);
    const double ms = milliseconds_since(timed);
    std::size_t tokens = 0;
    for (std::size_t i = 0; i < answers.size(); ++i) {
        std::printf("  %-32s -> %s\n", options.dates[i].c_str(), dates.vocabulary().decode(answers[i].tokens).c_str());
        tokens += answers[i].tokens.size();
    }
    std::printf("%.2f ms per date, %.0f tokens/s\n", ms / static_cast<double>(answers.size()),
                static_cast<double>(tokens) / ms * 1e3);
    if (!options.picture.empty()) {
        draw(options.picture, dates, options.dates.front(), answers.front());
        std::printf("cross-attention drawn to %s\n", fs::absolute(options.picture).string().c_str());
    }
    if (options.explain) {
        std::printf("\n%s\n%s", dates.model().encoder().explain().c_str(), dates.model().decoder().explain().c_str());
    }
    return 0;
}

// --- against what PyTorch computed ---------------------------------------------------------------

std::vector<std::int32_t> ints(const vkf::HostTensor& t) {
    std::vector<std::int32_t> out(t.data.size() / 4);
    std::memcpy(out.data(), t.data.data(), t.data.size());
    return out;
}

/// Prints and counts a comparison of a whole tensor at 1e-4 + 1e-4 |want|.
int compare(const char* name, std::span<const float> got, const vkf::HostTensor& want_tensor) {
    std::vector<float> want(want_tensor.data.size() / 4);
    std::memcpy(want.data(), want_tensor.data.data(), want_tensor.data.size());
    double worst = got.size() == want.size() ? 0.0 : INFINITY;
    for (std::size_t i = 0; i < want.size() && i < got.size(); ++i) {
        const double excess = std::abs(double(got[i]) - want[i]) / (1e-4 + 1e-4 * std::abs(want[i]));
        worst = std::isnan(worst) || excess <= worst ? worst : excess;
    }
    const bool good = worst <= 1.0;
    std::printf("%s %s: worst error %.3g of the tolerance\n", good ? "passed" : "FAILED", name, worst);
    return good ? 0 : 1;
}

int check_deep_tensors(Dates& dates, const fs::path& folder) {
    const vkf::Safetensors expected(folder / "expected.safetensors");
    const std::vector<std::int32_t> tokens = ints(expected.at("tokens"));
    const std::vector<std::int32_t> target = ints(expected.at("target"));
    const std::vector<std::int32_t> padding(tokens.size(), 0);
    vkf::Program& encoder = dates.model().encoder();
    vkf::Program& decoder = dates.model().decoder();
    for (vkf::Program* p : {&encoder, &decoder}) {
        p->set("batch", 1);
        p->set("source", static_cast<std::int64_t>(tokens.size()));
    }
    encoder.upload("source", tokens);
    encoder.upload("source_padding", padding);
    encoder.run();
    decoder.set("start", 0);
    decoder.set("tokens", static_cast<std::int64_t>(target.size()) - 1);
    decoder.upload("target", std::span(target).first(target.size() - 1));
    decoder.upload("source_padding", padding);
    decoder.run();
    return compare("memory", encoder.download("memory"), expected.at("memory")) +
           compare("logits", decoder.download("logits"), expected.at("logits")) +
           compare("cross_attention", decoder.download("cross_attention"), expected.at("cross_attention"));
}

int check_answers(Dates& one, Dates& many, const fs::path& folder) {
    std::ifstream file(folder / "expected.json");
    const auto examples = nlohmann::json::parse(file);
    std::vector<std::string> texts;
    for (const auto& e : examples) {
        texts.push_back(e.at("input"));
    }
    const std::vector<vkf::Decoded> single = one.answer(texts);
    const std::vector<vkf::Decoded> batched = many.answer(texts);
    std::size_t wrong = 0;
    std::size_t differing = 0;
    for (std::size_t i = 0; i < texts.size(); ++i) {
        const std::string got = one.vocabulary().decode(single[i].tokens);
        const std::string want = examples[i].at("output");
        if (got != want && wrong++ == 0) {
            std::printf("FAILED \"%s\": %s, expected %s\n", texts[i].c_str(), got.c_str(), want.c_str());
        }
        if (single[i].tokens != batched[i].tokens && differing++ == 0) {
            std::printf("FAILED \"%s\": another answer in a padded batch\n", texts[i].c_str());
        }
    }
    std::printf("%zu of %zu answers as PyTorch's, %zu the same in padded batches\n", texts.size() - wrong, texts.size(),
                texts.size() - differing);
    return wrong + differing == 0 ? 0 : 1;
}

int check(const Options& options) {
    const vkf::Device device = vkf::Device::create({.select = options.device});
    std::printf("device: %s\n", device.capabilities().name.c_str());
    Dates one(device, options.model, 1);
    Dates many(device, options.model, 16);
    int failures = check_deep_tensors(one, options.model) + check_answers(one, many, options.model);
    for (const std::string& message : device.messages()) {
        std::printf("FAILED validation: %s\n", message.c_str());
        ++failures;
    }
    return failures == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    CLI::App app("Rewrites dates into ISO 8601 with a trained Transformer on a Vulkan device");
    app.option_defaults()->always_capture_default();
    app.add_option("dates", options.dates, "dates as people write them")->check([](const std::string& date) {
        return date.empty() ? std::string("a date is empty") : std::string();
    });
    app.add_option("--model", options.model, "folder with config.json and model.safetensors");
    app.add_option("--device", options.device, "index or part of the name of the Vulkan device");
    app.add_option("--picture", options.picture,
                   "where the cross-attention of the first date is drawn (SVG); else it is not");
    add_number(app, "--batch", options.batch, "dates answered together")->check(CLI::Range(1, 256));
    app.add_flag("--explain", options.explain, "print every dispatch, and why its kernel was chosen");
    app.add_flag("--check", options.check, "compare with the answers and tensors PyTorch computed");
    if (const int code = parse_arguments(app, argc, argv); code >= 0) {
        return code;
    }
    try {
        const int code = options.check ? check(options) : rewrite(options);
        end_output();
        return code;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "dates: %s\n", e.what());
        return 1;
    }
}
