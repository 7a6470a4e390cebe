// SPDX-License-Identifier: Apache-2.0
// Decoders from folders that save_decoder() wrote: the same bits as packing at load gives.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <system_error>

#include "models/decoder.h"
#include "runtime/graph/packed.h"
#include "tests/decoder_models.h"
#include "tests/device.h"
#include "tests/fixtures.h"
#include "tests/op_check.h"

using namespace vkf;
using namespace vkf::test;

namespace {

namespace fs = std::filesystem;

const std::vector<std::int32_t> kText{5, 3, 60, 17, 8, 42, 2, 33, 9, 14, 71};

/// A folder that is not there yet, and is gone at the end.
struct NewFolder {
    fs::path path = fs::temp_directory_path() / ("vkformer-saved-" + std::to_string(std::random_device{}()));
    NewFolder() = default;
    NewFolder(const NewFolder&) = delete;
    NewFolder& operator=(const NewFolder&) = delete;
    ~NewFolder() {
        std::error_code ignored;
        fs::remove_all(path, ignored);
    }
};

struct Answer {
    std::vector<float> logits;
    std::vector<std::int32_t> tokens;
    std::uint64_t bytes = 0, packed_on_device = 0;
    bool operator==(const Answer&) const = default;
};

Answer answer(const Checkpoint& checkpoint, std::optional<WeightType> type, PackOn pack_on = PackOn::host) {
    const DecoderModel model = read_decoder(checkpoint);
    const LoadOptions load{.matrices = type, .pack_on = pack_on};
    const Weights weights = load_decoder(device(), checkpoint, model, load);
    CHECK(weights.layout().tensors() == DecoderPlan(device(), checkpoint, model, {}, load).weights().tensors());
    Decoder decoder(device(), weights, model, {.max_tokens = 40, .score = true});
    Answer out;
    out.logits = decoder.score(kText);
    out.bytes = weights.bytes();
    out.packed_on_device = weights.bytes_packed_on_device();
    decoder.prompt(kText);
    for (int i = 0; i < 20; ++i) {
        out.tokens.push_back(decoder.next()[0]);
        decoder.step(std::span(out.tokens).last(1));
    }
    return out;
}

void save(const fs::path& folder, const Checkpoint& checkpoint, std::optional<WeightType> type) {
    save_decoder(folder, checkpoint, read_decoder(checkpoint), {.matrices = type});
}

}  // namespace

TEST_SUITE_BEGIN("decoder");

TEST_CASE("decoder: saved and read again, weights give the same bits as packed at load") {
    for (const char* name :
         // shards; 1 + norms; (in, out) in the file
         {"llama", "llama3", "gemma2", "gpt2", "gpt2_bare"}) {
        CAPTURE(name);
        const Checkpoint checkpoint(kModels / name);
        for (const auto type :
             {std::optional<WeightType>(), std::optional(WeightType::f32), std::optional(WeightType::f16),
              std::optional(WeightType::bf16), std::optional(WeightType::int8), std::optional(WeightType::int4)}) {
            const std::string type_name = type ? std::string(name_of(*type)) : "as in the file";
            CAPTURE(type_name);
            const NewFolder folder;
            save(folder.path, checkpoint, type);
            const Checkpoint saved(folder.path);
            const Answer want = answer(checkpoint, type);
            CHECK(answer(saved, {}) == want);
            CHECK(answer(saved, type) == want);
        }
    }
}

TEST_CASE("decoder: a saved folder saved again is the same file, and stays of its type") {
    const NewFolder first, second, third;
    save(first.path, Checkpoint(kModels / "gpt2"), WeightType::int8);
    const Checkpoint saved(first.path);
    save(second.path, saved, {});
    CHECK(read_text(first.path / "model.safetensors") == read_text(second.path / "model.safetensors"));
    CHECK(read_text(first.path / "config.json") == read_text(kModels / "gpt2" / "config.json"));
    const DecoderModel model = read_decoder(saved);
    for (const WeightType type : {WeightType::f32, WeightType::f16, WeightType::int4}) {
        const std::string wanted =
            "transformer.wte.weight: is saved as int8; " + std::string(name_of(type)) + " was asked for";
        CHECK(contains(error_of([&] { load_decoder(device(), saved, model, {.matrices = type}); }), wanted));
        CHECK(contains(error_of([&] { DecoderPlan(device(), saved, model, {}, {.matrices = type}); }), wanted));
        CHECK(contains(error_of([&] { save(third.path, saved, type); }), wanted));
    }
    CHECK_FALSE(fs::exists(third.path));
    CHECK(contains(error_of([&] { save(second.path, saved, {}); }), "has a model already"));
    CHECK(contains(error_of([&] { save(first.path / "config.json", saved, {}); }), "cannot make the folder"));
}

TEST_CASE("decoder: saving that fails leaves nothing in the way of the next attempt") {
    const NewFolder source, target;
    fs::copy(kModels / "gpt2", source.path);
    fs::create_directory(source.path / "merges.txt");  // which cannot be copied as a file
    const Checkpoint checkpoint(source.path);
    CHECK(contains(error_of([&] { save(target.path, checkpoint, WeightType::int8); }), "merges.txt: cannot copy"));
    CHECK_FALSE(fs::exists(target.path / "model.safetensors"));
    fs::remove(source.path / "merges.txt");
    save(target.path, checkpoint, WeightType::int8);
    CHECK(answer(Checkpoint(target.path), {}) == answer(checkpoint, WeightType::int8));
}

TEST_CASE("decoder: each matrix is kept as it is chosen for, saved too") {
    for (const char* name : {"gpt2", "llama"}) {
        CAPTURE(name);
        const Checkpoint checkpoint(kModels / name);
        const DecoderModel model = read_decoder(checkpoint);
        std::map<std::string, int> asked;
        std::size_t with_data = 0;
        LoadOptions load{.matrices = WeightType::f16, .pack_on = PackOn::host};
        load.choose = [&](const HostTensor& matrix) -> std::optional<WeightType> {
            ++asked[matrix.name];
            with_data += matrix.data.empty() ? 0 : 1;
            const bool attention = matrix.name.find("attn") != std::string::npos;
            return attention                                      ? std::optional(WeightType::int8)
                   : matrix.name.find("mlp") != std::string::npos ? std::optional(WeightType::int4)
                                                                  : std::nullopt;
        };
        const DecoderPlan plan(device(), checkpoint, model, {}, load);
        CHECK(asked.size() > 5);
        CHECK(std::all_of(asked.begin(), asked.end(), [](const auto& one) { return one.second == 1; }));
        CHECK(with_data == 0);
        const std::vector<StoredTensor> planned = plan.weights().tensors();
        std::set<WeightType> types;
        for (const StoredTensor& t : planned) {
            if (asked.contains(t.name)) {
                types.insert(t.type);
            }
        }
        CHECK(types == std::set{WeightType::f16, WeightType::int8, WeightType::int4});
        const Weights weights = load_decoder(device(), checkpoint, plan);
        CHECK(std::all_of(asked.begin(), asked.end(), [](const auto& one) { return one.second == 1; }));
        CHECK(weights.layout().tensors() == planned);
        CHECK(load_decoder(device(), checkpoint, model, load).layout().tensors() == planned);

        const NewFolder folder;
        save_decoder(folder.path, checkpoint, model, load);
        const Checkpoint saved(folder.path);
        const Weights again = load_decoder(device(), saved, read_decoder(saved));
        CHECK(again.bytes() == weights.bytes());
        Decoder direct(device(), weights, model, {.max_tokens = 40, .score = true});
        Decoder from_file(device(), again, model, {.max_tokens = 40, .score = true});
        CHECK(direct.score(kText) == from_file.score(kText));
    }
}

TEST_CASE("decoder: weights that a plan was not made for are refused before they are loaded") {
    const Checkpoint checkpoint(kModels / "gpt2");
    const DecoderModel model = read_decoder(checkpoint);
    const Weights packed = load_decoder(device(), checkpoint, model, {.matrices = WeightType::int8});
    bool began = false;
    LoadOptions load{.progress = [&](std::uint64_t, std::uint64_t) { began = true; }};
    const DecoderPlan numbers(device(), packed.layout(), model, {}, load);
    CHECK(contains(error_of([&] { load_decoder(device(), checkpoint, numbers); }), "lie otherwise"));
    CHECK_FALSE(began);
    load.matrices = WeightType::int8;
    const DecoderPlan same(device(), packed.layout(), model, {}, load);
    CHECK(load_decoder(device(), checkpoint, same).layout().tensors() == packed.layout().tensors());
    CHECK(began);
}

TEST_CASE("decoder: weights of other rows than config.json says, or packed where they are added, are refused") {
    const Checkpoint whole(kModels / "gpt2");
    const DecoderModel model = read_decoder(whole);
    const NewFolder folder;
    save(folder.path, whole, WeightType::int4);
    const auto said = [&](const std::string& name, auto change) {
        const NewFolder copy;
        fs::copy(folder.path, copy.path);
        {
            const Safetensors file(folder.path / "model.safetensors");
            std::vector<HostTensor> tensors(file.tensors().begin(), file.tensors().end());
            const auto found =
                std::find_if(tensors.begin(), tensors.end(), [&](const HostTensor& t) { return t.name == name; });
            REQUIRE(found != tensors.end());
            change(*found);
            save_safetensors(copy.path / "model.safetensors", tensors);
        }
        return error_of([&] { load_decoder(device(), Checkpoint(copy.path), model); });
    };
    const std::string up = "transformer.h.0.mlp.c_fc.weight";
    CHECK(said(up, [](HostTensor&) {}) == "");
    CHECK(contains(said(up, [](HostTensor& t) { t.shape[1] -= 1; }), "tensor " + up + ": is ("));
    std::vector<std::uint32_t> words;
    CHECK(contains(said("transformer.wpe.weight",
                        [&](HostTensor& t) {
                            words.resize(static_cast<std::size_t>(t.shape[0]) *
                                         packed_row_words(WeightType::int8, static_cast<std::uint64_t>(t.shape[1])));
                            pack_rows(t, WeightType::int8, 0, words);
                            t.type = WeightType::int8;
                            t.data = std::as_bytes(std::span(words));
                        }),
                   "tensor transformer.wpe.weight: is packed as int8; this one is read as numbers"));
}

TEST_CASE("decoder: the device packs a checkpoint into what the host does") {
    for (const char* name : {"llama3", "gpt2"}) {
        CAPTURE(name);
        const Checkpoint checkpoint(kModels / name);
        for (const WeightType type : {WeightType::f16, WeightType::bf16, WeightType::int8, WeightType::int4}) {
            CAPTURE(name_of(type));
            const Answer host = answer(checkpoint, type, PackOn::host);
            const Answer by_device = answer(checkpoint, type, PackOn::device);
            CHECK(host.packed_on_device == 0);
            CHECK(by_device.packed_on_device > 0);
            CHECK(by_device.logits == host.logits);
            CHECK(by_device.tokens == host.tokens);
        }
    }
}

TEST_CASE("packed weights: words that come packed are loaded as they are") {
    const std::vector<float> numbers{1, -2, 3, 0.5f, 7, -7};
    const HostTensor plain{"w", DType::f32, {2, 3}, std::as_bytes(std::span(numbers))};
    std::vector<std::uint32_t> words(2 * packed_row_words(WeightType::int8, 3));
    pack_rows(plain, WeightType::int8, 0, words);
    HostTensor packed{"w", DType::f32, {2, 3}, std::as_bytes(std::span(words)), WeightType::int8};
    const Weights weights = device().load({&packed, 1});
    CHECK(weights.find("w")->type == WeightType::int8);
    CHECK(weights.bytes(WeightType::int8) == words.size() * 4);
    CHECK(contains(error_of([&] {
                       device().load({&packed, 1}, {.matrices = WeightType::int4});
                   }),
                   "weight w: is packed as int8; int4 was asked for"));
    packed.data = packed.data.first(16);
    CHECK(contains(error_of([&] { device().load({&packed, 1}); }), "weight w: holds 16 bytes, its shape says 64"));
    CHECK(contains(error_of([&] { widen(packed, 0, {}); }), "tensor w: is int8; F32, F16 and BF16 are widened"));
}

TEST_SUITE_END();
