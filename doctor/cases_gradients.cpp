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

Case attention_bias() {
    Case c;
    constexpr AttentionSizes s{2, 1, 5, 19, 6, 6};
    const Doubles q = numbers(2 * 5 * 6, 53), k = numbers(19 * 6, 54), v = numbers(19 * 6, 55),
                  bias = numbers(2 * 5 * 19, 56), seed = numbers(2 * 5 * 6, 57);
    AttentionOptions options;
    options.mask.bias = c.input("bias", {1, s.heads, s.queries, s.keys}, bias);
    const Value y = scaled_dot_product_attention(c.input("query", {1, s.heads, s.queries, s.dim}, q),
                                                 c.input("key", {1, s.kv_heads, s.keys, s.dim}, k),
                                                 c.input("value", {1, s.kv_heads, s.keys, s.value_dim}, v), options)
                        .y;
    const Value sv = c.input("seed", {1, s.heads, s.queries, s.value_dim}, seed);
    const auto of = [&](const Doubles& b) {
        return attention(
                   s, q, k, v, [](std::int64_t, std::int64_t) { return false; }, false, b)
            .values;
    };
    c.output("of_bias", contiguous(gradients(y, {options.mask.bias}, sv).front()),
             within(gradient(of, bias, seed), 1e-4, 1e-3));
    return c;
}

/// Sequences behind each other, of 2 and 7 queries to 3 and 16 keys.
Case packed_attention() {
    Case c;
    constexpr AttentionSizes s{2, 1, 9, 19, 6, 6};
    const Doubles q = numbers(2 * 9 * 6, 58), k = numbers(19 * 6, 59), v = numbers(19 * 6, 60),
                  seed = numbers(2 * 9 * 6, 61);
    const Value qv = c.input("query", {1, s.heads, s.queries, s.dim}, q),
                kv = c.input("key", {1, s.kv_heads, s.keys, s.dim}, k),
                vv = c.input("value", {1, s.kv_heads, s.keys, s.value_dim}, v),
                sv = c.input("seed", {1, s.heads, s.queries, s.value_dim}, seed);
    AttentionOptions options;
    options.cumulative_queries = c.input("queries", {3}, {0, 2, 9}, DType::i32);
    options.cumulative_keys = c.input("keys", {3}, {0, 3, 19}, DType::i32);
    const Value y = scaled_dot_product_attention(qv, kv, vv, options).y;
    const std::vector<Value> g = gradients(y, {qv, kv}, sv);
    const auto of = [&](const Doubles& a, const Doubles& b) {
        return attention(s, a, b, v, [](std::int64_t row, std::int64_t key) { return (row < 2) != (key < 3); }).values;
    };
    c.output("of_query", contiguous(g[0]),
             within(gradient([&](const Doubles& x) { return of(x, k); }, q, seed), 1e-4, 1e-3));
    c.output("of_key", contiguous(g[1]),
             within(gradient([&](const Doubles& x) { return of(q, x); }, k, seed), 1e-4, 1e-3));
    return c;
}

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

/// The fourth step of both optimizers, from states that each run sets anew.
Case updated() {
    Case c;
    constexpr std::int64_t kCount = 530, kStep = 3;
    const auto count = static_cast<std::size_t>(kCount);
    const auto parameter = [&](const std::string& name, std::int64_t moments, const Doubles& from,
                               const Doubles& kept) {
        (void)copy_into(c.graph->state(name + ".moments", {moments, kCount}),
                        c.input(name + " moments", {moments, kCount}, kept));
        return copy_into(c.graph->state(name, {kCount}), c.input(name + " before", {kCount}, from));
    };
    const auto after = [&](const std::string& name, const Sizes& shape, Doubles want) {
        const Value zero = c.input(name + " zero", shape, Doubles(want.size(), 0));
        c.output(name + " after", c.graph->state(name, Shape(shape.begin(), shape.end())) + zero,
                 within(std::move(want)));
    };
    const Doubles gradient = numbers(count, 62), w = numbers(count, 63), u = numbers(count, 64), m = numbers(count, 65),
                  momentum = numbers(count, 66);
    Doubles kept = m, v = numbers(count, 67);
    for (double& x : v) {
        x = std::abs(x) + 0.25;
    }
    kept.insert(kept.end(), v.begin(), v.end());
    const AdamW adam{.learning_rate = 0.125, .beta1 = 0.75, .beta2 = 0.875, .eps = 1e-6, .weight_decay = 0.25};
    const Sgd sgd{.learning_rate = 0.125, .momentum = 0.75, .nesterov = true, .weight_decay = 0.25};
    const Value g = c.input("gradient", {kCount}, gradient);
    update({parameter("w", 2, w, kept)}, {g}, adam, {.step = kStep});
    update({parameter("u", 1, u, momentum)}, {g}, sgd, {.step = kStep});
    Doubles w_after(count), kept_after(2 * count), u_after(count), momentum_after(count);
    for (std::size_t i = 0; i < count; ++i) {
        kept_after[i] = adam.beta1 * m[i] + (1 - adam.beta1) * gradient[i];
        kept_after[count + i] = adam.beta2 * v[i] + (1 - adam.beta2) * gradient[i] * gradient[i];
        const double mean = kept_after[i] / (1 - std::pow(adam.beta1, kStep + 1)),
                     square = kept_after[count + i] / (1 - std::pow(adam.beta2, kStep + 1));
        w_after[i] = w[i] * (1 - adam.learning_rate * adam.weight_decay) -
                     adam.learning_rate * mean / (std::sqrt(square) + adam.eps);
        const double decayed = gradient[i] + sgd.weight_decay * u[i];
        momentum_after[i] = sgd.momentum * momentum[i] + decayed;
        u_after[i] = u[i] - sgd.learning_rate * (decayed + sgd.momentum * momentum_after[i]);
    }
    after("w", {kCount}, std::move(w_after));
    after("w.moments", {2, kCount}, std::move(kept_after));
    after("u", {kCount}, std::move(u_after));
    after("u.moments", {1, kCount}, std::move(momentum_after));
    return c;
}

constexpr CaseMaker kGradients[] = {
    {"gradient of attention of 5 by 19", true, small_attention},
    {"gradient of attention of 5 by 133", true, long_attention},
    {"gradient of attention in f16 of 5 by 37", true, half_attention},
    {"gradient of an attention's bias", true, attention_bias},
    {"gradient of attention of sequences behind each other", true, packed_attention},
    {"gradient of a norm and a product", true, norm_and_product},
    {"gradient of rows by ids and of cross entropy", true, embedding_and_loss},
    {"norm of gradients, to clip them", true, clipped},
    {"a step of AdamW and of SGD", true, updated},
};

}  // namespace

std::span<const CaseMaker> gradient_cases() { return kGradients; }

}  // namespace vkf::doctor
