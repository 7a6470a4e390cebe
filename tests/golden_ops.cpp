// SPDX-License-Identifier: Apache-2.0
// Single ops as this library computes them, and their gradients.
#include <algorithm>

#include "layers/attention.h"
#include "layers/parallel.h"
#include "ops/ops.h"
#include "tests/golden_systems.h"

namespace vkf::test {

Activation activation_of(const std::string& name) {
    static const std::map<std::string, Activation> kActivations{
        {"none", Activation::none},           {"relu", Activation::relu}, {"gelu", Activation::gelu},
        {"gelu_tanh", Activation::gelu_tanh}, {"silu", Activation::silu}, {"tanh", Activation::tanh},
        {"sigmoid", Activation::sigmoid}};
    const auto at = kActivations.find(name);
    if (at == kActivations.end()) {
        throw Error("unknown activation " + name);
    }
    return at->second;
}

namespace {

void matmul_case(const Device& device, GoldenCase& c) {
    Graph g;
    const Value a = c.input(g, "a");
    c.output(g, "y", matmul(a, c.input(g, "b"), {.transpose_b = c.flag("transpose_b")}));
    c.run(device, g);
}

void linear_case(const Device& device, GoldenCase& c) {
    Graph g;
    c.begin(g);
    const Value x = c.input(g, "x");
    const Shape shape = c.shape("param.weight");
    const Activation activation = activation_of(c.text("activation"));
    c.output(g, "y",
             column_parallel_linear(x, "", shape[0].constant(),
                                    {.bias = c.has_param("bias"), .activation = activation, .gather_output = true}));
    c.run(device, g);
}

void row_parallel_case(const Device& device, GoldenCase& c) {
    Graph g;
    c.begin(g);
    const Shape shape = c.shape("param.weight");
    const Value y = row_parallel_linear(c.input(g, "x"), "", shape[1].constant(), shape[0].constant(),
                                        {.bias = c.has_param("bias")});
    c.output(g, "y", activate(y, activation_of(c.text("activation"))));
    c.run(device, g);
}

void binary_case(const Device& device, GoldenCase& c, Value (*op)(Value, Value)) {
    Graph g;
    const Value a = c.input(g, "a");
    c.output(g, "y", op(a, c.input(g, "b")));
    c.run(device, g);
}

void gated_case(const Device& device, GoldenCase& c) {
    Graph g;
    const Value gate = c.input(g, "gate");
    c.output(g, "y", gated(gate, c.input(g, "up"), activation_of(c.text("activation"))));
    c.run(device, g);
}

void softmax_case(const Device& device, GoldenCase& c) {
    Graph g;
    c.output(g, "y", softmax(c.input(g, "x"), {.scale = static_cast<float>(c.number("scale"))}));
    c.run(device, g);
}

void cross_entropy_case(const Device& device, GoldenCase& c) {
    Graph g;
    const Value logits = c.input(g, "logits");
    c.output(g, "loss",
             cross_entropy(logits, c.input(g, "labels"),
                           {.ignore_index = c.integer("ignore_index"),
                            .label_smoothing = static_cast<float>(c.number("label_smoothing"))}));
    c.run(device, g);
}

void embedding_case(const Device& device, GoldenCase& c) {
    Graph g;
    c.begin(g);
    const Value ids = c.input(g, "ids");
    c.output(g, "y",
             vocab_parallel_embedding(ids, "weight", c.shape("param.weight")[0].constant(),
                                      c.shape("param.weight")[1].constant(), static_cast<float>(c.number("scale"))));
    c.run(device, g);
}

void batch_norm_train_case(const Device& device, GoldenCase& c) {
    Graph g;
    const Value x = c.input(g, "x");
    const auto column = [&](const char* name) { return g.weight(name, {x.size(1)}); };
    const Value weight = column("weight"), bias = column("bias");
    const BatchNormResult r =
        batch_norm_train(x, weight, bias, column("running_mean"), column("running_var"),
                         static_cast<float>(c.number("momentum")), static_cast<float>(c.number("eps")));
    c.output(g, "y", r.y);
    c.run(device, g);
}

void grouped_query_attention_case(const Device& device, GoldenCase& c) {
    Graph g;
    c.begin(g);
    const Value x = c.input(g, "x");
    GroupedQueryAttentionOptions o{.heads = c.integer("heads"), .kv_heads = c.integer("kv_heads")};
    o.head_dim = c.integer("dim") / o.heads;
    o.rope = Rope{.theta = c.number("theta"), .layout = rope_layout_of(c.text("rope_layout"))};
    constexpr const char* kNames[] = {"wq", "wk", "wv", "wo"};
    std::copy(std::begin(kNames), std::end(kNames), o.names);
    c.params_lack(".weight");
    c.output(g, "y", grouped_query_attention(x, o).y);
    c.run(device, g);
}

}  // namespace

const GoldenSystems& op_systems() {
    static const GoldenSystems kSystems{
        {"matmul", matmul_case},
        {"linear", linear_case},
        {"row_parallel_linear", row_parallel_case},
        {"add", [](const Device& d, GoldenCase& k) { binary_case(d, k, add); }},
        {"mul", [](const Device& d, GoldenCase& k) { binary_case(d, k, mul); }},
        {"gated", gated_case},
        {"softmax", softmax_case},
        {"cross_entropy", cross_entropy_case},
        {"embedding", embedding_case},
        {"batch_norm_train", batch_norm_train_case},
        {"grouped_query_attention", grouped_query_attention_case},
    };
    return kSystems;
}

}  // namespace vkf::test
