// SPDX-License-Identifier: Apache-2.0
#include "models/blocks/decoder_run.h"

#include "layers/kv_cache.h"

namespace vkf {

DecoderRun::DecoderRun(Graph& graph, DecoderTask task, const DecoderRunSizes& sizes,
                       const std::vector<LayerCache>& layers)
    : graph_(graph),
      task_(task),
      sizes_(sizes),
      layers_(layers),
      batch_(graph.symbol("batch", sizes.max_batch)),
      token_count_(task == DecoderTask::step ? Dim(1) : graph.symbol("tokens", sizes.chunk)),
      start_(graph.symbol("start", sizes.max_tokens)),
      token_ids_(graph.input("tokens", {batch_, token_count_}, DType::i32)) {
    if (sizes.max_batch > 1) {
        keys_ = graph.input("keys", {batch_, sizes.max_tokens}, DType::i32);
    }
}

RopeTable DecoderRun::rope_table(const Rope& rope, std::int64_t head_dim, const std::string& name) {
    Rope whole = rope;
    whole.max_positions = sizes_.max_tokens;
    const std::vector<float> table = vkf::rope_table(whole, head_dim);
    const auto pairs = static_cast<std::int64_t>(table.size()) / sizes_.max_tokens / 2;
    return {graph_.constant(name, {sizes_.max_tokens, pairs, 2}, table), rope.layout};
}

QueryKeyValue DecoderRun::rotated(QueryKeyValue heads, const RopeTable& table) const {
    heads.query = rope_by_table(heads.query, table.angles, table.layout, start_);
    heads.key = rope_by_table(heads.key, table.angles, table.layout, start_);
    return heads;
}

Value DecoderRun::learned_positions(Value table) {
    return keys_ ? embedding(graph_.input("positions", {batch_, token_count_}, DType::i32), table)
                 : slice(table, 0, start_, token_count_);
}

Value DecoderRun::attend(std::int64_t layer, const QueryKeyValue& heads, const AttentionScores& scores) {
    const LayerCache& kept = layers_[static_cast<std::size_t>(layer)];
    const std::int64_t rows = cache_rows(kept, sizes_.max_tokens, sizes_.chunk);
    KvCache cache = kv_cache(graph_, "cache", sizes_.max_batch, rows, kept.kv_heads, kept.head_dim, start_, sizes_.kv);
    AttentionOptions o{.scale = scores.scale, .softcap = scores.softcap, .kv_type = sizes_.kv};
    o.mask.causal = Causal::bottom_right;
    o.mask.window = kept.window;
    if (rows < sizes_.max_tokens) {
        const CacheRing::Rows& r = ring(kept.window, rows);
        cache.written = r.written;
        cache.seen = o.ring = r.seen;
        o.mask.keys = seen_keys(start_ - r.kept, r.seen.count);
    } else {
        o.mask.keys = seen_keys(0, start_ + token_count_);
    }
    const CachedKv all = append(cache, transpose(heads.key, 1, 2), transpose(heads.value, 1, 2));
    return merge_heads(scaled_dot_product_attention(heads.query, all.key, all.value, o).y);
}

Value DecoderRun::answered(Value h) const {
    return task_ == DecoderTask::score ? h : slice(h, 1, token_count_ - Dim(1), 1);
}

const CacheRing::Rows& DecoderRun::ring(std::int64_t window, std::int64_t rows) {
    const auto found = rings_.find(window);
    if (found != rings_.end()) {
        return found->second;
    }
    return rings_.emplace(window, CacheRing(window, rows).describe(graph_, token_count_, sizes_.chunk)).first->second;
}

Value DecoderRun::seen_keys(Dim first, const Dim& count) const {
    return keys_ ? reshape(slice(keys_, 1, std::move(first), count), {batch_, 1, 1, count}) : Value();
}

}  // namespace vkf
