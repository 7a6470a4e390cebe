// SPDX-License-Identifier: Apache-2.0
#include "op_program.h"

#include <vkformer/advanced/packed.h>

#include <numeric>
#include <span>
#include <utility>

#include "layer_case.h"

namespace {

using vkf::Value;

/// Keys or values of attention, (1, kv_heads, keys, dimensions), which another program packed
/// before.
Value packed_state(vkf::Graph& g, const char* name, const OpCase& op) {
    const auto words =
        static_cast<std::int64_t>(vkf::packed_row_words(op.type, static_cast<std::uint64_t>(op.columns)));
    return transpose(g.state(std::string(name) + "_state", {1, op.inner, op.kv_heads, words}, vkf::DType::i32), 1, 2);
}

Value keys_or_values(vkf::Graph& g, const char* name, const OpCase& op) {
    return op.packed() ? packed_state(g, name, op) : g.input(name, {1, op.kv_heads, op.inner, op.columns});
}

Value build_attention(vkf::Graph& g, const OpCase& op) {
    const Value q = g.input("x", {1, op.heads, op.rows, op.columns});
    const Value k = keys_or_values(g, "weight", op);
    const Value v = keys_or_values(g, "bias", op);
    vkf::AttentionOptions options;
    options.mask.causal = op.causal ? vkf::Causal::bottom_right : vkf::Causal::none;
    options.mask.window = op.window;
    options.kv_type = op.type;
    const vkf::AttentionResult attention = vkf::scaled_dot_product_attention(q, k, v, options);
    if (op.kind == OpKind::attention) {
        return merge_heads(attention.y);
    }
    const std::int64_t shared = op.heads / op.kv_heads;
    // y is dropped
    const Value weights = reshape(attention.weights, {1, op.kv_heads, shared, op.rows, op.inner});
    const Value y = matmul(weights, reshape(v, {1, op.kv_heads, 1, op.inner, op.columns}),
                           {.masked_weights = true, .heads_last = true});
    return merge_heads(reshape(y, {1, op.heads, op.rows, op.columns}));
}

Value build(vkf::Graph& g, const OpCase& op) {
    switch (op.kind) {
        case OpKind::attention:
        case OpKind::composed_attention: return build_attention(g, op);
        case OpKind::decoder_layer: return build_layer(g, op);
        case OpKind::matmul:
            return matmul(g.input("x", {op.rows, op.inner}), g.input("weight", {op.inner, op.columns}));
        case OpKind::linear:
            return linear(g.input("x", {op.rows, op.inner}), op.packed() ? g.weight("weight", {op.columns, op.inner})
                                                                         : g.input("weight", {op.columns, op.inner}));
        case OpKind::rope: {
            const vkf::Rope rope{
                .theta = kRopeTheta, .layout = vkf::RopeLayout::interleaved, .max_positions = op.inner};
            return vkf::rope(g.input("x", {op.rows, op.inner, op.columns}), rope);
        }
        default: break;
    }
    const Value x = g.input("x", {op.rows, op.columns});
    switch (op.kind) {
        case OpKind::softmax: return softmax(x);
        case OpKind::layer_norm:
            return layer_norm(x, g.input("weight", {op.columns}), g.input("bias", {op.columns}), kNormEps);
        case OpKind::rms_norm: return rms_norm(x, g.input("weight", {op.columns}), kNormEps);
        default: return contiguous(x);
    }
}

vkf::Weights load(const vkf::Device& device, const OpCase& op, const OpData& data) {
    if (op.kind == OpKind::decoder_layer) {
        return load_layer(device, op, data);
    }
    if (op.kind != OpKind::linear || !op.packed()) {
        return {};
    }
    const vkf::HostTensor weight{
        "weight", vkf::DType::f32, {op.columns, op.inner}, std::as_bytes(std::span(data.weight))};
    return device.load({&weight, 1}, {.matrices = op.type});
}

/// The numbers that linear's packed weight stands for, as an embedding reads them.
std::vector<float> numbers_of_packed(const vkf::Device& device, const OpCase& op, const vkf::Weights& weights) {
    vkf::Graph g;
    g.output("y", embedding(g.input("ids", {op.columns}, vkf::DType::i32), g.weight("weight", {op.columns, op.inner})));
    vkf::Program program = device.compile(g, weights);
    std::vector<std::int32_t> ids(static_cast<std::size_t>(op.columns));
    std::iota(ids.begin(), ids.end(), 0);
    program.upload("ids", ids);
    program.run();
    return program.download("y");
}

/// Packs keys and values into the state; `kept` becomes what they stand for then.
void pack_keys(const vkf::Device& device, const OpCase& op, const vkf::Graph& graph, vkf::CompileOptions& options,
               OpData& kept) {
    vkf::Graph g;
    for (const char* name : {"weight", "bias"}) {
        const Value x = g.input(name, {1, op.kv_heads, op.inner, op.columns});
        const Value written = pack_into(transpose(packed_state(g, name, op), 1, 2), transpose(x, 1, 2), op.type);
        g.output(std::string(name) + "_kept", contiguous(transpose(unpack_rows(written, op.type, op.columns), 1, 2)));
    }
    options.state = device.make_state({&graph, &g});
    vkf::CompileOptions own;
    own.state = options.state;
    vkf::Program program = device.compile(g, {}, own);
    program.upload("weight", kept.weight);
    program.upload("bias", kept.bias);
    program.run();
    kept.weight = program.download("weight_kept");
    kept.bias = program.download("bias_kept");
}

}  // namespace

OpProgram make_program(const vkf::Device& device, const OpCase& op, const OpData& data) {
    OpData kept = data;
    const vkf::Weights weights = load(device, op, data);
    vkf::Graph g;
    g.output("y", build(g, op));
    vkf::CompileOptions options;
    options.name = op.name;
    options.profile = true;
    options.arithmetic = op.arithmetic;
    if (op.kind == OpKind::decoder_layer) {
        options.state = fill_layer_cache(device, op, data, g);
    } else if (op.is_attention() && op.packed()) {
        pack_keys(device, op, g, options, kept);
    } else if (op.packed()) {
        kept.weight = numbers_of_packed(device, op, weights);
    }
    vkf::Program program = device.compile(g, weights, options);
    program.upload("x", data.x);
    const bool plain = !op.packed() && op.kind != OpKind::decoder_layer;
    if (plain && !data.weight.empty()) {
        program.upload("weight", data.weight);
    }
    if (plain && (op.kind == OpKind::layer_norm || op.is_attention())) {
        program.upload("bias", data.bias);
    }
    return {std::move(program), std::move(kept)};
}
