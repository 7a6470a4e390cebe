// SPDX-License-Identifier: Apache-2.0
#include "models/blocks/cache_ring.h"

#include <algorithm>

namespace vkf {

std::int64_t cache_rows(const LayerCache& layer, std::int64_t max_tokens, std::int64_t chunk) {
    return layer.window == 0 ? max_tokens : std::min(max_tokens, layer.window - 1 + chunk);
}

CacheRing::CacheRing(std::int64_t window, std::int64_t rows) : window_(window), rows_(rows) {
    const std::string prefix = "window" + std::to_string(window) + "_";
    kept_ = prefix + "kept";
    at_ = prefix + "at";
    written_ = prefix + "written";
    first_ = prefix + "first";
    seen_ = prefix + "seen";
}

CacheRing::Rows CacheRing::describe(Graph& graph, const Dim& tokens, std::int64_t chunk) const {
    const auto size = [&](const std::string& name, std::int64_t most) {
        return graph.symbol(name, std::max<std::int64_t>(most, 1));
    };
    Rows r;
    r.kept = size(kept_, window_ - 1);
    const Dim at = size(at_, rows_ - 1);
    r.written = {at, tokens == Dim(1) ? Dim(1) : size(written_, chunk), tokens};
    const Dim first = size(first_, rows_ - 1);
    r.seen = {first, size(seen_, rows_), r.kept + tokens};
    return r;
}

RingSizes CacheRing::sizes(DecoderTask task, std::int64_t length, std::int64_t count) const noexcept {
    RingSizes sizes;
    const std::int64_t kept = std::min(length, window_ - 1);
    const std::int64_t first = (length - kept) % rows_;
    sizes.add(kept_, kept);
    sizes.add(at_, length % rows_);
    sizes.add(first_, first);
    sizes.add(seen_, std::min(kept + count, rows_ - first));
    if (task != DecoderTask::step) {
        sizes.add(written_, std::min(count, rows_ - length % rows_));
    }
    return sizes;
}

std::vector<CacheRing> rings_of(std::span<const LayerCache> layers, std::int64_t max_tokens, std::int64_t chunk) {
    std::vector<CacheRing> rings;
    for (const LayerCache& layer : layers) {
        const std::int64_t rows = cache_rows(layer, max_tokens, chunk);
        const auto same = [&](const CacheRing& ring) { return ring.window() == layer.window; };
        if (rows < max_tokens && std::none_of(rings.begin(), rings.end(), same)) {
            rings.emplace_back(layer.window, rows);
        }
    }
    return rings;
}

}  // namespace vkf
