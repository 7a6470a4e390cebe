// SPDX-License-Identifier: Apache-2.0
// Norms and projections with their parameters, found by name under the scopes that are open.
#pragma once

#include <string>

#include "ops/ops.h"

namespace vkf {

/// RMSNorm with `name`.weight.
Value rms_norm(Value x, const std::string& name, float eps);
/// LayerNorm with `name`.weight and `name`.bias.
Value layer_norm(Value x, const std::string& name, float eps);

/// c tanh(x / c); c = 0: x.
Value softcap(Value x, float c);

/// x W^T + b with `name`.weight (out, in) and, if asked, `name`.bias (out), as the last part of a
/// block. `h + block(x)` adds h while the product is written; everywhere else it is a Value.
class Projection {
public:
    Projection(Value x, const std::string& name, std::int64_t out, bool bias = false);
    operator Value() const { return described({}); }
    friend Value operator+(Value h, const Projection& p) { return p.described(h); }

private:
    /// `plus` may be empty.
    Value described(Value plus) const;

    Value x_, weight_, bias_;
    std::string path_;  ///< the name with the scopes that were open
};

/// down_proj(activation(gate_proj x) * up_proj x), of `hidden` columns between: SwiGLU (Shazeer
/// 2020) with Activation::silu.
Projection gated_mlp(Value x, std::int64_t hidden, Activation activation, bool bias = false);

}  // namespace vkf
