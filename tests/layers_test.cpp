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
#include "layers/lora.h"
#include "layers/sequences.h"
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

EncoderDecoderConfig small_encoder_decoder() {
    EncoderDecoderConfig c;
    c.source_vocabulary = c.target_vocabulary = 11;
    c.d_model = 16;
    c.nhead = 2;
    c.num_encoder_layers = c.num_decoder_layers = 1;
    c.dim_feedforward = 32;
    c.max_source = 6;
    c.max_target = 5;
    return c;
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

TEST_CASE("grouped_query_attention: a full cache is told of, not the table of positions that is as long") {
    Graph g;
    const Dim tokens = g.symbol("tokens", 4), start = g.symbol("start", 6);
    g.output("y",
             grouped_query_attention(g.input("x", {1, tokens, 8}), {.name = "attn",
                                                                    .heads = 2,
                                                                    .rope = Rope{.layout = RopeLayout::half},
                                                                    .mask = {.causal = Causal::bottom_right},
                                                                    .cache = kv_cache(g, "cache", 1, 6, 1, 4, start)})
                 .y);
    Program p = device().compile(g, random_weights({&g}));
    p.set("tokens", 3);
    p.set("start", 4);
    upload(p, "x", random_tensor({1, 3, 8}));
    const std::string error = error_of([&] { p.run(); });
    CHECK(contains(error, "of cache.key (1, 6, 1, 4) F32: 7 is more than 6"));
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

TEST_CASE("layers: attention that is refused leaves no parameter, and writes no cache") {
    Graph g, other;
    const Value x = g.input("x", {1, 3, 8}), one = g.input("one", {1, 8}), rows = g.input("rows", {1, 2, 6, 4});
    const Value keys = g.input("keys", {3, 9}, DType::i32), bias = g.input("bias", {3, 2});
    const Value padding = g.input("padding", {1, 5}, DType::i32), foreign = other.input("foreign", {3, 3});
    const Value wrong_sinks = g.input("sinks", {3});
    const KvCache cache = kv_cache(g, "cache", 1, 16, 2, 4, g.symbol("start", 13));
    const KvCache packed = kv_cache(g, "packed", 1, 16, 2, 4, g.symbol("start", 13), WeightType::int8);
    const std::size_t storages = g.storages().size(), nodes = g.nodes().size(), scopes = g.scoped("").size();
    const auto refused = [&](const std::string& words, const auto& describe) {
        const std::string said = error_of(describe);
        CHECK_MESSAGE(contains(said, "scaled_dot_product_attention: " + words), said);
        CHECK(g.storages().size() == storages);
        CHECK(g.nodes().size() == nodes);
        CHECK(g.scoped("").size() == scopes);
    };
    for (const KvCache& kept : {cache, packed}) {
        const GroupedQueryAttentionOptions good{.heads = 2, .kv_heads = 2, .cache = kept};
        GroupedQueryAttentionOptions cap = good, factor = good, mask = good, added = good, sinks = good, far = good;
        cap.softcap = -1.0f;
        factor.scale = std::numeric_limits<float>::infinity();
        mask.mask.keys = keys;
        added.mask.bias = bias;
        sinks.sinks = wrong_sinks;
        far.mask.bias = foreign;
        refused("softcap", [&] { grouped_query_attention(x, cap); });
        refused("scale = inf", [&] { grouped_query_attention(x, factor); });
        refused("mask keys (3, 9)", [&] { grouped_query_attention(x, mask); });
        refused("bias bias (3, 2)", [&] { grouped_query_attention(x, added); });
        refused("sinks sinks (3)", [&] { grouped_query_attention(x, sinks); });
        refused("bias foreign (3, 3)", [&] { grouped_query_attention(x, far); });
    }
    const auto torch_refused = [&](const std::string& words, torch::MultiheadAttentionOptions o) {
        o.num_heads = 2;
        refused(words, [&] { torch::multihead_attention(x, x, x, o); });
        o.cache = cache;
        refused(words, [&] { torch::multihead_attention(x, x, x, o); });
        o.add_bias_kv = o.add_zero_attn = true;
        refused(words, [&] { torch::multihead_attention(x, x, x, o); });
    };
    torch_refused("dropout = 1.5", {.dropout = 1.5f});
    torch_refused("mask keys (3, 9)", {.attn_mask = keys});
    torch_refused("bias bias (3, 2)", {.attn_mask = bias, .key_padding_mask = padding});
    torch_refused("mask ", {.key_padding_mask = padding});
    refused("mask keys", [&] { multi_head_attention(x, x, x, {.heads = 2, .mask = {.keys = keys}}); });
    refused("mask keys", [&] { multi_head_attention_by_heads(x, x, x, {.heads = 2, .mask = {.keys = keys}}); });
    refused("bias bias", [&] {
        incremental_attention(one, one, rows, rows, {.heads = 2, .kv_heads = 2, .head_dim = 4, .mask = {.bias = bias}});
    });
}

TEST_CASE("layers: what is refused late leaves nothing either, in either graph") {
    Graph g, other;
    const Value x = g.input("x", {1, 3, 8}), memory = g.input("memory", {1, 5, 8}), one = g.input("one", {2, 8});
    const Value rows = g.input("rows", {1, 2, 6, 4}), far = other.input("far", {1, 3, 8});
    const Value square = g.input("square", {4, 4}, DType::i32);
    const KvCache cache = kv_cache(g, "cache", 1, 16, 2, 4, g.symbol("start", 13));
    const KvCache narrow = kv_cache(g, "narrow", 1, 16, 2, 3, g.symbol("start", 13));
    const PagedKvCache pages{g.state("pool_k", {3, 2, 2, 4}), g.state("pool_v", {3, 2, 2, 4}),
                             g.input("table", {1, 2}, DType::i32), g.input("lengths", {1}, DType::i32)};
    const Value k = g.input("new_k", {1, 2, 2, 4}), longer = g.input("longer", {1, 3, 2, 4});
    g.state("half.value", {2});
    const Value wide = g.input("wide", {1, 2, 2, 5}), twice = g.input("twice", {2, 2, 2, 4});
    const std::size_t storages = g.storages().size(), nodes = g.nodes().size();
    const KvCache far_cache = kv_cache(other, "cache", 1, 16, 2, 4, other.symbol("start", 13));
    const std::size_t far_storages = other.storages().size();
    const auto refused = [&](const std::string& words, const auto& describe) {
        const std::string said = error_of(describe);
        CHECK_MESSAGE(contains(said, words), said);
        CHECK(g.storages().size() == storages);
        CHECK(g.nodes().size() == nodes);
        CHECK(g.scoped("") == "");
        CHECK(other.storages().size() == far_storages);
        CHECK(other.constraints().empty());
    };
    refused("square (4, 4) I32 does not broadcast",
            [&] { self_attention(x, {.name = "s", .mask = {.keys = square}}); });
    const GroupedQueryAttentionOptions gqa{.name = "a", .heads = 2, .kv_heads = 2};
    GroupedQueryAttentionOptions turned = gqa, few = gqa, other_heads = gqa;
    turned.rope = Rope{.layout = RopeLayout::half, .rotary_dim = 6};
    few.rope = Rope{.layout = RopeLayout::half, .max_positions = 2};
    other_heads.cache = narrow;
    refused("rotary_dim", [&] { grouped_query_attention(x, turned); });
    refused("rope_table (2, 2, 2)", [&] { grouped_query_attention(x, few); });
    refused("narrow", [&] { grouped_query_attention(x, other_heads); });
    refused("do not fit", [&] { multi_head_attention(x, x, memory, {.name = "m", .heads = 2}); });
    refused("another graph", [&] { multi_head_attention(x, far, far, {.name = "m", .heads = 2}); });
    refused("another graph", [&] { multi_head_attention_by_heads(x, x, far, {.name = "m", .heads = 2}); });
    refused("another graph", [&] { attention_scores(x, far, {.kind = ScoreKind::general}); });
    refused("another graph", [&] { torch::multihead_attention(x, far, far, {.num_heads = 2}); });
    refused("does not fit behind rows (1, 2, 6, 4)",
            [&] { incremental_attention(one, one, rows, rows, {.heads = 2, .kv_heads = 2, .head_dim = 4}); });
    const torch::TransformerLayerOptions layer{.name = "d", .nhead = 2, .dim_feedforward = 8};
    refused("square (4, 4)", [&] {
        torch::transformer_decoder_layer(x, layer, {.memory = memory, .memory_mask = square, .cache = cache});
    });
    const torch::DecoderInputs good{.memory = memory}, bad{.memory = memory, .tgt_mask = square};
    refused("square (4, 4)", [&] { torch::transformer_decoder(x, layer, {good, bad}, "decoder"); });
    refused("another graph", [&] { torch::transformer(x, far, {.layer = layer}); });
    refused("another graph", [&] { append(far_cache, k, k); });
    refused("half.value", [&] { kv_cache(g, "half", 1, 16, 2, 4, 0); });
    for (const auto& [wrong, words] : {std::pair{longer, "as many sequences and tokens"},
                                       {twice, "as many sequences and tokens"},
                                       {wide, "wide (1, 2, 2, 5)"}}) {
        refused(words, [&, wrong = wrong] { append(cache, k, wrong); });
        refused(words, [&, wrong = wrong] { append(pages, k, wrong); });
    }
}

TEST_CASE("layers: an adapter has no parameters of a layer that was refused") {
    Graph g;
    const Value x = g.input("x", {1, 3, 8}), square = g.input("square", {4, 4}, DType::i32);
    const Lora lora(g, {.rank = 2, .targets = {"q_proj", "last"}});
    CHECK(error_of([&] { self_attention(x, {.name = "s", .mask = {.keys = square}}); }) != "");
    linear_layer(x, "last", 8);
    CHECK(contains(error_of([&] { lora.parameters(); }), "no linear layer fits \"q_proj\""));
    self_attention(x, {.name = "s"});
    const std::vector<Value> parameters = lora.parameters();
    REQUIRE(parameters.size() == 4);
    CHECK(contains(parameters[0].str(), "last.lora_A.weight (2, 8)"));
    CHECK(contains(parameters[2].str(), "s.q_proj.lora_A.weight (2, 8)"));
    Value kept;
    Graph hooked;
    const Value input = hooked.input("x", {1, 3, 8}), mask = hooked.input("mask", {4, 4}, DType::i32);
    hooked.after_linear([&](Value, Value y) { return kept = y; });
    CHECK(error_of([&] { self_attention(input, {.name = "s", .mask = {.keys = mask}}); }) != "");
    hooked.after_linear({});
    linear_layer(input, "more", 8);  // none of which has the number of what is kept
    const auto permuted = [&] { permute(kept, {0, 2, 1}); };
    const auto output = [&] { hooked.output("kept", kept); };
    const auto text = [&] { (void)kept.str(); };
    const std::string lost = "a layer that was refused";
    CHECK(contains(error_of([&] { relu(kept); }), lost));
    CHECK(contains(error_of(permuted), lost));
    CHECK(contains(error_of(output), lost));
    CHECK(contains(error_of(text), lost));
    CHECK(contains(error_of([&] { is_contiguous(kept); }), lost));
    Graph tapped;  // an output that a hook makes of what was there before
    const Value before = relu(tapped.input("x", {1, 3, 8})), wrong = tapped.input("mask", {4, 4}, DType::i32);
    for (const bool whole : {false, true}) {
        tapped.after_linear([&](Value x, Value y) {
            tapped.output("tap", whole ? x : reshape(x, x.shape()));
            tapped.after_linear({});
            return y;
        });
        CHECK(error_of([&] { self_attention(before, {.name = "s", .mask = {.keys = wrong}}); }) != "");
        tapped.after_linear({});
    }
    tapped.output("tap", before);
    CHECK(device().compile(tapped).explain() != "");
}

TEST_CASE("attention_scores: a batch of 1 is for each of the other's, in every kind") {
    const Tensor one = random_tensor({1, 3, 4}, 1), many = random_tensor({2, 5, 4}, 2);
    for (const ScoreKind kind : {ScoreKind::dot, ScoreKind::general, ScoreKind::additive}) {
        Graph g;
        const Value a = g.input("one", {1, 3, 4}), b = g.input("many", {2, 5, 4});
        const ScoreOptions o{.kind = kind, .hidden = 6};
        const Value repeated = contiguous(broadcast_to(a, {2, 3, 4}));
        g.output("query", attention_scores(a, b, o));
        g.output("queries", attention_scores(repeated, b, o));
        g.output("key", attention_scores(b, a, o));
        g.output("keys", attention_scores(b, repeated, o));
        Program p = device().compile(g, random_weights({&g}));
        upload(p, "one", one);
        upload(p, "many", many);
        p.run();
        REQUIRE(p.download("query").size() == 2 * 3 * 5);
        CHECK(p.download("query") == p.download("queries"));
        CHECK(p.download("key") == p.download("keys"));
    }
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

TEST_CASE("EncoderDecoder: a configuration of which nothing can be made is refused by both descriptions") {
    const auto refused = [](const auto& change, const char* words) {
        EncoderDecoderConfig c = small_encoder_decoder();
        change(c);
        for (const auto describe : {EncoderDecoder::describe_encoder, EncoderDecoder::describe_decoder}) {
            Graph g;
            CHECK(contains(error_of([&] { describe(g, c, 1); }), words));
            CHECK(g.storages().empty());
        }
    };
    refused([](EncoderDecoderConfig& c) { c.nhead = 0; }, "d_model 16 does not divide into 0 heads");
    refused([](EncoderDecoderConfig& c) { c.nhead = 3; }, "d_model 16 does not divide into 3 heads");
    refused([](EncoderDecoderConfig& c) { c.num_decoder_layers = -1; }, "a layer count is too small");
    refused([](EncoderDecoderConfig& c) { c.max_target = 1; }, "max_target");
}

TEST_CASE("EncoderDecoder: logits that are not finite are refused, and the sequence is named") {
    const EncoderDecoderConfig c = small_encoder_decoder();
    Graph graphs[2];
    EncoderDecoder::describe_encoder(graphs[0], c, 1);
    EncoderDecoder::describe_decoder(graphs[1], c, 1);
    std::map<std::string, Tensor> weights;
    for (const Graph& g : graphs) {
        for (const StorageInfo& s : g.storages()) {
            if (s.kind == StorageKind::weight) {
                Sizes sizes;
                for (const Dim& d : s.shape) {
                    sizes.push_back(d.constant());
                }
                weights.emplace(s.name, random_tensor(sizes, static_cast<std::uint32_t>(weights.size() + 1), 0.5));
            }
        }
    }
    weights.at("src_embed.weight").at({7, 0}) = std::numeric_limits<double>::quiet_NaN();
    EncoderDecoder model(device(), load(weights), c, 2);
    const std::vector<std::vector<std::int32_t>> good{{3, 4, 5, 2}, {6, 2}}, bad{{3, 4, 5, 2}, {7, 2}};
    CHECK(model.generate(good, 1, 2, 0).size() == 2);
    CHECK(error_of([&] { model.generate(bad, 1, 2, 0); }) ==
          "EncoderDecoder::generate: the logits of sequence 1 are not finite");
    CHECK(model.generate(good, 1, 2, 0).size() == 2);
}

TEST_CASE("EncoderDecoder: missing, misshapen and extra parameters are named") {
    EncoderDecoderConfig c = small_encoder_decoder();
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
