// SPDX-License-Identifier: Apache-2.0
// Checks of what layers are given.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>

#include "layers/head_sizes.h"
#include "ops/ops.h"

namespace vkf {

/// The last size of x, of any rank. Throws Error in the name of `layer` where it is a symbol.
inline std::int64_t fixed_last(const char* layer, const Value& x) {
    if (!x.size(-1).is_constant()) {
        throw Error(x.str() + " has no fixed width", layer);
    }
    return x.size(-1).constant();
}

/// Gives E of x (B, L, E). Throws Error in the name of `layer` for another rank, or where E is a
/// symbol.
inline std::int64_t fixed_width(const char* layer, const Value& x) {
    if (x.rank() != 3 || !x.size(-1).is_constant()) {
        throw Error(x.str() + " must be (batch, tokens, width) with a fixed width", layer);
    }
    return x.size(-1).constant();
}

/// Throws Error in the name of `layer` where tensors beside x, of which some may be empty, are of
/// another graph than x.
inline void check_one_graph(const char* layer, const Value& x, std::initializer_list<Value> others) {
    for (const Value& other : others) {
        if (other && &other.graph() != &x.graph()) {
            throw Error(other.str() + " belongs to another graph than " + x.str(), layer);
        }
    }
}

/// Throws Error where a cache cannot take both: they are of as many sequences and tokens.
inline void check_appended(const Value& key, const Value& value) {
    constexpr const char* kName = "append";
    check_one_graph(kName, key, {value});
    if (key.rank() != 4 || value.rank() != 4 || !(key.size(0) == value.size(0) && key.size(1) == value.size(1))) {
        throw Error("key " + key.str() + " and value " + value.str() +
                        " must be (batch, tokens, heads, head_dim), of as many sequences and tokens",
                    kName);
    }
}

/// Heads that each have keys and values of their own, over the whole width of x (B, L, E). Throws
/// Error in the name of `layer` where it does not divide.
inline HeadSizes heads_over_width(const char* layer, const Value& x, std::int64_t heads) {
    const std::int64_t width = fixed_width(layer, x);
    if (heads < 1 || width % heads != 0) {
        throw Error("width " + std::to_string(width) + " of " + x.str() + " does not divide into " +
                        std::to_string(heads) + " heads",
                    layer);
    }
    return {heads, heads, width / heads};
}

/// Throws Error in the name of `layer`, which is over x, where heads do not share kv_heads evenly.
inline void check_heads(const char* layer, std::int64_t heads, std::int64_t kv_heads, const Value& x) {
    if (heads < 1 || kv_heads < 1 || heads % kv_heads != 0) {
        throw Error("heads " + std::to_string(heads) + ", kv_heads " + std::to_string(kv_heads) + " over " + x.str() +
                        ": the heads do not divide into groups",
                    layer);
    }
}

/// Throws Error where all columns of queries, keys and values together pass 63 bits.
inline void check_columns(const HeadSizes& s) {
    constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / 3;
    if (s.head_dim > 0 && std::max(s.heads, s.kv_heads) > kMost / s.head_dim) {
        throw Error("heads " + std::to_string(s.heads) + ", kv_heads " + std::to_string(s.kv_heads) + ", head_dim " +
                        std::to_string(s.head_dim) + " have more columns than can be counted",
                    "attention");
    }
}

}  // namespace vkf
