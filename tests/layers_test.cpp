// SPDX-License-Identifier: Apache-2.0
// Properties of the layers that no single golden case shows.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "layers/attention.h"
#include "layers/linear.h"
#include "layers/torch.h"
#include "models/encoder_decoder.h"
#include "runtime/graph/node.h"
#include "tests/device.h"
#include "tests/fixtures.h"
#include "tests/host.h"
#include "tests/op_check.h"
#include "tests/reference_attention.h"

using namespace vkf;
using namespace vkf::test;

namespace {

Weights load(const std::map<std::string, Tensor>& weights) {
    std::vector<std::vector<float>> data;
    std::vector<HostTensor> tensors;
    for (const auto& [name, t] : weights) {
        data.push_back(t.floats());
        tensors.push_back({name, DType::f32, t.shape, std::as_bytes(std::span(data.back()))});
    }
    return device().load(tensors);
}

}  // namespace

TEST_CASE("grouped_query_attention: a prompt at once, in chunks, and token by token agree") {
    constexpr std::int64_t kTokens = 9;
    Graph g;
    const Dim tokens = g.symbol("tokens", 16);
    const Dim start = g.symbol("start", 16);
    GroupedQueryAttentionOptions o{
        .name = "attn", .heads = 4, .kv_heads = 2, .rope = Rope{.layout = RopeLayout::interleaved}};
    // room for more sequences than come
    o.cache = KvCache{g.state("k", {3, 16, 2, 8}), g.state("v", {3, 16, 2, 8}), start};
    g.output("y", grouped_query_attention(g.input("x", {2, tokens, 32}), o));
    const Weights weights = random_weights({&g});
    const Tensor x = random_tensor({2, kTokens, 32}, 5);
    const auto in_chunks = [&](const std::vector<std::int64_t>& chunks) {
        Program p = device().compile(g, weights);
        return run_in_chunks(p, x, chunks);
    };
    const Tensor whole = in_chunks({kTokens});
    CHECK(difference(in_chunks({4, 5}), whole) == "");
    CHECK(difference(in_chunks(std::vector<std::int64_t>(kTokens, 1)), whole) == "");

    Program p = device().compile(g, weights);
    p.set("tokens", 10);
    p.set("start", 7);
    upload(p, "x", random_tensor({2, 10, 32}));
    CHECK(contains(error_of([&] { p.run(); }), "17 is more than 16"));
}

TEST_CASE("grouped_query_attention: a cache that is a ring turns positions beyond its rows") {
    constexpr std::int64_t kTokens = 9, kWindow = 3;
    const auto described = [&](Graph& g, std::optional<KvCache> cache) {
        const Value x = g.input("x", {1, cache ? Dim(1) : Dim(kTokens), 8});
        return grouped_query_attention(x, {.name = "attn",
                                           .heads = 2,
                                           .rope = Rope{.layout = RopeLayout::half},
                                           .mask = {.causal = Causal::bottom_right, .window = kWindow},
                                           .cache = std::move(cache)})
            .y;
    };
    Graph all, ring;
    all.output("y", described(all, {}));
    const Dim start = ring.symbol("start", kTokens - 1), at = ring.symbol("at", kWindow - 1);
    const Dim first = ring.symbol("first", kWindow - 1), seen = ring.symbol("seen", kWindow);
    const Dim kept = ring.symbol("kept", kWindow - 1);
    KvCache cache = kv_cache(ring, "cache", 1, kWindow, 1, 4, start);
    cache.written = RingRows{at, 1, 1};
    cache.seen = RingRows{first, seen, kept + 1};
    ring.output("y", described(ring, cache));
    const Weights weights = random_weights({&all, &ring});
    const Tensor x = random_tensor({1, kTokens, 8}, 3);
    Program whole = device().compile(all, weights), step = device().compile(ring, weights);
    upload(whole, "x", x);
    whole.run();
    const std::vector<float> want = whole.download("y");
    for (std::int64_t s = 0; s < kTokens; ++s) {
        CAPTURE(s);
        const std::int64_t before = std::min(s, kWindow - 1), oldest = (s - before) % kWindow;
        step.set("start", s);
        step.set("at", s % kWindow);
        step.set("first", oldest);
        step.set("seen", std::min(before + 1, kWindow - oldest));
        step.set("kept", before);
        Tensor token({1, 1, 8});
        std::copy_n(x.data.begin() + 8 * s, 8, token.data.begin());
        upload(step, "x", token);
        step.run();
        const std::vector<float> got = step.download("y");
        for (std::size_t i = 0; i < 8; ++i) {
            CHECK(got[i] == doctest::Approx(want[static_cast<std::size_t>(8 * s) + i]).epsilon(1e-4));
        }
    }
}

TEST_CASE("layers: numbers that do not fit are named") {
    Graph g;
    const Value x = g.input("x", {1, 5, 30});
    CHECK(contains(error_of([&] { grouped_query_attention(x, {.heads = 4, .kv_heads = 3, .head_dim = 8}); }),
                   "heads 4, kv_heads 3"));
    CHECK(contains(error_of([&] { grouped_query_attention(x, {.heads = 4, .kv_heads = 2}); }), "width 30"));
    CHECK(contains(error_of([&] { multi_head_attention(x, x, x, {.name = "a", .heads = 7}); }), "7 heads"));
    const Value one = g.input("one", {1, 30}), cached = g.input("cached", {1, 2, 6, 8});
    const auto refusal = [&](const IncrementalAttentionOptions& o) {
        return error_of([&] { incremental_attention(one, one, cached, cached, o); });
    };
    CHECK(contains(refusal({.heads = 3, .kv_heads = 2, .head_dim = 8}), "the heads do not divide into groups"));
    CHECK(contains(refusal({.heads = 4, .kv_heads = 4, .head_dim = 8}), "kv_heads 4, head_dim 8 do not fit cached"));
    CHECK(contains(refusal({.heads = 4, .kv_heads = 2, .head_dim = 6}), "kv_heads 2, head_dim 6 do not fit cached"));
    CHECK(contains(error_of([&] { self_attention(g.input("flat", {5, 30})); }), "(batch, tokens, width)"));
    const Value mask = g.input("mask", {4, 5}, DType::i32);
    const std::string error = error_of([&] { self_attention(x, {.name = "b", .mask = {.keys = mask}}); });
    CHECK(contains(error, "mask (4, 5)"));
    CHECK(contains(error, "4 against 5"));
}

TEST_CASE("layers: what is refused leaves no parameter") {
    Graph g;
    const Value x = g.input("x", {1, 3, 8}), ids = g.input("ids", {1, 3, 8}, DType::i32);
    const Value free = g.input("free", {1, 3, g.symbol("width", 8)});
    const Value mask = g.input("mask", {3}, DType::i32);
    const std::size_t before = g.storages().size(), nodes = g.nodes().size();
    const auto refused = [&](const std::string& words, const auto& describe) {
        CHECK(contains(error_of(describe), words));
        CHECK(g.storages().size() == before);
        CHECK(g.nodes().size() == nodes);
    };
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (const bool norm_first : {false, true}) {
        const torch::TransformerLayerOptions good{.nhead = 2, .dim_feedforward = 8, .norm_first = norm_first};
        torch::TransformerLayerOptions heads = good, inner = good, eps = good, rate = good;
        heads.nhead = 3;
        inner.dim_feedforward = -1;
        eps.layer_norm_eps = nan;
        rate.dropout = 1.5f;
        const std::pair<const char*, torch::TransformerLayerOptions> wrong[] = {
            {"does not divide into 3 heads", heads},
            {"dim_feedforward -1 over x (1, 3, 8)", inner},
            {"eps = nan", eps},
            {"dropout = 1.5", rate},
        };
        for (const auto& one : wrong) {
            refused(one.first, [&] { torch::transformer_encoder_layer(x, one.second); });
            refused(one.first, [&] { torch::transformer_decoder_layer(x, one.second, {.memory = x}); });
            refused(one.first, [&] { torch::transformer_encoder(x, one.second, 2, "e"); });
            refused(one.first, [&] { torch::transformer(x, x, {.layer = one.second}); });
        }
        refused("ids", [&] { torch::transformer_encoder_layer(ids, good); });
        refused("memory is missing", [&] { torch::transformer_decoder_layer(x, good, {}); });
        refused("free", [&] { torch::transformer_decoder_layer(x, good, {.memory = free}); });
        for (const std::int64_t count : {std::int64_t{0}, std::int64_t{-1}}) {
            const std::string told = " is " + std::to_string(count) + "; it is at least 1";
            refused("TransformerEncoder: num_layers" + told, [&] { torch::transformer_encoder(x, good, count, "e"); });
            refused("num_encoder_layers" + told,
                    [&] { torch::transformer(x, x, {.layer = good, .num_encoder_layers = count}); });
            refused("num_decoder_layers" + told,
                    [&] { torch::transformer(x, x, {.layer = good, .num_decoder_layers = count}); });
        }
        refused("TransformerDecoder", [&] { torch::transformer_decoder(x, good, {}, "d"); });
    }
    refused("must be (batch, keys)",
            [&] { torch::multihead_attention(x, x, x, {.num_heads = 2, .key_padding_mask = mask}); });
    refused("is_causal together with",
            [&] { torch::multihead_attention(x, x, x, {.num_heads = 2, .add_zero_attn = true, .is_causal = true}); });
    refused("free", [&] { multi_head_attention(x, free, x, {.heads = 2}); });
    refused("free", [&] { multi_head_attention_by_heads(x, x, free, {.heads = 2}); });
    refused("ids", [&] { linear_layer(ids, "l", 4); });
    refused("ids", [&] { torch::layer_norm_layer(ids, "n"); });
    refused("eps = nan", [&] { torch::layer_norm_layer(x, "n", nan); });
}

TEST_CASE("layers: a hook gives a value of the same graph and shape") {
    Graph g, other;
    const Value x = g.input("x", {2, 4}), foreign = other.input("foreign", {2, 3});
    const auto refusal = [&](Value given) {
        g.after_linear([given](Value, Value) { return given; });
        return error_of([&] { linear_layer(x, "up", 3); });
    };
    CHECK(contains(refusal({}), "linear_layer: what after_linear() was given made nothing of value (2, 3)"));
    CHECK(contains(refusal(foreign), "foreign (2, 3)"));
    CHECK(contains(refusal(x), "made x (2, 4)"));
    g.after_linear([](Value, Value y) { return scale(y, 2.0f); });
    CHECK(linear_layer(x, "up", 3).shape() == Shape{2, 3});
}

TEST_CASE("incremental_attention: masks are those of the reference") {
    constexpr std::int64_t kBatch = 2, kWidth = 6, kHeads = 4, kKvHeads = 2, kCached = 5, kHeadDim = 3;
    const std::map<std::string, Tensor> weights{{"q", random_tensor({kHeads, kWidth, kHeadDim}, 1)},
                                                {"k", random_tensor({kKvHeads, kWidth, kHeadDim}, 2)},
                                                {"v", random_tensor({kKvHeads, kWidth, kHeadDim}, 3)},
                                                {"o", random_tensor({kHeads, kWidth, kHeadDim}, 4)}};
    const Tensor x = random_tensor({kBatch, kWidth}, 5), context = random_tensor({kBatch, kWidth}, 6);
    const Tensor keys = random_tensor({kBatch, kKvHeads, kCached, kHeadDim}, 7),
                 values = random_tensor({kBatch, kKvHeads, kCached, kHeadDim}, 8);
    const auto want = [&](const reference::AttentionOptions& options) {
        const auto project = [&](const Tensor& of, const char* name) {
            const Tensor& w = weights.at(name);
            const Tensor heads = reference::matmul(reshape(of, {1, kBatch, kWidth}), w);
            return reshape(transpose(heads, 0, 1), {kBatch, w.size(0), 1, kHeadDim});
        };
        const Tensor y = reference::attention(project(x, "q"), reference::concat({keys, project(context, "k")}, 2),
                                              reference::concat({values, project(context, "v")}, 2), options)
                             .y;
        return reference::matmul(reshape(y, {kBatch, kHeads * kHeadDim}),
                                 reshape(transpose(weights.at("o"), 1, 2), {kHeads * kHeadDim, kWidth}));
    };
    const Tensor some({kBatch, 1, 1, kCached + 1}, {1, 0, 1, 1, 0, 1, 0, 0, 0, 0, 0, 0});
    const Tensor bias = random_tensor({kHeads, 1, kCached + 1}, 9, 3), slopes = random_tensor({kHeads}, 10);
    Graph g;
    const auto step = [&](const char* name, const Mask& mask) {
        const auto input = [&](const char* which, const Tensor& t) {
            return g.input(std::string(name) + " " + which, Shape(t.shape.begin(), t.shape.end()));
        };
        const Value y = incremental_attention(
                            input("x", x), input("context", context), input("keys", keys), input("values", values),
                            {.heads = kHeads, .kv_heads = kKvHeads, .head_dim = kHeadDim, .mask = mask})
                            .y;
        g.output(name, y);
    };
    step("all", {});
    step("some keys", {.keys = g.input("some", {kBatch, 1, 1, kCached + 1}, DType::i32)});
    step("all but some",
         {.keys = g.input("not some", {kBatch, 1, 1, kCached + 1}, DType::i32), .polarity = Polarity::ignore});
    step("biased", {.bias = g.input("bias", {kHeads, 1, kCached + 1})});
    step("window", {.alibi_slopes = g.input("slopes", {kHeads}), .causal = Causal::bottom_right, .window = 3});
    Program p = device().compile(g, load(weights));
    for (const char* name : {"all", "some keys", "all but some", "biased", "window"}) {
        upload(p, std::string(name) + " x", x);
        upload(p, std::string(name) + " context", context);
        upload(p, std::string(name) + " keys", keys);
        upload(p, std::string(name) + " values", values);
    }
    upload(p, "some", some, DType::i32);
    upload(p, "not some", some, DType::i32);
    upload(p, "bias", bias);
    upload(p, "slopes", slopes);
    p.run();
    reference::AttentionOptions keys_only, others, biased, window;
    keys_only.scores.keys = others.scores.keys = some;
    others.scores.polarity = Polarity::ignore;
    biased.scores.bias = bias;
    window.scores.alibi_slopes = slopes;
    window.scores.causal = Causal::bottom_right;
    window.scores.window = 3;
    CHECK(difference(download(p, "all"), want({})) == "");
    CHECK(difference(download(p, "some keys"), want(keys_only)) == "");
    CHECK(difference(download(p, "all but some"), want(others)) == "");
    CHECK(difference(download(p, "biased"), want(biased)) == "");
    CHECK(difference(download(p, "window"), want(window)) == "");
}

TEST_CASE("torch: a memory that was projected before, with as many keys as heads") {
    Graph g;
    const Value x = g.input("x", {2, 3, 8}), memory = g.input("memory", {2, 4, 8});
    torch::MultiheadAttentionOptions o{.name = "attn", .num_heads = 4};
    g.output("anew", torch::multihead_attention(x, memory, memory, o).y);
    o.memory = torch::project_memory(memory, "attn", 4);
    g.output("before", torch::multihead_attention(x, {}, {}, o).y);
    Program p = device().compile(g, random_weights({&g}));
    upload(p, "x", random_tensor({2, 3, 8}, 1));
    upload(p, "memory", random_tensor({2, 4, 8}, 2));
    p.run();
    CHECK(difference(download(p, "before"), download(p, "anew")) == "");
}

TEST_CASE("torch: rows that are added to keys are refused beside a memory, which has none") {
    Graph g;
    const Value x = g.input("x", {2, 3, 8});
    const CachedKv memory = torch::project_memory(g.input("memory", {2, 4, 8}), "attn", 2);
    const auto refusal = [&](bool bias, bool zero) {
        return error_of([&] {
            torch::multihead_attention(
                x, {}, {},
                {.name = "attn", .num_heads = 2, .add_bias_kv = bias, .add_zero_attn = zero, .memory = memory});
        });
    };
    CHECK(contains(refusal(true, false), "add_bias_kv or add_zero_attn together with memory"));
    CHECK(contains(refusal(false, true), "add_bias_kv or add_zero_attn together with memory"));
    CHECK(refusal(false, false) == "");
}

TEST_CASE("torch: a mask row without a key gives out_proj's bias, not NaN") {
    Graph g;
    const Value x = g.input("x", {1, 3, 8});
    torch::MultiheadAttentionOptions o{.num_heads = 2};
    o.key_padding_mask = g.input("padding", {1, 3}, DType::i32);
    const AttentionResult a = torch::multihead_attention(x, x, x, o);
    g.output("y", a.y);
    Program p = device().compile(g, random_weights({&g}));
    upload(p, "x", random_tensor({1, 3, 8}));
    upload(p, "padding", Tensor({1, 3}, 1.0), DType::i32);
    p.run();
    const Tensor y = download(p, "y");
    for_each_index(y.shape, [&](const Sizes& i) {
        CHECK(std::isfinite(y.at(i)));
        CHECK(y.at(i) == y.at({0, 0, i[2]}));
    });
}

TEST_CASE("EncoderDecoder: missing, misshapen and extra parameters are named") {
    EncoderDecoderConfig c;
    c.source_vocabulary = c.target_vocabulary = 11;
    c.d_model = 16;
    c.nhead = 2;
    c.num_encoder_layers = c.num_decoder_layers = 1;
    c.dim_feedforward = 32;
    c.max_source = 6;
    c.max_target = 5;
    Graph encoder, decoder;
    EncoderDecoder::describe_encoder(encoder, c, 1);
    EncoderDecoder::describe_decoder(decoder, c, 1);
    CHECK(contains(error_of([&] {
                       EncoderDecoder(device(), random_weights({&encoder, &decoder}, {"generator.bias"}), c);
                   }),
                   "generator.bias: is missing"));
    Graph more;
    more.weight("surplus", {3});
    CHECK(contains(error_of([&] {
                       EncoderDecoder(device(), random_weights({&encoder, &decoder, &more}), c);
                   }),
                   "surplus: is not a parameter"));
    c.dim_feedforward = 33;
    CHECK(contains(error_of([&] {
                       EncoderDecoder(device(), random_weights({&encoder, &decoder}), c);
                   }),
                   ", the graph wants (33"));
    c.dim_feedforward = 32;
    EncoderDecoder model(device(), random_weights({&encoder, &decoder}), c, 2);
    const std::vector<std::vector<std::int32_t>> sources{{3, 4, 5, 2}, {7, 2}};
    const auto together = model.generate(sources, 1, 2, 0);
    for (std::size_t i = 0; i < sources.size(); ++i) {
        const auto alone = model.generate(std::span(sources).subspan(i, 1), 1, 2, 0);
        CHECK(alone[0].tokens == together[i].tokens);
        CHECK(alone[0].cross_attention.size() == alone[0].tokens.size() * 2 * sources[i].size());
    }
    CHECK(contains(error_of([&] {
                       model.generate(std::vector<std::vector<std::int32_t>>{{1, 1, 1, 1, 1, 1, 1}}, 1, 2, 0);
                   }),
                   "7 tokens; 1 to 6"));
    CHECK(contains(error_of([&] {
                       model.generate(std::vector<std::vector<std::int32_t>>{{1, 11}}, 1, 2, 0);
                   }),
                   "token 11 is outside the vocabulary of 11"));
    CHECK(contains(error_of([&] {
                       model.generate(std::vector<std::vector<std::int32_t>>(3, {1, 2}), 1, 2, 0);
                   }),
                   "a batch of 3"));
}

TEST_CASE("multi-head attention head by head gives the batched form's numbers") {
    constexpr std::int64_t kWidth = 12;
    constexpr std::int64_t kHeads = 3;
    Graph batched, by_heads;
    const auto describe = [&](Graph& g, bool heads) {
        const Value q = g.input("q", {2, 5, kWidth});
        // keys and values from another source than the queries
        const Value kv = g.input("kv", {2, 7, kWidth});
        MultiHeadAttentionOptions o{.name = "mha", .heads = kHeads};
        g.output("y", heads ? multi_head_attention_by_heads(q, kv, kv, o) : multi_head_attention(q, kv, kv, o).y);
    };
    describe(batched, false);
    describe(by_heads, true);
    std::map<std::string, Tensor> all;
    for (const char* name : {"q_proj", "k_proj", "v_proj", "out_proj"}) {
        all[std::string("mha.") + name + ".weight"] =
            random_tensor({kWidth, kWidth}, static_cast<std::uint32_t>(all.size() + 1), 0.4);
        all[std::string("mha.") + name + ".bias"] =
            random_tensor({kWidth}, static_cast<std::uint32_t>(all.size() + 1), 0.4);
    }
    const std::map<std::string, Tensor> whole = all;
    for (const auto& [name, t] : whole) {  // rows h*d.. of each projection are head h's
        for (std::int64_t h = 0; h < kHeads && !contains(name, "out_proj"); ++h) {
            all["mha.heads." + std::to_string(h) + name.substr(3)] = slice(t, 0, h * kWidth / kHeads, kWidth / kHeads);
        }
    }
    const Weights weights = load(all);
    const auto answer = [&](const Graph& g) {
        Program p = device().compile(g, weights);
        upload(p, "q", random_tensor({2, 5, kWidth}, 21));
        upload(p, "kv", random_tensor({2, 7, kWidth}, 22));
        p.run();
        return download(p, "y");
    };
    CHECK(difference(answer(by_heads), answer(batched)) == "");
}

TEST_CASE("rope: a caller's own table turns as the table says") {
    OpCheck check;
    const Rope options{.layout = RopeLayout::half, .rotary_dim = 6, .max_positions = 9};
    const std::vector<float> table = rope_table(options, 8);
    const Tensor x = random_tensor({2, 5, 8}, 4);
    const Value input = check.input("x", x);
    const Value own = check.input("table", Tensor({9, 3, 2}, std::vector<double>(table.begin(), table.end())));
    CHECK(same_bits(check.run(rope_by_table(input, own, RopeLayout::half, 3)), check.run(rope(input, options, 3))));
    CHECK(contains(error_of([&] {
                       rope_by_table(input, check.input("flat", Tensor({9, 6})), RopeLayout::half);
                   }),
                   "(positions, pairs, 2)"));
}
