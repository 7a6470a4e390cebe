// SPDX-License-Identifier: Apache-2.0
// Which keys a query may see.
#pragma once

#include <cstdint>
#include <limits>

#include "../runtime/graph/graph.h"

namespace vkf {

enum class Causal : std::uint8_t {
    none,
    top_left,      ///< row r sees keys 0..r (PyTorch's is_causal)
    bottom_right,  ///< row r sees keys 0..r+S-L (what a KV cache needs)
};

/// The meaning of a 1 in a boolean mask.
enum class Polarity : std::uint8_t {
    attend,  ///< 1 = may attend
    ignore,  ///< 1 = may not: PyTorch's nn.MultiheadAttention and nn.Transformer*
};

/// The keys that a query may see. Causal and window are parameters, never tensors.
struct Mask {
    Value keys = {};  ///< i32, 0 or 1, broadcasts to the scores (..., L, S); empty: no boolean mask
    Polarity polarity = Polarity::attend;
    Value bias = {};  ///< f32, added to the scaled score; broadcasts to (..., L, S)
    /// ALiBi (Press et al. 2022): f32 (H), or anything that broadcasts to (..., H, L, S); -slope |i
    /// - j| is added, where query row r stands at key r, or with Causal::bottom_right at key r + S
    /// - L.
    Value alibi_slopes = {};
    Causal causal = Causal::none;
    /// The keys that a causal query sees: itself and the window-1 before it; 0: all before it.
    std::int64_t window = 0;
    /// The number that masked scores become. -inf: they never contribute, whatever the key and
    /// value hold, and a row with no key left gives weights 0. A finite negative number: a row with
    /// no key left gives uniform weights. Others are refused.
    float fill = -std::numeric_limits<float>::infinity();
};

}  // namespace vkf
