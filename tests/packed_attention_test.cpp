// SPDX-License-Identifier: Apache-2.0
// Packed attention against each sequence by itself.
#include "layers/sequences.h"

#include <doctest/doctest.h>

#include "runtime/device/device.h"
#include "runtime/graph/packed.h"
#include "tests/attention_check.h"
#include "tests/attention_sequences.h"
#include "tests/device.h"
#include "tests/fixtures.h"

using namespace vkf;
using namespace vkf::test;

namespace {

using namespace sequences;

/// Packed sequences: queries, keys and values behind each other.
struct Packed {
    std::vector<std::int64_t> queries, keys;  // cumulative
    Tensor q, k, v;

    Packed(std::vector<std::int64_t> query_ends, std::vector<std::int64_t> key_ends)
        : queries(std::move(query_ends)),
          keys(std::move(key_ends)),
          q(random_tensor({queries.back(), kHeads, kHeadDim}, 1)),
          k(random_tensor({keys.back(), kKvHeads, kHeadDim}, 2)),
          v(random_tensor({keys.back(), kKvHeads, kValueDim}, 3)) {}

    std::size_t count() const { return queries.size() - 1; }
};

struct PackedResult {
    Tensor y, log_sum_exp;
};

PackedResult run_packed(const Packed& x, const AttentionOptions& given = {}, const Tensor& cumulative_queries = {},
                        const Tensor* slopes = nullptr) {
    OpCheck check;
    AttentionOptions o = given;
    if (slopes) {
        o.mask.alibi_slopes = check.input("slopes", *slopes);
    }
    o.log_sum_exp = true;
    const Tensor ends = cumulative_queries.data.empty() ? integers(x.queries) : cumulative_queries;
    const AttentionResult a =
        packed_attention(check.input("q", x.q), check.input("k", x.k), check.input("v", x.v),
                         check.indices("queries", ends), check.indices("keys", integers(x.keys)), o);
    check.graph.output("lse", contiguous(reshape(a.log_sum_exp, {kHeads, x.q.size(0)})));
    check.graph.output("y", contiguous(a.y));
    Program p = device().compile(check.graph);
    upload(p, "q", x.q);
    upload(p, "k", x.k);
    upload(p, "v", x.v);
    upload(p, "queries", ends, DType::i32);
    upload(p, "keys", integers(x.keys), DType::i32);
    if (slopes) {
        upload(p, "slopes", *slopes);
    }
    p.run();
    return {download(p, "y"), download(p, "lse")};
}

/// (T, H, d) of one sequence as (1, H, L, d).
Tensor sequence(const Tensor& x, std::int64_t first, std::int64_t end) {
    const Tensor rows = slice(x, 0, first, end - first);
    return reshape(transpose(rows, 0, 1), {1, x.size(1), end - first, x.size(2)});
}

/// Computes the twin of each sequence by itself.
PackedResult twin(const Packed& x, const reference::AttentionOptions& o) {
    PackedResult out{Tensor({x.q.size(0), kHeads, kValueDim}), Tensor({kHeads, x.q.size(0)}, -kInf)};
    for (std::size_t i = 0; i < x.count(); ++i) {
        const std::int64_t first = x.queries[i];
        const std::int64_t rows = x.queries[i + 1] - first;
        if (rows == 0 || x.keys[i + 1] == x.keys[i]) {
            continue;
        }
        const reference::Attention a =
            reference::attention(sequence(x.q, first, x.queries[i + 1]), sequence(x.k, x.keys[i], x.keys[i + 1]),
                                 sequence(x.v, x.keys[i], x.keys[i + 1]), o);
        for (std::int64_t r = 0; r < rows; ++r) {
            for (std::int64_t h = 0; h < kHeads; ++h) {
                out.log_sum_exp.at({h, first + r}) = a.log_sum_exp.at({0, h, r});
                for (std::int64_t c = 0; c < kValueDim; ++c) {
                    out.y.at({first + r, h, c}) = a.y.at({0, h, r, c});
                }
            }
        }
    }
    return out;
}

void check_packed(const Packed& x, const AttentionOptions& o, const reference::AttentionOptions& same) {
    const PackedResult want = twin(x, same);
    const PackedResult got = run_packed(x, o);
    CHECK(difference(got.y, want.y) == "");
    CHECK(difference(got.log_sum_exp, want.log_sum_exp) == "");
}

const std::vector<std::int64_t> kQueryEnds{0, 5, 5, 6, 46, 53};
const std::vector<std::int64_t> kKeyEnds{0, 9, 12, 13, 83, 83};

}  // namespace

TEST_SUITE("attention sequences") {
    TEST_CASE("packed attention: each sequence by itself, empty ones and such without keys too") {
        const Packed x(kQueryEnds, kKeyEnds);
        on_each_way([&] {
            check_packed(x, {}, {});
            for (const Causal causal : {Causal::top_left, Causal::bottom_right}) {
                AttentionOptions o;
                reference::AttentionOptions same;
                o.mask.causal = same.scores.causal = causal;
                check_packed(x, o, same);
                o.mask.window = same.scores.window = 7;
                o.softcap = 2.0f;
                same.scores.softcap = 2.0;
                check_packed(x, o, same);
            }
        });
    }

    TEST_CASE("packed attention: one sequence is plain attention, many of one token see themselves") {
        on_each_way([&] {
            check_packed(Packed({0, 20}, {0, 20}), {}, {});
            check_packed(Packed({0, 1, 2, 3, 4, 5}, {0, 1, 2, 3, 4, 5}), {}, {});
        });
    }

    TEST_CASE("packed attention: ALiBi counts within a sequence") {
        if (device().capabilities().storage_buffers < 12) {
            cannot_run("12 storage buffers a stage");
            return;
        }
        const Packed x(kQueryEnds, kKeyEnds);
        const Tensor slopes({kHeads}, std::vector<double>{0.5, 0.25, 0.125, 0.0625});
        AttentionOptions o;
        reference::AttentionOptions same;
        o.mask.causal = same.scores.causal = Causal::bottom_right;
        same.scores.alibi_slopes = slopes;
        CHECK(difference(run_packed(x, o, {}, &slopes).y, twin(x, same).y) == "");
    }

    TEST_CASE("packed attention: queries beyond the last sequence are given 0") {
        const Packed x({0, 4, 9}, {0, 4, 9});
        Packed shorter = x;
        shorter.queries = {0, 4, 7};
        shorter.keys = {0, 4, 9};
        on_each_way([&] {
            const Tensor y = run_packed(shorter).y;
            for_each_index(slice(y, 0, 7, 2).shape, [&](const Sizes& i) {
                CHECK(y.at({7 + i[0], i[1], i[2]}) == 0.0);
            });
        });
    }

    TEST_CASE("packed attention: cumulative lengths that do not grow are refused where the host gives them") {
        const Packed x({0, 4, 9}, {0, 4, 9});
        const auto message = [&](const std::vector<std::int64_t>& ends) {
            return error_of([&] { run_packed(x, {}, integers(ends)); });
        };
        CHECK(contains(message({0, 5, 4}), "number 2 is 4"));
        CHECK(contains(message({1, 5, 9}), "number 0 is 1"));
        CHECK(contains(message({0, 5, 10}), "at most 9"));
        Graph g;
        const auto constant = [&](const std::vector<std::int32_t>& numbers) {
            return g.constant("ends", {static_cast<std::int64_t>(numbers.size())}, numbers);
        };
        const Value q = g.input("q", {9, kHeads, kHeadDim});
        CHECK(contains(error_of([&] {
                           packed_attention(q, q, q, constant({0, 5, 4}), constant({0, 5, 9}));
                       }),
                       "cumulative_queries"));
        CHECK(contains(error_of([&] { packed_attention(q, q, q, {}, {}); }),
                       "packed_attention: there are no cumulative_queries, over q (9, "));
        AttentionOptions masked;
        masked.mask.keys = g.input("mask", {9, 9}, DType::i32);
        CHECK(contains(error_of([&] {
                           packed_attention(q, q, q, constant({0, 5, 9}), constant({0, 5, 9}), masked);
                       }),
                       "no mask"));
    }

    TEST_CASE("attention: lengths and pages out of range are refused where the host gives them") {
        // by the op itself, which knows nothing of packed_attention() and paged_attention()
        Graph g;
        const auto constant = [&](const Sizes& shape, const std::vector<std::int32_t>& numbers) {
            return g.constant("numbers", shape, numbers);
        };
        const Value q = g.input("q", {2, kHeads, 3, kHeadDim}), packed = g.input("packed", {1, kHeads, 9, kHeadDim});
        const auto refusal = [&](const Value& x, const AttentionOptions& o) {
            return error_of([&] { scaled_dot_product_attention(x, x, x, o); });
        };
        const Value ends = constant({3}, {0, 4, 9});
        CHECK(contains(refusal(packed, {.cumulative_queries = constant({3}, {0, 5, 4}), .cumulative_keys = ends}),
                       "cumulative_queries numbers (3) I32: number 2 is 4"));
        CHECK(contains(refusal(packed, {.cumulative_queries = ends, .cumulative_keys = constant({3}, {0, 4, 10})}),
                       "at most 9"));
        CHECK(contains(refusal(q, {.key_lengths = constant({2}, {3, 4})}), "length 1 is 4, not in 0..3"));
        CHECK(refusal(q, {.key_lengths = constant({2}, {3, 0})}) == "");
        CHECK(contains(refusal(q, {.key_lengths = constant({2}, {3, 4}), .pages = constant({2, 2}, {0, 1, 1, 2})}),
                       "entry 3 is 2, not in -1..1"));
        // what is refused has nothing of its inputs looked at
        const Value given = g.input("given", {3}, DType::i32);
        CHECK(refusal(packed, {.cumulative_queries = given, .cumulative_keys = constant({3}, {0, 4, 10})}) != "");
        CHECK(g.content_checks().empty());
        OpCheck check;
        const Value x = check.input("x", random_tensor({2, kHeads, 3, kHeadDim}));
        const AttentionOptions o{.key_lengths = check.indices("lengths", integers({-1, 3}))};
        const Value y = contiguous(scaled_dot_product_attention(x, x, x, o).y);
        CHECK(contains(error_of([&] { check.run(y); }), "length 0 is -1, not in 0..3"));
    }

    TEST_CASE("attention: lengths that were uploaded are checked again where keys become fewer") {
        Graph g;
        const Dim keys = g.symbol("keys", 16);
        const Value q = g.input("q", {1, 1, 1, 4}), k = g.input("k", {1, 1, keys, 4});
        g.output(
            "y",
            contiguous(scaled_dot_product_attention(q, k, k, {.key_lengths = g.input("lengths", {1}, DType::i32)}).y));
        Program program = device().compile(g, {}, {.name = "shrinking"});
        const std::vector<std::int32_t> twelve{12};
        program.upload("q", std::vector<float>(4, 1.0f));
        program.upload("k", std::vector<float>(64, 1.0f));
        program.upload("lengths", twelve);
        program.run();
        CHECK(program.download("y") == std::vector<float>(4, 1.0f));
        program.set("keys", 12);
        program.upload("k", std::vector<float>(48, 1.0f));
        program.run();
        program.set("keys", 4);
        program.upload("k", std::vector<float>(16, 1.0f));
        CHECK(error_of([&] { program.run(); }) == "shrinking: input lengths, key_lengths: length 0 is 12, not in 0..4");
        program.upload("lengths", std::vector<std::int32_t>{4});
        program.run();
    }

    TEST_CASE("packed attention: ends whose upload was refused leave those of before to be checked again") {
        Graph g;
        const Dim queries = g.symbol("queries", 8), keys = g.symbol("keys", 8);
        const Value q = g.input("q", {1, 1, queries, 4}), k = g.input("k", {1, 1, keys, 4});
        const Value ends = g.input("ends", {2}, DType::i32);
        g.output("y", scaled_dot_product_attention(q, k, k, {.cumulative_queries = ends, .cumulative_keys = ends}).y);
        Program program = device().compile(g);
        const auto upload_ones = [&](const char* name, std::int64_t tokens) {
            program.upload(name, std::vector<float>(static_cast<std::size_t>(tokens) * 4, 1.0f));
        };
        upload_ones("q", 8);
        upload_ones("k", 8);
        program.upload("ends", std::vector<std::int32_t>{0, 8});
        program.run();
        program.set("queries", 6);
        program.set("keys", 2);
        upload_ones("q", 6);
        // they fit the queries, and not the keys
        CHECK(contains(error_of([&] { program.upload("ends", std::vector<std::int32_t>{0, 4}); }), "number 1 is 4"));
        program.set("keys", 8);
        CHECK(contains(error_of([&] { program.run(); }), "number 1 is 8"));
        program.upload("ends", std::vector<std::int32_t>{0, 6});
        program.run();
    }

    TEST_CASE("packed attention: both cumulative lengths may be rows of one input") {
        const Packed x({0, 4, 9}, {0, 5, 9});
        OpCheck check;
        const Value both = check.indices("ends", Tensor({2, 3}, std::vector<double>{0, 4, 9, 0, 5, 9}));
        const auto row = [&](std::int64_t i) { return reshape(slice(both, 0, i, 1), {3}); };
        const Tensor y = check.run(contiguous(
            packed_attention(check.input("q", x.q), check.input("k", x.k), check.input("v", x.v), row(0), row(1)).y));
        CHECK(difference(y, twin(x, {}).y) == "");
    }

    TEST_CASE("packed attention: keys and values may be packed rows") {
        const Packed x({0, 4, 9}, {0, 5, 9});
        Graph g;
        AttentionOptions o;
        o.kv_type = WeightType::int8;
        o.value_dim = kValueDim;
        const auto packed = [&](const char* name, const Tensor& rows) {
            const Value kept = g.state(std::string("kept ") + name,
                                       {1, rows.size(0), kKvHeads,
                                        static_cast<std::int64_t>(packed_row_words(
                                            WeightType::int8, static_cast<std::uint64_t>(rows.size(2))))},
                                       DType::i32);
            const Value in = reshape(g.input(name, Shape(rows.shape.begin(), rows.shape.end())),
                                     {1, rows.size(0), kKvHeads, rows.size(2)});
            return reshape(pack_into(kept, in, WeightType::int8), {rows.size(0), kKvHeads, kept.size(3)});
        };
        const Value q = g.input("q", Shape(x.q.shape.begin(), x.q.shape.end()));
        const Value k = packed("k", x.k), v = packed("v", x.v);
        const auto ends = [&](const char* name) { return g.input(name, {3}, DType::i32); };
        g.output("y", contiguous(packed_attention(q, k, v, ends("queries"), ends("keys"), o).y));
        Program p = device().compile(g);
        upload(p, "q", x.q);
        upload(p, "k", x.k);
        upload(p, "v", x.v);
        upload(p, "queries", integers(x.queries), DType::i32);
        upload(p, "keys", integers(x.keys), DType::i32);
        p.run();
        CHECK(difference(download(p, "y"), twin(x, {}).y, {0.05, 0.05, {}}) == "");
    }

    TEST_CASE("packed attention: a mask for sequences has one of them for each text of the batch") {
        Graph g;
        const Value q = g.input("q", {4, 2, 3, 8}), k = g.input("k", {4, 2, 5, 8});
        CHECK(contains(error_of([&] { sequence_mask(q, k, {}, g.input("two", {2}, DType::i32)); }),
                       "must hold a length for each sequence"));
        const Value ends = g.input("ends", {5}, DType::i32);
        CHECK(contains(error_of([&] { sequence_mask(q, k, ends, ends); }), "must be a batch of 1"));
    }

    TEST_CASE("packed attention: cumulative lengths that the device computed are bounded there") {
        const Packed x({0, 4, 9}, {0, 4, 9});
        const PackedResult want = twin(x, {});
        on_each_way([&] {
            for (const std::vector<std::int64_t>& wild :
                 {std::vector<std::int64_t>{0, 4, 1000000}, {0, 4, 2}, {7, 4, -9}, {0, 4, 2147483647}}) {
                OpCheck check;
                const Value q = check.input("q", x.q);
                const Value k = check.input("k", x.k);
                const Value v = check.input("v", x.v);
                const auto computed = [&](const char* name) { return contiguous(check.indices(name, integers(wild))); };
                const Tensor y = check.run(contiguous(packed_attention(q, k, v, computed("a"), computed("b")).y));
                // the first sequence is as it should be, whatever becomes of the others
                CHECK(difference(slice(y, 0, 0, 4), slice(want.y, 0, 0, 4)) == "");
            }
        });
    }
}
