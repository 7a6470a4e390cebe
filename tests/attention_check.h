// SPDX-License-Identifier: Apache-2.0
// scaled_dot_product_attention() on the device, from tensors of the host, and against its twin.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "layers/attention.h"
#include "tests/op_check.h"
#include "tests/reference_attention.h"

namespace vkf::test {

/// Query, key and value of one call.
struct Qkv {
    Tensor query, key, value;
};

/// B batch, H heads, Hk key/value heads, L queries, S keys, d head size, dv value width.
struct AttentionSizes {
    std::int64_t batch, heads, kv_heads, queries, keys, head_dim, value_dim;
};

Qkv random_qkv(const AttentionSizes& sizes, std::uint32_t seed = 1, double amplitude = 1);

struct Attended {
    Tensor y, log_sum_exp;
    std::optional<Tensor> weights;
};

/// The arithmetic that attend() and mismatch() compile for: f16 where VKFORMER_VARIANT asks for
/// attention_coopmat and the device can have it, else f32.
Arithmetic attention_arithmetic();
/// Gives query, key and value as a program for f16 takes them.
Qkv as_f16(const Qkv& x);
/// The tolerance, and what a program for f16 adds to an error of y: its weights are rounded
/// (docs/numerics.md, 12).
Tolerance f16_tolerance(const Qkv& x, const reference::AttentionOptions& options, const Tolerance& tolerance = {});

/// The results that a call asks for. They decide which kernels compute it.
enum class Ask : std::uint8_t { y, y_and_lse, everything };

/// What a test asks for in turn, everything last. Where VKFORMER_VARIANT names a fused kernel, in
/// fp32, everything is not among it: no kernel of fused attention has a part in that, and the run
/// without the variable has computed the same.
std::vector<Ask> asks();

/// Computes attention of x on the device. `repeat_kv`: see vkf::AttentionOptions.
Attended attend(const Qkv& x, const reference::AttentionOptions& options = {}, Ask ask = Ask::y,
                bool repeat_kv = false);

/// Says how y, the log-sum-exp or the weights differ from the twin's (empty: they do not), asked
/// for what asks() gives; on the device as it is, and as on a small GPU. In f16 what is given to
/// both is what f16 keeps of x.
std::string mismatch(const Qkv& x, const reference::AttentionOptions& options = {}, const Tolerance& tolerance = {});

}  // namespace vkf::test
