// SPDX-License-Identifier: Apache-2.0
#include "layers/sharing.h"

#include "layers/layer_scope.h"
#include "layers/linear_hook.h"
#include "ops/collectives.h"
#include "runtime/base/error.h"

namespace vkf {

namespace {

[[noreturn]] void refuse_share(std::int64_t count, const char* what, const Rank& rank) {
    throw Error(
        std::to_string(count) + " " + what + " cannot be shared out over " + std::to_string(rank.ranks) + " ranks",
        "parallel");
}

std::int64_t columns_of_shard(const Shard& shard) {
    std::int64_t count = 0;
    for (const Part& p : shard.parts) {
        count += p.count;
    }
    return count;
}

/// What `share` gives for each of the ranks.
template <class Share>
std::vector<std::int64_t> shares_of_all(Rank rank, Share share) {
    std::vector<std::int64_t> all;
    for (rank.rank = 0; rank.rank < rank.ranks; ++rank.rank) {
        all.push_back(share(rank));
    }
    return all;
}

}  // namespace

Part share_of_width(std::int64_t width, const Rank& rank) {
    for (const std::int64_t unit : {32, 4, 1}) {
        if (width / unit >= rank.ranks) {
            return share_of(width, rank, unit);
        }
    }
    refuse_share(width, "columns", rank);
}

Part share_of_vocabulary(std::int64_t rows, const Rank& rank) {
    if (rows < rank.ranks) {
        refuse_share(rows, "rows of a vocabulary", rank);
    }
    return share_of(rows, rank);
}

std::vector<std::int64_t> shares_of_vocabulary(std::int64_t rows, const Rank& rank) {
    return shares_of_all(rank, [&](const Rank& r) { return share_of_vocabulary(rows, r).count; });
}

std::vector<std::int64_t> shares_of_width(std::int64_t width, const Rank& rank) {
    return shares_of_all(rank, [&](const Rank& r) { return share_of_width(width, r).count; });
}

Part share_of_layers(std::int64_t layers, const Rank& rank) {
    if (layers < rank.ranks) {
        refuse_share(layers, layers == 1 ? "layer" : "layers", rank);
    }
    return share_of(layers, rank);
}

HeadShare share_of_heads(const HeadSizes& whole, const Rank& rank) {
    if (whole.heads < rank.ranks) {
        refuse_share(whole.heads, whole.heads == 1 ? "head" : "heads", rank);
    }
    const std::int64_t group = whole.heads / whole.kv_heads;
    HeadShare out{whole, share_of(whole.heads, rank, whole.kv_heads >= rank.ranks ? group : 1), {}};
    std::vector<std::int64_t> of_query, distinct;
    for (std::int64_t h = out.query.first; h < out.query.first + out.query.count; ++h) {
        of_query.push_back(h / group);
        if (distinct.empty() || distinct.back() != of_query.back()) {
            distinct.push_back(of_query.back());
        }
    }
    const std::int64_t each = out.query.count / static_cast<std::int64_t>(distinct.size());
    bool even = out.query.count % static_cast<std::int64_t>(distinct.size()) == 0;
    for (std::size_t i = 0; even && i < of_query.size(); ++i) {
        even = of_query[i] == distinct[i / static_cast<std::size_t>(each)];
    }
    // Where groups differ in size, each query head has a key and value head of its own.
    out.kv = even ? distinct : of_query;
    out.sizes.heads = out.query.count;
    out.sizes.kv_heads = static_cast<std::int64_t>(out.kv.size());
    return out;
}

Shard rows_of_heads(const std::vector<std::int64_t>& heads, std::int64_t head_dim, std::int64_t first,
                    std::int64_t whole) {
    Shard shard{0, whole, {}};
    for (const std::int64_t h : heads) {
        const Part rows{first + h * head_dim, head_dim};
        if (!shard.parts.empty() && shard.parts.back().first + shard.parts.back().count == rows.first) {
            shard.parts.back().count += rows.count;
        } else {
            shard.parts.push_back(rows);
        }
    }
    return shard;
}

void refuse_hook_of_shares(const Graph& graph) {
    if (!is_whole(graph) && has_linear_hook(graph)) {
        throw Error("what after_linear() was given, as by an adapter, cannot be shared out over " +
                        std::to_string(graph.rank().ranks) + " ranks",
                    "parallel");
    }
}

Value linear_rows(Value x, const std::string& name, const Shard& rows, bool bias, Activation activation) {
    Graph& g = x.graph();
    refuse_hook_of_shares(g);
    const LayerScope scope(g, name);
    const std::int64_t count = columns_of_shard(rows);
    const Value weight = g.weight("weight", {count, x.size(-1)}, rows);
    return linear(x, weight, bias ? g.weight("bias", {count}, rows) : Value(), activation);
}

Value linear_columns(Value x, const std::string& name, const Shard& columns, std::int64_t out, bool bias) {
    Graph& g = x.graph();
    refuse_hook_of_shares(g);
    const LayerScope scope(g, name);
    const Value y = all_reduce(linear(x, g.weight("weight", {out, columns_of_shard(columns)}, columns)));
    return bias ? y + g.weight("bias", {out}) : y;
}

}  // namespace vkf
