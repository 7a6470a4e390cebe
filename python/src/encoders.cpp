// SPDX-License-Identifier: Apache-2.0
// Text encoders and the encoder-decoder.
#include <cstdint>

#include <nanobind/stl/unique_ptr.h>

#include "bind.h"
#include "options.h"

namespace py {

namespace {

using Arith = Choice<vkf::Arithmetic>;
using Ids = std::vector<std::int32_t>;
using Texts = std::vector<Ids>;

struct TextEncoder {
    Owned<vkf::TextEncoder> encoder;
    std::shared_ptr<Mutex> mutex = encoder.get_deleter().mutex;
};
struct EncoderDecoder {
    Owned<vkf::EncoderDecoder> model;
    std::shared_ptr<Mutex> mutex = model.get_deleter().mutex;
};

void bind_text_encoder(nb::module_& m) {
    nb::class_<vkf::EncoderFacts>(m, "EncoderFacts", "What a program that runs a text encoder needs to know about it.")
        .def_ro("model_type", &vkf::EncoderFacts::model_type, "The family, as config.json has it.")
        .def_ro("vocab_size", &vkf::EncoderFacts::vocab_size, "Rows of the table of tokens.")
        .def_ro("hidden_size", &vkf::EncoderFacts::hidden_size, "The width of a vector.")
        .def_ro("max_tokens", &vkf::EncoderFacts::max_tokens, "Most tokens of a text.")
        .def_ro("cut_tokens", &vkf::EncoderFacts::cut_tokens,
                "Tokens that sentence-transformers cuts a text to, special ones included; 0: not told.")
        .def_ro("lower_case", &vkf::EncoderFacts::lower_case,
                "True: it makes lower case of a text before it is encoded.");
    nb::class_<vkf::TextEncoderModel>(m, "TextEncoderModel", "An encoder as its config.json describes it.")
        .def_prop_ro("facts", &vkf::TextEncoderModel::facts, nb::rv_policy::copy,
                     "What a program that runs the encoder needs to know.");
    m.def("read_text_encoder", &vkf::read_text_encoder, "checkpoint"_a, "Reads a checkpoint's config.json.");
    m.def(
        "describe_text_encoder",
        [](vkf::Graph& graph, const vkf::TextEncoderModel& model, std::int64_t max_batch, std::int64_t max_tokens) {
            vkf::describe_text_encoder(graph, model, {.max_batch = max_batch, .max_tokens = max_tokens});
        },
        "graph"_a, "model"_a, nb::kw_only(), "max_batch"_a = 8, "max_tokens"_a = 0,
        "Describes an encoder: inputs tokens, keys, shares; outputs hidden, embedding.");
    m.def(
        "load_text_encoder_weights",
        [](const vkf::Device& device, const vkf::Checkpoint& checkpoint, const vkf::TextEncoderModel& model,
           LOAD_TYPES) {
            const vkf::LoadOptions load = LOAD_VALUES;
            return unlocked([&] { return vkf::load_text_encoder(device, checkpoint, model, load); });
        },
        "device"_a, "checkpoint"_a, "model"_a, nb::kw_only(), LOAD_NAMES,
        "C++'s load_text_encoder(): uploads what an encoder needs, for several encoders.");
    using E = TextEncoder;
    nb::class_<E>(m, "TextEncoderCore", "A text encoder, compiled for a device.")
        .def(nb::new_([](const vkf::Device& device, const vkf::Checkpoint& checkpoint,
                         const vkf::TextEncoderModel& model, std::int64_t max_batch, std::int64_t max_tokens,
                         const Arith& arithmetic, LOAD_TYPES) {
                 const vkf::TextEncoderOptions options{
                     .max_batch = max_batch, .max_tokens = max_tokens, .arithmetic = arithmetic};
                 const vkf::LoadOptions load = LOAD_VALUES;
                 return unlocked([&] {
                     return std::make_unique<E>(E{owned(vkf::TextEncoder(device, checkpoint, model, options, load))});
                 });
             }),
             "device"_a, "checkpoint"_a, "model"_a, nb::kw_only(), "max_batch"_a = 8, "max_tokens"_a = 0,
             "arithmetic"_a = Arith{"f32"}, LOAD_NAMES)
        .def(nb::new_([](const vkf::Device& device, const vkf::Weights& weights, const vkf::TextEncoderModel& model,
                         std::int64_t max_batch, std::int64_t max_tokens, const Arith& arithmetic) {
                 const vkf::TextEncoderOptions options{
                     .max_batch = max_batch, .max_tokens = max_tokens, .arithmetic = arithmetic};
                 return unlocked(
                     [&] { return std::make_unique<E>(E{owned(vkf::TextEncoder(device, weights, model, options))}); });
             }),
             "device"_a, "weights"_a, "model"_a, nb::kw_only(), "max_batch"_a = 8, "max_tokens"_a = 0,
             "arithmetic"_a = Arith{"f32"})
        .def(
            "embed",
            [](E& e, const Texts& texts) {
                const auto vectors = unlocked(*e.mutex, [&] { return e.encoder->embed(texts); });
                const std::int64_t width = e.encoder->model().facts().hidden_size;
                std::vector<float> all;
                all.reserve(vectors.size() * static_cast<std::size_t>(width));
                for (const auto& one : vectors) all.insert(all.end(), one.begin(), one.end());
                return numpy_array(all, vkf::DType::f32, {static_cast<std::int64_t>(vectors.size()), width});
            },
            "texts"_a, nb::sig("def embed(self, texts: typing.Sequence[typing.Sequence[int]]) -> numpy.ndarray"),
            "A vector of length 1 for each text of token ids: (texts, hidden).")
        .def(
            "model", [](const E& e) { return e.encoder->model(); }, "The model that it is.")
        .def(
            "memory", [](const E& e) { return e.encoder->memory(); }, "Bytes that it takes.")
        .def(
            "program", [](E& e) { return new Program(e.encoder->program(), e.mutex); }, nb::rv_policy::take_ownership,
            nb::keep_alive<0, 1>(), "The program that encodes a batch, for explain() and times().");
}

void bind_encoder_decoder(nb::module_& m) {
    using C = vkf::EncoderDecoderConfig;
    nb::class_<C>(m, "EncoderDecoderConfig",
                  "The encoder-decoder Transformer (Vaswani et al. 2017) around torch.nn.Transformer.")
        .def(
            "__init__",
            [](C* self, std::int64_t source_vocabulary, std::int64_t target_vocabulary, std::int64_t d_model,
               std::int64_t nhead, std::int64_t encoders, std::int64_t decoders, std::int64_t dim_feedforward,
               const Choice<vkf::Activation>& activation, bool norm_first, float layer_norm_eps, float embedding_scale,
               std::int64_t max_source, std::int64_t max_target) {
                new (self) C{source_vocabulary, target_vocabulary, d_model,    nhead,      encoders,
                             decoders,          dim_feedforward,   activation, norm_first, layer_norm_eps,
                             embedding_scale,   max_source,        max_target};
            },
            nb::kw_only(), "source_vocabulary"_a, "target_vocabulary"_a, "d_model"_a = 512, "nhead"_a = 8,
            "num_encoder_layers"_a = 6, "num_decoder_layers"_a = 6, "dim_feedforward"_a = 2048,
            "activation"_a = Choice<vkf::Activation>{"relu"}, "norm_first"_a = false, "layer_norm_eps"_a = 1e-5,
            "embedding_scale"_a = 1.0f, "max_source"_a, "max_target"_a)
        .def_ro("d_model", &C::d_model, "The width of a token.")
        .def_ro("nhead", &C::nhead, "Heads of each attention.")
        .def_ro("max_source", &C::max_source, "Most tokens of a source.")
        .def_ro("max_target", &C::max_target, "Most tokens of an answer.");
    m.def("embed_tokens", &vkf::embed_tokens, "tokens"_a, "table"_a, "vocabulary"_a, "config"_a, "max_positions"_a,
          "start"_a = vkf::Dim(0), kOneGraph,
          nb::sig("def embed_tokens(tokens: Value, table: str, vocabulary: int, config: EncoderDecoderConfig, "
                  "max_positions: int, start: int | Dim = 0) -> Value"),
          "Embedding row * embedding_scale + sinusoidal position: tokens (B, L) int32 -> (B, L, d_model).");
    nb::class_<vkf::Decoded>(m, "Decoded", "The sequence that greedy decoding found for one source.")
        .def_ro("tokens", &vkf::Decoded::tokens, "Ids, without sos, and with eos where it came.")
        .def_ro("cross_attention", &vkf::Decoded::cross_attention, "(heads, tokens, source), row-major.");
    using E = EncoderDecoder;
    nb::class_<E>(m, "EncoderDecoder",
                  "An encoder and a decoder, compiled for a device, which share weights and caches.")
        .def(nb::new_([](const vkf::Device& device, nb::object tensors, const C& config, std::int64_t max_batch,
                         LOAD_TYPES) {
                 const vkf::LoadOptions load = LOAD_VALUES;
                 if (nb::isinstance<vkf::Weights>(tensors)) {
                     const auto weights = nb::cast<vkf::Weights>(tensors);
                     return unlocked([&] {
                         return std::make_unique<E>(E{owned(vkf::EncoderDecoder(device, weights, config, max_batch))});
                     });
                 }
                 const Tensors given = tensors_of(tensors);
                 return unlocked([&] {
                     return std::make_unique<E>(
                         E{owned(vkf::EncoderDecoder(device, given.list, config, max_batch, load))});
                 });
             }),
             "device"_a, "weights"_a, "config"_a, "max_batch"_a = 1, nb::kw_only(), LOAD_NAMES)
        .def_static("describe_encoder", &vkf::EncoderDecoder::describe_encoder, "graph"_a, "config"_a, "max_batch"_a,
                    "The encoder's program as a graph; it fills the states cache.*.")
        .def_static("describe_decoder", &vkf::EncoderDecoder::describe_decoder, "graph"_a, "config"_a, "max_batch"_a,
                    "The decoder's program as a graph; it reads the states cache.*.")
        .def(
            "generate",
            [](E& e, const Texts& sources, std::int32_t sos, std::int32_t eos, std::int32_t pad) {
                return unlocked(*e.mutex, [&] { return e.model->generate(sources, sos, eos, pad); });
            },
            "sources"_a, "sos"_a, "eos"_a, "pad"_a, "Decodes greedily from sources of token ids.")
        .def(
            "memory", [](const E& e) { return e.model->memory(); }, "Bytes that it takes.")
        .def(
            "encoder", [](E& e) { return new Program(e.model->encoder(), e.mutex); }, nb::rv_policy::take_ownership,
            nb::keep_alive<0, 1>(), "The encoder's program, for explain() and times().")
        .def(
            "decoder", [](E& e) { return new Program(e.model->decoder(), e.mutex); }, nb::rv_policy::take_ownership,
            nb::keep_alive<0, 1>(), "The decoder's program, for explain() and times().");
}

}  // namespace

void bind_encoders(nb::module_& m) {
    bind_text_encoder(m);
    bind_encoder_decoder(m);
}

}  // namespace py
