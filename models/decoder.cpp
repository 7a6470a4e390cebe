// SPDX-License-Identifier: Apache-2.0
#include "models/decoder.h"

#include <algorithm>
#include <optional>

#include "layers/sharing.h"
#include "models/blocks/cache_ring.h"
#include "models/cache_file.h"
#include "models/decoder_batch.h"
#include "models/layer_split.h"
#include "models/load_beside.h"
#include "models/merge_answers.h"
#include "runtime/compile/plan.h"
#include "runtime/device/insides.h"

namespace vkf {

namespace {

const char* name_of(DecoderTask task) {
    return task == DecoderTask::prompt ? "prompt" : task == DecoderTask::step ? "step" : "score";
}

bool has_input(const Graph& graph, std::string_view name) {
    return std::any_of(graph.storages().begin(), graph.storages().end(),
                       [&](const StorageInfo& s) { return s.kind == StorageKind::input && s.name == name; });
}

}  // namespace

struct Decoder::Parts {
    DecoderPlan plan;
    Weights weights;
    std::optional<Program> programs[3];  ///< programs, by DecoderTask
    const DecoderOptions& options;
    bool learned_positions;
    LayerSplit split;
    std::vector<CacheRing> rings;
    bool any_ring;  ///< whichever rank has the layer

    State caches;  ///< and the adapter, where there is room for one
    DecoderBatch batch;
    DecoderAnswers answers;
    FoundByRanks found;
    bool adapted_in_part = false;

    /// Throws before anything is allocated where the device has not the memory. Keeps no function
    /// that only loading calls: it may own the decoder.
    Parts(const Device& device, const DecoderPlan& of)
        : plan(of.without_functions()),
          options(plan.options()),
          learned_positions(has_input(plan.graph(DecoderTask::prompt), "positions")),
          split(plan),
          rings(rings_of(split.layers(), options.max_tokens, options.chunk)),
          any_ring(!rings_of(plan.model().facts().layers, options.max_tokens, options.chunk).empty()),
          batch(plan) {
        try {
            require_memory(device, plan.memory(), kDecoder);
        } catch (const Error& error) {
            const std::optional<std::int64_t> most = plan.max_tokens_that_fit(device);
            if (!most) {
                throw;
            }
            // without "Decoder: "
            const std::string said = std::string(error.what()).substr(error.where().size() + 2);
            throw Error(said + "; with max_tokens = " + std::to_string(*most) + " it fits", kDecoder);
        }
    }

    void compile(const Device& device) {
        CompileOptions compile;
        compile.profile = options.profile;
        compile.communicator = options.communicator;
        compile.state = caches = device.make_state({&plan.graph(DecoderTask::prompt)});
        for (const DecoderTask task : plan.tasks()) {
            compile.name = std::string("decoder ") + name_of(task);
            programs[static_cast<std::size_t>(task)] = device.compile(Insides::plan(plan, task), compile);
        }
    }

    void set_weights(const Weights& given) {
        weights = given;
        for (const DecoderTask task : plan.tasks()) {
            program(task).set_weights(weights);
        }
    }

    Program& program(DecoderTask task) { return *programs[static_cast<std::size_t>(task)]; }

    void begin(Prompts prompts) {
        batch.begin(prompts);
        answers = {};
        set_batch();
    }

    /// Begins to read more tokens behind what the cache holds.
    void resume() {
        batch.resume();
        answers = {};
    }

    /// Reads more tokens likewise. Where that fails the cache holds what it held before, unless
    /// that was in rows of a ring of which a chunk was written.
    template <class TokensOf>
    void read_more(std::size_t count, TokensOf tokens_of) {
        const std::int64_t length = batch.length();
        DecoderAnswers before = std::move(answers);
        resume();
        try {
            read(count, DecoderTask::prompt, tokens_of, [] {});
            read_answers(DecoderTask::prompt);
        } catch (...) {
            if (any_ring && batch.length() != length) {
                batch.resume();
            } else {
                batch.rewind(length);
                answers = std::move(before);
            }
            throw;
        }
    }

    /// Lets `write` change the adapter. If that fails, nothing runs until it is done again.
    template <class Write>
    void adapt(Write write) {
        batch.restore(0, {0});
        answers = {};
        adapted_in_part = true;
        write(caches);
        adapted_in_part = false;
    }

    void restore(const CacheFile& file) {
        resume();  // and a device that fails leaves no prompt to go on from
        file.write(caches);
        batch.restore(file.length(), file.padding());
        set_batch();
        answers = file.answers();
        if (file.finished()) {
            batch.finish();
        }
    }

    /// Tells the programs what they run over.
    void set_batch() {
        for (const DecoderTask task : plan.tasks()) {
            program(task).set("batch", static_cast<std::int64_t>(batch.size()));
            if (options.max_batch > 1) {
                program(task).upload("keys", batch.keys());
            }
        }
    }

    /// Runs over the next tokens (batch, count), row-major.
    void advance(DecoderTask task, std::span<const std::int32_t> tokens) {
        if (adapted_in_part) {
            throw Error("set_adapter() or clear_adapter() failed when it had written a part; call it again", kDecoder);
        }
        Program& p = program(task);
        const std::size_t count = tokens.size() / batch.size();
        p.set("start", batch.length());
        for (const CacheRing& ring : rings) {
            for (const auto& [name, value] : ring.sizes(task, batch.length(), static_cast<std::int64_t>(count))) {
                p.set(name, value);
            }
        }
        if (task != DecoderTask::step) {
            p.set("tokens", static_cast<std::int64_t>(count));
        }
        if (split.first()) {
            p.upload("tokens", tokens);
        }
        if (learned_positions) {
            p.upload("positions", batch.next_positions(count));
        }
        split.receive(p, tokens.size());
        p.run();
        split.send(p, tokens.size());
        batch.advance(count);
    }

    void find_first_tokens() {
        const Communicator& c = *options.communicator;
        std::int64_t first = 0;
        for (const std::int64_t tokens :
             shares_of_vocabulary(plan.model().facts().vocab_size, {c.rank(), c.ranks(), options.speeds})) {
            found.first_tokens.push_back(static_cast<std::int32_t>(first));
            first += tokens;
        }
    }

    void read_answers(DecoderTask task) {
        try {
            download_answers(task);
        } catch (...) {
            answers = {};
            throw;
        }
        for (std::size_t row = 0; row < answers.next.size(); ++row) {
            if (answers.next[row] < 0) {  // as argmax_of_finite() says it
                answers = {};
                throw Error("the logits of sequence " + std::to_string(row) + " are not finite" +
                                (options.arithmetic == Arithmetic::f16
                                     ? "; products of more than four rows are computed in fp16, which may overflow"
                                     : ""),
                            kDecoder);
            }
        }
    }

    void download_answers(DecoderTask task) {
        if (options.communicator && options.communicator->ranks() > 1 && options.split == Split::tensor) {
            const auto each =
                static_cast<std::size_t>(std::max<std::int64_t>(1, options.candidates) * options.communicator->ranks());
            found.tokens.resize(batch.size() * each);
            found.logits.resize(batch.size() * each);
            program(task).download("candidate_tokens", std::span(found.tokens));
            program(task).download("candidate_logits", std::span(found.logits));
            if (found.first_tokens.empty()) {
                find_first_tokens();
            }
            merge_answers(found, static_cast<std::size_t>(options.candidates), answers);
            return;
        }
        const auto candidates = batch.size() * static_cast<std::size_t>(options.candidates);
        answers.next.resize(batch.size());
        answers.candidate_tokens.resize(candidates);
        answers.candidate_logits.resize(candidates);
        if (split.last()) {
            program(task).download("next", std::span(answers.next));
            if (candidates > 0) {
                program(task).download("candidate_tokens", std::span(answers.candidate_tokens));
                program(task).download("candidate_logits", std::span(answers.candidate_logits));
            }
        }
        split.share(answers);
    }

    /// Reads `all` tokens of each sequence in chunks, which tokens_of(first, count) gives; calls
    /// `after` behind each.
    template <class TokensOf, class After>
    void read(std::size_t all, DecoderTask task, TokensOf tokens_of, After after) {
        for (std::size_t at = 0; at < all;) {
            const std::size_t count = std::min(all - at, static_cast<std::size_t>(options.chunk));
            advance(task, tokens_of(at, count));
            at += count;
            after();
            if (options.progress) {
                options.progress(at, all);
            }
        }
        batch.finish();
    }

    /// Waits for the other ranks, which may take longer to load and to compile.
    void meet() {
        constexpr double kLoadingSeconds = 600;
        if (options.communicator) {
            options.communicator->meet(kLoadingSeconds);
        }
    }

    template <class After>
    void read_prompts(Prompts prompts, DecoderTask task, After after) {
        begin(prompts);
        read(
            batch.longest_prompt(), task,
            [&](std::size_t first, std::size_t count) { return batch.tokens(prompts, first, count); }, after);
    }
};

Decoder::Decoder(const Device& device, const Checkpoint& checkpoint, const DecoderPlan& plan)
    : parts_(std::make_unique<Parts>(device, plan)) {
    parts_->set_weights(
        load_beside([&] { parts_->compile(device); }, [&] { return load_decoder(device, checkpoint, plan); }));
    parts_->meet();
}

Decoder::Decoder(const Device& device, const Weights& weights, const DecoderPlan& plan)
    : parts_(std::make_unique<Parts>(device, plan)) {
    parts_->compile(device);
    parts_->set_weights(weights);
    parts_->meet();
}

Decoder::Decoder(const Device& device, const Weights& weights, const DecoderModel& model, const DecoderOptions& options)
    : Decoder(device, weights, DecoderPlan(device, weights.layout(), model, options)) {}

Decoder::Decoder(Decoder&&) noexcept = default;
Decoder& Decoder::operator=(Decoder&&) noexcept = default;
Decoder::~Decoder() = default;

void Decoder::prompt(std::span<const std::vector<std::int32_t>> prompts) {
    parts_->read_prompts(prompts, DecoderTask::prompt, [] {});
    parts_->read_answers(DecoderTask::prompt);
}

void Decoder::prompt(const std::vector<std::int32_t>& tokens) { prompt(std::span(&tokens, 1)); }

void Decoder::append(std::span<const std::int32_t> tokens) {
    const std::size_t all = parts_->batch.check_append(tokens);
    const std::vector<std::int32_t> own(tokens.begin(), tokens.end());  // they may be next()
    const auto columns = [&](std::size_t first, std::size_t count) {
        std::vector<std::int32_t> out;
        for (std::size_t row = 0; row < own.size(); row += all) {
            const auto part = std::span(own).subspan(row + first, count);
            out.insert(out.end(), part.begin(), part.end());
        }
        return out;
    };
    parts_->read_more(all, columns);
}

void Decoder::step(std::span<const std::int32_t> tokens) {
    parts_->batch.check_step(tokens);
    const std::int64_t length = parts_->batch.length();
    try {
        parts_->advance(DecoderTask::step, tokens);
        parts_->read_answers(DecoderTask::step);
    } catch (...) {
        parts_->batch.rewind(length);
        throw;
    }
}

std::span<const std::int32_t> Decoder::next() const noexcept { return parts_->answers.next; }

Candidates Decoder::candidates(std::size_t sequence) const {
    const auto k = static_cast<std::size_t>(parts_->options.candidates);
    const std::size_t sequences = k == 0 ? 0 : parts_->answers.candidate_tokens.size() / k;
    if (sequence >= sequences) {
        const std::string why = k == 0           ? "DecoderOptions::candidates is 0"
                                : sequences == 0 ? "there is no answer, as behind a prompt that was read to its end"
                                                 : "there are " + std::to_string(sequences);
        throw Error("no candidates of sequence " + std::to_string(sequence) + "; " + why, kDecoder);
    }
    return {std::span(parts_->answers.candidate_tokens).subspan(sequence * k, k),
            std::span(parts_->answers.candidate_logits).subspan(sequence * k, k), model().facts().vocab_size};
}

std::int64_t Decoder::room() const noexcept { return parts_->batch.room(); }

void Decoder::set_adapter(const Adapter& adapter) {
    if (!parts_->options.lora) {
        throw Error("DecoderOptions::lora was not asked for", kDecoder);
    }
    adapter.check(parts_->caches);
    parts_->adapt([&](State& caches) { adapter.write(caches); });
}

void Decoder::clear_adapter() {
    parts_->adapt([](State& caches) { vkf::clear_adapter(caches); });
}

void Decoder::save_cache(const std::filesystem::path& file) const {
    save_cache_file(file, parts_->plan, parts_->caches, parts_->batch, parts_->answers);
}

void Decoder::restore_cache(const std::filesystem::path& file) {
    parts_->restore(CacheFile(file, parts_->plan, parts_->caches));
}

std::vector<float> Decoder::score(const std::vector<std::int32_t>& tokens) {
    if (!parts_->options.score) {
        throw Error("DecoderOptions::score was not asked for", kDecoder);
    }
    std::vector<float> logits;
    parts_->read_prompts(std::span(&tokens, 1), DecoderTask::score, [&] {
        if (!parts_->split.last()) {
            return;
        }
        const std::vector<float> part = parts_->program(DecoderTask::score).download("logits");
        logits.insert(logits.end(), part.begin(), part.end());
    });
    logits.resize(tokens.size() * static_cast<std::size_t>(parts_->plan.model().facts().vocab_size));
    parts_->split.share(logits);
    return logits;
}

const DecoderModel& Decoder::model() const noexcept { return parts_->plan.model(); }
const ModelMemory& Decoder::memory() const noexcept { return parts_->plan.memory(); }
const Weights& Decoder::weights() const noexcept { return parts_->weights; }
Program& Decoder::prompt_program() noexcept { return parts_->program(DecoderTask::prompt); }
Program& Decoder::step_program() noexcept { return parts_->program(DecoderTask::step); }

}  // namespace vkf
