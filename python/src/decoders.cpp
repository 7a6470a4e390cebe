// SPDX-License-Identifier: Apache-2.0
// Decoders and their adapters.
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <utility>

#include "bind.h"
#include "options.h"

#include <nanobind/stl/unique_ptr.h>

namespace py {

namespace {

using Kept = Choice<vkf::WeightType>;
using Arith = Choice<vkf::Arithmetic>;
using Ids = std::vector<std::int32_t>;
using Texts = std::vector<Ids>;

/// A decoder and the mutex that its threads take in turn.
struct Decoder {
    Owned<vkf::Decoder> decoder;
    std::shared_ptr<Mutex> mutex = decoder.get_deleter().mutex;
};
vkf::DecoderOptions decoder_options(std::int64_t max_batch, std::int64_t max_tokens, std::int64_t chunk,
                                    std::int64_t candidates, const Kept& kv, const Arith& arithmetic,
                                    const std::optional<vkf::LoraOptions>& lora, bool score, bool profile,
                                    const Ranks* communicator, const Choice<vkf::Split>& split,
                                    const std::vector<double>& speeds, const nb::object& progress) {
    vkf::DecoderOptions out{.max_batch = max_batch,
                            .max_tokens = max_tokens,
                            .chunk = chunk,
                            .candidates = candidates,
                            .kv = kv,
                            .arithmetic = arithmetic,
                            .lora = lora,
                            .split = split,
                            .speeds = speeds,
                            .score = score,
                            .profile = profile};
    if (communicator != nullptr) out.communicator = communicator->communicator;
    out.progress = progress_of(progress);
    return out;
}

void bind_decoder(nb::module_& m) {
    nb::class_<vkf::LayerCache>(m, "LayerCache", "The cache of one layer.")
        .def_ro("kv_heads", &vkf::LayerCache::kv_heads, "Heads of keys and values.")
        .def_ro("head_dim", &vkf::LayerCache::head_dim, "The width of a head.")
        .def_ro("window", &vkf::LayerCache::window, "Tokens that a query sees, itself included; 0: all.");
    nb::class_<vkf::DecoderFacts>(m, "DecoderFacts", "What a program that runs a decoder needs to know about it.")
        .def_ro("model_type", &vkf::DecoderFacts::model_type, "The family, as config.json has it.")
        .def_ro("vocab_size", &vkf::DecoderFacts::vocab_size, "Logits of a token.")
        .def_ro("width", &vkf::DecoderFacts::width, "Numbers of a token between layers.")
        .def_ro("max_positions", &vkf::DecoderFacts::max_positions, "Tokens of a text that it was trained for.")
        .def_ro("layers", &vkf::DecoderFacts::layers, "What each layer keeps of a text.")
        .def_ro("end", &vkf::DecoderFacts::end, "Ids that end a text.")
        .def_ro("begin", &vkf::DecoderFacts::begin, "The id that begins a text, or None.")
        .def_ro("begins_texts", &vkf::DecoderFacts::begins_texts,
                "True: it was trained with `begin` before every text.")
        .def_ro("not_obeyed", &vkf::DecoderFacts::not_obeyed,
                "Fields of generation_config.json that change what transformers answers without draws, and that are "
                "not obeyed.");
    nb::class_<vkf::DecoderModel>(m, "DecoderModel",
                                  "A decoder-only Transformer as a Hugging Face config.json describes it.")
        .def_prop_ro("facts", &vkf::DecoderModel::facts, nb::rv_policy::copy,
                     "What a program that runs the decoder needs to know.");
    m.def(
        "read_decoder", [](const vkf::Checkpoint& checkpoint) { return vkf::read_decoder(checkpoint); }, "checkpoint"_a,
        "Reads a checkpoint's config.json.");
    m.def(
        "read_decoder", [](const std::string& text, const std::string& file) { return vkf::read_decoder(text, file); },
        "text"_a, "file"_a, "Reads the text of a config.json.");
    nb::class_<vkf::ModelMemory>(m, "ModelMemory",
                                 "Bytes of the programs of one model, which share weights and caches.")
        .def_ro("weights", &vkf::ModelMemory::weights, "Bytes of the weights.")
        .def_ro("cache", &vkf::ModelMemory::cache, "Bytes of keys and values that stay between runs.")
        .def_ro("scratch", &vkf::ModelMemory::scratch, "Bytes of scratch memory of all programs.")
        .def_ro("constants", &vkf::ModelMemory::constants, "Bytes of tables.")
        .def_ro("transfers", &vkf::ModelMemory::transfers,
                "Bytes of inputs and outputs, and their mirrors on the host's side.")
        .def_prop_ro("total", &vkf::ModelMemory::total, "All of these.")
        // of decoders that share weights
        .def("_with", [](const vkf::ModelMemory& a, const vkf::ModelMemory& b) {
            return vkf::ModelMemory{a.weights, a.cache + b.cache, a.scratch + b.scratch, a.constants + b.constants,
                                    a.transfers + b.transfers};
        });
#define DECODER_TYPES                                                                                             \
    std::int64_t max_batch, std::int64_t max_tokens, std::int64_t chunk, std::int64_t candidates, const Kept &kv, \
        const Arith &arithmetic, const std::optional<vkf::LoraOptions>&lora, bool score, bool profile,            \
        const Ranks *communicator, const Choice<vkf::Split>&split, const std::vector<double>&speeds,              \
        const nb::object &progress
#define DECODER_NAMES                                                                                                \
    nb::kw_only(), "max_batch"_a = 1, "max_tokens"_a = 0, "chunk"_a = 256, "candidates"_a = 0, "kv"_a = Kept{"f32"}, \
                   "arithmetic"_a = Arith{"f32"}, "lora"_a = nb::none(), "score"_a = false, "profile"_a = false,     \
                   "communicator"_a = nb::none(), "split"_a = Choice<vkf::Split>{"tensor"},                          \
                   "speeds"_a = std::vector<double>(), "progress"_a = nb::none()
#define DECODER_VALUES                                                                                            \
    decoder_options(max_batch, max_tokens, chunk, candidates, kv, arithmetic, lora, score, profile, communicator, \
                    split, speeds, progress)
    nb::class_<vkf::DecoderPlan>(
        m, "DecoderPlan",
        "A decoder's programs for given sizes: described, and their memory known, before a weight is loaded.")
        .def(nb::new_([](const vkf::Device& device, const vkf::Checkpoint& checkpoint, const vkf::DecoderModel& model,
                         DECODER_TYPES, LOAD_TYPES) {
                 const vkf::DecoderOptions options = DECODER_VALUES;
                 const vkf::LoadOptions load = LOAD_VALUES;
                 return unlocked([&] { return vkf::DecoderPlan(device, checkpoint, model, options, load); });
             }),
             "device"_a, "checkpoint"_a, "model"_a, DECODER_NAMES, LOAD_NAMES)
        .def_prop_ro("model", &vkf::DecoderPlan::model, nb::rv_policy::copy, "The model that it plans for.")
        .def_prop_ro("memory", &vkf::DecoderPlan::memory, nb::rv_policy::copy, "Bytes that the decoder will take.")
        .def_prop_ro("weights", &vkf::DecoderPlan::weights, nb::rv_policy::copy,
                     "Where each weight will lie, and as what.")
        .def_prop_ro(
            "max_tokens", [](const vkf::DecoderPlan& p) { return p.options().max_tokens; },
            "Most tokens of a text, prompt included.")
        .def_prop_ro(
            "options",
            [](const vkf::DecoderPlan& p) {
                const vkf::DecoderOptions& o = p.options();
                nb::dict out;
                out["max_batch"] = o.max_batch;
                out["max_tokens"] = o.max_tokens;
                out["chunk"] = o.chunk;
                out["candidates"] = o.candidates;
                out["kv"] = name(o.kv);
                out["arithmetic"] = name(o.arithmetic);
                out["split"] = name(o.split);
                out["speeds"] = o.speeds;
                out["score"] = o.score;
                out["profile"] = o.profile;
                return out;
            },
            nb::sig("def options(self) -> dict[str, object]"), "The options, with every default filled in.")
        .def_prop_ro(
            "layers", [](const vkf::DecoderPlan& p) { return std::pair(p.layers().first, p.layers().count); },
            "The first of the layers that this rank has, and their number.")
        .def_prop_ro(
            "tasks",
            [](const vkf::DecoderPlan& p) {
                std::vector<std::string> out;
                for (const vkf::DecoderTask task : p.tasks()) out.emplace_back(name(task));
                return out;
            },
            "The tasks that there are graphs of.")
        .def(
            "graph",
            [](const vkf::DecoderPlan& p, const Choice<vkf::DecoderTask>& task) -> const vkf::Graph& {
                return p.graph(task);
            },
            "task"_a, nb::rv_policy::reference_internal,
            "The graph of a task: prompt, step or score. It is to be read only.")
        .def(
            "sizes",
            [](const vkf::DecoderPlan& p, const Choice<vkf::DecoderTask>& task, std::int64_t batch, std::int64_t start,
               std::int64_t tokens) {
                std::map<std::string, std::int64_t> out;
                for (auto& [name, value] : p.sizes(task, batch, start, tokens)) out.emplace(std::move(name), value);
                return out;
            },
            "task"_a, "batch"_a, "start"_a, "tokens"_a,
            "All sizes of a task's graph for a run that reads so many tokens of each sequence behind those that the "
            "cache holds.");
    m.def(
        "load_decoder_weights",
        [](const vkf::Device& device, const vkf::Checkpoint& checkpoint, const vkf::DecoderModel& model, LOAD_TYPES) {
            const vkf::LoadOptions load = LOAD_VALUES;
            return unlocked([&] { return vkf::load_decoder(device, checkpoint, model, load); });
        },
        "device"_a, "checkpoint"_a, "model"_a, nb::kw_only(), LOAD_NAMES,
        "C++'s load_decoder(): uploads a decoder's tensors, for several decoders.");
    m.def(
        "load_decoder_weights",
        [](const vkf::Device& device, const vkf::Checkpoint& checkpoint, const vkf::DecoderPlan& plan) {
            return unlocked([&] { return vkf::load_decoder(device, checkpoint, plan); });
        },
        "device"_a, "checkpoint"_a, "plan"_a, "The same, as the plan says.");
    m.def(
        "save_decoder",
        [](const std::filesystem::path& folder, const vkf::Checkpoint& checkpoint, const vkf::DecoderModel& model,
           LOAD_TYPES) {
            const vkf::LoadOptions load = LOAD_VALUES;
            unlocked([&] { vkf::save_decoder(folder, checkpoint, model, load); });
        },
        "folder"_a, "checkpoint"_a, "model"_a, nb::kw_only(), LOAD_NAMES,
        "Writes a folder with the matrices packed as `matrices` says.");
    m.def("decoder_logits", &vkf::decoder_logits, "tokens"_a, "model"_a,
          "The logits (batch, tokens, vocabulary) after each of the tokens (batch, tokens) int32, each text from its "
          "beginning.");

    using D = Decoder;
    nb::class_<D>(m, "DecoderCore", "A decoder, compiled for a device: prompts in chunks, then a token a step.")
        .def(nb::new_([](const vkf::Device& device, const vkf::Checkpoint& checkpoint, const vkf::DecoderPlan& plan) {
                 return unlocked([&] { return std::make_unique<D>(D{owned(vkf::Decoder(device, checkpoint, plan))}); });
             }),
             "device"_a, "checkpoint"_a, "plan"_a)
        .def(nb::new_([](const vkf::Device& device, const vkf::Weights& weights, const vkf::DecoderPlan& plan) {
                 return unlocked([&] { return std::make_unique<D>(D{owned(vkf::Decoder(device, weights, plan))}); });
             }),
             "device"_a, "weights"_a, "plan"_a)
        .def(nb::new_([](const vkf::Device& device, const vkf::Weights& weights, const vkf::DecoderModel& model,
                         DECODER_TYPES) {
                 const vkf::DecoderOptions options = DECODER_VALUES;
                 return unlocked(
                     [&] { return std::make_unique<D>(D{owned(vkf::Decoder(device, weights, model, options))}); });
             }),
             "device"_a, "weights"_a, "model"_a, DECODER_NAMES)
        .def(
            "prompt",
            [](D& d, const Texts& prompts) {
                unlocked(*d.mutex, [&] { d.decoder->prompt(std::span<const Ids>(prompts)); });
            },
            "prompts"_a, "Forgets what the cache holds and reads prompts, token ids each, of lengths of their own.")
        .def(
            "append", [](D& d, const Ids& tokens) { unlocked(*d.mutex, [&] { d.decoder->append(tokens); }); },
            "tokens"_a, "Reads more tokens of each sequence, (batch, count) behind each other.")
        .def(
            "step", [](D& d, const Ids& tokens) { unlocked(*d.mutex, [&] { d.decoder->step(tokens); }); }, "tokens"_a,
            "One more token of each sequence.")
        .def(
            "next",
            [](const D& d) {
                return unlocked(*d.mutex, [&] {
                    const auto next = d.decoder->next();
                    return Ids(next.begin(), next.end());
                });
            },
            "The likeliest next token of each sequence.")
        .def(
            "candidates",
            [](const D& d, std::size_t sequence) {
                return unlocked(*d.mutex, [&] {
                    const vkf::Candidates c = d.decoder->candidates(sequence);
                    return std::pair(Ids(c.tokens.begin(), c.tokens.end()),
                                     std::vector<float>(c.logits.begin(), c.logits.end()));
                });
            },
            "sequence"_a, nb::sig("def candidates(self, sequence: int) -> tuple[list[int], list[float]]"),
            "The likeliest tokens of a sequence, best first, and their logits.")
        .def(
            "room", [](const D& d) { return unlocked(*d.mutex, [&] { return d.decoder->room(); }); },
            "Tokens that may follow before the cache is full.")
        .def(
            "set_adapter",
            [](D& d, const vkf::Adapter& adapter) { unlocked(*d.mutex, [&] { d.decoder->set_adapter(adapter); }); },
            "adapter"_a, "Puts a LoRA adapter in, for whose kind the plan has room.")
        .def(
            "clear_adapter", [](D& d) { unlocked(*d.mutex, [&] { d.decoder->clear_adapter(); }); },
            "Takes the adapter out again.")
        .def(
            "save_cache",
            [](const D& d, const std::filesystem::path& file) {
                unlocked(*d.mutex, [&] { d.decoder->save_cache(file); });
            },
            "file"_a, "Writes what was read so far to a safetensors file.")
        .def(
            "restore_cache",
            [](D& d, const std::filesystem::path& file) {
                unlocked(*d.mutex, [&] { d.decoder->restore_cache(file); });
            },
            "file"_a, "Goes on where save_cache() was called, with the same bits if max_tokens and chunk are the same.")
        .def(
            "score",
            [](D& d, const Ids& tokens) {
                const std::vector<float> logits = unlocked(*d.mutex, [&] { return d.decoder->score(tokens); });
                return numpy_array(logits, vkf::DType::f32,
                                   {static_cast<std::int64_t>(tokens.size()), d.decoder->model().facts().vocab_size});
            },
            "tokens"_a, nb::sig("def score(self, tokens: typing.Sequence[int]) -> numpy.ndarray"),
            "Logits (tokens, vocabulary) after each token of a text. Needs score=True.")
        .def(
            "model", [](const D& d) { return d.decoder->model(); }, "The model that it is.")
        .def(
            "memory", [](const D& d) { return d.decoder->memory(); }, "Bytes that it takes.")
        .def(
            "weights", [](const D& d) { return d.decoder->weights(); }, "Its weights in device memory.")
        .def(
            "prompt_program", [](D& d) { return new Program(d.decoder->prompt_program(), d.mutex); },
            nb::rv_policy::take_ownership, nb::keep_alive<0, 1>(),
            "The program that reads a chunk of tokens, for explain() and times().")
        .def(
            "step_program", [](D& d) { return new Program(d.decoder->step_program(), d.mutex); },
            nb::rv_policy::take_ownership, nb::keep_alive<0, 1>(),
            "The program that reads one token of each sequence, for explain() and times().");
    nb::class_<vkf::Sampler>(m, "Sampler",
                             "Chooses the next token among candidates: temperature, then top-k, then top-p, in the "
                             "order of Hugging Face's warpers.")
        .def(
            "__init__",
            [](vkf::Sampler* self, float temperature, std::int64_t top_k, float top_p, std::uint64_t seed) {
                new (self) vkf::Sampler({.temperature = temperature, .top_k = top_k, .top_p = top_p, .seed = seed});
            },
            nb::kw_only(), "temperature"_a = 1.0f, "top_k"_a = 50, "top_p"_a = 1.0f, "seed"_a = 0)
        .def(
            "choose",
            [](vkf::Sampler& s, const Ids& tokens, const std::vector<float>& logits) {
                if (tokens.size() != logits.size()) fail("as many tokens as logits are needed", "Sampler.choose");
                return s.choose({.tokens = tokens, .logits = logits});
            },
            "tokens"_a, "logits"_a, "candidates, best first.")
        .def(
            "choose",
            [](vkf::Sampler& s, const D& decoder, std::size_t sequence) {
                return unlocked(*decoder.mutex, [&] { return s.choose(decoder.decoder->candidates(sequence)); });
            },
            "decoder"_a, "sequence"_a = 0, "Chooses among a decoder's candidates of a sequence.");
}

void bind_adapters(nb::module_& m) {
    nb::class_<vkf::Adapter>(m, "Adapter", "A LoRA adapter as PEFT has it, read and checked.")
        .def(nb::init<const std::filesystem::path&>(), "folder"_a, nb::call_guard<Released>())
        .def_prop_ro("options", &vkf::Adapter::options, nb::rv_policy::copy,
                     "The rank, alpha and layers of the adapter.")
        .def_prop_ro(
            "name", [](const vkf::Adapter& a) { return a.name(); }, "The name of the folder.")
        .def(
            "write", [](const vkf::Adapter& a, State& state) { changed(state, [&] { a.write(state.state); }); },
            "state"_a, "Writes A and B into the states of Lora.");
    m.def(
        "clear_adapter", [](State& state) { changed(state, [&] { vkf::clear_adapter(state.state); }); }, "state"_a,
        "Takes an adapter out of the states of Lora.");
    m.def(
        "save_adapter",
        [](const std::filesystem::path& folder, const State& state, const vkf::LoraOptions& options,
           const std::string& base) {
            unlocked(*state.mutex, [&] { vkf::save_adapter(folder, state.state, options, base); });
        },
        "folder"_a, "state"_a, "options"_a, "base"_a, "Writes the adapter that the states of Lora are, as PEFT does.");
    m.def("merge_adapter", &vkf::merge_adapter, "folder"_a, "checkpoint"_a, "model"_a, "adapter"_a,
          nb::call_guard<Released>(),
          "Writes a folder with the checkpoint's model and the adapter in its matrices: W + scale B A.");
}

}  // namespace

void bind_decoders(nb::module_& m) {
    bind_adapters(m);
    bind_decoder(m);
}

}  // namespace py
