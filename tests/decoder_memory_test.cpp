// SPDX-License-Identifier: Apache-2.0
// What decoders take, known before anything is allocated, and refused where it is not there.
#include <doctest/doctest.h>

#include <filesystem>

#include "models/decoder.h"
#include "runtime/device/device.h"
#include "runtime/device/device_core.h"
#include "runtime/device/insides.h"
#include "tests/allocations.h"
#include "tests/believed.h"
#include "tests/device.h"
#include "tests/op_check.h"

using namespace vkf;
using namespace vkf::test;

namespace {

struct SizedModel {
    Checkpoint checkpoint{std::filesystem::path(VKFORMER_SOURCE_DIR "/tests/decoders/llama")};
    DecoderModel model = read_decoder(checkpoint);
    Weights weights = load_decoder(device(), checkpoint, model);

    Decoder decoder(const DecoderOptions& options) const { return Decoder(device(), weights, model, options); }
    DecoderPlan plan(const DecoderOptions& options) const {
        return DecoderPlan(device(), weights.layout(), model, options);
    }
};

std::int64_t number_behind(const std::string& text, const std::string& name) {
    const std::size_t at = text.find(name);
    return at == std::string::npos ? 0 : std::stoll(text.substr(at + name.size()));
}

/// The model, as if it took texts of so many tokens.
DecoderModel with_positions(std::int64_t count) {
    std::string config = read_text(std::filesystem::path(VKFORMER_SOURCE_DIR "/tests/decoders/llama/config.json"));
    const std::string field = "\"max_position_embeddings\":";
    const std::size_t at = config.find(field) + field.size();
    config.replace(at, config.find_first_of(",}", at) - at, std::to_string(count));
    return read_decoder(config, "config.json");
}

}  // namespace

TEST_SUITE_BEGIN("decoder");

TEST_CASE("decoder: memory is known before, and refused where it is not there") {
    const SizedModel model;
    const DecoderPlan plan = model.plan({.max_tokens = 16, .chunk = 4});
    const ModelMemory small = plan.memory();
    const ModelMemory large = model.plan({.max_batch = 2, .max_tokens = 32, .chunk = 4}).memory();
    // layers, keys and values, tokens, heads, head_dim, bytes
    CHECK(small.cache == 2u * 2 * 16 * 2 * 8 * 4);
    CHECK(large.cache == 4 * small.cache);
    CHECK(small.weights == model.weights.bytes());
    std::uint64_t& there = Insides::core(device()).capabilities.device_memory;
    const std::uint64_t kept = there;
    there = model.weights.bytes() + small.cache;
    const std::string said = error_of([&] { model.decoder({.max_tokens = 16, .chunk = 4}); });
    there = kept;
    CAPTURE(said);
    CHECK(said.starts_with("Decoder: needs " +
                           std::to_string(model.decoder({.max_tokens = 16, .chunk = 4}).memory().total()) +
                           " bytes (weights " + std::to_string(model.weights.bytes()) + " bytes, cache "));
    const DecoderOptions options{.max_tokens = 16, .chunk = 4};
    const auto planned = [&](std::optional<WeightType> matrices) {
        return DecoderPlan(device(), model.checkpoint, model.model, options, {.matrices = matrices}).memory();
    };
    CHECK(planned(WeightType::f16).weights < small.weights);
    CHECK(planned({}).total() == small.total());
    CHECK(planned({}).weights == small.weights);
}

TEST_CASE("decoder: positions that config.json claims cost nothing before the device refuses them") {
    const SizedModel model;
    const DecoderModel claims = with_positions(16777216);  // a table of 512 MiB
    REQUIRE(claims.facts().max_positions == 16777216);
    const Believed less([](Capabilities& c) { c.storage_range = std::uint64_t{128} << 20; });
    const allocations::Counter allocated;
    const std::string said = error_of([&] { DecoderPlan(device(), model.weights.layout(), claims, {}); });
    CHECK_MESSAGE((contains(said, "16777472 keys would take") || contains(said, "bytes one storage buffer may have")),
                  said);
    CHECK(allocated.bytes() < std::uint64_t{64} << 20);
}

TEST_CASE("decoder: where a cache is too large for the device, a max_tokens that fits is named") {
    const SizedModel model;
    DecoderOptions options{.chunk = 1};  // no max_tokens: 128
    std::uint64_t& there = Insides::core(device()).capabilities.device_memory;
    const std::uint64_t kept = there;
    there = model.plan({.max_tokens = 40, .chunk = 1}).memory().total();
    const std::string said = error_of([&] { model.decoder(options); });
    options.max_tokens = number_behind(said, "; with max_tokens = ");
    const std::string then = error_of([&] { model.decoder(options); });
    there = kept;
    CHECK_MESSAGE(options.max_tokens == 32, said);
    CHECK(said.starts_with("Decoder: needs "));
    there = model.weights.bytes();  // with nothing left for a cache
    options.max_tokens = 0;
    const std::string never = error_of([&] { model.decoder(options); });
    there = kept;
    CHECK_MESSAGE(never.ends_with("; the device has " + std::to_string(model.weights.bytes()) + " bytes"), never);
    CHECK(then == "");

    options.max_tokens = 0;
    std::uint64_t& range = Insides::core(device()).capabilities.storage_range;
    const std::uint64_t kept_range = range;
    options.max_batch = 512;
    range = std::uint64_t{512} * 2 * 8 * 4 * 100;  // a layer's keys of 100 tokens
    const std::string large = error_of([&] { model.plan(options); });
    options.max_tokens = number_behind(large, "; with max_tokens = ");
    const std::string fits = error_of([&] { model.plan(options); });
    range = kept_range;
    CHECK_MESSAGE(options.max_tokens == 64, large);
    CHECK(fits == "");
}

TEST_CASE("decoder: where a cache is too large for any graph, a max_tokens that fits is named") {
    const SizedModel model;
    const DecoderModel claims = with_positions(16777216);
    // of a layer 2^36 numbers of keys, where no tensor has more than 2^32
    const DecoderOptions options{.max_batch = 256, .chunk = 1};
    const std::string of_layout = error_of([&] { DecoderPlan(device(), model.weights.layout(), claims, options); });
    const std::string of_files = error_of([&] { DecoderPlan(device(), model.checkpoint, claims, options); });
    CHECK(of_files == of_layout);
    CHECK_MESSAGE(contains(of_layout, "; with max_tokens = "), of_layout);
    DecoderOptions fits = options;
    fits.max_tokens = number_behind(of_layout, "; with max_tokens = ");
    CHECK(fits.max_tokens >= 1);
    CHECK(error_of([&] { DecoderPlan(device(), model.weights.layout(), claims, fits); }) == "");
}

TEST_CASE("decoder: where a tensor is too large for the device, a chunk that fits is named") {
    const SizedModel model;
    DecoderOptions options{.chunk = 128};
    std::uint64_t& range = Insides::core(device()).capabilities.storage_range;
    const std::uint64_t kept = range;
    range = 16384;  // less than 128 tokens of the feed-forward's width
    const std::string said = error_of([&] { model.plan(options); });
    const std::size_t at = said.find("; with chunk = ");
    options.chunk = at == std::string::npos ? 128 : std::stoi(said.substr(at + 15));
    const std::string then = error_of([&] { model.plan(options); });
    range = 2048;  // less than a weight
    const std::string never = error_of([&] { model.plan(options); });
    range = kept;
    CHECK_MESSAGE(contains(said, "is larger than the 16384 bytes one storage buffer may have"), said);
    CHECK(options.chunk < 128);
    CHECK(then == "");
    CHECK_MESSAGE(contains(never, "is larger than"), never);
    CHECK_FALSE(contains(never, "; with chunk"));
}
