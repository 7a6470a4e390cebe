// SPDX-License-Identifier: Apache-2.0
// The decoders of tests/decoders, and what `transformers` says of them
// (tests/make_decoder_cases.py).
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <vector>

#include "models/decoder.h"
#include "models/files/safetensors.h"
#include "tests/device.h"

namespace vkf::test {

inline const std::filesystem::path kModels = VKFORMER_SOURCE_DIR "/tests/decoders";
inline const std::filesystem::path kSpell = VKFORMER_SOURCE_DIR "/samples/generate";

template <class T>
std::vector<T> values_of(const HostTensor& t) {
    std::vector<T> out(t.data.size() / sizeof(T));
    std::memcpy(out.data(), t.data.data(), t.data.size());
    return out;
}

struct Model {
    Checkpoint checkpoint;
    DecoderModel model;
    Weights weights;

    explicit Model(const std::filesystem::path& folder)
        : checkpoint(folder), model(read_decoder(checkpoint)), weights(load_decoder(device(), checkpoint, model)) {}

    Decoder decoder(const DecoderOptions& options) const { return Decoder(device(), weights, model, options); }
};

struct Expected {
    std::vector<std::int32_t> ids, prompt, greedy;
    std::vector<float> logits;

    explicit Expected(const std::filesystem::path& folder) {
        const Safetensors file(folder / "expected.safetensors");
        ids = values_of<std::int32_t>(file.at("ids"));
        logits = values_of<float>(file.at("logits"));
        if (file.find("greedy") != nullptr) {
            prompt = values_of<std::int32_t>(file.at("prompt"));
            greedy = values_of<std::int32_t>(file.at("greedy"));
        }
    }
};

/// The worst error in units of 1e-4 + 1e-4 |want|; NaN is worse than any.
inline double worst_error(const std::vector<float>& got, const std::vector<float>& want) {
    REQUIRE(got.size() == want.size());
    double worst = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
        const double error = std::abs(double(got[i]) - want[i]) / (1e-4 + 1e-4 * std::abs(double(want[i])));
        worst = !(error <= worst) ? error : worst;
    }
    return worst;
}

/// After prompt(): this many greedy tokens of each sequence.
inline std::vector<std::vector<std::int32_t>> continued(Decoder& decoder, std::size_t count) {
    std::vector<std::vector<std::int32_t>> all(decoder.next().size());
    for (std::size_t i = 0; i < count; ++i) {
        const std::vector<std::int32_t> next(decoder.next().begin(), decoder.next().end());
        for (std::size_t b = 0; b < all.size(); ++b) {
            all[b].push_back(next[b]);
        }
        if (i + 1 < count) {
            decoder.step(next);
        }
    }
    return all;
}

inline std::vector<std::int32_t> greedy(Decoder& decoder, const std::vector<std::int32_t>& prompt, std::size_t count) {
    decoder.prompt(prompt);
    return continued(decoder, count).front();
}

/// Counts the bytes of caches for the model's positions, in rings where there are windows. `row` is
/// the bytes of one head of one token.
inline std::uint64_t cache_bytes(const DecoderFacts& facts, std::int64_t chunk, std::uint64_t row) {
    const std::uint64_t alignment = device().capabilities().storage_alignment;
    std::uint64_t bytes = 0;
    for (const LayerCache& layer : facts.layers) {
        const std::int64_t tokens = layer.window == 0 ? facts.max_positions : layer.window - 1 + chunk;
        const std::uint64_t one = row * static_cast<std::uint64_t>(layer.kv_heads * tokens);
        bytes += 2 * ((one + alignment - 1) / alignment * alignment);
    }
    return bytes;
}

}  // namespace vkf::test
