// SPDX-License-Identifier: Apache-2.0
// What a device keeps in its cache folder, and what goes into its states: pipeline caches, measured
// choices, saved states and a decoder's caches, adapters.
#include <algorithm>
#include <cstring>
#include <memory>

#include "models/adapter.h"
#include "models/cache_file.h"
#include "models/decoder_plan.h"
#include "models/state_file.h"
#include "ops/ops.h"
#include "runtime/compile/tuning_list.h"
#include "runtime/device/cache_frame.h"
#include "runtime/device/device.h"
#include "runtime/device/tuning_store.h"
#include "tests/fuzz/target.h"

namespace vkf::fuzz {

namespace {

void read_pipelines(Bytes bytes) {
    Capabilities caps;
    caps.vendor_id = 7;
    const Bytes data = unframe_cache(caps, bytes);
    require(data.empty() || (data.data() > bytes.data() && data.data() + data.size() == bytes.data() + bytes.size()),
            "what is taken lies outside the file");
    const std::vector<std::byte> framed = frame_cache(caps, bytes);
    const Bytes again = unframe_cache(caps, framed);
    require(
        again.size() == bytes.size() && (bytes.empty() || std::memcmp(again.data(), bytes.data(), bytes.size()) == 0),
        "what was put in a frame does not come back");
}

void read_tuning(Bytes bytes) {
    const std::string_view list = text_of(bytes);
    const std::string_view wrong = wrong_tuning_part(list);
    require(wrong.empty() || wrong == "," ||
                (wrong.data() >= list.data() && wrong.data() + wrong.size() <= list.data() + list.size()),
            "a part that is not of the list");
    tuning_number(list, "matmul_rows");
    const Capabilities device;
    const std::filesystem::path path = tuning_path(folder(), device);
    write(path, bytes);
    Capabilities found;
    find_tuning(found, {}, folder());
    require(wrong_tuning_part(found.tuning).empty(), "a list that is none was taken");
    found.tuned("matmul_rows");
}

/// States of every type, and a decoder's caches.
struct States {
    Graph graph;
    State state;
    std::optional<DecoderPlan> plan;
    State caches;

    States() {
        const Value a = graph.state("a", {3, 4}), b = graph.state("b", {5}, DType::i32),
                    c = graph.state("c", {2, 6}, DType::f16);
        copy_into(a, scale(a, 2));
        copy_into(b, b);
        copy_into(c, c);
        state = device().make_state({&graph});
        const Checkpoint checkpoint(VKFORMER_SOURCE_DIR "/tests/decoders/gpt2_bare");
        plan.emplace(device(), checkpoint, read_decoder(checkpoint), DecoderOptions{.max_tokens = 16});
        caches = device().make_state({&plan->graph(DecoderTask::prompt)});
    }
};

void read_states(Bytes bytes) {
    static States states;
    const std::filesystem::path file = folder() / "states.safetensors";
    write(file, bytes);
    try {
        restore_state(file, states.state);
    } catch (const Error&) {
    }
    const CacheFile cache(file, *states.plan, states.caches);
    require(cache.length() >= 0 && cache.length() <= 16, "more tokens than there is room for");
    cache.write(states.caches);
}

/// Two bytes say how long adapter_config.json is; the rest is adapter_model.safetensors.
void read_adapter(Bytes bytes) {
    static State state = [] {
        Graph g;
        const Value a = g.state("layer.lora_A.weight", {4, 8}), b = g.state("layer.lora_B.weight", {6, 4});
        copy_into(a, scale(a, 1));
        copy_into(b, scale(b, 1));
        return device().make_state({&g});
    }();
    if (bytes.size() < 2) {
        return;
    }
    const std::size_t length = std::min(
        bytes.size() - 2, std::to_integer<std::size_t>(bytes[0]) + 256 * std::to_integer<std::size_t>(bytes[1]));
    write(folder() / "adapter_config.json", bytes.subspan(2, length));
    write(folder() / "adapter_model.safetensors", bytes.subspan(2 + length));
    const Adapter adapter(folder());
    require(adapter.options().rank >= 1 && !adapter.options().targets.empty(), "an adapter of nothing");
    adapter.write(state);
}

const Target kPipelines("pipeline_cache", read_pipelines);
const Target kTuning("tuning", read_tuning);
const Target kStates("states", read_states);
const Target kAdapters("adapters", read_adapter);

}  // namespace

}  // namespace vkf::fuzz
