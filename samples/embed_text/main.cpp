// SPDX-License-Identifier: Apache-2.0
// Which lines say nearly the same? Sentence embeddings of a BERT-like checkpoint (for example
// sentence-transformers' all-MiniLM-L6-v2), on whatever Vulkan device is there: for each line the
// line nearest to it, or those nearest to a query.
#include <vkformer/text.h>
#include <vkformer/vkformer.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <vector>

#include "../arguments.h"

namespace {

struct Options {
    std::filesystem::path model;
    std::vector<std::string> lines;
    std::string query;
    std::string device;
    std::int64_t batch = 16;
    std::size_t show = 3;
    bool check = false;
};

/// A line, and where it is, for errors.
struct Line {
    std::string text, place;
};

using Vectors = std::vector<std::vector<float>>;

Vectors embed(const Options& options, const std::vector<Line>& lines) {
    const vkf::Checkpoint checkpoint(options.model);
    const vkf::TextEncoderModel model = vkf::read_text_encoder(checkpoint);
    const vkf::EncoderFacts& facts = model.facts();
    const vkf::Tokenizer tokenizer(options.model);
    std::vector<std::vector<std::int32_t>> ids;
    for (const Line& line : lines) {
        try {
            // cut where the model's authors cut
            ids.push_back(facts.cut_tokens > 0 ? tokenizer.encode_within(line.text, facts.cut_tokens, facts.lower_case)
                                               : tokenizer.encode(line.text, true, true));
        } catch (const vkf::Error& e) {
            throw vkf::Error(e.what(), line.place);
        }
    }
    const vkf::Device device = vkf::Device::create({.select = options.device});
    vkf::TextEncoder encoder(device, checkpoint, model, {.max_batch = options.batch});
    std::fprintf(stderr, "device: %s; %zu lines, vectors of %lld\n", device.capabilities().name.c_str(), lines.size(),
                 static_cast<long long>(model.facts().hidden_size));
    Vectors vectors = encoder.embed(ids);
    if (options.check && !device.messages().empty()) {
        throw vkf::Error("validation: " + device.messages().front());
    }
    return vectors;
}

/// Cosine: the vectors have length 1.
double similarity(const std::vector<float>& a, const std::vector<float>& b) {
    return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

/// The lines most like `line`, without itself.
void print_nearest(const Vectors& vectors, const std::vector<Line>& lines, std::size_t line, std::size_t show) {
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < lines.size(); ++i) {
        if (i != line) {
            order.push_back(i);
        }
    }
    const auto nearness = [&](std::size_t i) { return similarity(vectors[line], vectors[i]); };
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return nearness(a) > nearness(b); });
    std::printf("%s\n", lines[line].text.c_str());
    for (std::size_t i = 0; i < std::min(show, order.size()); ++i) {
        std::printf("  %.4f  %s\n", nearness(order[i]), lines[order[i]].text.c_str());
    }
}

/// Compares with the embeddings that PyTorch gave, in the model's expected.json, at 1e-4 + 1e-4
/// |want|; in batches of several sizes.
int check(Options options) {
    const auto expected = nlohmann::json::parse(vkf::read_text(options.model / "expected.json"));
    std::vector<Line> texts;
    for (const auto& text : expected.at("texts")) {
        texts.push_back({text.get<std::string>(), "expected.json"});
    }
    const Vectors want = expected.at("embeddings");
    std::size_t wrong = want.empty() ? 1 : 0;
    for (const std::int64_t batch : {1, 4, 16}) {
        options.batch = batch;
        const Vectors got = embed(options, texts);
        for (std::size_t i = 0; i < want.size(); ++i) {
            for (std::size_t j = 0; j < want[i].size(); ++j) {
                const double error = std::abs(static_cast<double>(got.at(i).at(j)) - want[i][j]);
                wrong += error <= 1e-4 + 1e-4 * std::abs(static_cast<double>(want[i][j])) ? 0 : 1;
            }
        }
    }
    std::printf("%s: %zu embeddings against PyTorch's, %zu numbers wrong\n", wrong == 0 ? "passed" : "FAILED",
                want.size(), wrong);
    return wrong == 0 ? 0 : 1;
}

std::vector<Line> lines_of(const Options& options) {
    std::vector<Line> lines;
    if (!options.query.empty()) {
        lines.push_back({options.query, "--query"});
    }
    std::size_t number = 0;
    for (const std::string& line : options.lines) {
        lines.push_back({line, "line " + std::to_string(++number) + " of the arguments"});
    }
    if (!options.lines.empty()) {
        return lines;
    }
    for (std::string line; std::getline(std::cin, line);) {
        ++number;
        if (line.ends_with('\r')) {  // as Windows ends lines
            line.pop_back();
        }
        if (!line.empty()) {
            lines.push_back({line, "standard input, line " + std::to_string(number)});
        }
    }
    return lines;
}

int run(const Options& options) {
    const std::vector<Line> lines = lines_of(options);
    if (lines.size() < 2) {
        throw vkf::Error("at least two lines are needed, as arguments or on the standard input");
    }
    const Vectors vectors = embed(options, lines);
    const std::size_t asked = options.query.empty() ? lines.size() : 1;
    for (std::size_t i = 0; i < asked; ++i) {
        print_nearest(vectors, lines, i, options.show);
    }
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    CLI::App app("Finds lines that are alike, by sentence embeddings on a Vulkan device");
    app.option_defaults()->always_capture_default();
    app.add_option("model", options.model, "folder with config.json, model.safetensors and tokenizer.json")->required();
    app.add_option("lines", options.lines, "lines of text; without any they are read from the standard input")
        ->default_str("");
    app.add_option("--query", options.query, "only those nearest to this");
    add_number(app, "--show", options.show, "how many")->check(CLI::Range(1, 1000));
    add_number(app, "--batch", options.batch, "lines that are read together")->check(CLI::Range(1, 1024));
    app.add_flag("--check", options.check, "compare with the embeddings PyTorch gave, in the model's expected.json");
    app.add_option("--device", options.device, "index or part of the name of the Vulkan device");
    if (const int code = parse_arguments(app, argc, argv); code >= 0) {
        return code;
    }
    try {
        const int code = options.check ? check(options) : run(options);
        end_output();
        return code;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "embed_text: %s\n", e.what());
        return 1;
    }
}
