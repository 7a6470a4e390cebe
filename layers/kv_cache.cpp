// SPDX-License-Identifier: Apache-2.0
#include "layers/kv_cache.h"

#include <string>
#include <utility>

#include "ops/attention_params.h"
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
    const Scope scope(graph, name);
    const auto state = [&](const char* which) {
        return graph.state(which, {batch, capacity, kv_heads, width}, plain ? DType::f32 : DType::i32);
    };
    return {state("key"), state("value"), std::move(start), type};
}

CachedKv append(const KvCache& cache, Value key, Value value) {
    if (cache.written.has_value() != cache.seen.has_value()) {
        throw Error("a ring has both the rows that are written and those that are seen", "append");
    }
    const auto into = [&](Value state, Value x) {
        if (state.rank() != 4 || x.rank() != 4) {
            throw Error("cache " + state.str() + " and " + x.str() + " must be (batch, tokens, heads, head_dim)",
                        "append");
        }
        const Value rows = slice(state, 0, 0, x.size(0));
        const auto put = [&](Dim at, Dim from, Dim count) {
            const Value window = slice(rows, 1, std::move(at), count);
            const Value part = count == x.size(1) ? x : slice(x, 1, std::move(from), count);
            if (cache.type == WeightType::f32) {
                copy_into(window, part);
            } else {
                pack_into(window, part, cache.type);
            }
        };
        if (!cache.written) {
            put(cache.start, 0, x.size(1));
            return transpose(slice(rows, 1, 0, cache.start + x.size(1)), 1, 2);
        }
        const RingRows& ring = *cache.written;
        support::check_ring("append", {ring.first, ring.before_end, x.size(1)}, state, state.size(1));
        put(ring.first, 0, ring.before_end);
        if (!(ring.before_end == x.size(1))) {
            put(0, ring.before_end, x.size(1) - ring.before_end);
        }
        return transpose(rows, 1, 2);
    };
    return {into(cache.key, key), into(cache.value, value)};
}

}  // namespace vkf
