// SPDX-License-Identifier: Apache-2.0
// attention_scores: four ways to score a query against a key, for soft and for hard attention.
#include <algorithm>
#include <cmath>

#include "example.h"

namespace {

constexpr std::int64_t kQueries = 4, kKeys = 6, kWidth = 8, kHidden = 5;

/// sum over i of v_i tanh((w q)_i + (u k)_i), as Bahdanau et al. (2015) write it.
Floats additive_scores() {
    const Floats q = numbers("query", kQueries * kWidth), k = numbers("key", kKeys * kWidth);
    const Floats w = numbers("additive.w", kHidden * kWidth), u = numbers("additive.u", kHidden * kWidth);
    const Floats v = numbers("additive.v", kHidden);
    const auto dot = [](const float* a, const float* b) {
        double sum = 0;
        for (std::int64_t i = 0; i < kWidth; ++i) {
            sum += static_cast<double>(a[i]) * b[i];
        }
        return sum;
    };
    Floats out;
    for (std::int64_t query = 0; query < kQueries; ++query) {
        for (std::int64_t key = 0; key < kKeys; ++key) {
            double score = 0;
            for (std::int64_t i = 0; i < kHidden; ++i) {
                score += v[static_cast<std::size_t>(i)] * std::tanh(dot(&w[static_cast<std::size_t>(i * kWidth)],
                                                                        &q[static_cast<std::size_t>(query * kWidth)]) +
                                                                    dot(&u[static_cast<std::size_t>(i * kWidth)],
                                                                        &k[static_cast<std::size_t>(key * kWidth)]));
            }
            out.push_back(static_cast<float>(score));
        }
    }
    return out;
}

/// The value of the key with the largest score.
Floats largest(const Floats& scores, const Floats& values) {
    Floats out;
    for (auto row = scores.begin(); row != scores.end(); row += kKeys) {
        const auto key = static_cast<std::size_t>(std::max_element(row, row + kKeys) - row);
        out.insert(out.end(), values.begin() + static_cast<std::ptrdiff_t>(key * kWidth),
                   values.begin() + static_cast<std::ptrdiff_t>((key + 1) * kWidth));
    }
    return out;
}

}  // namespace

void ways_to_score(Examples& e) {
    e.family("attention_scores, soft and hard");
    Graph g;
    const Value query = g.input("query", {1, kQueries, kWidth}), key = g.input("key", {1, kKeys, kWidth});
    const Value value = g.input("value", {1, kKeys, kWidth});
    const std::map<std::string, ScoreOptions> kinds{
        {"dot", {.kind = ScoreKind::dot}},
        {"scaled dot", {.kind = ScoreKind::scaled_dot}},
        {"general", {.name = "general", .kind = ScoreKind::general}},
        {"additive", {.name = "additive", .kind = ScoreKind::additive, .hidden = kHidden}}};
    for (const auto& [name, options] : kinds) {
        const Value scores = attention_scores(query, key, options);
        give(name, scores);
        give(name + ", soft", matmul(softmax(scores), value));
        give(name + ", sharp", matmul(softmax(scores, {.scale = 1e4f}), value));
        give(name + ", hard", matmul(hard_max(scores), value));
    }
    give("sdpa", scaled_dot_product_attention(split_heads(query, 1), split_heads(key, 1), split_heads(value, 1)));
    Floats unit(kWidth * kWidth);
    for (std::size_t i = 0; i < unit.size(); i += kWidth + 1) {
        unit[i] = 1;
    }
    Tensors r = e.run(g, {.floats = {{"general.w", unit}}});
    Floats scaled = r["dot"];
    for (float& score : scaled) {
        score /= std::sqrt(static_cast<float>(kWidth));
    }
    e.close("scaled dot = dot / sqrt(d)", r["scaled dot"], scaled);
    e.close("general with the unit matrix = dot", r["general"], r["dot"]);
    e.close("additive = sum of v tanh(w q + u k)", r["additive"], additive_scores());
    e.close("scaled dot, soft = scaled_dot_product_attention", r["scaled dot, soft"], r["sdpa"]);
    for (const auto& [name, options] : kinds) {
        e.same(name + ", hard: the value of the key with the largest score", r[name + ", hard"],
               largest(r[name], numbers("value", kKeys * kWidth)));
        e.close(name + ", hard = soft with scores times 10000", r[name + ", hard"], r[name + ", sharp"]);
    }
}
