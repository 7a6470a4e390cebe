// SPDX-License-Identifier: Apache-2.0
// Gradients, against central differences.
#include <algorithm>
#include <cmath>

#include "doctor/cases.h"
#include "ops/gradients.h"
#include "ops/ops.h"
#include "ops/optimizer.h"

namespace vkf::doctor {

namespace {

std::int64_t length_of(const Doubles& x) { return static_cast<std::int64_t>(x.size()); }

Case attention_gradient_case(const AttentionSizes& s, Arithmetic arithmetic) {
    Case c;
    c.arithmetic = arithmetic;
    const auto count = [](std::int64_t a, std::int64_t b, std::int64_t d) {
        return static_cast<std::size_t>(a * b * d);
    };
    const Doubles q = numbers(count(s.heads, s.queries, s.dim), 41), k = numbers(count(s.kv_heads, s.keys, s.dim), 42),
                  v = numbers(count(s.kv_heads, s.keys, s.value_dim), 43),
                  seed = numbers(count(s.heads, s.queries, s.value_dim), 44);
    const Value qv = c.input("query", {1, s.heads, s.queries, s.dim}, q),
                kv = c.input("key", {1, s.kv_heads, s.keys, s.dim}, k),
                vv = c.input("value", {1, s.kv_heads, s.keys, s.value_dim}, v),
                sv = c.input("seed", {1, s.heads, s.queries, s.value_dim}, seed);
    AttentionOptions options;
    options.mask.causal = Causal::bottom_right;
    const Value y = scaled_dot_product_attention(qv, kv, vv, options).y;
    const std::vector<Value> g = gradients(y, {qv, kv, vv}, sv);
    const auto masked = [&](std::int64_t row, std::int64_t key) { return key > row + s.keys - s.queries; };
    const auto of = [&](const Doubles& a, const Doubles& b, const Doubles& d) {
        return attention(s, a, b, d, masked).values;
    };
    const double allowed = arithmetic == Arithmetic::f16 ? 8e-3 : 1e-4;
    c.output("of_query", contiguous(g[0]),
             within(gradient([&](const Doubles& x) { return of(x, k, v); }, q, seed), allowed, 1e-3));
    c.output("of_key", contiguous(g[1]),
             within(gradient([&](const Doubles& x) { return of(q, x, v); }, k, seed), allowed, 1e-3));
    c.output("of_value", contiguous(g[2]),
             within(gradient([&](const Doubles& x) { return of(q, k, x); }, v, seed), allowed, 1e-3));
    return c;
}

Case small_attention() { return attention_gradient_case({2, 1, 5, 19, 6, 6}, Arithmetic::f32); }
Case long_attention() { return attention_gradient_case({2, 1, 5, 133, 8, 8}, Arithmetic::f32); }
Case half_attention() { return attention_gradient_case({2, 1, 5, 37, 16, 16}, Arithmetic::f16); }

Case norm_and_product() {
    Case c;
    constexpr std::int64_t kRows = 7, kWidth = 21, kOut = 10;
    const Doubles x = numbers(kRows * kWidth, 45), w = numbers(kOut * kWidth, 46), n = numbers(kWidth, 47),
                  seed = numbers(kRows * kOut, 48);
    const Value xv = c.input("x", {kRows, kWidth}, x), wv = c.input("w", {kOut, kWidth}, w),
                nv = c.input("n", {kWidth}, n), sv = c.input("seed", {kRows, kOut}, seed);
    const std::vector<Value> g = gradients(linear(layer_norm(xv, nv, {}), wv), {xv, wv, nv}, sv);
    const auto of = [&](const Doubles& a, const Doubles& b, const Doubles& d) {
        return product({kRows, kOut, kWidth}, norm(a, kWidth, d, {}, 1e-5, true), b).values;
    };
    c.output("of_x", g[0], within(gradient([&](const Doubles& v) { return of(v, w, n); }, x, seed), 1e-4, 1e-3));
    c.output("of_w", contiguous(g[1]),
             within(gradient([&](const Doubles& v) { return of(x, v, n); }, w, seed), 1e-4, 1e-3));
    c.output("of_n", g[2], within(gradient([&](const Doubles& v) { return of(x, w, v); }, n, seed), 1e-4, 1e-3));
    return c;
}

/// Ids out of range move nothing.
Case embedding_and_loss() {
    Case c;
    constexpr std::int64_t kRows = 6, kWidth = 9;
    const Doubles table = numbers(kRows * kWidth, 49), ids{2, 5, 2, 0}, labels{1, 8, -100, 3};
    const Value t = c.input("table", {kRows, kWidth}, table);
    const Value loss = cross_entropy(embedding(c.input("ids", {length_of(ids)}, ids, DType::i32), t),
                                     c.input("labels", {length_of(labels)}, labels, DType::i32));
    const auto of = [&](const Doubles& at) {
        double sum = 0;
        for (std::size_t i = 0; i < ids.size(); ++i) {
            if (labels[i] >= 0) {
                const auto* row = at.data() + static_cast<std::ptrdiff_t>(ids[i]) * kWidth;
                const Doubles p = softmax({row, row + kWidth}, kWidth, [](std::size_t) { return false; });
                sum -= std::log(p[static_cast<std::size_t>(labels[i])]) / 3;
            }
        }
        return Doubles{sum};
    };
    c.output("loss", loss, within(of(table)));
    c.output("of_table", gradients(loss, {t}).front(), within(gradient(of, table, {1})));
    return c;
}

Case clipped() {
    Case c;
    constexpr double kMost = 2;
    const Doubles a = numbers(3 * 21, 51), b = numbers(530, 52);
    double squares = 0;
    for (const Doubles& gradient : {a, b}) {
        for (const double x : gradient) {
            squares += x * x;
        }
    }
    const double norm = std::sqrt(squares);
    const ClippedNorm clip =
        clip_grad_norm({c.input("a", {3, 21}, a), c.input("b", {length_of(b)}, b)}, static_cast<float>(kMost));
    c.output("norm", clip.norm, within({norm}));
    c.output("scale", clip.scale, within({std::min(kMost / (norm + 1e-6), 1.0)}));
    return c;
}

constexpr CaseMaker kGradients[] = {
    {"gradient of attention of 5 by 19", true, small_attention},
    {"gradient of attention of 5 by 133", true, long_attention},
    {"gradient of attention in f16 of 5 by 37", true, half_attention},
    {"gradient of a norm and a product", true, norm_and_product},
    {"gradient of rows by ids and of cross entropy", true, embedding_and_loss},
    {"norm of gradients, to clip them", true, clipped},
};

}  // namespace

std::span<const CaseMaker> gradient_cases() { return kGradients; }

}  // namespace vkf::doctor
