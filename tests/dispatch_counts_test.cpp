// SPDX-License-Identifier: Apache-2.0
// How many dispatches models and layers take, written plainly: docs/dispatches.md has the table.
#include <doctest/doctest.h>

#include <filesystem>
#include <string>

#include "layers/attention.h"
#include "layers/torch.h"
#include "models/decoder.h"
#include "models/text_encoder.h"
#include "runtime/compile/plan.h"
#include "tests/device.h"

using namespace vkf;
using namespace vkf::test;

namespace {

/// Counts the dispatches on a GPU with room for everything, whose alignment parts no weights, small
/// as these are.
std::size_t dispatches(const Graph& graph) {
    Capabilities gpu;
    gpu.type = DeviceType::discrete;
    gpu.storage_buffers = 16;
    gpu.storage_alignment = 4;
    return make_plan(graph, gpu).dispatches.size();
}

/// "prompt step".
std::string decoder(const char* family) {
    const Checkpoint checkpoint(std::filesystem::path(VKFORMER_SOURCE_DIR "/tests/decoders") / family);
    const DecoderModel model = read_decoder(checkpoint);
    REQUIRE(model.facts().layers.size() == 2);
    const DecoderPlan plan(device(), checkpoint, model, {.max_tokens = 16, .chunk = 4});
    return std::to_string(dispatches(plan.graph(DecoderTask::prompt))) + " " +
           std::to_string(dispatches(plan.graph(DecoderTask::step)));
}

}  // namespace

TEST_SUITE_BEGIN("dispatch counts");

TEST_CASE("dispatch counts: decoders of two layers") {
    CHECK(decoder("llama") == "26 26");
    CHECK(decoder("qwen3") == "30 30");
    CHECK(decoder("gemma2") == "37 33");
    CHECK(decoder("gpt2") == "23 23");
}

TEST_CASE("dispatch counts: an encoder of two layers") {
    const Checkpoint checkpoint(std::filesystem::path(VKFORMER_SOURCE_DIR "/tests/encoders/bert"));
    Graph g;
    describe_text_encoder(g, read_text_encoder(checkpoint), {});
    CHECK(dispatches(g) == 22);
}

TEST_CASE("dispatch counts: the layer of samples/layer") {
    Graph g;
    const Value x = g.input("x", {1, g.symbol("tokens", 512), 64});
    const Value h = rms_norm(x, g.weight("norm.weight", {64}));
    const Rope rope{.layout = RopeLayout::interleaved};
    g.output("y", x + grouped_query_attention(h, {.name = "attn", .heads = 8, .kv_heads = 2, .rope = rope}).y);
    CHECK(dispatches(g) == 7);
}

TEST_CASE("dispatch counts: PyTorch's encoder layer, norms before and after") {
    for (const bool norm_first : {false, true}) {
        CAPTURE(norm_first);
        Graph g;
        const Value x = g.input("x", {2, g.symbol("tokens", 64), 64});
        g.output("y", torch::transformer_encoder_layer(x, {.name = "layer", .nhead = 4, .norm_first = norm_first}));
        CHECK(dispatches(g) == 9);
    }
}

TEST_SUITE_END();
