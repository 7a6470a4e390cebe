// SPDX-License-Identifier: Apache-2.0
// The CPU twin of scaled_dot_product_attention().
#pragma once

#include "tests/reference.h"

namespace vkf::reference {

/// The options of vkf::AttentionOptions, over tensors of the host. The weights and the log-sum-exp
/// are always computed.
struct AttentionOptions {
    SoftmaxOptions scores = {.scale = 0};  ///< scale 0: 1/sqrt(d)
    double dropout = 0;
    std::uint32_t dropout_seed = 0;
};

struct Attention {
    Tensor y;            ///< (B, H, L, dv)
    Tensor weights;      ///< (B, H, L, S), before dropout
    Tensor log_sum_exp;  ///< (B, H, L)
};

/// query (B, H, L, d), key (B, Hk, S, d), value (B, Hk, S, dv).
Attention attention(const Tensor& query, const Tensor& key, const Tensor& value, const AttentionOptions& options = {});

}  // namespace vkf::reference
