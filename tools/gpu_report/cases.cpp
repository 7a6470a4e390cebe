// SPDX-License-Identifier: Apache-2.0
#include "cases.h"

#include <vkformer/advanced/packed.h>

#include <cstddef>
#include <functional>
#include <numeric>
#include <span>
#include <utility>

namespace {

using vkf::Arithmetic;
using vkf::Value;
using vkf::WeightType;

std::int64_t count(const std::vector<std::int64_t>& shape) {
    return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

double packed_bytes(WeightType type, std::int64_t rows, std::int64_t columns) {
    const auto words = type == WeightType::f32 ? static_cast<std::uint64_t>(columns)
                                               : vkf::packed_row_words(type, static_cast<std::uint64_t>(columns));
    return 4.0 * static_cast<double>(rows) * static_cast<double>(words);
}

std::string suffix(WeightType type, Arithmetic arithmetic) {
    return "_" + std::string(vkf::name_of(type)) +
           (arithmetic == Arithmetic::f32 ? "" : "_in_" + std::string(vkf::name_of(arithmetic)));
}

/// (rows, width) times a weight (width, width).
Case linear_case(std::int64_t rows, std::int64_t width, WeightType type, Arithmetic arithmetic) {
    Case c{"linear_" + std::to_string(rows) + "x" + std::to_string(width) + suffix(type, arithmetic),
           2.0 * static_cast<double>(rows * width * width),
           8.0 * static_cast<double>(rows * width) + packed_bytes(type, width, width), [=](Builder& b) {
               b.output(vkf::linear(b.input({rows, width}), b.weight(width, width)));
           }};
    c.type = type;
    c.arithmetic = arithmetic;
    return c;
}

struct Heads {
    std::int64_t query, kv, dim;
};

double attention_flops(const Heads& h, std::int64_t queries, std::int64_t keys, bool causal) {
    const double pairs = static_cast<double>(queries * keys) * (causal ? 0.5 : 1.0);
    return 4.0 * static_cast<double>(h.query * h.dim) * pairs;
}

Case prefill_case(const Heads& h, std::int64_t tokens, Arithmetic arithmetic) {
    Case c{"attention_prefill_d" + std::to_string(h.dim) + "_" + std::to_string(tokens) +
               suffix(WeightType::f32, arithmetic),
           attention_flops(h, tokens, tokens, true), 8.0 * static_cast<double>((h.query + h.kv) * tokens * h.dim),
           [=](Builder& b) {
               vkf::AttentionOptions options;
               options.mask.causal = vkf::Causal::bottom_right;
               const Value q = b.input({1, h.query, tokens, h.dim});
               const Value k = b.input({1, h.kv, tokens, h.dim}), v = b.input({1, h.kv, tokens, h.dim});
               b.output(merge_heads(vkf::scaled_dot_product_attention(q, k, v, options).y));
           }};
    c.arithmetic = arithmetic;
    return c;
}

/// One query behind `keys` cached ones.
Case decode_case(const Heads& h, std::int64_t keys, WeightType type) {
    const auto words = type == WeightType::f32
                           ? h.dim
                           : static_cast<std::int64_t>(vkf::packed_row_words(type, static_cast<std::uint64_t>(h.dim)));
    const auto cached = [=](Builder& b) {
        return type == WeightType::f32 ? b.input({1, h.kv, keys, h.dim})
                                       : transpose(b.input({1, keys, h.kv, words}, vkf::DType::i32), 1, 2);
    };
    return {"attention_decode_d" + std::to_string(h.dim) + "_" + std::to_string(keys) + suffix(type, Arithmetic::f32),
            attention_flops(h, 1, keys, false),
            2.0 * packed_bytes(type, h.kv * keys, h.dim) + 8.0 * static_cast<double>(h.query * h.dim), [=](Builder& b) {
                vkf::AttentionOptions options;
                options.kv_type = type;
                const Value q = b.input({1, h.query, 1, h.dim});
                const Value k = cached(b), v = cached(b);
                b.output(merge_heads(vkf::scaled_dot_product_attention(q, k, v, options).y));
            }};
}

Case rows_case(const std::string& name, std::int64_t rows, std::int64_t columns,
               const std::function<Value(Builder&, Value)>& op) {
    return {name + "_" + std::to_string(rows) + "x" + std::to_string(columns), 0,
            8.0 * static_cast<double>(rows * columns), [=](Builder& b) {
                b.output(op(b, b.input({rows, columns})));
            }};
}

constexpr std::int64_t kWidth = 4096;

void add_products(std::vector<Case>& all) {
    for (const std::int64_t rows : {1, 4, 32, 512}) {
        for (const WeightType type : {WeightType::f32, WeightType::f16, WeightType::int8, WeightType::int4}) {
            all.push_back(linear_case(rows, kWidth, type, Arithmetic::f32));
        }
        all.push_back(linear_case(rows, kWidth, WeightType::f16, Arithmetic::f16));
        all.push_back(linear_case(rows, kWidth, WeightType::int8, Arithmetic::int8));
    }
}

/// Kernels that only vkformer-tune takes.
void add_tuned(std::vector<Case>& all) {
    for (const auto& [tunable, value] : {std::pair("matmul_columns", 128u), std::pair("matmul_staged", 0u)}) {
        Case c = linear_case(512, kWidth, WeightType::f32, Arithmetic::f32);
        c.name += "_" + std::string(tunable) + "_" + std::to_string(value);
        c.tunable = tunable;
        c.value = value;
        all.push_back(std::move(c));
    }
}

void add_attention(std::vector<Case>& all) {
    for (const Heads& h : {Heads{8, 2, 64}, Heads{32, 8, 128}}) {
        all.push_back(prefill_case(h, 1024, Arithmetic::f32));
        all.push_back(prefill_case(h, 1024, Arithmetic::f16));
        for (const WeightType type : {WeightType::f32, WeightType::f16, WeightType::int8}) {
            all.push_back(decode_case(h, 4096, type));
        }
    }
}

void add_rows(std::vector<Case>& all) {
    constexpr std::int64_t kVocabulary = 151936;
    all.push_back(
        rows_case("copy", 4096, 1024, [](Builder&, Value x) { return vkf::contiguous(vkf::transpose(x, 0, 1)); }));
    all.push_back(rows_case("softmax", 4096, 1024, [](Builder&, Value x) { return vkf::softmax(x); }));
    all.push_back(rows_case("softmax", 64, kVocabulary, [](Builder&, Value x) { return vkf::softmax(x); }));
    all.push_back(rows_case("layer_norm", 4096, 1024, [](Builder& b, Value x) {
        return vkf::layer_norm(x, b.input({1024}), b.input({1024}), 1e-5f);
    }));
    for (const std::int64_t rows : {1, 4096}) {
        all.push_back(rows_case("rms_norm", rows, 4096,
                                [](Builder& b, Value x) { return vkf::rms_norm(x, b.input({4096}), 1e-5f); }));
    }
    all.push_back({"rope_32x512x128", 0, 8.0 * 32 * 512 * 128, [](Builder& b) {
                       b.output(vkf::rope(b.input({32, 512, 128}),
                                          vkf::Rope{.layout = vkf::RopeLayout::half, .max_positions = 512}));
                   }});
    all.push_back(rows_case("argmax", 1, kVocabulary, [](Builder&, Value x) { return vkf::argmax(x); }));
    all.push_back(rows_case("top_k_40", 1, kVocabulary, [](Builder&, Value x) { return vkf::top_k(x, 40).values; }));
}

}  // namespace

Value Builder::input(std::vector<std::int64_t> shape, vkf::DType type) {
    inputs_.push_back({"input" + std::to_string(inputs_.size()), shape, type});
    const vkf::Shape sizes(shape.begin(), shape.end());
    return graph_.input(inputs_.back().name, sizes, type);
}

Value Builder::weight(std::int64_t rows, std::int64_t columns) {
    weights_.push_back({"weight" + std::to_string(weights_.size()), {rows, columns}, vkf::DType::f32});
    return graph_.weight(weights_.back().name, {rows, columns});
}

void Builder::output(Value value) { graph_.output("output" + std::to_string(outputs_++), value); }

vkf::Program Builder::compile(const vkf::Device& device, const Case& what) {
    std::vector<std::vector<float>> numbers;
    std::vector<vkf::HostTensor> tensors;
    for (const Operand& w : weights_) {
        numbers.emplace_back(static_cast<std::size_t>(count(w.shape)));
        tensors.push_back({w.name, vkf::DType::f32, w.shape, std::as_bytes(std::span(numbers.back()))});
    }
    vkf::Weights weights;
    if (!tensors.empty()) {
        weights = device.load(graph_, tensors, {.matrices = what.type});
    }
    vkf::CompileOptions options;
    options.name = what.name;
    options.arithmetic = what.arithmetic;
    vkf::Program program = device.compile(graph_, weights, options);
    for (const Operand& i : inputs_) {
        if (i.type == vkf::DType::i32) {
            program.upload(i.name, std::vector<std::int32_t>(static_cast<std::size_t>(count(i.shape))));
        } else {
            program.upload(i.name, std::vector<float>(static_cast<std::size_t>(count(i.shape))));
        }
    }
    return program;
}

std::vector<Case> cases() {
    std::vector<Case> all;
    add_products(all);
    add_attention(all);
    add_rows(all);
    add_tuned(all);  // last: each makes a device, and Capture knows the newest alone
    return all;
}
