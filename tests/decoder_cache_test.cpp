// SPDX-License-Identifier: Apache-2.0
// A decoder's prompt that is used again: more tokens behind it, and its caches in a file.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "tests/decoder_models.h"
#include "tests/fixtures.h"
#include "tests/op_check.h"

namespace vkf::test {

namespace {

namespace fs = std::filesystem;
using Ids = std::vector<std::int32_t>;

/// Some ids below the vocabulary of the models of tests/decoders.
Ids ids(std::size_t count, std::int32_t seed) {
    Ids out;
    for (std::size_t i = 0; i < count; ++i) {
        out.push_back((seed + 7 * static_cast<std::int32_t>(i * i + i)) % 97);
    }
    return out;
}

/// True where two decoders stand at the same place and answered the same, bit for bit.
bool same_answers(const Decoder& a, const Decoder& b, std::size_t candidates) {
    bool same = a.room() == b.room() && std::ranges::equal(a.next(), b.next());
    for (std::size_t s = 0; same && candidates > 0 && s < a.next().size(); ++s) {
        const Candidates x = a.candidates(s), y = b.candidates(s);
        same = std::ranges::equal(x.tokens.first(candidates), y.tokens.first(candidates)) &&
               std::ranges::equal(x.logits.first(candidates), y.logits.first(candidates));
    }
    return same;
}

/// Both go on: steps with their likeliest tokens, and more tokens at once.
void check_go_on_alike(Decoder& a, Decoder& b, std::size_t candidates) {
    for (int i = 0; i < 5; ++i) {
        const Ids next(a.next().begin(), a.next().end());
        a.step(next);
        b.step(next);
        CHECK(same_answers(a, b, candidates));
    }
    const Ids more = ids(6 * a.next().size(), 5);
    a.append(more);
    b.append(more);
    CHECK(same_answers(a, b, candidates));
}

/// A file of a decoder's caches with one thing in it changed.
class Changed {
public:
    explicit Changed(const fs::path& path) : file_(path), metadata(file_.metadata()) {
        for (const HostTensor& t : file_.tensors()) {
            tensors.emplace(t.name, t);
        }
    }
    /// The tensor becomes these numbers.
    template <class T>
    void put(const std::string& name, const std::vector<std::int64_t>& shape, const std::vector<T>& numbers) {
        const auto bytes = std::as_bytes(std::span(numbers));
        owned_.assign(bytes.begin(), bytes.end());
        tensors.at(name).shape = shape;
        tensors.at(name).data = owned_;
    }
    void save(const fs::path& path) const {
        std::vector<HostTensor> all;
        for (const auto& [name, tensor] : tensors) {
            all.push_back(tensor);
        }
        save_safetensors(path, all, metadata);
    }

private:
    Safetensors file_;
    std::vector<std::byte> owned_;

public:
    std::map<std::string, std::string> metadata;
    std::map<std::string, HostTensor> tensors;
};

}  // namespace

TEST_SUITE_BEGIN("decoder cache");

TEST_CASE("decoder cache: more tokens behind a prompt are as the prompt whole") {
    for (const char* name : {"llama", "gemma2", "gpt2"}) {
        CAPTURE(name);
        const Model model(kModels / name);
        const Ids text = ids(24, 3);
        const DecoderOptions options{.max_tokens = 60, .chunk = 6, .candidates = 4};
        Decoder whole = model.decoder(options), parts = model.decoder(options);
        whole.prompt(text);
        parts.prompt(Ids(text.begin(), text.begin() + 12));
        parts.append(std::span(text).subspan(12));  // in the same chunks: the same bits
        CHECK(same_answers(whole, parts, 4));
        check_go_on_alike(whole, parts, 4);
        parts.prompt(Ids(text.begin(), text.begin() + 5));
        for (std::size_t at = 5; at < text.size(); ++at) {
            parts.append(std::span(text).subspan(at, 1));
        }
        CHECK(continued(parts, 20).front() == greedy(whole, text, 20));
    }
}

TEST_CASE("decoder cache: more tokens for a batch, each row behind its own sequence") {
    const Model model(kModels / "gpt2");
    const std::vector<Ids> texts{ids(20, 1), ids(13, 2)};
    Decoder decoder = model.decoder({.max_batch = 2, .max_tokens = 60, .chunk = 4, .candidates = 2});
    std::vector<Ids> begun;
    Ids rest;
    for (const Ids& t : texts) {
        begun.emplace_back(t.begin(), t.end() - 7);
        rest.insert(rest.end(), t.end() - 7, t.end());
    }
    decoder.prompt(begun);
    decoder.append(rest);
    CHECK(decoder.room() == 40);
    const auto answers = continued(decoder, 20);
    Decoder alone = model.decoder({.max_tokens = 60});
    for (std::size_t b = 0; b < texts.size(); ++b) {
        CHECK(answers[b] == greedy(alone, texts[b], 20));
    }
    decoder.append(decoder.next());  // a span of the decoder's own
    CHECK(decoder.room() == 20);
}

TEST_CASE("decoder cache: tokens that cannot follow are refused, and an end in between is no prompt") {
    const Model model(kModels / "llama");
    bool enough = false;
    struct Enough {};
    DecoderOptions options{.max_batch = 2, .max_tokens = 20, .chunk = 2};
    options.progress = [&](std::uint64_t, std::uint64_t) {
        if (enough) {
            throw Enough();
        }
    };
    Decoder decoder = model.decoder(options);
    const auto refusal = [&](const Ids& tokens) { return error_of([&] { decoder.append(tokens); }); };
    CHECK(contains(refusal({1}), "more tokens follow a prompt that was read to its end"));
    decoder.prompt(std::vector<Ids>{ids(8, 1), ids(8, 2)});
    const Ids next(decoder.next().begin(), decoder.next().end());
    CHECK(contains(refusal({}), "0 tokens for 2 sequences"));
    CHECK(contains(refusal({1, 2, 3}), "3 tokens for 2 sequences"));
    CHECK(contains(refusal(ids(26, 1)), "13 more tokens; 12 of the 20"));
    CHECK(contains(refusal({1, 97}), "token 97 is outside the vocabulary of 97"));
    CHECK(std::ranges::equal(decoder.next(), next));
    decoder.append(ids(24, 1));
    CHECK(decoder.room() == 0);
    decoder.prompt(std::vector<Ids>{ids(8, 1), ids(8, 2)});
    enough = true;
    CHECK_THROWS_AS(decoder.append(ids(8, 1)), Enough);
    CHECK(std::ranges::equal(decoder.next(), next));
    CHECK(decoder.room() == 12);
    enough = false;
    decoder.append(ids(8, 1));
    Decoder undisturbed = model.decoder(options);
    undisturbed.prompt(std::vector<Ids>{ids(8, 1), ids(8, 2)});
    undisturbed.append(ids(8, 1));
    CHECK(std::ranges::equal(decoder.next(), undisturbed.next()));
    // a chunk takes rows of rings from what was there
    const Model sliding(kModels / "mistral");
    Decoder rings = sliding.decoder(options);
    rings.prompt(std::vector<Ids>{ids(8, 1), ids(8, 2)});
    enough = true;
    CHECK_THROWS_AS(rings.append(ids(8, 1)), Enough);
    CHECK(rings.next().empty());
    CHECK(contains(error_of([&] { rings.append(Ids{1, 2}); }), "read to its end"));
}

TEST_CASE("decoder cache: a decoder goes on from a file as if it had read the prompt, bit for bit") {
    const TemporaryFolder folder;
    const fs::path file = folder.path() / "cache.safetensors";
    // gemma2 keeps every other layer in a ring, mistral every layer; gpt2 has learned positions
    for (const char* name : {"gemma2", "mistral", "gpt2", "qwen3"}) {
        const Model model(kModels / name);
        for (const WeightType kv : {WeightType::f32, WeightType::f16, WeightType::int8}) {
            // fewer tokens than a ring has rows, and more
            for (const std::size_t longest : {3u, 14u}) {
                CAPTURE(name);
                CAPTURE(name_of(kv));
                CAPTURE(longest);
                const DecoderOptions options{.max_batch = 4, .max_tokens = 60, .chunk = 4, .candidates = 3, .kv = kv};
                Decoder reader = model.decoder(options), other = model.decoder(options);
                reader.prompt(std::vector<Ids>{ids(longest, 3), ids(2, 4), ids(1, 5)});
                reader.save_cache(file);
                CHECK(fs::file_size(file) < reader.memory().cache);
                CHECK(folder.files() == std::vector<std::string>{"cache.safetensors"});
                other.prompt(std::vector<Ids>{ids(30, 8), ids(30, 9), ids(7, 10), ids(4, 11)});
                other.restore_cache(file);
                CHECK(same_answers(reader, other, 3));
                check_go_on_alike(reader, other, 3);
                reader.save_cache(file);  // behind steps; the rings of this and that are filled
                other.prompt(ids(2, 1));
                other.restore_cache(file);
                CHECK(same_answers(reader, other, 3));
                check_go_on_alike(reader, other, 3);
            }
        }
    }
}

TEST_CASE("decoder cache: into a decoder of other sizes, where the caches fit") {
    const TemporaryFolder folder;
    const fs::path file = folder.path() / "cache.safetensors";
    const std::vector<Ids> prompts{ids(17, 3), ids(9, 4)};
    for (const char* name : {"gemma2", "gpt2"}) {
        CAPTURE(name);
        const Model model(kModels / name);
        const auto decoder = [&](std::int64_t max_batch, std::int64_t max_tokens, std::int64_t chunk,
                                 std::int64_t candidates) {
            return model.decoder(
                {.max_batch = max_batch, .max_tokens = max_tokens, .chunk = chunk, .candidates = candidates});
        };
        Decoder reader = decoder(2, 40, 4, 5);
        reader.prompt(prompts);
        reader.save_cache(file);
        for (const std::int64_t max_tokens : {30, 100}) {
            Decoder same = decoder(3, max_tokens, 4, 2), other = decoder(3, max_tokens, 4, 2);
            same.prompt(prompts);
            other.restore_cache(file);
            CHECK(same_answers(same, other, 2));
            check_go_on_alike(same, other, 2);
        }
        CHECK(contains(error_of([&] { decoder(1, 40, 4, 0).restore_cache(file); }),
                       "holds 2 sequences; the decoder takes 1 to 1"));
        CHECK(contains(error_of([&] { decoder(2, 16, 4, 0).restore_cache(file); }),
                       "holds 17 tokens; the decoder has room for 16"));
        CHECK(contains(error_of([&] { decoder(2, 40, 4, 6).restore_cache(file); }),
                       "has 5 candidates of each sequence, the decoder gives 6"));
        Decoder chunks = decoder(2, 40, 5, 5);
        const std::string error = error_of([&] { chunks.restore_cache(file); });
        if (std::string(name) == "gemma2") {  // whose ring has as many rows more
            CHECK(contains(error, "is (2, 9, 2, 8) F32"));
            CHECK(contains(error, "would be (2, 10, 2, 8) F32: a ring"));
        } else {
            CHECK(error.empty());
            check_go_on_alike(reader, chunks, 0);
        }
    }
}

TEST_CASE("decoder cache: nothing read, half read and scored are kept as well") {
    const TemporaryFolder folder;
    const fs::path file = folder.path() / "cache.safetensors";
    const Model model(kModels / "gemma2");
    struct Enough {};
    bool enough = false;
    DecoderOptions options{.max_batch = 2, .max_tokens = 40, .chunk = 4, .candidates = 2, .score = true};
    options.progress = [&](std::uint64_t, std::uint64_t) {
        if (enough) {
            throw Enough();
        }
    };
    Decoder reader = model.decoder(options), other = model.decoder(options);
    const auto check_no_prompt = [&](std::int64_t room) {
        reader.save_cache(file);
        enough = false;
        other.prompt(ids(9, 1));
        other.restore_cache(file);
        CHECK(other.room() == room);
        CHECK(other.next().empty());
        CHECK(contains(error_of([&] { other.step(Ids{1}); }), "a step follows a prompt that was read to its end"));
    };
    check_no_prompt(40);
    enough = true;
    CHECK_THROWS_AS(reader.prompt(std::vector<Ids>{ids(20, 1), ids(2, 2)}), Enough);
    check_no_prompt(36);  // of which one sequence has only padding so far
    reader.score(ids(9, 1));
    reader.save_cache(file);
    other.restore_cache(file);
    CHECK(same_answers(reader, other, 0));
    reader.step(Ids{7});
    other.step(Ids{7});
    CHECK(same_answers(reader, other, 2));
}

TEST_CASE("decoder cache: what does not fit is refused by name, and the decoder is as before") {
    const TemporaryFolder folder;
    const fs::path file = folder.path() / "cache.safetensors", wrong = folder.path() / "wrong.safetensors";
    const Model model(kModels / "gemma2");  // layer 0 in a ring, layer 1 not
    const DecoderOptions options{.max_batch = 2, .max_tokens = 40, .chunk = 4, .candidates = 2};
    Decoder reader = model.decoder(options), other = model.decoder(options), twin = model.decoder(options);
    reader.prompt(std::vector<Ids>{ids(13, 1), ids(6, 2)});
    reader.save_cache(file);
    const std::vector<Ids> before{ids(5, 7), ids(9, 8)};
    other.prompt(before);
    twin.prompt(before);
    const auto refusal = [&](const fs::path& path) {
        const std::string error = error_of([&] { other.restore_cache(path); });
        CHECK(contains(error, utf8_name(path)));
        CHECK(same_answers(twin, other, 2));
        return error;
    };
    const auto refused = [&](const auto& change) {
        Changed changed(file);
        change(changed);
        changed.save(wrong);
        return refusal(wrong);
    };
    const std::string key = "model.layers.1.self_attn.cache.key";
    REQUIRE(Changed(file).tensors.contains(key));
    using C = Changed;
    CHECK(contains(refusal(folder.path() / "nowhere"), "nowhere"));
    CHECK(contains(refused([](C& c) { c.metadata.clear(); }), "is not of a decoder's caches"));
    CHECK(contains(refused([](C& c) { c.metadata["vkformer.cache"] = "2"; }), "version \"2\"; only 1 is known"));
    CHECK(contains(refused([](C& c) { c.metadata["model_type"] = "llama\n"; }),
                   "\"llama?\", the decoder's is \"gemma2\""));
    CHECK(
        contains(refused([](C& c) { c.metadata["kv"] = "int8"; }), "kept as \"int8\", the decoder keeps them as f32"));
    for (const std::vector<std::int64_t>& sizes : {std::vector<std::int64_t>{98, 13, 1},
                                                   {97, 14, 1},
                                                   {97, 12, 1},
                                                   {97, -1, 1},
                                                   {97, 41, 1},
                                                   {97, 13, 2},
                                                   {97, 13, 0},
                                                   {97, 7, 1},
                                                   {97, 0, 1},
                                                   {97, std::int64_t{1} << 62, 1}}) {
        CAPTURE(sizes[1]);
        CHECK(!refused([&](C& c) { c.put<std::int64_t>("decoder.sizes", {3}, sizes); }).empty());
    }
    CHECK(contains(refused([](C& c) {
                       c.put<std::int64_t>("decoder.sizes", {3}, {98, 13, 1});
                   }),
                   "a vocabulary of 98, the decoder's has 97"));
    CHECK(contains(refused([](C& c) {
                       c.put<std::int64_t>("decoder.sizes", {2}, {97, 13});
                   }),
                   "tensor decoder.sizes is (2) I64 instead of (3) I64"));
    CHECK(contains(refused([](C& c) {
                       c.put<std::int64_t>("decoder.layers", {1, 3}, {2, 8, 6});
                   }),
                   "1 layers, the decoder's has 2"));
    CHECK(contains(refused([](C& c) {
                       c.put<std::int64_t>("decoder.layers", {2, 3}, {2, 8, 6, 4, 8, 7});
                   }),
                   "layer 1 has 4 kv heads of 8 numbers and a window of 7, the decoder's has 2 kv heads of 8 numbers "
                   "and no window"));
    for (const Ids& padding : {Ids{}, {0, 0, 0}, {1, 7}, {0, 13}, {0, -1}, {0, 1 << 30}}) {
        const std::string error = refused([&](C& c) {
            c.put<std::int32_t>("decoder.padding", {static_cast<std::int64_t>(padding.size())}, padding);
        });
        CHECK(contains(error, padding.size() == 2 ? "tensor decoder.padding" : "sequences; the decoder takes 1 to 2"));
    }
    CHECK(
        contains(refused([](C& c) { c.put<std::int32_t>("decoder.padding", {1}, {0}); }), "decoder.next has 2 tokens"));
    CHECK(contains(refused([](C& c) {
                       c.put<std::int32_t>("decoder.next", {2}, {97, 0});
                   }),
                   "decoder.next has token 97"));
    CHECK(contains(refused([](C& c) { c.put<std::int32_t>("decoder.next", {1}, {0}); }), "has 1 tokens for 2"));
    CHECK(contains(refused([](C& c) {
                       c.put<std::int32_t>("decoder.candidate_tokens", {2, 2}, {1, 2, -3, 4});
                   }),
                   "decoder.candidate_tokens has token -3"));
    CHECK(contains(refused([](C& c) {
                       c.put<std::int32_t>("decoder.candidate_tokens", {2, 1}, {1, 2});
                   }),
                   "decoder.candidate_logits is (2, 2) F32 instead of (2, 1) F32"));
    CHECK(contains(refused([](C& c) {
                       c.put<std::int32_t>("decoder.candidate_logits", {2, 2}, std::vector<std::int32_t>(16));
                       c.tensors.at("decoder.candidate_logits").type = WeightType::int8;
                   }),
                   "decoder.candidate_logits is (2, 2) int8 instead of (2, 2) F32"));
    CHECK(contains(refused([&](C& c) { c.tensors.erase(key); }), "no tensor \"" + key + "\""));
    CHECK(contains(
        refused([&](C& c) { c.tensors.at(key).dtype = DType::i32; }),
        key + " is (2, 13, 2, 8) I32; of a cache of 40 rows that holds 13 tokens it would be (2, 13, 2, 8) F32"));
    CHECK(contains(refused([&](C& c) {
                       c.put<float>(key, {2, 13, 2, 4}, std::vector<float>(208));
                   }),
                   "is (2, 13, 2, 4)"));
    CHECK(contains(refused([&](C& c) { c.put<float>(key, {416}, std::vector<float>(416)); }), "is (416)"));
    CHECK(contains(refused([&](C& c) {
                       HostTensor more = c.tensors.at(key);
                       more.name = "more";
                       c.tensors.emplace("more", more);
                   }),
                   "has a tensor \"more\", which is no cache of the decoder"));
    const std::string whole = read_text(file);
    for (std::size_t size = 0; size < whole.size(); size += whole.size() / 40) {
        std::ofstream(wrong, std::ios::binary).write(whole.data(), static_cast<std::streamsize>(size));
        CHECK(!refusal(wrong).empty());
    }
    check_go_on_alike(twin, other, 2);
    other.restore_cache(file);
    CHECK(same_answers(reader, other, 2));
    check_go_on_alike(reader, other, 2);

    CHECK(contains(error_of([&] { reader.save_cache(folder.path() / "no/such/folder"); }), "no/such/folder"));
    for (const char* name : {"qwen2", "gpt2"}) {
        CHECK(contains(error_of([&] { Model(kModels / name).decoder(options).restore_cache(file); }),
                       std::string("of type \"gemma2\", the decoder's is \"") + name));
    }
}

TEST_SUITE_END();

}  // namespace vkf::test
