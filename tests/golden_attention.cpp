// SPDX-License-Identifier: Apache-2.0
// Attention and positions as this library computes them.
#include <algorithm>

#include "layers/attention.h"
#include "layers/torch.h"
#include "ops/ops.h"
#include "tests/golden_systems.h"
#include "tests/op_check.h"

namespace vkf::test {

RopeLayout rope_layout_of(const std::string& name) {
    if (name != "interleaved" && name != "half") {
        throw Error("unknown RoPE layout " + name);
    }
    return name == "half" ? RopeLayout::half : RopeLayout::interleaved;
}

RopeScaling rope_scaling_of(const nlohmann::json& s) {
    RopeScaling out;
    for (const auto& [key, value] : s.items()) {
        if (key == "type" || key == "rope_type") {
            out.kind = rope_scaling_kind(value.get<std::string>());
        } else if (key == "factor") {
            out.factor = value;
        } else if (key == "low_freq_factor") {
            out.low_freq_factor = value;
        } else if (key == "high_freq_factor") {
            out.high_freq_factor = value;
        } else if (key == "beta_fast") {
            out.beta_fast = value;
        } else if (key == "beta_slow") {
            out.beta_slow = value;
        } else if (key == "truncate") {
            out.truncate = value;
        } else if (key == "attention_factor") {
            out.attention_factor = value;
        } else if (key == "original_max_position_embeddings") {
            out.original_max_positions = value;
        } else {
            throw Error("unknown key " + key + " of RoPE scaling");
        }
    }
    return out;
}

void run_cached(const Device& device, GoldenCase& c, GroupedQueryAttentionOptions o, const CachedRun& run) {
    const std::int64_t batch = c.shape("in.x")[0].constant();
    const std::int64_t width = c.shape("in.x")[2].constant();
    Graph g;
    c.begin(g);
    const Dim tokens = g.symbol("tokens", run.capacity);
    const Dim start = g.symbol("start", run.capacity);
    const HeadSizes sizes{o.heads, o.kv_heads, o.head_dim};
    const Shape cache_shape{batch, run.capacity, c.kv_heads(sizes), o.head_dim};
    c.has_heads("out.weights", 1, sizes, false);
    c.has_heads("out.cache_k", 2, sizes, true);
    c.has_heads("out.cache_v", 2, sizes, true);
    o.cache = KvCache{g.state("k", cache_shape), g.state("v", cache_shape), start};
    if (run.sinks) {
        o.sinks = g.weight("sinks", {o.heads});
    }
    const AttentionResult a = grouped_query_attention(g.input("x", {batch, tokens, width}), o);
    c.output(g, "y", a.y);
    if (run.weights) {
        c.output(g, "weights", a.weights);
    }
    Graph reader;
    reader.output("cache_k", contiguous(reader.state("k", cache_shape)));
    reader.output("cache_v", contiguous(reader.state("v", cache_shape)));

    CompileOptions options{.name = c.name(), .communicator = c.communicator()};
    options.state = device.make_state({&g, &reader});
    Program program = device.compile(g, c.weights(device, g), options);
    c.use_params(g);
    const std::vector<float> x = c.floats("in.x");
    const std::int64_t all = run.prefill + run.steps;
    std::vector<float> y(x.size());
    for (std::int64_t at = 0; at < all;) {
        const std::int64_t count = at == 0 ? run.prefill : 1;
        const auto copy_rows = [&](auto from, auto to, std::int64_t from_rows, std::int64_t to_rows,
                                   std::int64_t from_at, std::int64_t to_at) {
            for (std::int64_t b = 0; b < batch; ++b) {
                std::copy_n(from + (b * from_rows + from_at) * width, count * width,
                            to + (b * to_rows + to_at) * width);
            }
        };
        std::vector<float> part(static_cast<std::size_t>(batch * count * width));
        copy_rows(x.begin(), part.begin(), all, count, at, 0);
        program.set("tokens", count);
        program.set("start", at);
        program.upload("x", part);
        program.run();
        require_quiet(program);
        const std::vector<float> rows = program.download("y");
        copy_rows(rows.begin(), y.begin(), count, all, 0, at);
        if (run.weights && at == 0) {
            c.result("weights", program.shape("weights"), program.download("weights"));
        }
        at += count;
    }
    c.result("y", {batch, all, width}, y);
    Program read = device.compile(reader, {}, options);
    read.run();
    for (const char* name : {"cache_k", "cache_v"}) {
        c.result(name, read.shape(name), read.download(name));
    }
}

namespace {

Mask mask_of(GoldenCase& c, Graph& g) {
    Mask mask;
    mask.keys = c.input_if(g, "mask");
    mask.fill = static_cast<float>(c.number_or("mask_fill", -std::numeric_limits<double>::infinity()));
    return mask;
}

void self_attention_case(const Device& device, GoldenCase& c) {
    Graph g;
    c.begin(g);
    SelfAttentionOptions o;
    c.integer("dim");
    o.fused_qkv = c.flag("fused_qkv");
    o.out_proj = c.flag("out_proj");
    o.bias = c.has_param(o.fused_qkv ? "qkv_proj.bias" : "q_proj.bias");
    o.mask = mask_of(c, g);
    const AttentionResult a = self_attention(c.input(g, "x"), o);
    c.output(g, "y", a.y);
    c.output(g, "weights", a.weights);
    c.run(device, g);
}

void multi_head_attention_case(const Device& device, GoldenCase& c) {
    Graph g;
    c.begin(g);
    MultiHeadAttentionOptions o;
    c.integer("dim");
    o.heads = c.integer("heads");
    c.has_heads("out.weights", 1, {o.heads, o.heads}, false);
    o.mask = mask_of(c, g);
    Value query, key, value;
    if (c.flag("cross")) {
        query = c.input(g, "query");
        key = c.input(g, "key");
        value = c.input(g, "value");
    } else {
        query = key = value = c.input(g, "x");
    }
    const AttentionResult a = multi_head_attention(query, key, value, o);
    c.output(g, "y", a.y);
    c.output(g, "weights", a.weights);
    c.run(device, g);
}

void sdpa_case(const Device& device, GoldenCase& c) {
    Graph g;
    AttentionOptions o;
    const Value query = c.input(g, "query");
    const Value key = c.input(g, "key");
    const Value value = c.input(g, "value");
    c.flag("enable_gqa");
    if (const double scale = c.number_or("scale", 0); scale != 0) {
        o.scale = static_cast<float>(scale);
    }
    o.softcap = static_cast<float>(c.number_or("softcap", 0));
    o.log_sum_exp = true;
    const Value mask = c.input_if(g, "attn_mask");
    (mask && mask.dtype() == DType::i32 ? o.mask.keys : o.mask.bias) = mask;
    if (c.flag("is_causal")) {
        const bool bottom_right =
            !c.config("causal_alignment").is_null() && c.text("causal_alignment") == "bottom_right";
        o.mask.causal = bottom_right ? Causal::bottom_right : Causal::top_left;
    }
    o.mask.window = static_cast<std::int64_t>(c.number_or("window", 0));
    if (c.flag("alibi")) {
        o.mask.alibi_slopes = c.input(g, "alibi_slopes");
    }
    c.flag("sinks");
    if (c.has_input("sinks")) {
        o.sinks = c.input(g, "sinks");
    }
    const AttentionResult a = scaled_dot_product_attention(query, key, value, o);
    c.output(g, "y", a.y);
    c.output(g, "weights", a.weights);
    c.output(g, "lse", a.log_sum_exp);
    c.run(device, g);
}

void torch_mha_case(const Device& device, GoldenCase& c) {
    Graph g;
    c.begin(g);
    torch::MultiheadAttentionOptions o;
    o.num_heads = c.integer("num_heads");
    o.bias = c.has_param("in_proj_bias");
    c.flag("bias");
    o.add_bias_kv = c.flag("add_bias_kv");
    o.add_zero_attn = c.flag("add_zero_attn");
    o.batch_first = c.flag("batch_first");
    o.average_attn_weights = c.flag("average_attn_weights");
    if (!o.average_attn_weights) {
        c.has_heads("out.weights", 1, {o.num_heads, o.num_heads}, false);
    }
    for (const char* derived : {"embed_dim", "kdim", "vdim"}) {  // the tensors have these sizes
        c.config(derived);
    }
    o.attn_mask = c.input_if(g, "attn_mask");
    o.key_padding_mask = c.input_if(g, "key_padding_mask");
    const AttentionResult a =
        torch::multihead_attention(c.input(g, "query"), c.input(g, "key"), c.input(g, "value"), o);
    c.output(g, "y", a.y);
    c.output(g, "weights", a.weights);
    c.run(device, g);
}

void incremental_attention_case(const Device& device, GoldenCase& c) {
    Graph g;
    c.begin(g);
    IncrementalAttentionOptions o;
    c.integer("dim");
    o.heads = c.integer("heads");
    o.kv_heads = c.integer("kv_heads");
    o.head_dim = c.integer("head_dim");
    o.scale = static_cast<float>(c.number("scale"));
    for (const char* name : {"in.cache_k", "in.cache_v", "out.cache_k", "out.cache_v"}) {
        c.has_heads(name, 1, {o.heads, o.kv_heads}, true);
    }
    const IncrementalAttentionResult a =
        incremental_attention(c.input(g, "x"), c.input(g, "context"), c.input(g, "cache_k"), c.input(g, "cache_v"), o);
    c.output(g, "y", a.y);
    c.output(g, "out_cache_k", a.cache_key);
    c.output(g, "out_cache_v", a.cache_value);
    c.run(device, g, {{"out_cache_k", "cache_k"}, {"out_cache_v", "cache_v"}});
}

void cached_attention_case(const Device& device, GoldenCase& c) {
    GroupedQueryAttentionOptions o{.heads = c.integer("heads"), .kv_heads = c.integer("kv_heads")};
    o.head_dim = c.integer("dim") / o.heads;
    o.rope = Rope{.theta = c.number("theta"), .layout = rope_layout_of(c.text("rope_layout"))};
    constexpr const char* kNames[] = {"wq", "wk", "wv", "wo"};
    std::copy(std::begin(kNames), std::end(kNames), o.names);
    run_cached(device, c, o,
               {.prefill = c.integer("prefill"), .steps = c.integer("steps"), .capacity = c.integer("max_len")});
}

void attention_score_case(const Device& device, GoldenCase& c) {
    Graph g;
    const std::map<std::string, ScoreKind> kinds{{"dot", ScoreKind::dot},
                                                 {"scaled_dot", ScoreKind::scaled_dot},
                                                 {"general", ScoreKind::general},
                                                 {"additive", ScoreKind::additive}};
    const Value query = c.input(g, "query");
    const Value key = c.input(g, "key");
    const Value value = c.input(g, "value");
    const std::int64_t hidden = c.has_param("v") ? c.shape("param.v")[0].constant() : 0;
    const Value scores = attention_scores(query, key, {.kind = kinds.at(c.text("kind")), .hidden = hidden});
    const Value weights = softmax(scores);
    c.output(g, "scores", contiguous(scores));
    c.output(g, "weights", weights);
    c.output(g, "y", matmul(weights, value, {.masked_weights = true}));
    c.output(g, "y_hard", matmul(hard_max(scores), value, {.masked_weights = true}));
    c.run(device, g);
}

void rope_case(const Device& device, GoldenCase& c) {
    Graph g;
    const bool of_gradients = !c.config("rope_layout").is_null();
    Rope o{.theta = c.number("theta"), .layout = rope_layout_of(c.text(of_gradients ? "rope_layout" : "layout"))};
    o.rotary_dim = static_cast<std::int64_t>(c.number_or("rotary_dim", 0));
    o.scaling = rope_scaling_of(c.config("scaling"));
    for (const std::int32_t p : c.integers("in.positions")) {
        o.max_positions = std::max<std::int64_t>(o.max_positions, p + 1);
    }
    const Value x = transpose(c.input(g, "x"), 1, 2);  // (B, S, H, d) -> (B, H, S, d)
    c.output(g, "y", transpose(rope_at(x, c.input(g, "positions"), o), 1, 2));
    c.run(device, g);
}

void repeat_kv_case(const Device& device, GoldenCase& c) {
    Graph g;
    c.output(g, "y", repeat_kv(c.input(g, "x"), c.integer("n_rep")));
    c.run(device, g);
}

}  // namespace

const GoldenSystems& attention_systems() {
    static const GoldenSystems kSystems{
        {"self_attention", self_attention_case},
        {"multi_head_attention", multi_head_attention_case},
        {"scaled_dot_product_attention", sdpa_case},
        {"scaled_dot_product_attention_backward", sdpa_case},
        {"torch.nn.MultiheadAttention", torch_mha_case},
        {"incremental_attention", incremental_attention_case},
        {"cached_attention", cached_attention_case},
        {"attention_score", attention_score_case},
        {"rope", rope_case},
        {"repeat_kv", repeat_kv_case},
    };
    return kSystems;
}

}  // namespace vkf::test
