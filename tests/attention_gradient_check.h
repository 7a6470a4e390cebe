// SPDX-License-Identifier: Apache-2.0
// The gradient of scaled_dot_product_attention() by whatever kernels a device is believed to take.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "layers/attention.h"
#include "tests/op_check.h"

namespace vkf::test {

/// Inputs of one attention; what is empty is not there.
struct TiledProblem {
    Tensor query, key, value, dy;
    std::optional<Tensor> mask = {}, bias = {}, slopes = {}, sinks = {};
    std::optional<Tensor> ends = {};  ///< of sequences packed in queries and keys
    Causal causal = Causal::none;
    std::int64_t window = 0;
    float softcap = 0, dropout = 0, fill = -static_cast<float>(kInf);
    bool log_sum_exp = false;  ///< it is a part of the loss
    bool weights = false;      ///< they are an output
};

/// Random inputs: query (B,H,L,d), key (B,Hk,S,d).
TiledProblem tiled_problem(const Sizes& query, const Sizes& key, std::int64_t value_dim);
/// The same with every option but `weights` and `log_sum_exp`.
TiledProblem every_option(const Sizes& query, const Sizes& key, std::int64_t value_dim);
/// The same with `poison` where what is masked holds it: in keys and values that the mask (L, S)
/// hides from query 0, and in queries and dy from which it hides key 0.
TiledProblem poisoned(TiledProblem p, double poison);
/// A mask (.., 1, L, S): some keys are hidden from each query, and all from the one in the middle.
Tensor gappy_mask(const Sizes& shape);

/// A mask (L, S): every seventh key is hidden, as are those from 32 to 63, and all from query 5 and
/// the last.
Tensor holed_mask(std::int64_t queries, std::int64_t keys);

struct Gradients {
    std::vector<Tensor> of;  ///< query, key, value and, where there are any, sinks
    std::string explained;
    bool repeated = true;  ///< each run gave the same bits
};

/// The gradients by the kernels that a device takes that is believed to be so.
Gradients gradients_as(const TiledProblem& p, const std::function<void(Capabilities&)>& believed, int runs = 1,
                       const CompileOptions& options = {});

/// Says which gradients differ, and how; empty: none does. `within` has a tolerance for each that
/// is compared; without it all are, as fp32 allows.
std::string difference(const Gradients& got, const Gradients& want, std::vector<Tolerance> within = {});

/// For gradients_as(): composed ops.
void as_composed(Capabilities& c);

}  // namespace vkf::test
