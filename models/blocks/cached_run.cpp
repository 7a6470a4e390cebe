// SPDX-License-Identifier: Apache-2.0
#include "models/blocks/cached_run.h"

#include <utility>

#include "layers/kv_cache.h"

namespace vkf {

namespace {

Value input_of_run(Graph& graph, DecoderTask task, const CachedRunSizes& sizes) {
    const Dim batch = graph.symbol("batch", sizes.max_batch);
    const Dim count = task == DecoderTask::step ? Dim(1) : graph.symbol("tokens", sizes.chunk);
    return sizes.hidden == 0 ? graph.input("tokens", {batch, count}, DType::i32)
                             : graph.input("hidden", {batch, count, sizes.hidden}, DType::f32);
}

}  // namespace

CachedRun::CachedRun(Graph& graph, DecoderTask task, const CachedRunSizes& sizes, const std::vector<LayerCache>& layers)
    : DecoderRun(input_of_run(graph, task, sizes), graph.symbol("start", sizes.max_tokens), sizes.max_tokens, layers),
      task_(task),
      sizes_(sizes) {
    if (sizes.max_batch > 1) {
        keys_ = graph.input("keys", {batch(), sizes.max_tokens}, DType::i32);
    }
}

Value CachedRun::learned_positions(Value table) {
    return keys_ ? embedding(graph().input("positions", {batch(), count()}, DType::i32), table)
                 : slice(table, 0, start(), count());
}

Value CachedRun::attend(std::int64_t index, const QueryKeyValue& heads, const AttentionScores& scores) {
    const LayerCache& kept = layer(index);
    const std::int64_t rows = cache_rows(kept, sizes_.max_tokens, sizes_.chunk);
    KvCache cache = kv_cache(graph(), "cache", sizes_.max_batch, rows, heads.key.size(1).constant(), kept.head_dim,
                             start(), sizes_.kv);
    AttentionOptions o = attention(kept, scores);
    o.kv_type = sizes_.kv;
    if (rows < sizes_.max_tokens) {
        const CacheRing::Rows& r = ring(kept.window, rows);
        cache.written = r.written;
        cache.seen = o.ring = r.seen;
        o.mask.keys = seen_keys(start() - r.kept, r.seen.count);
    } else {
        o.mask.keys = seen_keys(0, start() + count());
    }
    const CachedKv all = append(cache, transpose(heads.key, 1, 2), transpose(heads.value, 1, 2));
    return merge_heads(scaled_dot_product_attention(heads.query, all.key, all.value, o).y);
}

Value CachedRun::logit_positions(Value h) const {
    return task_ == DecoderTask::score ? h : slice(h, 1, count() - Dim(1), 1);
}

const CacheRing::Rows& CachedRun::ring(std::int64_t window, std::int64_t rows) {
    const auto found = rings_.find(window);
    if (found != rings_.end()) {
        return found->second;
    }
    return rings_.emplace(window, CacheRing(window, rows).describe(graph(), count(), sizes_.chunk)).first->second;
}

Value CachedRun::seen_keys(Dim first, const Dim& count) const {
    return keys_ ? reshape(slice(keys_, 1, std::move(first), count), {batch(), 1, 1, count}) : Value();
}

}  // namespace vkf
