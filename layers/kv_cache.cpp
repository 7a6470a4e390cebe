// SPDX-License-Identifier: Apache-2.0
#include "layers/kv_cache.h"

#include <string>
#include <utility>
#include <vector>

#include "layers/checks.h"
#include "layers/layer_scope.h"
#include "ops/attention_params.h"
#include "ops/elementwise.h"
#include "ops/packed_rows.h"
#include "runtime/graph/edit.h"
#include "runtime/graph/packed.h"

namespace vkf {

KvCache kv_cache(Graph& graph, const std::string& name, std::int64_t batch, std::int64_t capacity,
                 std::int64_t kv_heads, std::int64_t head_dim, Dim start, WeightType type) {
    if (batch < 1 || capacity < 1 || kv_heads < 1 || head_dim < 1) {
        throw Error("batch " + std::to_string(batch) + ", capacity " + std::to_string(capacity) + ", kv_heads " +
                        std::to_string(kv_heads) + ", head_dim " + std::to_string(head_dim) + ": each is at least 1",
                    "kv_cache");
    }
    const bool plain = type == WeightType::f32;
    const std::int64_t width =
        plain ? head_dim : static_cast<std::int64_t>(packed_row_words(type, static_cast<std::uint64_t>(head_dim)));
    const LayerScope scope(graph, name);
    const auto state = [&](const char* which) {
        return graph.state(which, {batch, capacity, kv_heads, width}, plain ? DType::f32 : DType::i32);
    };
    return {state("key"), state("value"), std::move(start), type};
}

CachedKv append(const KvCache& cache, Value key, Value value) {
    if (cache.written.has_value() != cache.seen.has_value()) {
        throw Error("a ring has both the rows that are written and those that are seen", "append");
    }
    check_appended(key, value);
    check_one_graph("append", key, {cache.key, cache.value});
    struct Written {
        std::vector<std::pair<Value, Value>> parts;  ///< windows of the state, and what goes there
        Value seen;
    };
    const auto windows_of = [&](const Value& state, const Value& x) {
        if (state.rank() != 4 || x.rank() != 4) {
            throw Error("cache " + state.str() + " and " + x.str() + " must be (batch, tokens, heads, head_dim)",
                        "append");
        }
        const Value rows = slice(state, 0, 0, x.size(0));
        Written out;
        const auto put = [&](Dim at, Dim from, const Dim& count) {
            out.parts.emplace_back(slice(rows, 1, std::move(at), count),
                                   count == x.size(1) ? x : slice(x, 1, std::move(from), count));
        };
        if (!cache.written) {
            put(cache.start, 0, x.size(1));
            out.seen = transpose(slice(rows, 1, 0, cache.start + x.size(1)), 1, 2);
            return out;
        }
        const RingRows& ring = *cache.written;
        support::check_ring("append", {ring.first, ring.before_end, x.size(1)}, state, state.size(1));
        put(ring.first, 0, ring.before_end);
        if (!(ring.before_end == x.size(1))) {
            put(0, ring.before_end, x.size(1) - ring.before_end);
        }
        out.seen = transpose(rows, 1, 2);
        return out;
    };
    // nothing is written where one of the two does not fit
    const GraphEdit::Addition addition(key.graph());
    const bool plain = cache.type == WeightType::f32;
    const Written keys = windows_of(cache.key, key), values = windows_of(cache.value, value);
    for (const Written* written : {&keys, &values}) {
        for (const auto& [window, part] : written->parts) {
            plain ? support::check_copy_into(window, part) : support::check_pack_into(window, part, cache.type);
        }
    }
    for (const Written* written : {&keys, &values}) {
        for (const auto& [window, part] : written->parts) {
            plain ? copy_into(window, part) : pack_into(window, part, cache.type);
        }
    }
    return {keys.seen, values.seen};
}

}  // namespace vkf
