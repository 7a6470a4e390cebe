// SPDX-License-Identifier: Apache-2.0
#include "accuracy.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <span>

#include "text_model.h"

namespace {

struct Score {
    double loss = 0;                   ///< sum over the tokens judged of -log of their probability
    std::vector<std::int32_t> likely;  ///< the likeliest token in the place of each
    std::size_t right = 0;             ///< texts of which every token judged is the likeliest
};

/// Takes in one row of logits, in the place of the token `wanted`.
void judge(std::span<const float> logits, std::int32_t wanted, Score& score) {
    const auto best = std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (const float x : logits) {
        sum += std::exp(double(x) - *best);
    }
    score.loss += std::log(sum) - (double(logits[static_cast<std::size_t>(wanted)]) - *best);
    score.likely.push_back(static_cast<std::int32_t>(best - logits.begin()));
}

Score score_of(vkf::Decoder& decoder, const std::vector<JudgedText>& texts) {
    const auto vocabulary = static_cast<std::size_t>(decoder.model().facts().vocab_size);
    Score score;
    for (const JudgedText& text : texts) {
        const std::vector<float> logits = decoder.score(text.ids);
        bool right = true;
        for (std::size_t i = text.known; i < text.ids.size(); ++i) {
            judge(std::span(logits).subspan((i - 1) * vocabulary, vocabulary), text.ids[i], score);
            right = right && score.likely.back() == text.ids[i];
        }
        score.right += right ? 1 : 0;
    }
    return score;
}

struct Kind {
    const char* weights;
    const char* cache;
    bool base = false;  ///< in fp32 throughout, whatever is asked for
};

void print(const Kind& kind, const Score& score, const Score& base, std::size_t texts) {
    const auto count = static_cast<double>(score.likely.size());
    std::size_t same = 0;
    for (std::size_t i = 0; i < score.likely.size(); ++i) {
        same += score.likely[i] == base.likely[i] ? 1 : 0;
    }
    const double perplexity = std::exp(score.loss / count);
    std::printf("%-8s %-6s %11.6f %+12.6f %13.3f %% %8zu of %zu\n", kind.weights, kind.cache, perplexity,
                perplexity - std::exp(base.loss / count), 100.0 * static_cast<double>(same) / count, score.right,
                texts);
    std::fflush(stdout);
}

}  // namespace

int accuracy(const Options& options) {
    const vkf::Checkpoint checkpoint(options.model);
    const vkf::DecoderModel model = vkf::read_decoder(checkpoint);
    const std::vector<JudgedText> texts = TextModel(options, model.facts()).judged_texts();
    const vkf::Device device = vkf::Device::create({.select = options.device});
    std::size_t count = 0, longest = 1;
    for (const JudgedText& text : texts) {
        count += text.ids.size() - text.known;
        longest = std::max(longest, text.ids.size());
    }
    std::printf("device: %s\n%zu texts, %zu tokens judged\n", device.capabilities().name.c_str(), texts.size(), count);
    std::printf("weights  cache   perplexity   difference   top-1 as fp32      right\n");
    Score base;
    vkf::Weights weights;
    const char* loaded = "";
    std::vector<Kind> kinds{{"fp32", "fp32"}, {"fp32", "fp16"}, {"fp32", "bf16"}, {"fp32", "int8"},
                            {"fp16", "fp32"}, {"bf16", "fp32"}, {"int8", "fp32"}, {"int4", "fp32"}};
    if (options.arithmetic != "fp32") {
        kinds.insert(kinds.begin(), {"fp32", "fp32", true});
    }
    for (const Kind& kind : kinds) {
        if (std::string(loaded) != kind.weights) {
            weights = {};
            weights = vkf::load_decoder(device, checkpoint, model, {.matrices = weight_type(kind.weights)});
            loaded = kind.weights;
        }
        vkf::Decoder decoder(device, weights, model,
                             {.max_tokens = static_cast<std::int64_t>(longest),
                              .chunk = options.chunk,
                              .kv = *weight_type(kind.cache),
                              .arithmetic = kind.base ? vkf::Arithmetic::f32 : arithmetic(options.arithmetic),
                              .score = true});
        if (!kind.base) {
            print_arithmetic(decoder.prompt_program());
        }
        const Score score = score_of(decoder, texts);
        base = base.likely.empty() ? score : base;
        print(kind, score, base, texts.size());
    }
    return 0;
}
