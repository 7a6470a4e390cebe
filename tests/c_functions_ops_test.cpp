// SPDX-License-Identifier: Apache-2.0
// C's ops and layers beside those of C++ that they stand for: the same graph, the same weights, the
// same bits.
#include <utility>

#include "c/border.h"
#include "layers/feed_forward.h"
#include "layers/sequences.h"
#include "layers/torch.h"
#include "ops/gradients.h"
#include "ops/optimizer.h"
#include "runtime/graph/packed.h"
#include "tests/c_functions.h"
#include "tests/device.h"
#include "tests/op_check.h"

using namespace vkf;
using namespace vkf::test;

namespace {

/// A graph that both languages describe, and what they gave for the same.
class Both {
public:
    Both() { OK(vkf_graph_create(&graph)); }
    ~Both() { vkf_graph_destroy(graph); }
    Both(const Both&) = delete;
    Both& operator=(const Both&) = delete;

    Value input(const std::string& name, const Tensor& data, DType dtype = DType::f32) {
        inputs_.push_back({name, data, dtype});
        Shape shape;
        for (const std::int64_t size : data.shape) {
            shape.emplace_back(size);
        }
        return graph->input(name, shape, dtype);
    }
    vkf_value c(Value value) const { return {graph, static_cast<std::uint32_t>(value.id())}; }

    void same(const std::string& what, vkf_value of_c, Value of_cpp) {
        REQUIRE(of_c.graph == graph);
        const Value other(*graph, of_c.id);
        CHECK_MESSAGE(of_c.id != of_cpp.id(), what);
        graph->output("c: " + what, contiguous(other));
        graph->output("c++: " + what, contiguous(of_cpp));
        pairs_.push_back({what, of_cpp.dtype()});
    }

    void run() {
        Program program = device().compile(*graph, random_weights({graph}));
        for (const Input& i : inputs_) {
            upload(program, i.name, i.data, i.dtype);
        }
        program.run();
        for (const auto& pair : pairs_) {
            CAPTURE(pair.first);
            const Tensor of_c = download(program, "c: " + pair.first, pair.second);
            CHECK(same_bits(of_c, download(program, "c++: " + pair.first, pair.second)));
        }
    }

    vkf_graph* graph = nullptr;

private:
    struct Input {
        std::string name;
        Tensor data;
        DType dtype;
    };
    std::vector<Input> inputs_;
    std::vector<std::pair<std::string, DType>> pairs_;
};

}  // namespace

TEST_SUITE_BEGIN("c functions");

TEST_CASE("c functions: ops are those of C++") {
    Both b;
    vkf_value y{}, z{}, w{};
    const Value scores = b.input("scores", random_tensor({2, 4, 6}, 1));
    const Value some = b.input(
        "some", Tensor({4, 6}, {1, 0, 1, 1, 0, 1, 1, 1, 0, 0, 1, 1, 0, 1, 1, 0, 1, 0, 1, 1, 1, 1, 1, 0}), DType::i32);
    const Value few = b.input("few", Tensor({6}, {1, 1, 0, 0, 1, 1}), DType::i32);
    OK(vkf_combine_masks(b.c(some), VKF_ATTEND, b.c(few), VKF_IGNORE, &y));
    b.same("combine_masks", y, combine_masks(some, Polarity::attend, few, Polarity::ignore));

    vkf_softmax_options softmax_options = sized<vkf_softmax_options>();
    softmax_options.scale = 0.5f;
    softmax_options.softcap = 2.0f;
    OK(vkf_biased_scores(b.c(scores), &softmax_options, &y));
    b.same("biased_scores", y, biased_scores(scores, {.scale = 0.5f, .softcap = 2.0f}));

    const Value query = b.input("query", random_tensor({2, 2, 4, 8}, 2)),
                key = b.input("key", random_tensor({2, 2, 6, 8}, 3));
    const Value lengths = b.input("lengths", Tensor({2}, {6, 3}), DType::i32);
    OK(vkf_sequence_mask(b.c(query), b.c(key), vkf_no_value(), b.c(lengths), VKF_CAUSAL_BOTTOM_RIGHT, 2, &y));
    b.same("sequence_mask", y, sequence_mask(query, key, {}, lengths, Causal::bottom_right, 2));

    const Value pool = b.input("pool", random_tensor({3, 2, 2, 4}, 4));
    const Value table = b.input("table", Tensor({2, 2}, {2, 0, 1, -1}), DType::i32);
    OK(vkf_gather_pages(b.c(pool), b.c(table), &y));
    b.same("gather_pages", y, gather_pages(pool, table));

    OK(vkf_top_k(b.c(scores), 3, &y, &z));
    const TopK top = top_k(scores, 3);
    b.same("top_k, values", y, top.values);
    b.same("top_k, indices", z, top.indices);

    const Value labels = b.input("labels", Tensor({2, 4}, {0, 2, 5, 1, 2, 3, 4, 0}), DType::i32);
    vkf_cross_entropy_options entropy = sized<vkf_cross_entropy_options>();
    entropy.has_ignore_index = true;
    entropy.ignore_index = 2;
    entropy.label_smoothing = 0.25f;
    OK(vkf_cross_entropy(b.c(scores), b.c(labels), &entropy, &y));
    b.same("cross_entropy", y, cross_entropy(scores, labels, {.ignore_index = 2, .label_smoothing = 0.25f}));
    OK(vkf_cross_entropy(b.c(scores), b.c(labels), nullptr, &y));
    b.same("cross_entropy, defaults", y, cross_entropy(scores, labels));

    const Value rows = b.input("rows", random_tensor({5, 6}, 5));
    Graph& g = *b.graph;
    const Value weight = g.weight("bn.weight", {6}), bias = g.weight("bn.bias", {6}), mean = g.weight("bn.mean", {6});
    const Value variance = activate(g.weight("bn.var", {6}), Activation::sigmoid);
    OK(vkf_batch_norm(b.c(rows), b.c(weight), b.c(bias), b.c(mean), b.c(variance), 1e-3f, &y));
    b.same("batch_norm", y, batch_norm(rows, weight, bias, mean, variance, 1e-3f));
    OK(vkf_batch_norm_train(b.c(rows), b.c(weight), b.c(bias), b.c(mean), b.c(variance), 0.2f, 1e-3f, &y, &z, &w));
    const BatchNormResult trained = batch_norm_train(rows, weight, bias, mean, variance, 0.2f, 1e-3f);
    b.same("batch_norm_train", y, trained.y);
    b.same("batch_norm_train, mean", z, trained.running_mean);
    b.same("batch_norm_train, variance", w, trained.running_var);

    OK(vkf_sum(b.c(scores), &y));
    b.same("sum", y, sum(scores));
    const vkf_dim summed[] = {vkf_size(1), vkf_size(6)};
    OK(vkf_sum_to(b.c(scores), 2, summed, &y));
    b.same("sum_to", y, sum_to(scores, {1, 6}));

    OK(vkf_dropout(b.c(rows), 0.5f, vkf_size(7), &y));
    b.same("dropout", y, dropout(rows, 0.5f, 7));
    vkf_dim seed{};
    OK(vkf_graph_symbol(b.graph, "seed", 4, &seed));
    seed.constant = 2;
    OK(vkf_dropout(b.c(rows), 0.5f, seed, &y));
    b.same("dropout, seed of a symbol", y, dropout(rows, 0.5f, b.graph->symbol("seed", 4) + 2));

    const Value angles = b.input("angles", random_tensor({9, 4, 2}, 6));
    OK(vkf_rope_by_table(b.c(key), b.c(angles), VKF_ROPE_HALF, vkf_size(2), &y));
    b.same("rope_by_table", y, rope_by_table(key, angles, RopeLayout::half, 2));
    vkf_rope_options turn = sized<vkf_rope_options>();
    turn.max_positions = 9;
    CHECK(vkf_rope(b.c(key), &turn, vkf_size(1), &y) == VKF_ERROR);
    CHECK(contains(vkf_last_error(), "VKF_ROPE_INTERLEAVED or VKF_ROPE_HALF"));
    turn.layout = VKF_ROPE_INTERLEAVED;
    turn.scaling = VKF_ROPE_YARN;
    turn.factor = 4;
    turn.original_max_positions = 4;
    turn.truncate = VKF_OFF;
    const Rope same_turn{
        .layout = RopeLayout::interleaved,
        .max_positions = 9,
        .scaling = {.kind = RopeScaling::Kind::yarn, .factor = 4, .truncate = false, .original_max_positions = 4}};
    OK(vkf_rope(b.c(key), &turn, vkf_size(1), &y));
    b.same("rope", y, rope(key, same_turn, 1));
    const std::vector<float> want = rope_table(same_turn, 8);
    std::vector<float> numbers(want.size());
    std::uint64_t count = 0;
    CHECK(vkf_rope_table(&turn, 8, numbers.data(), 3, &count) == VKF_ERROR);
    CHECK(count == want.size());
    OK(vkf_rope_table(&turn, 8, numbers.data(), numbers.size(), &count));
    CHECK(numbers == want);

    OK(vkf_to(b.c(key), VKF_BF16, &z));
    OK(vkf_to(z, VKF_F32, &y));
    b.same("to", y, to(to(key, DType::bf16), DType::f32));

    const Value words = b.input("words", Tensor({3, 4}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}), DType::i32);
    OK(vkf_unpack_rows(b.c(words), VKF_WEIGHT_BF16, 8, &y));
    b.same("unpack_rows", y, unpack_rows(words, WeightType::bf16, 8));
    const std::int64_t packed = static_cast<std::int64_t>(packed_row_words(WeightType::f16, 8));
    const Value kept = g.state("kept", {2, 2, 6, packed}, DType::i32),
                kept_too = g.state("kept too", {2, 2, 6, packed}, DType::i32);
    OK(vkf_pack_into(b.c(kept), b.c(key), VKF_WEIGHT_F16, &y));
    OK(vkf_unpack_rows(y, VKF_WEIGHT_F16, 8, &z));
    b.same("pack_into", z, unpack_rows(pack_into(kept_too, key, WeightType::f16), WeightType::f16, 8));

    const Value news = b.input("news", random_tensor({2, 1, 2, 4}, 7));
    const Value long_enough = b.input("long enough", Tensor({2}, {4, 2}), DType::i32);
    OK(vkf_scatter_pages(b.c(g.state("pool a", {3, 2, 2, 4})), b.c(news), b.c(table), b.c(long_enough), &y));
    b.same("scatter_pages", y, scatter_pages(g.state("pool b", {3, 2, 2, 4}), news, table, long_enough));
    b.run();
}

TEST_CASE("c functions: norms, positions, heads and what softmax leaves are those of C++") {
    Both b;
    vkf_value y{}, z{};
    const Value scores = b.input("scores", random_tensor({2, 4, 6}, 1)),
                rows = b.input("rows", random_tensor({5, 6}, 2));
    vkf_softmax_options options = sized<vkf_softmax_options>();
    options.scale = 0.5f;
    OK(vkf_log_sum_exp(b.c(scores), &options, &y));
    b.same("log_sum_exp", y, log_sum_exp(scores, {.scale = 0.5f}));
    OK(vkf_hard_max(b.c(scores), &options, &y));
    b.same("hard_max", y, hard_max(scores, {.scale = 0.5f}));

    const Value weight = b.graph->weight("weight", {6});
    OK(vkf_rms_norm(b.c(rows), b.c(weight), 1e-3f, &y));
    b.same("rms_norm", y, rms_norm(rows, weight, 1e-3f));
    OK(vkf_mul(b.c(rows), b.c(weight), &y));
    b.same("mul", y, mul(rows, weight));
    const Value up = b.input("up", random_tensor({5, 6}, 3));
    OK(vkf_gated(b.c(rows), b.c(up), VKF_SILU, &y));
    b.same("gated", y, gated(rows, up, Activation::silu));

    const Value query = b.input("query", random_tensor({2, 3, 4, 8}, 4));
    const Value positions = b.input("positions", Tensor({4}, {0, 3, 1, 7}), DType::i32);
    vkf_rope_options turn = sized<vkf_rope_options>();
    turn.max_positions = 8;
    turn.layout = VKF_ROPE_HALF;
    OK(vkf_rope_at(b.c(query), b.c(positions), &turn, &y));
    b.same("rope_at", y, rope_at(query, positions, {.layout = RopeLayout::half, .max_positions = 8}));
    OK(vkf_sinusoidal_positions(b.graph, 5, 6, &y));
    OK(vkf_mul(y, b.c(rows), &z));
    b.same("sinusoidal_positions", z, mul(sinusoidal_positions(*b.graph, 5, 6), rows));
    const Value ids = b.input("ids", Tensor({3}, {4, 0, 2}), DType::i32);
    OK(vkf_embedding(b.c(ids), b.c(rows), 0.5f, &y));
    b.same("embedding", y, embedding(ids, rows, 0.5f));

    OK(vkf_repeat_kv(b.c(query), 2, &y));
    b.same("repeat_kv", y, repeat_kv(query, 2));
    const std::uint32_t order[] = {2, 0, 3, 1};
    OK(vkf_permute(b.c(query), 4, order, &y));
    b.same("permute", y, permute(query, {2, 0, 3, 1}));
    OK(vkf_contiguous(y, &z));
    b.same("contiguous", z, contiguous(permute(query, {2, 0, 3, 1})));
    const Value wide = b.input("wide", random_tensor({2, 4, 12}, 5));
    OK(vkf_split_heads(b.c(wide), 3, &y));
    b.same("split_heads", y, split_heads(wide, 3));
    OK(vkf_merge_heads(y, &z));
    b.same("merge_heads", z, merge_heads(split_heads(wide, 3)));
    b.run();
}

TEST_CASE("c functions: layers are those of C++") {
    Both b;
    vkf_value y{}, z{}, w{};
    vkf_attention a = sized<vkf_attention>();
    const Value x = b.input("x", random_tensor({2, 5, 8}, 1)), memory = b.input("memory", random_tensor({2, 4, 8}, 2));
    vkf_mask causal = sized<vkf_mask>();
    causal.causal = VKF_CAUSAL_TOP_LEFT;

    vkf_self_attention_options self = sized<vkf_self_attention_options>();
    self.name = "self";
    self.mask = &causal;
    self.bias = VKF_OFF;
    OK(vkf_self_attention(b.c(x), &self, &a));
    b.same("self_attention", a.y,
           self_attention(x, {.name = "self", .bias = false, .mask = {.causal = Causal::top_left}}));

    vkf_multi_head_attention_options heads = sized<vkf_multi_head_attention_options>();
    heads.name = "heads";
    heads.heads = 2;
    OK(vkf_multi_head_attention_by_heads(b.c(x), b.c(memory), b.c(memory), &heads, &y));
    b.same("multi_head_attention_by_heads", y,
           multi_head_attention_by_heads(x, memory, memory, {.name = "heads", .heads = 2}));
    heads.name = "mha";
    heads.bias = VKF_OFF;
    OK(vkf_multi_head_attention(b.c(x), b.c(memory), b.c(memory), &heads, &a));
    b.same("multi_head_attention", a.y,
           multi_head_attention(x, memory, memory, {.name = "mha", .heads = 2, .bias = false}));

    vkf_grouped_query_attention_options grouped = sized<vkf_grouped_query_attention_options>();
    grouped.name = "grouped";
    grouped.heads = 4;
    grouped.kv_heads = 2;
    OK(vkf_grouped_query_attention(b.c(x), &grouped, &a));
    b.same("grouped_query_attention, causal unless told", a.y,
           grouped_query_attention(x, {.name = "grouped", .heads = 4, .kv_heads = 2}));
    causal.window = 2;
    grouped.mask = &causal;
    OK(vkf_grouped_query_attention(b.c(x), &grouped, &a));
    b.same("grouped_query_attention", a.y,
           grouped_query_attention(
               x, {.name = "grouped", .heads = 4, .kv_heads = 2, .mask = {.causal = Causal::top_left, .window = 2}}));

    vkf_rope_options turning = sized<vkf_rope_options>();
    turning.layout = VKF_ROPE_HALF;
    grouped.name = "normed";
    grouped.rope = &turning;
    grouped.qk_norm_eps = 1e-6f;
    grouped.fused_qkv = true;
    grouped.names[0] = "qkv";
    OK(vkf_grouped_query_attention(b.c(x), &grouped, &a));
    b.same("grouped_query_attention, fused and normed", a.y,
           grouped_query_attention(x, {.name = "normed",
                                       .heads = 4,
                                       .kv_heads = 2,
                                       .rope = Rope{.layout = RopeLayout::half},
                                       .mask = {.causal = Causal::top_left, .window = 2},
                                       .qk_norm_eps = 1e-6f,
                                       .fused_qkv = true,
                                       .names = {"qkv", "k_proj", "v_proj", "o_proj"}}));

    const Value one = b.input("one", random_tensor({2, 8}, 3)), context = b.input("context", random_tensor({2, 8}, 4));
    const Value old_keys = b.input("old keys", random_tensor({2, 1, 3, 4}, 5)),
                old_values = b.input("old values", random_tensor({2, 1, 3, 4}, 6));
    vkf_incremental_attention_options incremental = sized<vkf_incremental_attention_options>();
    incremental.name = "incremental";
    incremental.heads = 2;
    incremental.head_dim = 4;
    vkf_mask near = sized<vkf_mask>();
    near.causal = VKF_CAUSAL_BOTTOM_RIGHT;
    near.window = 2;
    incremental.mask = &near;
    OK(vkf_incremental_attention(b.c(one), b.c(context), b.c(old_keys), b.c(old_values), &incremental, &y, &z, &w));
    const IncrementalAttentionResult step = incremental_attention(
        one, context, old_keys, old_values,
        {.name = "incremental", .heads = 2, .head_dim = 4, .mask = {.causal = Causal::bottom_right, .window = 2}});
    b.same("incremental_attention", y, step.y);
    b.same("incremental_attention, keys", z, step.cache_key);
    b.same("incremental_attention, values", w, step.cache_value);

    OK(vkf_feed_forward(b.c(x), 12, VKF_GELU, "ffn", false, &y));
    b.same("feed_forward", y, feed_forward(x, 12, Activation::gelu, "ffn", false));
    for (const bool bias : {false, true}) {
        OK(vkf_gated_feed_forward(b.c(x), 12, VKF_SILU, bias ? "biased" : "gated", bias, &y));
        b.same(bias ? "gated_feed_forward with bias" : "gated_feed_forward", y,
               gated_feed_forward(x, 12, Activation::silu, bias ? "biased" : "gated", bias));
    }

    vkf_score_options additive = sized<vkf_score_options>();
    additive.name = "additive";
    additive.kind = VKF_SCORE_ADDITIVE;
    additive.hidden = 6;
    OK(vkf_attention_scores(b.c(x), b.c(memory), &additive, &y));
    b.same("attention_scores", y,
           attention_scores(x, memory, {.name = "additive", .kind = ScoreKind::additive, .hidden = 6}));

    const Value packed = b.input("packed", random_tensor({7, 2, 4}, 7));
    const Value ends = b.input("ends", Tensor({3}, {0, 3, 7}), DType::i32);
    OK(vkf_packed_attention(b.c(packed), b.c(packed), b.c(packed), b.c(ends), b.c(ends), nullptr, &a));
    b.same("packed_attention", a.y, packed_attention(packed, packed, packed, ends, ends).y);

    Graph& g = *b.graph;
    const Value table = b.input("table", Tensor({2, 2}, {2, 0, 1, -1}), DType::i32);
    const Value lengths = b.input("lengths", Tensor({2}, {3, 1}), DType::i32);
    const Value news = b.input("news", random_tensor({2, 1, 2, 4}, 8)),
                query = b.input("query", random_tensor({2, 2, 1, 4}, 9));
    vkf_paged_kv_cache pages = sized<vkf_paged_kv_cache>();
    pages.key = b.c(g.state("c keys", {3, 2, 2, 4}));
    pages.value = b.c(g.state("c values", {3, 2, 2, 4}));
    pages.table = b.c(table);
    pages.lengths = b.c(lengths);
    OK(vkf_append_pages(&pages, b.c(news), b.c(news), &pages));
    OK(vkf_paged_attention(b.c(query), &pages, nullptr, &a));
    const PagedKvCache cache{g.state("keys", {3, 2, 2, 4}), g.state("values", {3, 2, 2, 4}), table, lengths};
    b.same("paged_attention", a.y, paged_attention(query, append(cache, news, news)).y);

    // rows 4 and 5, then 0 to 2, of rings of 6, where the last two were written just now
    vkf_ring_rows seen = sized<vkf_ring_rows>(), written = sized<vkf_ring_rows>();
    seen.first = vkf_size(4);
    seen.before_end = vkf_size(2);
    seen.count = vkf_size(5);
    written.first = vkf_size(1);
    written.before_end = vkf_size(2);
    written.count = vkf_size(2);
    const RingRows seen_rows{4, 2, 5}, written_rows{1, 2, 2};
    const Value two = b.input("two", random_tensor({2, 2, 2, 4}, 8)),
                asks = b.input("asks", random_tensor({2, 4, 2, 4}, 9));
    vkf_kv_cache ring = sized<vkf_kv_cache>();
    vkf_cached_kv all = sized<vkf_cached_kv>();
    ring.key = b.c(g.state("c ring keys", {2, 6, 2, 4}));
    ring.value = b.c(g.state("c ring values", {2, 6, 2, 4}));
    ring.start = vkf_size(7);
    ring.written = &written;
    ring.seen = &seen;
    OK(vkf_append(&ring, b.c(two), b.c(two), &all));
    vkf_attention_options in_ring = sized<vkf_attention_options>();
    vkf_mask back = sized<vkf_mask>();
    back.causal = VKF_CAUSAL_BOTTOM_RIGHT;
    back.window = 4;
    in_ring.mask = &back;
    in_ring.ring = &seen;
    OK(vkf_scaled_dot_product_attention(b.c(asks), all.key, all.value, &in_ring, &a));
    const CachedKv rows = append({.key = g.state("ring keys", {2, 6, 2, 4}),
                                  .value = g.state("ring values", {2, 6, 2, 4}),
                                  .start = 7,
                                  .written = written_rows,
                                  .seen = seen_rows},
                                 two, two);
    b.same("attention in a ring", a.y,
           scaled_dot_product_attention(asks, rows.key, rows.value,
                                        {.mask = {.causal = Causal::bottom_right, .window = 4}, .ring = seen_rows})
               .y);

    vkf_attention_options padded = sized<vkf_attention_options>();
    const Value kept = b.input("kept", Tensor({2}, {2, 1}), DType::i32);
    padded.key_lengths = b.c(kept);
    OK(vkf_scaled_dot_product_attention(b.c(asks), b.c(two), b.c(two), &padded, &a));
    b.same("attention of padded sequences", a.y, scaled_dot_product_attention(asks, two, two, {.key_lengths = kept}).y);

    vkf_torch_attention_options torch_options = sized<vkf_torch_attention_options>();
    torch_options.name = "torch";
    torch_options.num_heads = 2;
    torch_options.batch_first = VKF_OFF;
    OK(vkf_torch_multihead_attention(b.c(x), b.c(x), b.c(x), &torch_options, &a));
    b.same("torch_multihead_attention", a.y,
           torch::multihead_attention(x, x, x, {.name = "torch", .num_heads = 2, .batch_first = false}));
    vkf_cached_kv projected = sized<vkf_cached_kv>();
    OK(vkf_torch_project_memory(b.c(memory), "torch", 2, true, &projected));
    const CachedKv same_projected = torch::project_memory(memory, "torch", 2);
    b.same("torch_project_memory, keys", projected.key, same_projected.key);
    b.same("torch_project_memory, values", projected.value, same_projected.value);
    torch_options.batch_first = VKF_ON;
    torch_options.memory = &projected;
    OK(vkf_torch_multihead_attention(b.c(x), vkf_no_value(), vkf_no_value(), &torch_options, &a));
    b.same("torch_multihead_attention, of a projected memory", a.y,
           torch::multihead_attention(x, {}, {}, {.name = "torch", .num_heads = 2, .memory = same_projected}));

    vkf_transformer_layer_options layer = sized<vkf_transformer_layer_options>();
    layer.nhead = 2;
    layer.dim_feedforward = 16;
    layer.bias = VKF_OFF;
    layer.norm_first = true;
    layer.dropout = 0.25f;
    layer.dropout_seed.constant = 3;
    const torch::TransformerLayerOptions same_layer{
        .nhead = 2, .dim_feedforward = 16, .norm_first = true, .bias = false, .dropout = 0.25f, .dropout_seed = 3};
    OK(vkf_transformer_encoder(b.c(x), &layer, 2, "encoder", vkf_no_value(), vkf_no_value(), &y));
    b.same("transformer_encoder", y, torch::transformer_encoder(x, same_layer, 2, "encoder"));
    vkf_decoder_inputs inputs[2] = {sized<vkf_decoder_inputs>(), sized<vkf_decoder_inputs>()};
    for (vkf_decoder_inputs& i : inputs) {
        i.memory = b.c(memory);
        i.tgt_is_causal = true;
    }
    OK(vkf_transformer_decoder(b.c(x), &layer, 2, inputs, "decoder", &y, &z));
    const std::vector<torch::DecoderInputs> same_inputs(2, {.memory = memory, .tgt_is_causal = true});
    const torch::DecoderResult decoded = torch::transformer_decoder(x, same_layer, same_inputs, "decoder");
    b.same("transformer_decoder", y, decoded.y);
    b.same("transformer_decoder, weights", z, decoded.cross_weights);
    vkf_transformer_options whole = sized<vkf_transformer_options>();
    whole.layer = &layer;
    whole.name = "whole";
    whole.num_encoder_layers = 1;
    whole.num_decoder_layers = 2;
    vkf_transformer_masks masks = sized<vkf_transformer_masks>();
    masks.tgt_is_causal = true;
    OK(vkf_transformer(b.c(memory), b.c(x), &whole, &masks, &y));
    b.same("transformer", y,
           torch::transformer(memory, x,
                              {.layer = same_layer, .name = "whole", .num_encoder_layers = 1, .num_decoder_layers = 2},
                              {.tgt_is_causal = true}));
    b.run();
}

TEST_CASE("c functions: training is that of C++") {
    Both b;
    vkf_value y{}, z{};
    const Value x = b.input("x", random_tensor({3, 4}, 1)), dy = b.input("dy", random_tensor({3, 4}, 2));
    OK(vkf_graph_begin_recompute(b.graph));
    OK(vkf_activate(b.c(x), VKF_SILU, &y));
    OK(vkf_graph_end_recompute(b.graph));
    CHECK(vkf_graph_end_recompute(b.graph) == VKF_ERROR);
    CHECK(contains(vkf_last_error(), "no block that is computed again is open"));
    CHECK(b.graph->recomputed().size() == 1);
    const vkf_value of[] = {b.c(x)};
    vkf_value found[1];
    OK(vkf_gradients(y, 1, of, b.c(dy), found));
    const Value gradient = gradients(silu(x), {x}, dy).front();
    b.same("gradients", found[0], gradient);

    OK(vkf_clip_grad_norm(1, found, 0.5f, vkf_no_value(), &y, &z));
    const ClippedNorm clipped = clip_grad_norm({gradient}, 0.5f);
    b.same("clip_grad_norm, norm", y, clipped.norm);
    b.same("clip_grad_norm, scale", z, clipped.scale);

    // one parameter each: the language's own optimizer writes it
    b.graph->weight("of C.weight", {3, 4});
    b.graph->weight("of C++.weight", {3, 4});
    vkf_value parameters[2];
    std::uint32_t needed = 0;
    const char* pattern = "of C*.weight";
    OK(vkf_trainable(b.graph, 1, &pattern, 1, parameters, &needed));
    CHECK(needed == 2);
    OK(vkf_trainable(b.graph, 1, &pattern, 2, parameters, &needed));
    const char* absent = "absent*";
    CHECK(vkf_trainable(b.graph, 1, &absent, 2, parameters, &needed) == VKF_ERROR);
    CHECK(contains(vkf_last_error(), "no weight of the graph fits \"absent*\""));
    const Value other(*b.graph, parameters[1].id);

    vkf_update_options options = sized<vkf_update_options>();
    options.step = vkf_size(3);
    options.schedule.kind = VKF_SCHEDULE_COSINE;
    options.schedule.warmup = 8;
    options.schedule.steps = 10;
    options.gradient_scale = z;
    UpdateOptions same{.step = 3,
                       .schedule = {.kind = Schedule::Kind::cosine, .warmup = 8, .steps = 10},
                       .gradient_scale = clipped.scale};
    double factor = 0;
    OK(vkf_schedule_at(&options.schedule, 3, &factor));
    CHECK(factor == same.schedule.at(3));
    vkf_adamw adamw = sized<vkf_adamw>();
    adamw.amsgrad = true;
    adamw.has_betas = true;
    adamw.beta1 = 0.5;
    adamw.beta2 = 0.75;
    adamw.decoupled = VKF_OFF;
    OK(vkf_update_adamw(1, parameters, found, &adamw, &options));
    update({other}, {gradient}, AdamW{.beta1 = 0.5, .beta2 = 0.75, .decoupled = false, .amsgrad = true}, same);
    b.same("update, Adam", parameters[0], other);
    b.run();
}

TEST_CASE("c functions: SGD is that of C++") {
    Both b;
    const Value gradient = b.input("gradient", random_tensor({5}, 1));
    b.graph->weight("of C", {5});
    b.graph->weight("of C++", {5});
    vkf_value parameters[2];
    std::uint32_t needed = 0;
    OK(vkf_trainable(b.graph, 0, nullptr, 2, parameters, &needed));
    const Value other(*b.graph, parameters[1].id);
    vkf_sgd sgd = sized<vkf_sgd>();
    sgd.learning_rate = 0.5;
    sgd.momentum = 0.25;
    sgd.nesterov = true;
    const vkf_value found = b.c(gradient);
    OK(vkf_update_sgd(1, parameters, &found, &sgd, nullptr));
    update({other}, {gradient}, Sgd{.learning_rate = 0.5, .momentum = 0.25, .nesterov = true});
    b.same("update, SGD", parameters[0], other);
    b.run();
}

TEST_SUITE_END();
