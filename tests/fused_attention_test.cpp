// SPDX-License-Identifier: Apache-2.0
// scaled_dot_product_attention() itself, by each of its kernels that the device can run: split
// keys, odd widths, skipped tiles.
#include <doctest/doctest.h>

#include <cmath>

#include "ops/lanes.h"
#include "runtime/device/device.h"
#include "runtime/device/device_core.h"
#include "runtime/device/insides.h"
#include "tests/attention_check.h"
#include "tests/believed.h"
#include "tests/device.h"

using namespace vkf;
using namespace vkf::test;

namespace {

using Options = reference::AttentionOptions;

/// While it lives, the device computes attention with this kernel.
class Forced {
public:
    explicit Forced(const std::string& variant) : capabilities_(Insides::core(device()).capabilities) {
        Insides::core(device()).capabilities.variants = variant;
    }
    ~Forced() { Insides::core(device()).capabilities = capabilities_; }
    Forced(const Forced&) = delete;
    Forced& operator=(const Forced&) = delete;

private:
    Capabilities capabilities_;
};

std::vector<std::string> kernels() {
    const Capabilities& c = Insides::core(device()).capabilities;
    if (c.storage_buffers < 12) {
        cannot_run("12 storage buffers");
        return {};
    }
    std::vector<std::string> out{"attention_shared", "attention_rows"};
    if (hands_round(c) && (c.exact_subgroup_size == 4 || c.exact_subgroup_size == 8)) {
        out.push_back("attention_lanes");
    }
    if (c.cooperative_matrix) {
        out.push_back("attention_coopmat");
    } else {
        cannot_run("cooperative matrices");
    }
    return out;
}

/// Says how y and the log-sum-exp differ from the twin's; empty: they do not. The number of queries
/// is a symbol with this maximum; a greater one than there are queries makes room that is not used.
std::string mismatch(const Qkv& given, const Options& o, std::int64_t most_queries, bool lse = true) {
    OpCheck check;
    check.arithmetic = attention_arithmetic();
    const bool f16 = check.arithmetic == Arithmetic::f16;
    const Qkv x = f16 ? as_f16(given) : given;
    const Dim queries = check.graph.symbol("queries", most_queries);
    const Dim keys = check.graph.symbol("keys", x.key.size(2));
    check.set("queries", x.query.size(2));
    check.set("keys", x.key.size(2));
    const auto optional = [&](const char* name, const std::optional<Tensor>& t, DType dtype = DType::f32) {
        return t ? check.input(name, *t, dtype) : Value();
    };
    AttentionOptions options;
    options.scale =
        static_cast<float>(o.scores.scale != 0 ? o.scores.scale : 1 / std::sqrt(static_cast<double>(x.query.size(3))));
    options.softcap = static_cast<float>(o.scores.softcap);
    options.mask.causal = o.scores.causal;
    options.mask.window = o.scores.window;
    options.mask.fill = static_cast<float>(o.scores.fill);
    options.mask.alibi_slopes = optional("slopes", o.scores.alibi_slopes);
    options.sinks = optional("sinks", o.scores.sinks);
    if (o.scores.keys) {
        options.mask.keys = check.input("mask", *o.scores.keys, {o.scores.keys->size(0), 1, 1, keys}, DType::i32);
    }
    options.dropout = static_cast<float>(o.dropout);
    options.dropout_seed = o.dropout_seed;
    options.log_sum_exp = lse;
    const Value q = check.input("q", x.query, {x.query.size(0), x.query.size(1), queries, x.query.size(3)});
    const Value k = check.input("k", x.key, {x.key.size(0), x.key.size(1), keys, x.key.size(3)});
    const Value v = check.input("v", x.value, {x.value.size(0), x.value.size(1), keys, x.value.size(3)});
    const AttentionResult fused = scaled_dot_product_attention(q, k, v, options);
    const reference::Attention want = reference::attention(x.query, x.key, x.value, o);
    const Tolerance tolerance{2e-5, 1e-4, {}};
    std::string found = difference(check.run(fused.y), want.y, f16 ? f16_tolerance(x, o, tolerance) : tolerance);
    found = found.empty() ? found : "y: " + found;
    if (lse && found.empty()) {
        found = difference(check.run(fused.log_sum_exp), want.log_sum_exp, tolerance);
        found = found.empty() ? found : "log-sum-exp: " + found;
    }
    return found;
}

Tensor mask_of(std::int64_t batch, std::int64_t keys, std::int64_t from, std::int64_t to) {
    Tensor mask({batch, 1, 1, keys});
    for (std::int64_t b = 0; b < batch; ++b) {
        for (std::int64_t key = from; key < to; ++key) {
            mask.at({b, 0, 0, key}) = 1;
        }
    }
    return mask;
}

}  // namespace

TEST_SUITE_BEGIN("attention");

TEST_CASE("fused attention: few queries against many keys, which are split") {
    for (const std::string& kernel : kernels()) {
        CAPTURE(kernel);
        const Forced forced(kernel);
        for (const std::int64_t queries : {1, 8, 9}) {  // 9 are not split
            CAPTURE(queries);
            const Qkv x = random_qkv({2, 4, 2, queries, 3000, 20, 12}, 1, 2);
            Options o;
            CHECK(mismatch(x, o, 16) == "");
            o.scores.causal = Causal::bottom_right;
            o.scores.sinks = Tensor({4}, {0.5, -1, 3, 0});
            o.scores.alibi_slopes = Tensor({4}, {0.01, 0.002, 0.0, 0.5});
            CHECK(mismatch(x, o, queries) == "");
            o.dropout = 0.25;
            o.dropout_seed = 7;
            o.scores.softcap = 3;
            CHECK(mismatch(x, o, 16) == "");
        }
    }
}

TEST_CASE("fused attention: splits that see nothing have no part") {
    for (const std::string& kernel : kernels()) {
        CAPTURE(kernel);
        const Forced forced(kernel);
        const Qkv x = random_qkv({1, 2, 1, 2, 3000, 8, 8}, 2, 3);
        Options o;
        o.scores.causal = Causal::bottom_right;
        o.scores.window = 40;
        CHECK(mismatch(x, o, 2) == "");
        o = {};
        o.scores.keys = mask_of(1, 3000, 2100, 2103);
        CHECK(mismatch(x, o, 2) == "");
        o.scores.fill = -1e20;
        CHECK(mismatch(x, o, 2) == "");
        o.scores.keys = mask_of(1, 3000, 0, 0);
        CHECK(mismatch(x, o, 2) == "");
        o.scores.fill = -std::numeric_limits<double>::infinity();
        CHECK(mismatch(x, o, 2) == "");
        o.scores.sinks = Tensor({2}, {1.0, -2.0});
        CHECK(mismatch(x, o, 2) == "");
    }
}

TEST_CASE("fused attention: a NaN that is seen is not lost beside other splits, nor one among the sinks") {
    for (const std::string& kernel : kernels()) {
        CAPTURE(kernel);
        const Forced forced(kernel);
        Qkv x = random_qkv({1, 2, 1, 1, 3000, 8, 8}, 2, 3);
        Options o;
        o.scores.sinks = Tensor({2}, {std::numeric_limits<double>::quiet_NaN(), 0.5});
        CHECK(mismatch(x, o, 1) == "");
        x.key.at({0, 0, 5, 3}) = std::numeric_limits<double>::quiet_NaN();
        o.scores.sinks.reset();
        o.scores.keys = mask_of(1, 3000, 5, 6);
        CHECK(mismatch(x, o, 1) == "");
        o.scores.keys->at({0, 0, 0, 2500}) = 1;
        CHECK(mismatch(x, o, 1) == "");
    }
}

TEST_CASE("fused attention: more scores than a tensor can have are still attended to") {
    Graph g;
    const Dim tokens = g.symbol("tokens", 16384);
    const Value q = g.input("q", {1, 32, tokens, 8});
    const Value kv = g.input("kv", {1, 8, tokens, 8});
    const AttentionResult a = scaled_dot_product_attention(q, kv, kv);
    CHECK_FALSE(a.weights);
    CHECK(a.y.shape() == q.shape());
}

TEST_CASE("fused attention: widths of heads, odd ones and wide ones") {
    for (const std::string& kernel : kernels()) {
        CAPTURE(kernel);
        const Forced forced(kernel);
        for (const auto& widths : {std::pair<std::int64_t, std::int64_t>{5, 1}, {100, 100}, {130, 3}, {576, 512}}) {
            CAPTURE(widths.first);
            CAPTURE(widths.second);
            const Qkv x = random_qkv({1, 3, 1, 7, 37, widths.first, widths.second}, 3);
            CHECK(mismatch(x, {}, 7) == "");
        }
    }
}

TEST_CASE("fused attention: few rows, for every number of them that a group takes") {
    if (kernels().empty()) {
        return;
    }
    const Forced forced("attention_rows");
    const AttentionSizes sizes[] = {{1, 3, 3, 1, 300, 64, 64},  {2, 4, 1, 1, 33, 128, 128}, {1, 7, 1, 1, 70, 80, 96},
                                    {1, 8, 1, 1, 290, 256, 20}, {1, 2, 1, 2, 65, 20, 132},  {1, 4, 2, 4, 40, 4, 4},
                                    {1, 1, 1, 8, 31, 100, 260}, {1, 16, 2, 2, 40, 16, 16}};
    for (const AttentionSizes& s : sizes) {
        CAPTURE(s.heads);
        CAPTURE(s.head_dim);
        const Qkv x = random_qkv(s, 6);
        CHECK(mismatch(x, {}, s.queries) == "");
        CHECK(mismatch(x, {}, s.queries + 1) == "");  // one kernel for one query, another for more
        Options o;
        o.scores.causal = Causal::bottom_right;
        o.scores.window = 30;
        o.scores.softcap = 4;
        o.scores.keys = mask_of(s.batch, s.keys, 0, s.keys - 3);
        CHECK(mismatch(x, o, s.queries) == "");
    }
}

TEST_CASE("fused attention: who takes the kernel for few rows, and who does not, which explain() says") {
    if (kernels().empty()) {
        return;
    }
    const auto said = [](const AttentionSizes& s) {
        Graph g;
        const Value q = g.input("q", {s.batch, s.heads, s.queries, s.head_dim});
        const Value k = g.input("k", {s.batch, s.kv_heads, s.keys, s.head_dim});
        const Value v = g.input("v", {s.batch, s.kv_heads, s.keys, s.value_dim});
        g.output("y", contiguous(scaled_dot_product_attention(q, k, v).y));
        return device().compile(g, {}).explain();
    };
    const Believed gpu(as_gpu);
    CHECK(contains(said({1, 4, 1, 1, 40, 64, 64}), "few rows, keys and values in registers: 4 rows by 32 keys"));
    CHECK(contains(said({1, 4, 1, 2, 40, 64, 64}), "registers: 8 rows by 32 keys"));
    CHECK_FALSE(contains(said({1, 4, 1, 2, 40, 64, 64}), "attention_shared"));
    CHECK(contains(said({1, 4, 1, 3, 40, 64, 64}), "few rows too: there are more than 8 of them"));
    CHECK(contains(said({1, 16, 1, 1, 40, 64, 64}), "few rows too: more than 8 query heads share keys"));
    CHECK(contains(said({1, 4, 1, 1, 40, 300, 64}), "few rows too: heads are wider than 256"));
    CHECK(contains(said({1, 4, 1, 1, 40, 30, 64}), "few rows too: they do not go by fours"));
    const Believed shared([](Capabilities& c) { c.variants = "attention_shared"; });
    CHECK(contains(said({1, 4, 1, 1, 40, 64, 64}), "few rows too: VKFORMER_VARIANT asks for attention_shared"));
}

TEST_CASE("fused attention: few rows give the same bits in every run") {
    if (kernels().empty()) {
        return;
    }
    const Forced forced("attention_rows");
    const Qkv x = random_qkv({1, 4, 1, 1, 700, 64, 64}, 7);
    OpCheck check;
    const Value y =
        scaled_dot_product_attention(check.input("q", x.query), check.input("k", x.key), check.input("v", x.value)).y;
    const Tensor first = check.run(y);
    for (int i = 0; i < 10; ++i) {
        CHECK(same_bits(check.run(y), first));
    }
}

TEST_CASE("fused attention: fewer keys than a vector has, and none") {
    for (const std::string& kernel : kernels()) {
        CAPTURE(kernel);
        const Forced forced(kernel);
        for (const std::int64_t keys : {1, 3, 5}) {
            CAPTURE(keys);
            const Qkv x = random_qkv({2, 2, 2, 5, keys, 6, 4}, 4);
            Options o;
            CHECK(mismatch(x, o, 40) == "");
            o.scores.causal = Causal::bottom_right;  // the first rows see nothing
            CHECK(mismatch(x, o, 40) == "");
            o.scores.fill = -1e20;
            o.scores.window = 2;
            CHECK(mismatch(x, o, 40) == "");
        }
        OpCheck check;
        const Dim keys = check.graph.symbol("keys", 3000);
        check.set("keys", 0);
        const Value q = check.input("q", random_tensor({1, 2, 3, 8}));
        const Value k = check.input("k", Tensor({1, 2, 0, 8}), {1, 2, keys, 8});
        const Value v = check.input("v", Tensor({1, 2, 0, 8}), {1, 2, keys, 8});
        const AttentionResult fused = scaled_dot_product_attention(q, k, v, {.log_sum_exp = true});
        CHECK(difference(check.run(fused.y), Tensor({1, 2, 3, 8}), exactly()) == "");
        CHECK(difference(check.run(fused.log_sum_exp), Tensor({1, 2, 3}, -std::numeric_limits<double>::infinity()),
                         exactly()) == "");
    }
}

TEST_CASE("fused attention: tiles that a mask rules out are skipped, others are not") {
    for (const std::string& kernel : kernels()) {
        CAPTURE(kernel);
        const Forced forced(kernel);
        const Qkv x = random_qkv({2, 2, 1, 18, 200, 12, 8}, 5, 2);
        for (const auto& seen : {std::pair<std::int64_t, std::int64_t>{0, 1}, {31, 33}, {199, 200}}) {
            CAPTURE(seen.first);
            Options o;
            o.scores.keys = mask_of(2, 200, seen.first, seen.second);
            CHECK(mismatch(x, o, 18) == "");
            o.scores.keys->at({1, 0, 0, 64}) = 1;
            o.scores.fill = seen.first == 31 ? -1e20 : o.scores.fill;
            CHECK(mismatch(x, o, 18) == "");
        }
    }
}

TEST_CASE("fused attention: loads of 64 bits give the same bits as loads of 32") {
    if (!device().capabilities().int64 || device().capabilities().exact_subgroup_size != 8) {
        cannot_run("loads of 64 bits");
        return;
    }
    const Forced forced("attention_lanes");
    for (const AttentionSizes& s : {AttentionSizes{1, 4, 2, 3, 700, 64, 64}, {2, 2, 1, 70, 90, 20, 132}}) {
        CAPTURE(s.queries);
        const auto attended = [&](const char* kernel) {
            const Qkv x = random_qkv(s, 5);
            OpCheck check;
            const AttentionResult fused = scaled_dot_product_attention(
                check.input("q", x.query), check.input("k", x.key), check.input("v", x.value), {});
            const Tensor y = check.run(fused.y);
            CHECK(contains(device().compile(check.graph).explain(), kernel));
            return y;
        };
        const Tensor wide = attended("attention_lanes8_wide<");
        const Believed narrow([](Capabilities& c) { c.int64 = false; });
        CHECK(same_bits(attended("attention_lanes8<"), wide));
    }

    constexpr std::int64_t kUsed = 70, kWidth = 24;
    for (const WeightType type : {WeightType::f16, WeightType::bf16, WeightType::int8}) {
        CAPTURE(name_of(type));
        const auto attended = [&](const char* kernel) {
            const Qkv x = random_qkv({1, 4, 2, 40, kUsed, kWidth, kWidth}, 9);
            Graph g;
            const KvCache cache = kv_cache(g, "cache", 1, kUsed, 2, kWidth, 0, type);
            const Value k = g.input("k", {1, 2, kUsed, kWidth}), v = g.input("v", {1, 2, kUsed, kWidth});
            const CachedKv all = append(cache, transpose(k, 1, 2), transpose(v, 1, 2));
            AttentionOptions o;
            o.kv_type = type;
            const Value q = g.input("q", {1, 4, 40, kWidth});
            g.output("y", contiguous(scaled_dot_product_attention(q, all.key, all.value, o).y));
            const State state = device().make_state({&g});
            Program program = device().compile(g, {}, {.state = state});
            CHECK(contains(program.explain(), kernel));
            upload(program, "q", x.query);
            upload(program, "k", x.key);
            upload(program, "v", x.value);
            program.run();
            return download(program, "y");
        };
        const Tensor wide = attended("attention_lanes8_wide<");
        const Believed narrow([](Capabilities& c) { c.int64 = false; });
        CHECK(same_bits(attended("attention_lanes8<"), wide));
    }
}

TEST_SUITE_END();
