// SPDX-License-Identifier: Apache-2.0
// A decoder's parameters out of a checkpoint, to a device or to another folder.
#include "models/decoder.h"
#include "models/parameters.h"
#include "runtime/base/numbers.h"

namespace vkf {

namespace {

/// What older files and training leave behind: tables that follow from the configuration, masks.
bool needless(const std::string& name, const DecoderConfig& c) {
    const auto ends = [&](const char* tail) { return name.ends_with(tail); };
    return ends("rotary_emb.inv_freq") || ends(".attn.bias") || ends(".attn.masked_bias") ||
           (c.tied_embeddings && name == c.names.head + ".weight");
}

std::vector<Parameter> parameters(const Checkpoint& checkpoint, const DecoderConfig& c,
                                  std::optional<WeightType> matrices) {
    Graph graph;
    describe_decoder(graph, c, {.max_batch = 1, .max_tokens = 1, .chunk = 1}, DecoderRun::score);
    ParameterRules rules{.model_type = c.model_type, .base = c.names.base};
    rules.needless = [&](const std::string& name) { return needless(name, c); };
    rules.transposed = [&](const std::string& name) {
        return c.transposed_weights && name.starts_with(c.names.base + c.names.layers + ".");
    };
    rules.less_one = [&](const std::string& name) {
        return c.norm == NormKind::rms_one_plus && name.ends_with("norm.weight");
    };
    rules.unpacked = [&](const std::string& name) {
        return !c.names.positions.empty() && name == c.names.base + c.names.positions + ".weight";
    };
    return find_parameters(graph, checkpoint, rules, matrices);
}

}  // namespace

Weights load_decoder(const Device& device, const Checkpoint& checkpoint, const DecoderConfig& config,
                     std::optional<WeightType> matrices, const LoadProgress& progress, PackOn pack_on) {
    return load_parameters(device, parameters(checkpoint, config, matrices), progress, pack_on);
}

void save_decoder(const std::filesystem::path& folder, const Checkpoint& checkpoint, const DecoderConfig& config,
                  std::optional<WeightType> matrices, const LoadProgress& progress) {
    save_parameters(folder, checkpoint, parameters(checkpoint, config, matrices), progress);
}

std::uint64_t decoder_weight_bytes(const Device& device, const Checkpoint& checkpoint, const DecoderConfig& config,
                                   std::optional<WeightType> matrices) {
    const std::uint64_t alignment = device.capabilities().storage_alignment;
    std::uint64_t bytes = 0;
    for (const Parameter& p : parameters(checkpoint, config, matrices)) {
        bytes += align_up(p.bytes(), alignment);
    }
    return bytes;
}

}  // namespace vkf
