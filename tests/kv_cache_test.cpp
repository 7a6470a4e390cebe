// SPDX-License-Identifier: Apache-2.0
// Keys and values kept in 16 and 8 bits.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "layers/torch.h"
#include "runtime/device/device.h"
#include "runtime/device/device_core.h"
#include "runtime/graph/node.h"
#include "runtime/graph/packed.h"
#include "tests/attention_check.h"
#include "tests/device.h"

using namespace vkf;
using namespace vkf::test;

namespace {

constexpr WeightType kCacheTypes[] = {WeightType::f16, WeightType::bf16, WeightType::int8};

std::int64_t words_of(WeightType type, std::int64_t columns) {
    return static_cast<std::int64_t>(packed_row_words(type, static_cast<std::uint64_t>(columns)));
}

struct PackedCache {
    std::vector<std::int32_t> words;
    std::vector<float> numbers;  ///< unpacked again
};

/// Packs x (B, L, H, d) into the middle of a state, read through a transposition, and unpacks it.
PackedCache pack(const Tensor& x, WeightType type) {
    Graph g;
    const std::int64_t words = words_of(type, x.size(3));
    const Value state = g.state("cache", {x.size(0) + 1, x.size(1) + 5, x.size(2), words}, DType::i32);
    const Value window = slice(slice(state, 0, 0, x.size(0)), 1, 3, x.size(1));
    const Value in = transpose(g.input("x", {x.size(0), x.size(2), x.size(1), x.size(3)}), 1, 2);
    const Value written = pack_into(window, in, type);
    g.output("words", contiguous(written));
    g.output("numbers", unpack_rows(written, type, x.size(3)));
    Program p = device().compile(g);
    Tensor swapped({x.size(0), x.size(2), x.size(1), x.size(3)});
    for_each_index(x.shape, [&](const Sizes& i) { swapped.at({i[0], i[2], i[1], i[3]}) = x.at(i); });
    upload(p, "x", swapped);
    p.run();
    return {p.download_i32("words"), p.download("numbers")};
}

/// Gives what unpacking gives back, as a tensor (B, Hk, S, d) for the twin.
Tensor kept(const Tensor& x, WeightType type) {
    Tensor by_token({x.size(0), x.size(2), x.size(1), x.size(3)});
    for_each_index(x.shape, [&](const Sizes& i) { by_token.at({i[0], i[2], i[1], i[3]}) = x.at(i); });
    const PackedCache packed = pack(by_token, type);
    const Tensor numbers(by_token.shape, {packed.numbers.begin(), packed.numbers.end()});
    Tensor out(x.shape);
    for_each_index(x.shape, [&](const Sizes& i) { out.at(i) = numbers.at({i[0], i[2], i[1], i[3]}); });
    return out;
}

/// Attention over a cache of the type, written in two parts, against the twin over what the cache
/// holds.
std::string mismatch(const AttentionSizes& sizes, WeightType type, Causal causal) {
    const Qkv x = random_qkv(sizes, 3);
    OpCheck check;
    Graph& g = check.graph;
    const std::int64_t first = sizes.keys / 2;
    const auto cache = [&](const char* name, const Tensor& t) {
        const Value state =
            g.state(name, {sizes.batch, sizes.keys, sizes.kv_heads, words_of(type, t.size(3))}, DType::i32);
        const Value all = transpose(check.input(std::string(name) + "_in", t), 1, 2);
        pack_into(slice(state, 1, 0, first), slice(all, 1, 0, first), type);
        pack_into(slice(state, 1, first, sizes.keys - first), slice(all, 1, first, sizes.keys - first), type);
        return transpose(state, 1, 2);
    };
    AttentionOptions o{.mask = {.causal = causal}, .kv_type = type, .value_dim = sizes.value_dim};
    const Value y =
        scaled_dot_product_attention(check.input("q", x.query), cache("k", x.key), cache("v", x.value), o).y;
    reference::AttentionOptions twin;
    twin.scores.causal = causal;
    const Tensor want = reference::attention(x.query, kept(x.key, type), kept(x.value, type), twin).y;
    return check.difference(y, want, {2e-5, 1e-4, {}});
}

/// Attention over packed rows that begin at no multiple of four words: a window on wider ones.
std::string window_mismatch(const AttentionSizes& sizes, WeightType type) {
    const Qkv x = random_qkv(sizes, 3);
    OpCheck check;
    const auto window = [&](const char* name, const Tensor& t) {
        const std::int64_t words = words_of(type, t.size(3));
        const Value wide = check.graph.state(name, {sizes.batch, sizes.kv_heads, sizes.keys, words + 1}, DType::i32);
        return pack_into(slice(wide, 3, 1, words), check.input(std::string(name) + "_in", t), type);
    };
    const AttentionOptions o{.kv_type = type, .value_dim = sizes.value_dim};
    const Value y =
        scaled_dot_product_attention(check.input("q", x.query), window("k", x.key), window("v", x.value), o).y;
    const Tensor want = reference::attention(x.query, kept(x.key, type), kept(x.value, type)).y;
    return check.difference(y, want, {2e-5, 1e-4, {}});
}

/// Tensor x (B, Hk, S, d) as rows first .. of a ring (B, Hk, rows, d), the other rows being NaN.
Tensor as_ring(const Tensor& x, std::int64_t rows, std::int64_t first) {
    Tensor ring({x.size(0), x.size(1), rows, x.size(3)});
    std::fill(ring.data.begin(), ring.data.end(), std::numeric_limits<double>::quiet_NaN());
    for_each_index(x.shape, [&](const Sizes& i) { ring.at({i[0], i[1], (first + i[2]) % rows, i[3]}) = x.at(i); });
    return ring;
}

/// Attention over keys in a ring of so many rows, the oldest in row `first`, against the twin over
/// the keys in order.
std::string ring_mismatch(const AttentionSizes& sizes, std::int64_t rows, std::int64_t first, std::int64_t window,
                          WeightType type, bool masked) {
    const Qkv x = random_qkv(sizes, 4);
    OpCheck check;
    Graph& g = check.graph;
    const auto cache = [&](const char* name, const Tensor& t) {
        const Value in = check.input(std::string(name) + "_in", as_ring(t, rows, first));
        if (type == WeightType::f32) {
            return in;
        }
        const Value state = g.state(name, {sizes.batch, sizes.kv_heads, rows, words_of(type, t.size(3))}, DType::i32);
        pack_into(state, in, type);
        return state;
    };
    const auto size = [&](const char* name, std::int64_t value) {
        check.set(name, value);
        return g.symbol(name, rows);
    };
    AttentionOptions o{.kv_type = type, .value_dim = sizes.value_dim};
    o.mask.causal = Causal::bottom_right;
    o.mask.window = window;
    o.ring = {size("first", first), size("before_end", std::min(sizes.keys, rows - first)), size("count", sizes.keys)};
    reference::AttentionOptions twin;
    twin.scores.causal = Causal::bottom_right;
    twin.scores.window = window;
    if (masked) {
        Tensor keys({sizes.batch, 1, 1, sizes.keys});
        for_each_index(keys.shape, [&](const Sizes& i) { keys.at(i) = i[3] > 3 * i[0] ? 1 : 0; });
        o.mask.keys = check.input("keys", keys, {sizes.batch, 1, 1, o.ring->count}, DType::i32);
        twin.scores.keys = keys;
    }
    const Value y =
        scaled_dot_product_attention(check.input("q", x.query), cache("k", x.key), cache("v", x.value), o).y;
    const bool plain = type == WeightType::f32;
    const Tensor want =
        reference::attention(x.query, plain ? x.key : kept(x.key, type), plain ? x.value : kept(x.value, type), twin).y;
    return check.difference(y, want, plain ? Tolerance{} : Tolerance{2e-5, 1e-4, {}});
}

}  // namespace

TEST_SUITE_BEGIN("attention");

TEST_CASE("kv cache: rows are packed to the nearest, whatever their width") {
    for (const WeightType type : kCacheTypes) {
        for (const std::int64_t columns : {1, 3, 4, 5, 20, 63, 64, 66}) {
            CAPTURE(name_of(type));
            CAPTURE(columns);
            const Tensor x = random_tensor({2, 3, 2, columns}, static_cast<std::uint32_t>(columns), 3.0);
            const PackedCache packed = pack(x, type);
            const std::vector<float> numbers = x.floats();
            if (type != WeightType::int8) {  // as weights of a file are
                const std::int64_t words = words_of(type, columns);
                std::vector<std::uint32_t> want(packed.words.size());
                pack_rows({"x", DType::f32, {12, columns}, std::as_bytes(std::span(numbers))}, type, 0, want);
                const std::int64_t codes = (columns + 1) / 2;
                for (std::int64_t i = 0; i < 12 * words; ++i) {
                    if (i % words < codes) {
                        CHECK(static_cast<std::uint32_t>(packed.words[static_cast<std::size_t>(i)]) ==
                              want[static_cast<std::size_t>(i)]);
                    }
                }
            }
            for (std::size_t row = 0; row < 12; ++row) {
                const auto c = static_cast<std::size_t>(columns);
                float largest = 0;
                for (std::size_t i = 0; i < c; ++i) {
                    largest = std::max(largest, std::abs(numbers[row * c + i]));
                }
                for (std::size_t i = 0; i < c; ++i) {
                    const float wanted = numbers[row * c + i];
                    const float bound = type == WeightType::int8  ? largest / 254 * 1.0001f
                                        : type == WeightType::f16 ? std::abs(wanted) / 2048 + 0x1p-25f
                                                                  : std::abs(wanted) / 256;
                    CHECK(std::abs(packed.numbers[row * c + i] - wanted) <= bound);
                }
            }
        }
    }
}

TEST_CASE("kv cache: what is not a common number") {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    const std::vector<double> odd = {65519, 65520, -1e30, 0x1p-25, 0x1.8p-25, 0x1p-14, -0.0, kInfinity};
    const PackedCache f16 = pack(Tensor({1, 1, 1, 8}, odd), WeightType::f16);
    CHECK(f16.numbers == std::vector<float>{65504, kInfinity, -kInfinity, 0, 0x1p-24f, 0x1p-14f, -0.0f, kInfinity});
    CHECK(std::signbit(f16.numbers[6]));
    CHECK(std::isnan(pack(Tensor({1, 1, 1, 2}, {kNan, 1}), WeightType::f16).numbers[0]));
    CHECK(std::isnan(pack(Tensor({1, 1, 1, 2}, {kNan, 1}), WeightType::bf16).numbers[0]));
    // in 8 bits one number that is not finite takes its row along, which shows; other rows are not
    // touched
    const PackedCache int8 = pack(Tensor({1, 4, 1, 2}, {kNan, 1, kInfinity, 2, 0, 0, 127, -127}), WeightType::int8);
    for (std::size_t i = 0; i < 4; ++i) {
        CHECK(std::isnan(int8.numbers[i]));
    }
    CHECK(int8.numbers[4] == 0);
    CHECK(int8.numbers[5] == 0);
    CHECK(int8.numbers[6] == 127);
    CHECK(int8.numbers[7] == -127);
    // a scale below 2^-126 is 0, and so are its numbers
    const PackedCache tiny =
        pack(Tensor({1, 3, 1, 2}, {0x1p-120, -0x1p-121, 0x1p-119, 0x1p-118, 1e-40, 0}), WeightType::int8);
    CHECK(tiny.numbers[0] == 0);
    CHECK(tiny.numbers[1] == 0);
    CHECK(tiny.numbers[3] == doctest::Approx(0x1p-118));
    CHECK(tiny.numbers[4] == 0);
}

TEST_CASE("kv cache: rows longer than one invocation's loops may be") {
    for (const auto& row : {std::pair{WeightType::int8, 30'000}, std::pair{WeightType::f16, 200'000}}) {
        CAPTURE(name_of(row.first));
        const Tensor x = random_tensor({1, 2, 1, row.second}, 1);
        const PackedCache packed = pack(x, row.first);
        const Tensor numbers(x.shape, {packed.numbers.begin(), packed.numbers.end()});
        CHECK(difference(numbers, x, {.absolute = 1.0 / 250, .relative = 0}) == "");
    }
}

TEST_CASE("kv cache: words of a row that lie apart are read, and not written") {
    for (const WeightType type : kCacheTypes) {
        CAPTURE(name_of(type));
        const PackedCache packed = pack(random_tensor({1, 5, 1, 12}, 1), type);
        const Tensor words({5, words_of(type, 12)}, {packed.words.begin(), packed.words.end()});
        const Tensor numbers({5, 12}, {packed.numbers.begin(), packed.numbers.end()});
        OpCheck check;
        const Value turned = transpose(check.indices("words", transpose(words, 0, 1)), 0, 1);
        CHECK(check.difference(unpack_rows(turned, type, 12), numbers, exactly()) == "");
    }
    Graph g;
    const Value x = g.input("x", {3, 8});
    const auto refused = [&](const Value& window) { return error_of([&] { pack_into(window, x, WeightType::f16); }); };
    CHECK(contains(refused(transpose(g.state("a", {4, 3}, DType::i32), 0, 1)), "lie apart"));
    CHECK(contains(refused(slice(transpose(g.state("b", {4, 9}, DType::i32), 0, 1), 0, 2, 3)), "lie apart"));
    CHECK(contains(refused(broadcast_to(g.state("c", {4}, DType::i32), {3, 4})), "holds an element more than once"));
    CHECK(refused(slice(g.state("d", {5, 4}, DType::i32), 0, 1, 3)) == "");
    CHECK(contains(refused(g.state("e", {1, 1, 1, 3, 4}, DType::i32)), "e (1, 1, 1, 3, 4) I32 must have 1 to 4"));
    Graph other;
    const Value far = other.state("far", {3, 4}, DType::i32);
    CHECK(contains(refused(far), "x (3, 8) F32 belongs to another graph than far (3, 4) I32"));
    CHECK(contains(error_of([&] {
                       copy_into(far, g.input("words", {3, 4}, DType::i32));
                   }),
                   "belongs to another graph"));
}

TEST_CASE("kv cache: attention over a packed cache is attention over what the cache holds") {
    for (const WeightType type : kCacheTypes) {
        CAPTURE(name_of(type));
        for (const Causal causal : {Causal::none, Causal::bottom_right}) {
            CHECK(mismatch({2, 4, 2, 5, 40, 16, 16}, type, causal) == "");
            CHECK(mismatch({1, 6, 2, 7, 33, 20, 12}, type, causal) == "");
            CHECK(mismatch({1, 3, 1, 4, 9, 13, 6}, type, causal) == "");
            // a step; keys are split
            CHECK(mismatch({1, 4, 4, 1, 700, 64, 64}, type, causal) == "");
            // a chunk of a prompt
            CHECK(mismatch({1, 2, 1, 150, 200, 32, 32}, type, causal) == "");
        }
    }
}

TEST_CASE("kv cache: attention over packed rows that begin at no multiple of four words") {
    for (const WeightType type : kCacheTypes) {
        CAPTURE(name_of(type));
        CHECK(window_mismatch({1, 2, 1, 3, 150, 16, 16}, type) == "");
    }
}

TEST_CASE("kv cache: attention over keys in a ring is attention over them in order, wherever the ring begins") {
    for (const WeightType type : {WeightType::f32, WeightType::f16, WeightType::int8}) {
        CAPTURE(name_of(type));
        for (const bool masked : {false, true}) {
            CAPTURE(masked);
            for (const std::int64_t first : {0, 30, 49}) {
                CAPTURE(first);
                CHECK(ring_mismatch({2, 4, 2, 5, 40, 16, 16}, 50, first, 36, type, masked) == "");
                CHECK(ring_mismatch({1, 6, 2, 3, 50, 20, 12}, 50, first, 48, type, masked) == "");
                CHECK(ring_mismatch({1, 3, 1, 1, 7, 13, 6}, 50, first, 40, type, masked) == "");
            }
            // keys are split
            CHECK(ring_mismatch({1, 4, 4, 1, 700, 64, 64}, 760, 300, 700, type, masked) == "");
            CHECK(ring_mismatch({1, 4, 2, 1, 1500, 32, 32}, 1600, 1599, 1500, type, masked) == "");
            // a chunk
            CHECK(ring_mismatch({1, 2, 1, 150, 250, 32, 32}, 300, 120, 101, type, masked) == "");
        }
    }
}

TEST_CASE("kv cache: before_end of a ring is what its rows make it, or an error") {
    const auto refused = [](RingRows ring) {
        Graph g;
        const Value k = g.input("k", {1, 1, 8, 4});
        const std::string seen = error_of([&] {
            scaled_dot_product_attention(g.input("q", {1, 1, 2, 4}), k, k, {.ring = ring});
        });
        const Value x = g.input("x", {1, ring.count, 1, 4});
        const KvCache cache{
            g.state("keys", {1, 8, 1, 4}), g.state("values", {1, 8, 1, 4}), 0, WeightType::f32, ring, ring};
        const std::string written = error_of([&] { append(cache, x, x); });
        CHECK(seen.empty() == written.empty());
        return seen;
    };
    CHECK(refused({3, 4, 4}) == "");
    CHECK(refused({6, 2, 4}) == "");
    CHECK(refused({0, 8, 8}) == "");
    CHECK(contains(refused({3, 2, 4}),
                   "scaled_dot_product_attention: before_end = 2 of the ring k (1, 1, 8, 4) F32 must be the smaller of "
                   "count = 4 and of its rows from first on, 8 - 3"));
    CHECK(contains(refused({6, 1, 4}), "count = 4 and of its rows from first on, 8 - 6"));
    CHECK(contains(refused({6, 3, 4}), "count = 4 and of its rows from first on, 8 - 6"));
    CHECK(contains(refused({0, 5, 4}), "count = 4 and of its rows from first on, 8 - 0"));

    Graph g;
    const Dim first = g.symbol("first", 7), before_end = g.symbol("before_end", 8), count = g.symbol("count", 8);
    const Value k = g.input("k", {1, 1, 8, 4});
    CHECK(error_of([&] {
              scaled_dot_product_attention(k, k, k, {.softcap = -1, .ring = {{first, before_end, count}}});
          }) != "");
    CHECK(g.constraints().empty());  // of the ring of what was refused
    g.output("y",
             scaled_dot_product_attention(g.input("q", {1, 1, 2, 4}), k, k, {.ring = {{first, before_end, count}}}));
    Program p = device().compile(g);
    upload(p, "q", random_tensor({1, 1, 2, 4}, 1));
    upload(p, "k", random_tensor({1, 1, 8, 4}, 2));
    const auto run = [&](std::int64_t from, std::int64_t before, std::int64_t rows) {
        p.set("first", from);
        p.set("before_end", before);
        p.set("count", rows);
        return error_of([&] { p.run(); });
    };
    CHECK(run(3, 4, 4) == "");
    CHECK(run(6, 2, 4) == "");
    CHECK(run(7, 1, 8) == "");
    CHECK(contains(run(3, 2, 4), "smaller than both, their differences multiplied: 6 is more than 0"));
    CHECK(contains(run(6, 3, 4), "beyond these rows: 1 is more than 0"));
    CHECK(contains(run(0, 5, 4), "beyond count: 1 is more than 0"));
    CHECK(run(0, 4, 4) == "");
}

TEST_CASE("kv cache: what a masked row of a cache holds leaves no trace, and what is seen shows") {
    const AttentionSizes sizes{1, 4, 2, 1, 70, 64, 64};
    const Qkv clean = random_qkv(sizes, 8);
    Qkv spoilt = clean;
    for (const std::int64_t token : {3, 40}) {
        for (std::int64_t i = 0; i < 64; ++i) {
            spoilt.key.at({0, 1, token, i}) = i % 2 != 0 ? kNan : kInf;
            spoilt.value.at({0, 1, token, i}) = i % 2 != 0 ? -kInf : kNan;
        }
    }
    Qkv one = clean;
    one.value.at({0, 0, 40, 9}) = kInf;
    for (const WeightType type : {WeightType::f32, WeightType::f16, WeightType::bf16, WeightType::int8}) {
        CAPTURE(name_of(type));
        const bool plain = type == WeightType::f32;
        Tensor mask({1, 1, 1, 70}, 1.0);
        const auto attended = [&](const Qkv& x) {
            OpCheck check;
            const auto cache = [&](const char* name, const Tensor& t) {
                const Value in = check.input(std::string(name) + "_in", t);
                if (plain) {
                    return in;
                }
                const Value state = check.graph.state(name, {1, 2, 70, words_of(type, 64)}, DType::i32);
                pack_into(state, in, type);
                return state;
            };
            AttentionOptions o{.kv_type = type, .value_dim = 64};
            o.mask.keys = check.input("mask", mask, DType::i32);
            return check.run(
                scaled_dot_product_attention(check.input("q", x.query), cache("k", x.key), cache("v", x.value), o).y);
        };
        const auto expected = [&](const Qkv& x) {
            reference::AttentionOptions o;
            o.scores.keys = mask;
            return reference::attention(x.query, plain ? x.key : kept(x.key, type),
                                        plain ? x.value : kept(x.value, type), o)
                .y;
        };
        CHECK(difference(attended(spoilt), expected(spoilt), {2e-5, 1e-4, {}}) == "");
        CHECK(difference(attended(one), expected(one), {2e-5, 1e-4, {}}) == "");
        mask.at({0, 0, 0, 3}) = mask.at({0, 0, 0, 40}) = 0;
        CHECK(same_bits(attended(clean), attended(spoilt)));
        CHECK(difference(attended(clean), expected(clean), {2e-5, 1e-4, {}}) == "");
    }
}

TEST_CASE("kv cache: half a ring is refused, and a ring where its rows would be taken as they lie") {
    Graph g;
    const Value x = g.input("x", {1, 2, 8});
    KvCache cache = kv_cache(g, "cache", 1, 6, 2, 4, 0);
    cache.written = RingRows{0, 2, 2};
    CHECK(contains(error_of([&] { append(cache, split_heads(x, 2), split_heads(x, 2)); }),
                   "append: a ring has both the rows that are written and those that are seen"));
    cache.seen = RingRows{0, 2, 2};
    CHECK(
        contains(error_of([&] { torch::multihead_attention(x, x, x, {.name = "a", .num_heads = 2, .cache = cache}); }),
                 "a cache that is a ring is for grouped_query_attention"));
}

TEST_CASE("kv cache: sizes below 1 are refused, and no state is left") {
    Graph g;
    for (const WeightType type : {WeightType::f32, WeightType::int8}) {
        for (const std::int64_t wrong : {std::int64_t{0}, std::int64_t{-8}}) {
            const std::string told = "kv_cache: batch 1, capacity 8, kv_heads 2, head_dim " + std::to_string(wrong);
            CHECK(contains(error_of([&] { kv_cache(g, "cache", 1, 8, 2, wrong, 0, type); }), told));
            CHECK(contains(error_of([&] { kv_cache(g, "cache", wrong, 8, 2, 8, 0, type); }), "each is at least 1"));
            CHECK(contains(error_of([&] { kv_cache(g, "cache", 1, wrong, 2, 8, 0, type); }), "each is at least 1"));
            CHECK(contains(error_of([&] { kv_cache(g, "cache", 1, 8, wrong, 8, 0, type); }), "each is at least 1"));
        }
    }
    CHECK(g.storages().empty());
}

TEST_CASE("kv cache: grouped_query_attention over a cache of each type") {
    constexpr std::int64_t kTokens = 11;
    const Tensor x = random_tensor({2, kTokens, 64}, 5);
    std::vector<Tensor> results;
    std::vector<std::uint64_t> bytes;
    for (const WeightType type : {WeightType::f32, WeightType::f16, WeightType::bf16, WeightType::int8}) {
        Graph g;
        const Dim tokens = g.symbol("tokens", 16);
        const Dim start = g.symbol("start", 16);
        GroupedQueryAttentionOptions o{
            .name = "attn", .heads = 4, .kv_heads = 2, .rope = Rope{.layout = RopeLayout::interleaved}};
        o.cache = kv_cache(g, "cache", 3, 16, 2, 16, start, type);
        g.output("y", grouped_query_attention(g.input("x", {2, tokens, 64}), o));
        std::vector<std::vector<float>> numbers;
        std::vector<HostTensor> tensors;
        for (const auto& [name, rows] : {std::pair{"q_proj", 64}, {"k_proj", 32}, {"v_proj", 32}, {"o_proj", 64}}) {
            numbers.push_back(random_tensor({rows, 64}, static_cast<std::uint32_t>(numbers.size()), 0.2).floats());
            tensors.push_back({std::string("attn.") + name + ".weight", DType::f32, {rows, 64}, {}});
        }
        for (std::size_t i = 0; i < tensors.size(); ++i) {
            tensors[i].data = std::as_bytes(std::span(numbers[i]));
        }
        Program p = device().compile(g, device().load(tensors));
        bytes.push_back(p.memory().state);
        const Tensor whole = run_in_chunks(p, x, {kTokens});
        CHECK(difference(run_in_chunks(p, x, {4, 1, 6}), whole) == "");
        CHECK(difference(run_in_chunks(p, x, std::vector<std::int64_t>(kTokens, 1)), whole) == "");
        results.push_back(whole);
    }
    CHECK(difference(results[1], results[0], {2e-3, 1e-3, {}}) == "");
    CHECK(difference(results[2], results[0], {2e-2, 1e-2, {}}) == "");
    CHECK(difference(results[3], results[0], {2e-2, 2e-2, {}}) == "");
    CHECK(difference(results[3], results[0], {1e-7, 1e-7, {}}) != "");  // it was packed indeed
    CHECK(bytes[1] * 2 == bytes[0]);
    CHECK(bytes[3] * 2 == bytes[0]);  // heads of 16: four words of codes, and four for the scale
}

TEST_CASE("kv cache: wrong use is told when it is described") {
    Graph g;
    const Value x = g.input("x", {1, 2, 1, 8});
    const Value state = g.state("s", {1, 4, 1, 8}, DType::i32);
    CHECK(contains(error_of([&] { pack_into(slice(state, 1, 0, 2), x, WeightType::int4); }),
                   "packed as f16, bf16 or int8 on the device, not as int4"));
    CHECK(contains(error_of([&] { pack_into(slice(state, 1, 0, 2), x, WeightType::f16); }),
                   "must have rows of 4 words for 8 numbers as f16"));
    CHECK(contains(error_of([&] { pack_into(state, x, WeightType::int8); }), "does not fit into"));
    const Value q = g.input("q", {1, 2, 2, 8});
    const Value kv = transpose(state, 1, 2);
    CHECK(error_of([&] { scaled_dot_product_attention(q, kv, kv, {.kv_type = WeightType::int8}); }) == "");
    CHECK(contains(error_of([&] { scaled_dot_product_attention(q, kv, kv, {.kv_type = WeightType::f16}); }),
                   "rows of 4 words"));
    CHECK(contains(
        error_of([&] { scaled_dot_product_attention(q, kv, kv, {.kv_type = WeightType::int8, .value_dim = 20}); }),
        "for 20 numbers as int8"));
    CHECK(contains(
        error_of([&] { scaled_dot_product_attention(q, kv, kv, {.kv_type = WeightType::int8, .value_dim = -4}); }),
        "value_dim = -4 is negative"));
    // nothing is written of a key whose value does not fit
    Graph h;
    const Value rows = h.input("rows", {1, 2, 1, 8}), wide = h.input("wide", {1, 2, 1, 40});
    for (const WeightType type : {WeightType::f32, WeightType::int8}) {
        KvCache cache = kv_cache(h, std::string(name_of(type)), 1, 4, 1, 8, h.symbol("start", 2), type);
        CHECK(error_of([&] { append(cache, rows, wide); }) != "");
        CHECK(h.nodes().empty());
        CHECK(h.constraints().empty());
    }
    const Value k = g.input("k", {1, 1, 4, 8});
    AttentionOptions ring{.ring = RingRows{0, 4, 4}};
    CHECK(error_of([&] { scaled_dot_product_attention(q, k, k, ring); }) == "");
    ring.ring->count = 5;
    CHECK(contains(error_of([&] { scaled_dot_product_attention(q, k, k, ring); }), "lies outside it"));
    ring.ring->count = 4;
    ring.key_lengths = g.input("lengths", {1}, DType::i32);
    CHECK(contains(error_of([&] { scaled_dot_product_attention(q, k, k, ring); }), "keys in a ring go with neither"));
}

TEST_SUITE_END();
