// SPDX-License-Identifier: Apache-2.0
// Keys and values that later runs attend to. B sequences, L tokens of a run, Hk key/value heads, d
// head size.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "../ops/ops.h"

namespace vkf {

/// Keys and values that stay on the device between runs: states (B, capacity, Hk, d), of which the
/// first `start` tokens are there already; `start` is usually a symbol.
struct KvCache {
    Value key, value;
    Dim start = 0;
    /// The type that keys and values are kept as: f32, f16, bf16 or int8; append() refuses int4.
    /// For all but f32 the states are i32, (B, capacity, Hk, words of a row of d numbers);
    /// pack_into() says how many words these are.
    WeightType type = WeightType::f32;
    /// The ring form, where no query sees further back than a window: the states' rows are written
    /// in turn. Rows of the tokens to be written, and of those that are seen then, these included;
    /// a window and L - 1 rows suffice. Empty: token i lies in row i.
    std::optional<RingRows> written = {}, seen = {};
};

/// The states `name`.key and `name`.value of a cache for B sequences of up to `capacity` tokens,
/// kv_heads heads of head_dim; each of these is at least 1.
VKF_API KvCache kv_cache(Graph& graph, const std::string& name, std::int64_t batch, std::int64_t capacity,
                         std::int64_t kv_heads, std::int64_t head_dim, Dim start, WeightType type = WeightType::f32);

/// Keys and values of one layer, ready to be attended to: heads first, (B, Hk, S, d).
struct CachedKv {
    Value key, value;
};

/// Writes key and value (B, L, Hk, d) behind what the cache holds; returns all start + L tokens,
/// packed as the cache is. Of a ring all rows come back, as they lie, for AttentionOptions::ring =
/// cache.seen.
VKF_API CachedKv append(const KvCache& cache, Value key, Value value);

}  // namespace vkf
