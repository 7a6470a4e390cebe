// SPDX-License-Identifier: Apache-2.0
#include "layers/attention_scores.h"

#include <cmath>

#include "layers/checks.h"
#include "layers/layer_scope.h"

namespace vkf {

Value attention_scores(Value query, Value key, const ScoreOptions& options) {
    constexpr const char* kName = "attention_scores";
    const std::int64_t width = fixed_width(kName, query);
    if (!(fixed_width(kName, key) == width)) {
        throw Error(query.str() + " and " + key.str() + " differ in width", kName);
    }
    check_one_graph(kName, query, {key});
    Graph& g = query.graph();
    const LayerScope scope(g, options.name);
    if (options.kind == ScoreKind::general) {
        query = matmul(query, g.weight("w", {width, width}));
    }
    if (options.kind != ScoreKind::additive) {
        const double scale = options.kind == ScoreKind::scaled_dot ? 1.0 / std::sqrt(static_cast<double>(width)) : 1.0;
        return matmul(query, key, {.scale = static_cast<float>(scale), .transpose_b = true});
    }
    if (options.hidden < 1) {
        throw Error("the additive kind needs `hidden`", kName);
    }
    const Value q = linear(query, g.weight("w", {options.hidden, width}));
    const Value k = linear(key, g.weight("u", {options.hidden, width}));
    const Value pairs = activate(
        reshape(q, {q.size(0), q.size(1), 1, options.hidden}) + reshape(k, {k.size(0), 1, k.size(1), options.hidden}),
        Activation::tanh);  // (B, L, S, A)
    const Value scores = linear(pairs, reshape(g.weight("v", {options.hidden}), {1, options.hidden}));
    return reshape(scores, {scores.size(0), q.size(1), k.size(1)});
}

}  // namespace vkf
