// SPDX-License-Identifier: Apache-2.0
// Fused attention of programs for f16, on cooperative matrices: beside the twin of operands rounded
// to f16. What holds of every kernel is in the other attention tests, under
// VKFORMER_VARIANT=attention_coopmat.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "ops/attention_tiles.h"
#include "tests/attention_f16.h"
#include "tests/believed.h"
#include "tests/glsl.h"

namespace vkf::test {

namespace {

using Options = reference::AttentionOptions;

bool taken(const std::string& explained) { return contains(explained, kTakenInF16); }

}  // namespace

TEST_SUITE("attention coopmat") {
    TEST_CASE("coopmat attention: widths of heads and of values, odd ones, wide ones, grouped heads") {
        if (!has_matrices()) {
            return;
        }
        const Believed forced(as_forced);
        for (const AttentionSizes& s : {AttentionSizes{1, 1, 1, 1, 1, 8, 8},
                                        {2, 3, 3, 5, 7, 7, 5},
                                        {1, 4, 2, 17, 33, 64, 64},
                                        {2, 2, 1, 9, 70, 80, 48},
                                        {1, 2, 2, 33, 65, 128, 128},
                                        {1, 6, 2, 40, 100, 20, 132},
                                        {1, 2, 1, 35, 40, 256, 256},
                                        {1, 2, 1, 3, 40, 576, 512},
                                        {1, 8, 1, 13, 129, 36, 30}}) {
            CAPTURE(s.head_dim);
            CAPTURE(s.value_dim);
            CHECK(mismatch_f16(random_qkv(s, 7), {}, s.head_dim % 2 == 0) == "");
        }
    }

    TEST_CASE("coopmat attention: tiles of a GPU") {
        if (!has_matrices()) {
            return;
        }
        const Believed gpu(as_gpu);
        Options causal;
        causal.scores.causal = Causal::bottom_right;
        CHECK(mismatch_f16(random_qkv({1, 2, 2, 33, 65, 128, 128}, 8, 2), causal) == "");
        // keys and values are rounded once, before
        CHECK(mismatch_f16(random_qkv({1, 4, 1, 130, 75, 36, 44}, 8, 2), causal) == "");
        Qkv wild = random_qkv({1, 4, 2, 257, 70, 30, 37}, 8, 2);
        wild.value.at({0, 1, 3, 36}) = kInf;
        wild.value.at({0, 0, 66, 1}) = 70000;
        wild.key.at({0, 0, 40, 29}) = -70000;
        CHECK(mismatch_f16(wild, causal, false) == "");
        Options all;
        all.scores.keys = random_integers({1, 1, 130, 75}, 2, 9);
        all.scores.bias = random_tensor({4, 130, 75}, 10, 2);
        all.scores.sinks = random_tensor({4}, 12, 2);
        all.scores.causal = Causal::top_left;
        all.scores.window = 30;
        all.dropout = 0.3;
        CHECK(mismatch_f16(random_qkv({1, 4, 1, 130, 75, 36, 44}, 9, 2), all) == "");
        CHECK(mismatch_f16(random_qkv({1, 6, 2, 40, 100, 20, 130}, 8, 2), causal, false) == "");
    }

    TEST_CASE("coopmat attention: every shape of matrices, and small shared memory") {
        if (!has_matrices()) {
            return;
        }
        const Qkv x = random_qkv({1, 4, 2, 50, 90, 72, 100}, 5);
        const std::vector<MatrixShape> shapes = device().capabilities().matrix_shapes;
        for (const MatrixShape& shape : shapes) {
            const Believed one([&](Capabilities& c) {
                as_gpu(c);
                c.matrix_shapes = {shape};
            });
            if (!attention_tile(device().capabilities(), 2, 1, 72)) {
                continue;
            }
            CAPTURE(shape.m);
            CAPTURE(shape.n);
            CAPTURE(shape.k);
            CHECK(mismatch_f16(x) == "");
        }
        for (const std::uint32_t bytes : {8192u, 16384u, 20480u}) {
            CAPTURE(bytes);
            const Believed small([&](Capabilities& c) {
                as_gpu(c);
                c.shared_memory = bytes;
            });
            if (attention_tile(device().capabilities(), 2, 1, 72)) {
                CHECK(mismatch_f16(x) == "");
            } else {
                CHECK(bytes < 16384u);  // all that Vulkan guarantees
            }
        }
    }

    TEST_CASE("coopmat attention: every option by itself, and all together") {
        if (!has_matrices()) {
            return;
        }
        const Believed forced(as_forced);
        for (const AttentionSizes& s : {AttentionSizes{2, 4, 2, 21, 75, 24, 20}, {1, 4, 2, 43, 35, 24, 20}}) {
            CAPTURE(s.queries);
            const Qkv x = random_qkv(s, 3, 2);
            Options all;
            all.scores.keys = random_integers({s.batch, 1, s.queries, s.keys}, 2, 9);
            all.scores.bias = random_tensor({s.heads, s.queries, s.keys}, 10, 2);
            all.scores.alibi_slopes = random_tensor({s.heads}, 11, 0.3);
            all.scores.sinks = random_tensor({s.heads}, 12, 2);
            all.scores.causal = Causal::bottom_right;
            all.scores.window = 20;
            all.scores.softcap = 1.5;
            all.scores.scale = 0.9;
            CHECK(mismatch_f16(x, all) == "");
            Options o;
            for (const Causal alignment : {Causal::top_left, Causal::bottom_right}) {
                for (const std::int64_t window : {0, 5}) {
                    (o = {}).scores.causal = alignment;
                    o.scores.window = window;
                    CHECK(mismatch_f16(x, o) == "");
                    o.scores.fill = -1e20;
                    CHECK(mismatch_f16(x, o) == "");
                }
            }
            (o = {}).scores.keys = all.scores.keys;
            CHECK(mismatch_f16(x, o) == "");
            o.scores.polarity = Polarity::ignore;
            CHECK(mismatch_f16(x, o) == "");
            (o = {}).scores.bias = all.scores.bias;
            CHECK(mismatch_f16(x, o) == "");
            (o = {}).scores.alibi_slopes = all.scores.alibi_slopes;
            CHECK(mismatch_f16(x, o) == "");
            (o = {}).scores.sinks = all.scores.sinks;
            CHECK(mismatch_f16(x, o) == "");
            (o = {}).scores.softcap = 0.7;
            CHECK(mismatch_f16(x, o, false) == "");
            (o = {}).dropout = 0.3;
            o.dropout_seed = 5;
            CHECK(mismatch_f16(x, o, false) == "");
            (o = all).dropout = 0.6;
            CHECK(mismatch_f16(x, o) == "");
        }
    }

    TEST_CASE("coopmat attention: a maximum that grows from tile to tile, and small weights beside large ones") {
        if (!has_matrices()) {
            return;
        }
        const Believed forced(as_forced);
        Qkv x{Tensor({1, 1, 40, 4}), Tensor({1, 1, 400, 4}), random_tensor({1, 1, 400, 70}, 3)};
        // some rows' grow, some rows' shrink, some stay
        for (std::int64_t row = 0; row < 40; ++row) {
            x.query.at({0, 0, row, 0}) = static_cast<double>(row % 3 - 1);
        }
        for (std::int64_t key = 0; key < 400; ++key) {
            x.key.at({0, 0, key, 0}) = static_cast<double>(key) / 8;
        }
        Options o;
        o.scores.scale = 1;
        CHECK(mismatch_f16(x, o) == "");
        o.scores.scale = 2000;  // 1e5
        CHECK(mismatch_f16(x, o) == "");
        x.query = Tensor({1, 1, 1, 4});
        x.query.at({0, 0, 0, 0}) = 1;
        // weights of 7e-5, together more than the one of 1 before
        x.key = Tensor({1, 1, 400, 4}, -9.5);
        x.key.at({0, 0, 0, 0}) = 0;
        o.scores.scale = 1;
        CHECK(mismatch_f16(x, o) == "");
        x.key = Tensor({1, 1, 400, 4}, -15.0);  // of 3e-7
        x.key.at({0, 0, 0, 0}) = 0;
        for (double& v : x.value.data) {
            v = std::abs(v) * 1e4;
        }
        for (std::int64_t c = 0; c < 70; ++c) {
            x.value.at({0, 0, 0, c}) = 0;
        }
        CHECK(mismatch_f16(x, o) == "");
    }

    TEST_CASE("coopmat attention: maxima that the first key settles, and what comes after") {
        if (!has_matrices()) {
            return;
        }
        const Believed forced(as_forced);
        const AttentionSizes s{1, 2, 1, 40, 400, 16, 24};
        Qkv x = random_qkv(s, 21);
        for (std::int64_t row = 0; row < s.queries; ++row) {
            x.query.at({0, 0, row, 0}) = x.query.at({0, 1, row, 0}) = 4;
        }
        x.key.at({0, 0, 0, 0}) = 8;
        Options none, causal, masked, finite, dropped, sinks, odd_sinks;
        causal.scores.causal = Causal::bottom_right;
        masked.scores.keys = Tensor({s.queries, s.keys}, 1.0);
        for (std::int64_t key = 0; key < s.keys; ++key) {
            // a row whose first key comes late, and in another subgroup one that has none
            masked.scores.keys->at({3, key}) = key < 170 ? 0 : 1;
            masked.scores.keys->at({30, key}) = 0;
        }
        for (std::int64_t row = 0; row < s.queries; ++row) {
            masked.scores.keys->at({row, 250}) = 0;
        }
        (finite = causal).scores.fill = -1e20;
        (dropped = masked).dropout = 0.3;
        sinks.scores.sinks = Tensor({2}, {-kInf, 9});
        odd_sinks.scores.sinks = Tensor({2}, {kInf, kNan});
        for (const Options* each_of : {&none, &causal, &masked, &finite, &dropped, &sinks, &odd_sinks}) {
            const Options& o = *each_of;
            CHECK(mismatch_f16(x, o) == "");
            for (const double odd : {kNan, kInf, -kInf}) {
                CAPTURE(odd);
                Qkv late = x;
                late.value.at({0, 0, 250, 5}) = odd;
                late.value.at({0, 0, 399, 6}) = odd;  // where causal rows differ
                CHECK(mismatch_f16(late, o) == "");
                if (&o != &odd_sinks) {  // beside +inf a log-sum-exp has no NaN
                    late.key.at({0, 0, 333, 1}) = odd;
                    CHECK(mismatch_f16(late, o) == "");
                }
            }
            Qkv grown = x;  // of some rows, in the last tile, beyond what a weight could hold
            grown.key.at({0, 0, 390, 0}) = 4;
            grown.key.at({0, 0, 390, 1}) = 448;
            CHECK(mismatch_f16(grown, o) == "");
            // A value of each tile that is not finite has all weights looked at one by one: the
            // same bits in all columns but its own.
            const Attended plain = run_f16(x, o);
            Qkv each = x;
            for (std::int64_t key = 7; key < s.keys; key += 32) {
                each.value.at({0, 0, key, 5}) = kNan;
            }
            Attended with_care = run_f16(each, o);
            for (std::int64_t h = 0; h < s.heads; ++h) {
                for (std::int64_t row = 0; row < s.queries; ++row) {
                    const bool sees = o.scores.sinks || !o.scores.keys || row != 30;
                    CHECK((std::isnan(with_care.y.at({0, h, row, 5})) == sees));
                    with_care.y.at({0, h, row, 5}) = plain.y.at({0, h, row, 5});
                }
            }
            CHECK(same_bits(with_care.y, plain.y));
            CHECK(same_bits(with_care.log_sum_exp, plain.log_sum_exp));
        }
    }

    TEST_CASE("coopmat attention: what a mask hides leaves no trace, rows without a key give 0") {
        if (!has_matrices()) {
            return;
        }
        const Believed forced(as_forced);
        const AttentionSizes s{1, 4, 2, 37, 110, 24, 40};
        Options o;
        o.scores.keys = Tensor({s.queries, s.keys}, 1.0);
        for (std::int64_t row = 0; row < s.queries; ++row) {
            for (std::int64_t key = 0; key < s.keys; ++key) {
                const bool poisoned = key % 7 == 2 || (key >= 32 && key < 64);
                o.scores.keys->at({row, key}) = poisoned || row == 5 || row == 36 ? 0 : 1;
            }
        }
        const Qkv clean = random_qkv(s, 4);
        const Attended want = run_f16(clean, o);
        CHECK(mismatch_f16(clean, o) == "");
        for_each_index(want.y.shape, [&](const Sizes& i) { CHECK((want.y.at(i) == 0) == (i[2] == 5 || i[2] == 36)); });
        for_each_index(want.log_sum_exp.shape,
                       [&](const Sizes& i) { CHECK((want.log_sum_exp.at(i) == -kInf) == (i[2] == 5 || i[2] == 36)); });
        for (const double poison : {kNan, kInf, -kInf, 1e30, 65520.0}) {
            CAPTURE(poison);
            Qkv x = clean;
            for (std::int64_t key = 0; key < s.keys; ++key) {
                if (o.scores.keys->at({0, key}) == 0) {
                    for (std::int64_t h = 0; h < s.kv_heads; ++h) {
                        std::fill_n(&x.key.at({0, h, key, 0}), s.head_dim, poison);
                        std::fill_n(&x.value.at({0, h, key, 0}), s.value_dim, poison);
                    }
                }
            }
            const Attended got = run_f16(x, o);
            CHECK(same_bits(got.y, want.y));
            CHECK(same_bits(got.log_sum_exp, want.log_sum_exp));
        }
    }

    TEST_CASE("coopmat attention: what is not finite in f16 shows where it is seen") {
        if (!has_matrices()) {
            return;
        }
        const Believed forced(as_forced);
        const AttentionSizes s{1, 4, 2, 37, 110, 24, 140};
        const Qkv clean = random_qkv(s, 4);
        Options causal;
        causal.scores.causal = Causal::top_left;
        for (const double poison : {kNan, kInf, -kInf, 70000.0, -65520.0, 65519.0}) {
            CAPTURE(poison);
            for (const std::int64_t key : {0, 20, 90}) {
                CAPTURE(key);
                Qkv x = clean;
                x.value.at({0, 1, key, 3}) = poison;
                x.value.at({0, 1, key, 139}) = -poison;
                x.value.at({0, 0, std::min<std::int64_t>(key + 1, 36), 3}) = poison;
                x.value.at({0, 0, std::min<std::int64_t>(key + 3, 36), 3}) = -poison;
                CHECK(mismatch_f16(x) == "");
                CHECK(mismatch_f16(x, causal) == "");
                Options dropped = causal;
                dropped.dropout = 0.5;
                CHECK(mismatch_f16(x, dropped) == "");
                x = clean;
                x.key.at({0, 1, key, 3}) = poison;
                CHECK(mismatch_f16(x, causal) == "");
                x = clean;
                x.query.at({0, 2, 30, 23}) = poison;
                CHECK(mismatch_f16(x, causal) == "");
            }
        }
        Options sink;
        sink.scores.sinks = Tensor({4}, {kNan, 0.5, -kInf, kInf});
        CHECK(mismatch_f16(clean, sink) == "");
    }

    TEST_CASE("coopmat attention: sizes decide at run time, and the same bits come every time") {
        if (!has_matrices()) {
            return;
        }
        const Believed gpu(as_gpu);
        Graph g;
        const Dim queries = g.symbol("queries", 90), keys = g.symbol("keys", 120);
        AttentionOptions options;
        options.scale = 0.3f;
        options.mask.causal = Causal::bottom_right;
        options.dropout = 0.2f;
        g.output("y", contiguous(scaled_dot_product_attention(g.input("q", {1, 4, queries, 16}),
                                                              g.input("k", {1, 2, keys, 16}),
                                                              g.input("v", {1, 2, keys, 24}), options)
                                     .y));
        Program p = device().compile(g, {}, kF16);
        Options o;
        o.scores.scale = *options.scale;
        o.scores.causal = Causal::bottom_right;
        o.dropout = 0.2;
        const std::int64_t sizes[][2] = {{1, 120}, {16, 16}, {90, 120}, {17, 33}, {5, 0}, {0, 7}};
        for (const auto& size : sizes) {
            const std::int64_t rows = size[0], columns = size[1];
            CAPTURE(rows);
            const Qkv x = random_qkv({1, 4, 2, rows, columns, 16, 24});
            p.set("queries", rows);
            p.set("keys", columns);
            upload(p, "q", x.query);
            upload(p, "k", x.key);
            upload(p, "v", x.value);
            p.run();
            const Tensor first = download(p, "y");
            CHECK(mismatch_f16(first, x, o) == "");
            for (int again = 0; again < (rows == 17 ? 100 : 2); ++again) {
                p.run();
                CHECK(same_bits(download(p, "y"), first));
            }
        }
    }

    TEST_CASE("coopmat attention: a score mod is compiled in") {
        if (!has_matrices() || !can_compile_glsl()) {
            return;
        }
        const Believed gpu(as_gpu);
        const AttentionSizes s{1, 4, 2, 37, 100, 20, 12};
        const Qkv x = random_qkv(s);
        const ScoreMod mod = ScoreMod::glsl(
            "float score_mod(float score, uint batch, uint head, uint query, uint key) {"
            " return key % 5u == 3u ? negative_infinity() : score - 0.25 * float(head); }");
        Options same;
        same.scores.keys = Tensor({s.keys}, 1.0);
        for (std::int64_t key = 3; key < s.keys; key += 5) {
            same.scores.keys->at({key}) = 0;
        }
        same.scores.bias = Tensor({4, 1, 1}, {0, -0.25, -0.5, -0.75});
        OpCheck check;
        check.arithmetic = Arithmetic::f16;
        AttentionOptions options = fused_options(check, x, {});
        options.score_mod = mod;
        const Tensor y = check.run(scaled_dot_product_attention(check.input("q", x.query), check.input("k", x.key),
                                                                check.input("v", x.value), options)
                                       .y);
        const bool in_f16 = taken(device().compile(check.graph, {}, kF16).explain());
        if (!in_f16) {
            cannot_run("a run-time GLSL compiler that knows cooperative matrices");
        }
        const Qkv r = in_f16 ? as_f16(x) : x;
        CHECK(difference(y, reference::attention(r.query, r.key, r.value, same).y,
                         in_f16 ? f16_tolerance(r, same) : Tolerance()) == "");
    }

    TEST_CASE("coopmat attention: fp32 stays fp32, f16 says what was taken and why") {
        Graph g;
        g.output("y",
                 contiguous(scaled_dot_product_attention(g.input("q", {1, 4, 40, 16}), g.input("k", {1, 2, 300, 16}),
                                                         g.input("v", {1, 2, 300, 16}))
                                .y));
        const auto explained = [&](const CompileOptions& o) { return device().compile(g, {}, o).explain(); };
        if (device().capabilities().cooperative_matrix) {
            const Believed forced([](Capabilities& c) { c.variants = "attention_coopmat"; });
            CHECK_FALSE(taken(explained({})));
            CHECK_FALSE(taken(explained({.arithmetic = Arithmetic::int8})));
            CHECK(taken(explained(kF16)));
            CHECK_FALSE(contains(explained(kF16), "fp32"));
            CHECK(device().compile(g, {}, kF16).arithmetic().used == Arithmetic::f16);
        }
        const Believed gpu(as_gpu);
        CHECK_FALSE(taken(explained({})));
        CHECK_FALSE(contains(explained({}), "f16"));
        if (device().capabilities().cooperative_matrix) {
            CHECK(taken(explained(kF16)));
            const Believed shared([](Capabilities& c) { c.variants = "attention_shared"; });
            CHECK(contains(explained(kF16),
                           "fp32, though f16 was asked for: VKFORMER_VARIANT asks for attention_shared"));
            const Believed processor([](Capabilities& c) {
                c.type = DeviceType::cpu;
                c.variants.clear();
            });
            CHECK(contains(explained(kF16), "fp32, though f16 was asked for: on a processor"));
        }
        const Believed without([](Capabilities& c) { c.cooperative_matrix = false; });
        CHECK(contains(explained(kF16), "fp32, though f16 was asked for: no cooperative matrices: "));
        CHECK(device().compile(g, {}, kF16).arithmetic().used == Arithmetic::f32);
        const Believed forced([](Capabilities& c) { c.variants = "attention_coopmat"; });
        CHECK(contains(error_of([&] { explained(kF16); }),
                       "VKFORMER_VARIANT asks for attention_coopmat, which needs cooperative matrices"));
        CHECK_FALSE(taken(explained({})));
    }
}

}  // namespace vkf::test
