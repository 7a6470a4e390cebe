// SPDX-License-Identifier: Apache-2.0
// One example of each way to attend. docs/attention.md says what they are called elsewhere.
#include <vkformer/vkformer.h>

#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace {

using namespace vkf;

constexpr std::int64_t kBatch = 2, kHeads = 4, kKvHeads = 2, kQueries = 6, kKeys = 10, kHeadDim = 16;

/// Numbers that look like something, the same at each run.
std::vector<float> numbers(std::size_t count, float phase) {
    std::vector<float> out(count);
    for (std::size_t i = 0; i < count; ++i) {
        out[i] = std::sin(0.7f * static_cast<float>(i) + phase);
    }
    return out;
}

/// What an example describes, and the whole numbers it wants uploaded.
struct Example {
    std::string name;
    std::function<Value(Graph&)> describe;
    std::map<std::string, std::vector<std::int32_t>> integers = {};
};

struct Qkv {
    Value query, key, value;
};

Qkv inputs(Graph& g) {
    return {g.input("query", {kBatch, kHeads, kQueries, kHeadDim}), g.input("key", {kBatch, kKvHeads, kKeys, kHeadDim}),
            g.input("value", {kBatch, kKvHeads, kKeys, kHeadDim})};
}

/// Each key/value head for every query head that shares it.
Value repeat_heads(Value x) { return transpose(repeat_kv(transpose(x, 1, 2), kHeads / kKvHeads), 1, 2); }

/// scaled_dot_product_attention with options that may name inputs of the graph.
Example plain(std::string name, std::function<AttentionOptions(Graph&)> options,
              std::map<std::string, std::vector<std::int32_t>> integers = {}) {
    return {std::move(name),
            [options](Graph& g) {
                const Qkv x = inputs(g);
                return merge_heads(scaled_dot_product_attention(x.query, x.key, x.value, options(g)).y);
            },
            std::move(integers)};
}

std::vector<Example> examples() {
    std::vector<Example> out;
    out.push_back(plain("grouped heads, every key", [](Graph&) { return AttentionOptions{}; }));
    out.push_back(plain("causal, behind a cache",
                        [](Graph&) { return AttentionOptions{.mask = {.causal = Causal::bottom_right}}; }));
    out.push_back(plain("sliding window of 3", [](Graph&) {
        return AttentionOptions{.mask = {.causal = Causal::bottom_right, .window = 3}};
    }));
    out.push_back(
        plain("key padding",
              [](Graph& g) {
                  return AttentionOptions{.mask = {.keys = g.input("mask", {kBatch, 1, 1, kKeys}, DType::i32)}};
              },
              {{"mask", {1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0}}}));
    out.push_back(plain("ALiBi", [](Graph& g) {
        const std::vector<float> slopes{0.5f, 0.25f, 0.125f, 0.0625f};
        return AttentionOptions{
            .mask = {.alibi_slopes = g.constant("slopes", {kHeads}, slopes), .causal = Causal::bottom_right}};
    }));
    out.push_back(plain("softcap and sinks", [](Graph& g) {
        const std::vector<float> sinks{0.0f, 0.5f, 1.0f, 1.5f};
        return AttentionOptions{.softcap = 20.0f, .sinks = g.constant("sinks", {kHeads}, sinks)};
    }));
    out.push_back(plain("dropout", [](Graph&) { return AttentionOptions{.dropout = 0.1f, .dropout_seed = 7}; }));
    if (!glsl_compiler().empty()) {
        out.push_back(plain("a score mod", [](Graph&) {
            return AttentionOptions{.score_mod = ScoreMod::glsl(
                                        "float score_mod(float score, uint batch, uint head, uint query, uint key) {\n"
                                        "    return key % 2u == 0u ? score : score - parameter(0);\n"
                                        "}",
                                        {2.0f})};
        }));
    }
    out.push_back({"hard attention", [](Graph& g) {
                       const Qkv x = inputs(g);
                       const Value scores = matmul(x.query, repeat_heads(x.key), {.transpose_b = true});
                       return merge_heads(matmul(hard_max(scores), repeat_heads(x.value), {.heads_last = true}));
                   }});
    out.push_back({"packed sequences of 2 and 4 queries",
                   [](Graph& g) {
                       const Value q = g.input("query", {kQueries, kHeads, kHeadDim});
                       const Value k = g.input("key", {kKeys, kKvHeads, kHeadDim});
                       const Value v = g.input("value", {kKeys, kKvHeads, kHeadDim});
                       const Value queries = g.input("cumulative_queries", {3}, DType::i32);
                       const Value keys = g.input("cumulative_keys", {3}, DType::i32);
                       return contiguous(
                           packed_attention(q, k, v, queries, keys, {.mask = {.causal = Causal::bottom_right}}).y);
                   },
                   {{"cumulative_queries", {0, 2, 6}}, {"cumulative_keys", {0, 5, 10}}}});
    out.push_back({"pages of 4 keys, the first shared",
                   [](Graph& g) {
                       const PagedKvCache cache{
                           g.input("key", {4, 4, kKvHeads, kHeadDim}), g.input("value", {4, 4, kKvHeads, kHeadDim}),
                           g.input("table", {kBatch, 3}, DType::i32), g.input("lengths", {kBatch}, DType::i32)};
                       return merge_heads(paged_attention(g.input("query", {kBatch, kHeads, 1, kHeadDim}), cache).y);
                   },
                   {{"table", {0, 1, -1, 0, 2, 3}}, {"lengths", {7, 11}}}});
    return out;
}

void run(const Device& gpu, const Example& example) {
    Graph g;
    const Value y = example.describe(g);
    g.output("y", y);
    Program p = gpu.compile(g, Weights(), {.name = example.name});
    for (const StorageInfo& s : p.plan().storages) {
        if (s.kind == StorageKind::input && s.dtype == DType::f32) {
            std::size_t count = 1;
            for (const std::int64_t size : p.shape(s.name)) {
                count *= static_cast<std::size_t>(size);
            }
            p.upload(s.name, numbers(count, static_cast<float>(s.name.size())));
        } else if (s.kind == StorageKind::input) {
            p.upload(s.name, example.integers.at(s.name));
        }
    }
    p.run();
    const std::vector<float> result = p.download("y");
    std::printf("%-36s y[0..3] = %8.4f %8.4f %8.4f %8.4f\n", example.name.c_str(), result[0], result[1], result[2],
                result[3]);
}

}  // namespace

int main() try {
    const Device gpu = Device::create();
    std::printf("%s, %s\n", gpu.capabilities().name.c_str(), gpu.capabilities().driver.c_str());
    for (const Example& example : examples()) {
        run(gpu, example);
    }
    if (vkf::glsl_compiler().empty()) {
        std::printf(
            "no GLSL compiler for score mods here: install libshaderc1, or build with VKFORMER_RUNTIME_GLSLANG=ON\n");
    }
} catch (const std::exception& e) {
    std::fprintf(stderr, "attentions: %s\n", e.what());
    return 1;
}
