// SPDX-License-Identifier: Apache-2.0
// The functions of C are called beside those of C++ that they stand for: the same graph, the same
// weights, the same bits.
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>

#include "c/border.h"
#include "layers/sequences.h"
#include "layers/torch.h"
#include "models/decoder.h"
#include "models/files/safetensors.h"
#include "models/sampler.h"
#include "models/text_encoder.h"
#include "ops/tuning.h"
#include "runtime/graph/packed.h"
#include "tests/dates_config.h"
#include "tests/device.h"
#include "tests/fixtures.h"
#include "tests/op_check.h"

using namespace vkf;
using namespace vkf::test;

namespace {

#define OK(call)                                             \
    do {                                                     \
        const vkf_result result = (call);                    \
        REQUIRE_MESSAGE(result == VKF_OK, vkf_last_error()); \
    } while (false)

template <class T>
T sized() {
    T out{};
    out.struct_size = sizeof(T);
    return out;
}

Weights random_weights(const Graph& graph) {
    std::vector<HostTensor> tensors;
    std::vector<std::vector<float>> numbers;
    for (const StorageInfo& info : graph.storages()) {
        if (info.kind == StorageKind::weight) {
            std::vector<std::int64_t> shape;
            for (const Dim& d : info.shape) {
                shape.push_back(d.constant());
            }
            numbers.push_back(random_tensor(shape, static_cast<std::uint32_t>(numbers.size()), 0.3).floats());
            tensors.push_back({info.name, DType::f32, shape, {}});
        }
    }
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        tensors[i].data = std::as_bytes(std::span(numbers[i]));
    }
    return device().load(tensors);
}

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
        Program program = device().compile(*graph, random_weights(*graph));
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

struct DeviceOfC {
    DeviceOfC() { OK(vkf_device_create(nullptr, &device)); }
    ~DeviceOfC() { vkf_device_destroy(device); }
    DeviceOfC(const DeviceOfC&) = delete;
    DeviceOfC& operator=(const DeviceOfC&) = delete;
    vkf_device* device = nullptr;
};

std::string source(const char* path) { return std::string(VKFORMER_SOURCE_DIR) + "/" + path; }

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

    OK(vkf_dropout(b.c(rows), 0.5f, 7, &y));
    b.same("dropout", y, dropout(rows, 0.5f, 7));

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

    const Value one = b.input("one", random_tensor({2, 8}, 3)), context = b.input("context", random_tensor({2, 8}, 4));
    const Value old_keys = b.input("old keys", random_tensor({2, 1, 3, 4}, 5)),
                old_values = b.input("old values", random_tensor({2, 1, 3, 4}, 6));
    vkf_incremental_attention_options incremental = sized<vkf_incremental_attention_options>();
    incremental.name = "incremental";
    incremental.heads = 2;
    incremental.head_dim = 4;
    OK(vkf_incremental_attention(b.c(one), b.c(context), b.c(old_keys), b.c(old_values), &incremental, &y, &z, &w));
    const IncrementalAttentionResult step =
        incremental_attention(one, context, old_keys, old_values, {.name = "incremental", .heads = 2, .head_dim = 4});
    b.same("incremental_attention", y, step.y);
    b.same("incremental_attention, keys", z, step.cache_key);
    b.same("incremental_attention, values", w, step.cache_value);

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

    vkf_torch_attention_options torch_options = sized<vkf_torch_attention_options>();
    torch_options.name = "torch";
    torch_options.num_heads = 2;
    torch_options.batch_first = VKF_OFF;
    OK(vkf_torch_multihead_attention(b.c(x), b.c(x), b.c(x), &torch_options, &a));
    b.same("torch_multihead_attention", a.y,
           torch::multihead_attention(x, x, x, {.name = "torch", .num_heads = 2, .batch_first = false}));

    vkf_transformer_layer_options layer = sized<vkf_transformer_layer_options>();
    layer.nhead = 2;
    layer.dim_feedforward = 16;
    layer.bias = VKF_OFF;
    layer.norm_first = true;
    const torch::TransformerLayerOptions same_layer{
        .nhead = 2, .dim_feedforward = 16, .norm_first = true, .bias = false};
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

TEST_CASE("c functions: inputs, outputs and states of 16 bits") {
    const DeviceOfC on;
    vkf_graph* graph = nullptr;
    OK(vkf_graph_create(&graph));
    const vkf_dim shape[] = {vkf_size(3)};
    vkf_value x{}, kept{}, written{}, wide{}, y{};
    OK(vkf_graph_input(graph, "x", VKF_F16, 1, shape, &x));
    OK(vkf_graph_state(graph, "kept", VKF_F16, 1, shape, &kept));
    OK(vkf_copy_into(kept, x, &written));
    OK(vkf_to(written, VKF_F32, &wide));
    OK(vkf_to(wide, VKF_BF16, &y));
    OK(vkf_graph_output("y", y));
    char text[64];
    OK(vkf_value_text(y, text, sizeof(text), nullptr));
    CHECK(contains(text, "y (3) BF16"));
    vkf_state* state = nullptr;
    const vkf_graph* graphs[] = {graph};
    OK(vkf_state_create(on.device, 1, graphs, &state));
    vkf_compile_options options = sized<vkf_compile_options>();
    options.state = state;
    vkf_program* program = nullptr;
    OK(vkf_compile(on.device, graph, nullptr, &options, &program));
    const std::vector<std::uint16_t> halves{0x3c00, 0xc000, 0x7c00};  // 1, -2, infinity
    OK(vkf_program_upload_bits(program, "x", halves.data(), halves.size()));
    OK(vkf_program_run(program));
    std::vector<std::uint16_t> bits(3);
    std::uint64_t count = 0;
    OK(vkf_program_download_bits(program, "y", bits.data(), bits.size(), &count));
    CHECK(count == 3);
    CHECK(bits == std::vector<std::uint16_t>{0x3f80, 0xc000, 0x7f80});
    const vkf_state_part all{"kept", 0, -1};
    OK(vkf_state_read(state, &all, bits.data(), bits.size() * 2, &count));
    CHECK(count == 6);
    CHECK(bits == halves);
    const std::vector<float> numbers{0.5f, 3, -1};
    OK(vkf_program_upload(program, "x", numbers.data(), numbers.size()));
    OK(vkf_program_run(program));
    std::vector<float> back(3);
    OK(vkf_program_download(program, "y", back.data(), back.size(), &count));
    CHECK(back == numbers);
    CHECK(vkf_program_download_bits(program, "y", bits.data(), 2, &count) == VKF_ERROR);
    CHECK(contains(vkf_last_error(), "has 3 elements; there is room for 2"));
    CHECK(vkf_program_upload_bits(program, "x", halves.data(), 2) == VKF_ERROR);
    CHECK(contains(vkf_last_error(), "2 elements of 16 bits were given"));
    vkf_program_destroy(program);
    vkf_state_destroy(state);
    vkf_graph_destroy(graph);
}

TEST_CASE("c functions: a program compiled before its weights are there") {
    const DeviceOfC on;
    vkf_graph* graph = nullptr;
    OK(vkf_graph_create(&graph));
    graph->output("y", linear(graph->input("x", {2, 16}), graph->weight("w", {24, 16})));
    const std::int64_t shape[] = {24, 16};
    const std::vector<float> numbers = random_tensor({24, 16}, 3).floats();
    vkf_tensor tensor{};
    tensor.name = "w";
    tensor.shape = shape;
    tensor.rank = 2;
    tensor.dtype = VKF_F32;
    vkf_load_options load = sized<vkf_load_options>();
    load.matrices = VKF_WEIGHT_INT8;
    vkf_weight_layout* layout = nullptr;
    OK(vkf_weight_layout_create(on.device, 1, &tensor, &load, &layout));
    vkf_program* program = nullptr;
    OK(vkf_compile_layout(on.device, graph, layout, nullptr, &program));
    CHECK(vkf_program_allocate(program, nullptr) == VKF_ERROR);
    CHECK(contains(vkf_last_error(), "has no weights yet; it names 1, w among them"));
    tensor.data = numbers.data();
    tensor.bytes = numbers.size() * sizeof(float);
    vkf_weights* weights = nullptr;
    OK(vkf_weights_load(on.device, 1, &tensor, nullptr, &weights));
    CHECK(vkf_program_set_weights(program, weights) == VKF_ERROR);
    CHECK(contains(vkf_last_error(), "kept as f32, the program was compiled for (24, 16) F32 kept as int8"));
    vkf_weights_destroy(weights);
    OK(vkf_weights_load(on.device, 1, &tensor, &load, &weights));
    std::uint64_t planned = 0, held = 0;
    OK(vkf_weight_layout_bytes(layout, &planned));
    OK(vkf_weights_bytes(weights, &held));
    CHECK(planned == held);
    vkf_weight_layout_destroy(layout);
    OK(vkf_program_set_weights(program, weights));
    vkf_program* same = nullptr;
    OK(vkf_compile(on.device, graph, weights, nullptr, &same));
    const std::vector<float> x = random_tensor({2, 16}, 4).floats();
    std::vector<float> y(48), want(48);
    for (const auto& [p, out] : {std::pair(program, &y), std::pair(same, &want)}) {
        OK(vkf_program_upload(p, "x", x.data(), x.size()));
        OK(vkf_program_run(p));
        OK(vkf_program_download(p, "y", out->data(), out->size(), nullptr));
        vkf_program_destroy(p);
    }
    CHECK(y == want);
    vkf_weights_destroy(weights);
    vkf_graph_destroy(graph);

    const std::string file = source("samples/dates") + "/model.safetensors";
    OK(vkf_weights_load_file(on.device, file.c_str(), &load, &weights));
    OK(vkf_weight_layout_create_file(on.device, file.c_str(), &load, &layout));
    OK(vkf_weight_layout_bytes(layout, &planned));
    OK(vkf_weights_bytes(weights, &held));
    CHECK(planned == held);
    vkf_weight_layout_destroy(layout);
    vkf_weights_destroy(weights);
}

TEST_CASE("c functions: tickets, states in files, safetensors") {
    const DeviceOfC on;
    vkf_graph* graph = nullptr;
    OK(vkf_graph_create(&graph));
    const vkf_dim shape[] = {vkf_size(2), vkf_size(3)};
    vkf_value x{}, kept{}, written{};
    OK(vkf_graph_input(graph, "x", VKF_F32, 2, shape, &x));
    OK(vkf_graph_state(graph, "kept", VKF_F32, 2, shape, &kept));
    OK(vkf_copy_into(kept, x, &written));
    vkf_state* state = nullptr;
    const vkf_graph* graphs[] = {graph};
    OK(vkf_state_create(on.device, 1, graphs, &state));
    vkf_compile_options options = sized<vkf_compile_options>();
    options.state = state;
    vkf_program* program = nullptr;
    OK(vkf_compile(on.device, graph, nullptr, &options, &program));
    const std::vector<float> numbers{1, 2, 3, 4, 5, 6};
    OK(vkf_program_upload(program, "x", numbers.data(), numbers.size()));
    vkf_ticket* ticket = nullptr;
    OK(vkf_program_submit(program, &ticket));
    bool done = false;
    OK(vkf_ticket_wait(ticket, ~std::uint64_t{0}, &done));
    CHECK(done);
    VkSemaphore semaphore{};
    std::uint64_t value = 0;
    OK(vkf_ticket_semaphore(ticket, &semaphore, &value));
    CHECK(value == 1);
    vkf_ticket_destroy(ticket);

    const auto read = [&](std::int64_t length) {
        const vkf_state_part part{"kept", 0, length};
        std::vector<float> out(6);
        std::uint64_t bytes = 0;
        OK(vkf_state_read(state, &part, out.data(), out.size() * sizeof(float), &bytes));
        out.resize(bytes / sizeof(float));
        return out;
    };
    CHECK(read(-1) == numbers);
    CHECK(read(1) == std::vector<float>{1, 2, 3});
    const TemporaryFolder folder;
    const std::string path = (folder.path() / "state.safetensors").string();
    OK(vkf_state_save(state, path.c_str(), 0, nullptr));
    const vkf_state_part first{"kept", 0, 1};
    const std::vector<float> others{7, 8, 9};
    OK(vkf_state_write(state, &first, others.data(), others.size() * sizeof(float)));
    CHECK(read(-1) == std::vector<float>{7, 8, 9, 4, 5, 6});
    OK(vkf_state_restore(state, path.c_str()));
    CHECK(read(-1) == numbers);
    CHECK(vkf_state_restore(state, "nowhere.safetensors") == VKF_ERROR);
    CHECK(contains(vkf_last_error(), "nowhere.safetensors"));

    const std::string tensors = (folder.path() / "tensors.safetensors").string();
    const std::int64_t sizes[] = {2, 3};
    const vkf_tensor tensor{"t", numbers.data(), numbers.size() * sizeof(float), sizes, 2, VKF_F32};
    OK(vkf_save_safetensors(tensors.c_str(), 1, &tensor));
    const Safetensors file(tensors);
    CHECK(file.at("t").shape == std::vector<std::int64_t>{2, 3});
    vkf_program_destroy(program);
    vkf_state_destroy(state);
    vkf_graph_destroy(graph);
}

TEST_CASE("c functions: a compiler of the host's") {
    const auto refuses = [](void* user, const char*, const char* name, vkf_module* module) {
        *static_cast<std::string*>(user) = name;
        vkf_module_error(module, "no such thing today");
    };
    std::string asked;
    OK(vkf_use_glsl_compiler(refuses, &asked));
    std::uint64_t count = 0;
    CHECK(vkf_compile_glsl("void main() {}", "mine", nullptr, 0, &count) == VKF_ERROR);
    CHECK(contains(vkf_last_error(), "no such thing today"));
    CHECK(asked == "mine");
    const auto gives = [](void*, const char*, const char*, vkf_module* module) {
        const std::uint32_t words[] = {1, 2, 3};
        vkf_module_words(module, words, 3);
    };
    OK(vkf_use_glsl_compiler(gives, nullptr));
    std::uint32_t words[4] = {};
    OK(vkf_compile_glsl("void main() {}", "mine", words, 4, &count));
    CHECK(count == 3);
    CHECK(words[2] == 3);
    OK(vkf_use_glsl_compiler(nullptr, nullptr));
}

TEST_CASE("c functions: what was tuned") {
    const DeviceOfC on;
    const char* name = nullptr;
    const char* what = nullptr;
    for (std::uint32_t i = 0; i < tunables().size(); ++i) {
        OK(vkf_tunable(i, &name, &what));
        CHECK(name == tunables()[i].name);
        CHECK(what == tunables()[i].what);
        std::vector<std::uint32_t> values(64);
        std::uint64_t count = 0;
        OK(vkf_tunable_values(on.device, i, values.data(), values.size(), &count));
        values.resize(count);
        CHECK(values == tunables()[i].values(device().capabilities()));
    }
    CHECK(vkf_tunable(1000, &name, &what) == VKF_ERROR);
}

TEST_CASE("c functions: decoders and samplers") {
    const DeviceOfC on;
    const std::string folder = source("samples/generate");
    vkf_decoder_options options = sized<vkf_decoder_options>();
    options.max_tokens = 64;
    options.chunk = 16;
    options.candidates = 4;
    options.score = true;
    vkf_decoder* decoder = nullptr;
    OK(vkf_decoder_create(on.device, folder.c_str(), nullptr, &options, &decoder));
    const Checkpoint checkpoint{folder};
    const DecoderPlan plan(device(), checkpoint, read_decoder(checkpoint),
                           {.max_tokens = 64, .chunk = 16, .candidates = 4, .score = true});
    Decoder same(device(), load_decoder(device(), checkpoint, plan), plan);

    vkf_decoder_facts facts = sized<vkf_decoder_facts>();
    OK(vkf_decoder_get(decoder, &facts));
    CHECK(facts.vocab_size == plan.model().facts().vocab_size);
    CHECK(facts.max_positions == plan.model().facts().max_positions);
    std::vector<std::int32_t> ends(8);
    std::uint64_t count = 0;
    OK(vkf_decoder_end_tokens(decoder, ends.data(), ends.size(), &count));
    ends.resize(count);
    CHECK(ends == plan.model().facts().end);

    const std::vector<std::int32_t> prompt{1, 5, 9, 3};
    const vkf_tokens tokens{prompt.data(), prompt.size()};
    OK(vkf_decoder_prompt(decoder, 1, &tokens));
    same.prompt(prompt);
    vkf_sampler_options choice = sized<vkf_sampler_options>();
    choice.temperature = 1.0f;
    choice.top_k = 4;
    choice.seed = 5;
    vkf_sampler* sampler = nullptr;
    OK(vkf_sampler_create(&choice, &sampler));
    Sampler same_sampler({.temperature = 1.0f, .top_k = 4, .seed = 5});
    for (int i = 0; i < 6; ++i) {
        std::int32_t next = -1, chosen = -1;
        OK(vkf_decoder_next(decoder, &next, 1, nullptr));
        CHECK(next == same.next()[0]);
        std::int32_t ids[4];
        float logits[4];
        OK(vkf_decoder_candidates(decoder, 0, ids, logits, 4, &count));
        const Candidates best = same.candidates(0);
        CHECK(std::equal(best.tokens.begin(), best.tokens.end(), ids, ids + count));
        CHECK(std::equal(best.logits.begin(), best.logits.end(), logits, logits + count));
        OK(vkf_sampler_choose(sampler, decoder, 0, &chosen));
        const std::int32_t want = same_sampler.choose(best);
        CHECK(chosen == want);
        const vkf_tokens step{&chosen, 1};
        OK(vkf_decoder_step(decoder, &step));
        same.step(std::span(&want, 1));
    }
    std::int64_t room = -1;
    OK(vkf_decoder_room(decoder, &room));
    CHECK(room == same.room());
    const std::vector<float> want = same.score(prompt);
    std::vector<float> logits(want.size());
    OK(vkf_decoder_score(decoder, &tokens, logits.data(), logits.size(), &count));
    CHECK(logits == want);
    vkf_sampler_destroy(sampler);
    vkf_decoder_destroy(decoder);

    const TemporaryFolder parent;
    const std::string saved = (parent.path() / "saved").string();
    OK(vkf_decoder_save(folder.c_str(), saved.c_str(), VKF_WEIGHT_INT8));
    OK(vkf_decoder_create(on.device, saved.c_str(), nullptr, nullptr, &decoder));
    vkf_decoder_destroy(decoder);
    CHECK(vkf_decoder_create(on.device, "nowhere", nullptr, nullptr, &decoder) == VKF_ERROR);
    CHECK(decoder == nullptr);
    CHECK(contains(vkf_last_error(), "nowhere"));
}

TEST_CASE("c functions: texts as vectors, and the encoder-decoder") {
    const DeviceOfC on;
    const std::string folder = source("tests/text/bert");
    vkf_text_encoder* encoder = nullptr;
    OK(vkf_text_encoder_create(on.device, folder.c_str(), nullptr, nullptr, &encoder));
    const Checkpoint checkpoint{folder};
    const TextEncoderModel model = read_text_encoder(checkpoint);
    TextEncoder same(device(), load_text_encoder(device(), checkpoint, model), model);
    const std::vector<std::vector<std::int32_t>> texts{{2, 7, 9, 3}, {2, 5, 3}};
    const vkf_tokens ids[] = {{texts[0].data(), texts[0].size()}, {texts[1].data(), texts[1].size()}};
    std::vector<float> want;
    for (const std::vector<float>& v : same.embed(texts)) {
        want.insert(want.end(), v.begin(), v.end());
    }
    std::vector<float> vectors(want.size());
    std::uint64_t count = 0;
    OK(vkf_text_encoder_embed(encoder, 2, ids, vectors.data(), vectors.size(), &count));
    CHECK(count == want.size());
    CHECK(vectors == want);
    vkf_text_encoder_destroy(encoder);

    const std::string file = source("samples/dates/model.safetensors");
    vkf_weights* weights = nullptr;
    OK(vkf_weights_load_file(on.device, file.c_str(), nullptr, &weights));
    vkf_encoder_decoder_config c = sized<vkf_encoder_decoder_config>();
    c.source_vocabulary = c.target_vocabulary = 62;
    c.d_model = 64;
    c.nhead = 4;
    c.num_encoder_layers = c.num_decoder_layers = 2;
    c.dim_feedforward = 256;
    c.embedding_scale = 8;
    c.max_source = 40;
    c.max_target = 12;
    vkf_encoder_decoder* dates = nullptr;
    OK(vkf_encoder_decoder_create(on.device, weights, &c, 2, &dates));
    EncoderDecoder same_dates(device(), device().load(Safetensors(file)), dates_config(), 2);
    const std::vector<std::vector<std::int32_t>> sources{{4, 5, 6, 7, 8}, {9, 10, 11}};
    const vkf_tokens source_ids[] = {{sources[0].data(), sources[0].size()}, {sources[1].data(), sources[1].size()}};
    OK(vkf_encoder_decoder_generate(dates, 2, source_ids, 1, 2, 0));
    const std::vector<Decoded> found = same_dates.generate(sources, 1, 2, 0);
    for (std::size_t i = 0; i < found.size(); ++i) {
        std::vector<std::int32_t> tokens(16);
        OK(vkf_encoder_decoder_tokens(dates, i, tokens.data(), tokens.size(), &count));
        tokens.resize(count);
        CHECK(tokens == found[i].tokens);
        std::vector<float> looked(found[i].cross_attention.size());
        OK(vkf_encoder_decoder_cross_attention(dates, i, looked.data(), looked.size(), &count));
        CHECK(looked == found[i].cross_attention);
    }
    CHECK(vkf_encoder_decoder_tokens(dates, 2, nullptr, 0, &count) == VKF_ERROR);
    vkf_encoder_decoder_destroy(dates);
    vkf_weights_destroy(weights);
}

TEST_SUITE_END();
