// SPDX-License-Identifier: Apache-2.0
// What several nodes need of one tensor is made once: the bits of a mask, the codes of activations.
// So are a model's graphs and plans.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "layers/attention.h"
#include "models/decoder.h"
#include "models/encoder_decoder.h"
#include "models/files/safetensors.h"
#include "models/text_encoder.h"
#include "runtime/base/made.h"
#include "runtime/compile/plan.h"
#include "runtime/device/device_core.h"
#include "runtime/device/insides.h"
#include "tests/believed.h"
#include "tests/dates_config.h"
#include "tests/fixtures.h"
#include "tests/host.h"
#include "tests/op_check.h"
#include "tests/reference.h"

namespace vkf::test {

namespace {

std::ptrdiff_t count(const Program& program, std::string_view shader) {
    const auto& all = plan_of(program).dispatches;
    return std::count_if(all.begin(), all.end(),
                         [&](const PlannedDispatch& d) { return d.dispatch.kernels.front().shader->name == shader; });
}

/// Graphs that were described, plans that were made, orders of weights that were tried out and
/// layouts, of weights and of states, since the last look.
class Made {
public:
    bool were(std::uint64_t graphs, std::uint64_t plans, std::uint64_t orders, std::uint64_t layouts) {
        const std::array<std::uint64_t, 4> wanted{graphs, plans, orders, layouts}, all = now();
        std::array<std::uint64_t, 4> since{};
        for (std::size_t i = 0; i < all.size(); ++i) {
            since[i] = all[i] - before_[i];
            CAPTURE(i);
            CHECK(since[i] == wanted[i]);
        }
        before_ = all;
        return since == wanted;
    }

private:
    static std::array<std::uint64_t, 4> now() {
        return {made_counts.graphs, made_counts.plans, made_counts.weight_orders, made_counts.weight_layouts};
    }

    std::array<std::uint64_t, 4> before_ = now();
};

}  // namespace

TEST_SUITE("made once") {
    TEST_CASE("made once: a model's graphs and plans, one a program") {
        const std::filesystem::path source(VKFORMER_SOURCE_DIR);
        const Checkpoint checkpoint(source / "samples/generate");
        const DecoderModel model = read_decoder(checkpoint);
        CHECK(WeightLayout::none().tensors().empty());  // one a process
        Made made;
        for (const WeightType type : {WeightType::f32, WeightType::int8}) {
            const DecoderPlan plan(device(), checkpoint, model, {.max_tokens = 32},
                                   {.matrices = type, .pack_on = PackOn::host});
            CHECK(made.were(2, 2, 1, 1));
            Decoder decoder(device(), checkpoint, plan);
            CHECK(made.were(0, 0, 0, 1));  // of the caches
            CHECK(plan.memory().weights == decoder.weights().bytes());
            CHECK(plan.memory().scratch ==
                  decoder.prompt_program().memory().scratch + decoder.step_program().memory().scratch);
            const Weights weights = load_decoder(device(), checkpoint, plan);
            CHECK(made.were(0, 0, 0, 0));
            CHECK(weights.layout().tensors() == plan.weights().tensors());
            const Checkpoint opened_again(source / "samples/generate");
            CHECK(load_decoder(device(), opened_again, plan).layout().tensors() == plan.weights().tensors());
            CHECK(made.were(0, 0, 0, 0));
            const Checkpoint another(source / "tests/decoders/llama");
            CHECK(!error_of([&] { load_decoder(device(), another, plan); }).empty());
            CHECK(made.were(0, 0, 1, 0));  // looked through anew
            const Decoder same(device(), weights, plan);
            CHECK(made.were(0, 0, 0, 1));
            const Decoder score(device(), weights, model, {.max_tokens = 32, .score = true});
            CHECK(made.were(3, 3, 0, 1));
        }

        const Checkpoint texts(source / "tests/text/bert");
        const TextEncoderModel encoder_model = read_text_encoder(texts);
        const TextEncoder encoder(device(), texts, encoder_model);
        CHECK(made.were(1, 1, 1, 1));
        const Weights weights = load_text_encoder(device(), texts, encoder_model);
        CHECK(made.were(1, 0, 1, 1));  // which names what is loaded
        const TextEncoder same(device(), weights, encoder_model);
        CHECK(made.were(1, 1, 0, 0));

        const Safetensors file(source / "samples/dates/model.safetensors");
        EncoderDecoder dates(device(), file, dates_config());
        CHECK(made.were(2, 2, 0, 2));
        CHECK(dates.memory().scratch == dates.encoder().memory().scratch + dates.decoder().memory().scratch);
        CHECK(dates.memory().cache == dates.decoder().memory().state);
        const EncoderDecoder again(device(), device().load(file), dates_config());
        CHECK(made.were(2, 2, 0, 2));
        CHECK(again.memory().weights == device().load(file).bytes());
        CHECK(again.memory().total() == dates.memory().total());
    }

    TEST_CASE("made once: programs compiled while weights load answer like those compiled with them") {
        const std::filesystem::path source(VKFORMER_SOURCE_DIR);
        const Safetensors file(source / "samples/dates/model.safetensors");
        const std::vector<std::vector<std::int32_t>> sources{{3, 4, 5, 2}, {7, 2}};
        EncoderDecoder loading(device(), file, dates_config(), 2, {.matrices = WeightType::int8});
        EncoderDecoder loaded(device(), device().load(file, {.matrices = WeightType::int8}), dates_config(), 2);
        const std::vector<Decoded> a = loading.generate(sources, 1, 2, 0), b = loaded.generate(sources, 1, 2, 0);
        for (std::size_t i = 0; i < sources.size(); ++i) {
            CHECK(a[i].tokens == b[i].tokens);
            CHECK(a[i].cross_attention == b[i].cross_attention);
        }
        const Checkpoint texts(source / "tests/text/bert");
        const TextEncoderModel model = read_text_encoder(texts);
        std::uint64_t done = 0;
        LoadOptions load{.matrices = WeightType::int8, .pack_on = PackOn::host};
        load.choose = [](const HostTensor& t) {
            return t.name.ends_with("query.weight") ? std::nullopt : std::optional(WeightType::f16);
        };
        load.progress = [&](std::uint64_t now, std::uint64_t) { done = now; };
        TextEncoder encoder(device(), texts, model, {}, load);
        CHECK(done > 0);
        TextEncoder same(device(), load_text_encoder(device(), texts, model, load), model);
        CHECK(encoder.memory().weights == same.memory().weights);
        CHECK(same.memory().scratch == same.program().memory().scratch);
        const std::vector<std::vector<std::int32_t>> ids{{2, 7, 9, 3}, {2, 5, 3}};
        CHECK(encoder.embed(ids) == same.embed(ids));
    }

    TEST_CASE("made once: an encoder-decoder that does not fit the device is refused before it is allocated") {
        const Safetensors file(std::filesystem::path(VKFORMER_SOURCE_DIR) / "samples/dates/model.safetensors");
        std::uint64_t& there = Insides::core(device()).capabilities.device_memory;
        const std::uint64_t kept = std::exchange(there, 1000);
        bool read = false;
        const LoadOptions load{.progress = [&](std::uint64_t, std::uint64_t) { read = true; }};
        const std::string error = error_of([&] { EncoderDecoder(device(), file, dates_config(), 1, load); });
        there = kept;
        CHECK(contains(error, "EncoderDecoder: needs "));
        CHECK(!read);
    }

    TEST_CASE("made once: what ends the loading of a decoder ends its making") {
        const Checkpoint checkpoint(std::filesystem::path(VKFORMER_SOURCE_DIR) / "samples/generate");
        struct Enough {};
        const DecoderPlan plan(device(), checkpoint, read_decoder(checkpoint), {.max_tokens = 32},
                               {.progress = [](std::uint64_t, std::uint64_t) { throw Enough(); }});
        CHECK_THROWS_AS(Decoder(device(), checkpoint, plan), Enough);
    }

    TEST_CASE("made once: the bits of a mask that several layers of attention share, each polarity for itself") {
        const Believed fused([](Capabilities& c) { c.variants = "attention_shared"; });
        if (device().capabilities().storage_buffers < 12) {
            return;  // no fused attention with masks
        }
        const auto attend = [](Value y, Value keys, Polarity polarity) {
            AttentionOptions o;
            o.mask.keys = keys;
            o.mask.polarity = polarity;
            return scaled_dot_product_attention(y, y, y, o).y;
        };
        const auto run = [&](bool together) {
            Graph g;
            const Value mask = g.input("mask", {40, 40}, DType::i32);
            const auto own = [&] { return together ? mask : contiguous(mask); };
            Value y = attend(g.input("x", {1, 2, 40, 8}), own(), Polarity::attend);
            y = attend(y, own(), Polarity::attend);
            y = attend(y, own(), Polarity::ignore);
            g.output("y", contiguous(attend(y, own(), Polarity::ignore)));
            Program program = device().compile(g);
            CHECK(count(program, "attention_mask") == (together ? 2 : 4));
            upload(program, "x", random_tensor({1, 2, 40, 8}, 1));
            std::vector<std::int32_t> mask_bits(1600);
            for (std::size_t i = 0; i < mask_bits.size(); ++i) {
                mask_bits[i] = i * i % 7 < 3 ? 1 : 0;
            }
            program.upload("mask", mask_bits);
            program.run();
            return download(program, "y");
        };
        CHECK(same_bits(run(true), run(false)));
    }

    TEST_CASE("made once: not of a state that is written in between") {
        const Believed fused([](Capabilities& c) { c.variants = "attention_shared"; });
        if (device().capabilities().storage_buffers < 12) {
            return;
        }
        const auto attend = [](Value y, Value keys) {
            AttentionOptions o;
            o.mask.keys = keys;
            return scaled_dot_product_attention(y, y, y, o).y;
        };
        Graph g;
        const Value state = g.state("mask", {40, 40}, DType::i32), x = g.input("x", {1, 1, 40, 8});
        const Value first = g.input("first", {40, 40}, DType::i32), second = g.input("second", {40, 40}, DType::i32);
        copy_into(state, first);
        const Value y = attend(x, state);
        copy_into(state, second);
        g.output("y", contiguous(attend(y, state)));
        g.output("same", contiguous(attend(attend(x, first), second)));
        CompileOptions options;
        options.state = device().make_state({&g});
        Program program = device().compile(g, {}, options);
        std::vector<std::int32_t> ones(1600), others(1600);
        for (std::size_t i = 0; i < ones.size(); ++i) {
            ones[i] = i * i % 7 < 3 ? 1 : 0;
            others[i] = i * i % 11 < 5 ? 1 : 0;
        }
        program.upload("first", ones);
        program.upload("second", others);
        upload(program, "x", random_tensor({1, 1, 40, 8}, 1));
        program.run();
        CHECK(same_bits(download(program, "y"), download(program, "same")));
    }

    TEST_CASE("made once: rows of codes, for every product of the same activations") {
        if (!device().capabilities().integer_dot) {
            cannot_run("integer dot products");
            return;
        }
        const Believed dot([](Capabilities& c) { c.variants = "matmul_dot"; });
        const Tensor w = random_tensor({24, 32}, 2);
        const auto run = [&](bool together) {
            Graph g;
            const Value x = g.input("x", {9, 32}), weight = g.weight("w", {24, 32});
            const Value h = relu(x);
            g.output("gate", linear(h, weight, {}, Activation::silu));
            if (together) {
                g.output("up", linear(h, weight));
                g.output("part", linear(slice(h, 0, 1, 7), weight));
            }
            Program program = device().compile(g, load(w, WeightType::int8), {.arithmetic = Arithmetic::int8});
            CHECK(count(program, "packed_rows") == (together ? 2 : 1));
            upload(program, "x", random_tensor({9, 32}, 1));
            program.run();
            if (together) {
                const Tensor up = download(program, "up"), part = download(program, "part");
                for (std::size_t i = 0; i < part.data.size(); ++i) {
                    CHECK(part.data[i] == up.data[24 + i]);
                }
            }
            return download(program, "gate");
        };
        CHECK(same_bits(run(true), run(false)));
    }
}

}  // namespace vkf::test
