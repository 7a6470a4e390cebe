// SPDX-License-Identifier: Apache-2.0
// What stands around attention: norms, feed-forward, dropout, cross-entropy, embedding, argmax.
#include <algorithm>
#include <cmath>
#include <iterator>

#include "example.h"

namespace {

constexpr std::size_t kRows = 6, kWidth = 16;
const Floats kOnes(kWidth, 1.0f), kZeros(kWidth, 0.0f);

/// Mean and mean square of `count` numbers, `stride` apart.
struct Moments {
    double mean = 0, square = 0;
};

Moments moments(const Floats& x, std::size_t first, std::size_t stride, std::size_t count) {
    Moments out;
    for (std::size_t i = 0; i < count; ++i) {
        const double value = x[first + i * stride];
        out.mean += value / static_cast<double>(count);
        out.square += value * value / static_cast<double>(count);
    }
    return out;
}

void norms(Examples& e) {
    Graph g;
    const Value x = g.input("x", {kRows, kWidth});
    const Value ones = g.constant("ones", {kWidth}, kOnes), zeros = g.constant("zeros", {kWidth}, kZeros);
    give("layer", layer_norm(x, ones, zeros));
    give("named", torch::layer_norm_layer(x, "norm"));
    give("want named", layer_norm(x, g.weight("norm.weight", {kWidth}), g.weight("norm.bias", {kWidth})));
    give("rms", rms_norm(x, ones));
    Tensors r = e.run(g);
    Floats means, squares, roots;
    for (std::size_t row = 0; row < kRows; ++row) {
        const Moments layer = moments(r["layer"], row * kWidth, 1, kWidth);
        means.push_back(static_cast<float>(layer.mean));
        squares.push_back(static_cast<float>(layer.square));
        roots.push_back(static_cast<float>(moments(r["rms"], row * kWidth, 1, kWidth).square));
    }
    e.close("layer_norm: rows have mean 0", means, Floats(kRows, 0.0f));
    e.close("and variance 1", squares, Floats(kRows, 1.0f));
    e.close("rms_norm: rows have mean square 1", roots, Floats(kRows, 1.0f));
    e.close("layer_norm_layer: weight and bias by name", r["named"], r["want named"]);
}

/// With momentum 1 the running statistics become the batch's, the variance unbiased.
void batch_norms(Examples& e) {
    Graph g;
    const Value x = g.input("x", {kRows, kWidth});
    const Value ones = g.constant("ones", {kWidth}, kOnes), zeros = g.constant("zeros", {kWidth}, kZeros);
    const BatchNormResult trained = batch_norm_train(x, ones, zeros, zeros, ones, 1.0f);
    give("y", trained.y);
    give("mean", trained.running_mean);
    give("var", trained.running_var);
    give("evaluated", batch_norm(x, ones, zeros, trained.running_mean, trained.running_var));
    Tensors r = e.run(g);
    const Floats input = numbers("x", kRows * kWidth);
    Floats mean, var, means, squares;
    for (std::size_t column = 0; column < kWidth; ++column) {
        const Moments before = moments(input, column, kWidth, kRows), after = moments(r["y"], column, kWidth, kRows);
        mean.push_back(static_cast<float>(before.mean));
        var.push_back(static_cast<float>((before.square - before.mean * before.mean) * kRows / (kRows - 1)));
        means.push_back(static_cast<float>(after.mean));
        squares.push_back(static_cast<float>(after.square));
    }
    e.close("batch_norm_train: columns have mean 0", means, kZeros);
    e.close("and variance 1", squares, Floats(kWidth, 1.0f));
    e.close("running_mean moves to the batch's mean", r["mean"], mean);
    e.close("running_var to its unbiased variance", r["var"], var);
    for (std::size_t i = 0; i < r["evaluated"].size(); ++i) {
        r["evaluated"][i] *= std::sqrt(static_cast<float>(kRows) / (kRows - 1));
    }
    Floats scaled = r["y"];
    for (std::size_t i = 0; i < scaled.size(); ++i) {
        const float biased = var[i % kWidth] * (kRows - 1) / kRows;
        scaled[i] *= std::sqrt((biased + 1e-5f) / (biased + 1e-5f * (kRows - 1) / kRows));
    }
    e.close("batch_norm, in evaluation, by these = training, but for n - 1", r["evaluated"], scaled);
}

void feed_forwards(Examples& e) {
    constexpr std::int64_t kHidden = 24;
    Graph g;
    const Value x = g.input("x", {1, kRows, kWidth});
    const std::map<std::string, Activation> kinds{{"ReLU", Activation::relu},
                                                  {"GELU", Activation::gelu},
                                                  {"GELU by tanh", Activation::gelu_tanh},
                                                  {"SiLU", Activation::silu}};
    for (const auto& [name, activation] : kinds) {
        give(name, feed_forward(x, kHidden, activation, "ffn"));
        const Value hidden = activate(linear_layer(x, "ffn.linear1", kHidden), activation);
        give("want " + name, linear_layer(hidden, "ffn.linear2", kWidth));
    }
    give("SwiGLU", gated_feed_forward(x, kHidden, Activation::silu, "glu"));
    const Value gate = silu(linear_layer(x, "glu.gate_proj", kHidden, false));
    give("want SwiGLU",
         linear_layer(gate * linear_layer(x, "glu.up_proj", kHidden, false), "glu.down_proj", kWidth, false));
    Tensors r = e.run(g);
    for (const auto& [name, activation] : kinds) {
        e.close("feed_forward, " + name + ": linear2(activation(linear1(x)))", r[name], r["want " + name]);
    }
    e.close("gated_feed_forward, SwiGLU: down(silu(gate x) * up x)", r["SwiGLU"], r["want SwiGLU"]);
}

void dropouts(Examples& e) {
    constexpr std::size_t kCount = 100000;
    Graph g;
    const Value x = g.input("x", {kCount});
    give("y", dropout(x, 0.25f, 7));
    give("none", dropout(x, 0.0f, 7));
    give("all", dropout(x, 1.0f, 7));
    Tensors r = e.run(g, {.floats = {{"x", Floats(kCount, 3.0f)}}});
    const auto kept = std::count(r["y"].begin(), r["y"].end(), 4.0f),
               zero = std::count(r["y"].begin(), r["y"].end(), 0.0f);
    e.holds("dropout by 1/4: each number is 0, or 4/3 of what it was", kept + zero == kCount);
    e.holds("a share of 3/4 stays, within 4 sigma",
            std::abs(static_cast<double>(kept) - 75000) < 4 * std::sqrt(100000 * 0.1875));
    e.same("p = 0 keeps all", r["none"], Floats(kCount, 3.0f));
    e.same("p = 1 keeps nothing", r["all"], Floats(kCount, 0.0f));
}

void cross_entropies(Examples& e) {
    constexpr std::size_t kClasses = 16;
    Graph g;
    const Value logits = g.input("logits", {kRows, kClasses});
    const Value labels = g.input("labels", {kRows}, DType::i32);
    give("plain", cross_entropy(logits, labels));
    give("ignoring", cross_entropy(logits, labels, {.ignore_index = 3}));
    give("smooth", cross_entropy(logits, labels, {.label_smoothing = 0.1f}));
    const Integers label{3, 0, 15, 7, 3, 11};
    Tensors r = e.run(g, {.integers = {{"labels", label}}});
    const Floats x = numbers("logits", kRows * kClasses);
    double plain = 0, ignoring = 0, smooth = 0;
    for (std::size_t row = 0; row < kRows; ++row) {
        double sum = 0;
        for (std::size_t i = 0; i < kClasses; ++i) {
            sum += std::exp(x[row * kClasses + i]);
        }
        const double log_sum = std::log(sum);
        const double own = log_sum - x[row * kClasses + static_cast<std::size_t>(label[row])];
        const double all = log_sum - moments(x, row * kClasses, 1, kClasses).mean;
        plain += own / kRows;
        ignoring += label[row] == 3 ? 0 : own / 4;
        smooth += (0.9 * own + 0.1 * all) / kRows;
    }
    e.close("cross_entropy; ignoring the rows of label 3; with label smoothing of 0.1",
            {r["plain"][0], r["ignoring"][0], r["smooth"][0]},
            {static_cast<float>(plain), static_cast<float>(ignoring), static_cast<float>(smooth)});
}

/// Token ids to rows of a table, and rows of logits to ids.
void ids(Examples& e) {
    Graph g;
    const Value table = g.weight("table", {10, kWidth});
    const Value found = embedding(g.input("ids", {1, kRows}, DType::i32), table, 2.0f);
    give("y", found);
    give("largest", argmax(found));
    Program p = e.compile(g, {.integers = {{"ids", {3, 9, 0, 3, 5, 1}}}});
    p.run();
    const Floats rows = numbers("table", 10 * kWidth), y = p.download("y");
    Floats want;
    Integers largest;
    for (const std::ptrdiff_t id : {3, 9, 0, 3, 5, 1}) {
        const auto row = rows.begin() + id * static_cast<std::ptrdiff_t>(kWidth);
        std::transform(row, row + kWidth, std::back_inserter(want), [](float x) { return 2.0f * x; });
        largest.push_back(static_cast<std::int32_t>(std::max_element(row, row + kWidth) - row));
    }
    e.same("embedding: rows of the table, times 2", y, want);
    e.holds("argmax: where a row is largest", p.download_i32("largest") == largest);
}

}  // namespace

void the_rest(Examples& e) {
    e.family("norms, feed-forward, dropout, cross-entropy, embedding, argmax");
    norms(e);
    batch_norms(e);
    feed_forwards(e);
    dropouts(e);
    cross_entropies(e);
    ids(e);
}
