// SPDX-License-Identifier: Apache-2.0
#include "models/blocks/decoder_run.h"

#include "ops/rope_table.h"

namespace vkf {

RopeTable DecoderRun::rope_table(const Rope& rope, std::int64_t head_dim, const std::string& name) {
    if (const auto made = rope_tables_.find(name); made != rope_tables_.end()) {
        return made->second;
    }
    Rope whole = rope;
    whole.max_positions = max_tokens_;
    const RopeTable made{table_of_angles(graph(), name, whole, head_dim), rope.layout};
    return rope_tables_.emplace(name, made).first->second;
}

QueryKeyValue DecoderRun::rotated(QueryKeyValue heads, const RopeTable& table) const {
    heads.query = rope_by_table(heads.query, table.angles, table.layout, start_);
    heads.key = rope_by_table(heads.key, table.angles, table.layout, start_);
    return heads;
}

AttentionOptions DecoderRun::attention(const LayerCache& layer, const AttentionScores& scores) const {
    AttentionOptions o{.scale = scores.scale, .softcap = scores.softcap};
    o.mask.causal = Causal::bottom_right;
    o.mask.window = layer.window;
    return o;
}

}  // namespace vkf
