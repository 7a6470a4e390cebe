// SPDX-License-Identifier: Apache-2.0
#include "models/decoder.h"

#include <algorithm>
#include <optional>

#include "models/decoder_rings.h"
#include "models/require_memory.h"

namespace vkf {

namespace {

constexpr const char* kName = "Decoder";

/// What was left open filled in, and checked against the model.
DecoderOptions settled(DecoderOptions o, const DecoderConfig& c) {
    o.max_tokens = o.max_tokens == 0 ? c.max_positions : o.max_tokens;
    const auto within = [](const char* what, std::int64_t value, std::int64_t least, std::int64_t most) {
        if (value < least || value > most) {
            throw Error(std::string(what) + " = " + std::to_string(value) + " is outside " + std::to_string(least) +
                            ".." + std::to_string(most),
                        kName);
        }
    };
    within("max_tokens", o.max_tokens, 1, c.max_positions);
    within("max_batch", o.max_batch, 1, 4096);
    within("candidates", o.candidates, 0, std::min<std::int64_t>(128, c.vocab_size));
    if (o.kv == WeightType::int4) {
        throw Error("keys and values are kept as f32, f16, bf16 or int8, not int4", kName);
    }
    within("chunk", o.chunk, 1, std::int64_t{1} << 20);
    o.chunk = std::min(o.chunk, o.max_tokens);
    return o;
}

std::vector<DecoderRun> runs_of(const DecoderOptions& o) {
    std::vector<DecoderRun> runs{DecoderRun::prompt, DecoderRun::step};
    if (o.score) {
        runs.push_back(DecoderRun::score);
    }
    return runs;
}

const char* name_of(DecoderRun run) {
    return run == DecoderRun::prompt ? "prompt" : run == DecoderRun::step ? "step" : "score";
}

std::string megabytes(std::uint64_t bytes) { return std::to_string((bytes + (1u << 20) - 1) >> 20) + " MiB"; }

}  // namespace

void add(DecoderMemory& sum, const MemorySizes& m) {
    sum.weights = m.weights;  // programs share weights and cache
    sum.cache = m.state;
    sum.scratch += m.scratch;
    sum.constants += m.constants;
    sum.transfers += m.inputs + m.outputs + m.mirrors;
}

void require_memory(const Device& device, const DecoderMemory& m, const char* who) {
    const std::uint64_t there = device.capabilities().device_memory;
    if (m.total() > there) {
        throw Error("needs " + megabytes(m.total()) + " (weights " + megabytes(m.weights) + ", cache " +
                        megabytes(m.cache) + ", scratch " + megabytes(m.scratch) + ", other " +
                        megabytes(m.constants + m.transfers) + "); the device has " + megabytes(there),
                    who);
    }
}

void require_memory(const Device& device, const DecoderMemory& m) { require_memory(device, m, kName); }

namespace {

/// Without weights, of matrices in fp32.
DecoderMemory planned(const Device& device, const DecoderConfig& config, const DecoderOptions& o,
                      const Weights& weights = {}) {
    DecoderMemory memory;
    for (const DecoderRun run : runs_of(o)) {
        Graph graph;
        describe_decoder(graph, config, o, run);
        add(memory, make_plan(graph, device.capabilities(), weights.layout(), {.arithmetic = o.arithmetic}).memory);
    }
    return memory;
}

/// Half of `o.chunk` or half of that, ..., of which no tensor is too large for the device; nothing where that is not it.
std::optional<std::int64_t> chunk_that_fits(const Device& device, const DecoderConfig& config, DecoderOptions o) {
    while (o.chunk > 1) {
        o.chunk /= 2;
        try {
            planned(device, config, o);
            return o.chunk;
        } catch (const Error&) {
        }
    }
    return std::nullopt;
}

}  // namespace

DecoderMemory plan_decoder(const Device& device, const DecoderConfig& config, const DecoderOptions& options) {
    const DecoderOptions o = settled(options, config);
    try {
        return planned(device, config, o);
    } catch (const Error& error) {
        const std::optional<std::int64_t> chunk = chunk_that_fits(device, config, o);
        if (!chunk) {
            throw;
        }
        throw Error(std::string(error.what()) + "; with chunk = " + std::to_string(*chunk) + " it fits", kName);
    }
}

namespace {

/// Sets the sizes of the rings of one window, see ring_symbol().
struct Ring {
    std::int64_t window, rows;
    std::string kept, at, written, first, seen;  ///< names

    Ring(std::int64_t w, std::int64_t r)
        : window(w),
          rows(r),
          kept(ring_symbol(w, "kept")),
          at(ring_symbol(w, "at")),
          written(ring_symbol(w, "written")),
          first(ring_symbol(w, "first")),
          seen(ring_symbol(w, "seen")) {}

    void set(Program& p, DecoderRun run, std::int64_t length, std::int64_t count) const {
        const std::int64_t old = std::min(length, window - 1);
        const std::int64_t from = (length - old) % rows;
        p.set(kept, old);
        p.set(at, length % rows);
        p.set(first, from);
        p.set(seen, std::min(old + count, rows - from));
        if (run != DecoderRun::step) {
            p.set(written, std::min(count, rows - length % rows));
        }
    }
};

std::vector<Ring> rings_of(const DecoderConfig& config, const DecoderOptions& options) {
    std::vector<Ring> rings;
    for (std::int64_t i = 0; i < config.layers; ++i) {
        const std::int64_t window = config.windows[static_cast<std::size_t>(i)];
        const std::int64_t rows = cache_rows(config, options, i);
        const bool known =
            std::any_of(rings.begin(), rings.end(), [&](const Ring& ring) { return ring.window == window; });
        if (rows < options.max_tokens && !known) {
            rings.emplace_back(window, rows);
        }
    }
    return rings;
}

}  // namespace

struct Decoder::Parts {
    DecoderConfig config;
    DecoderOptions options;
    DecoderMemory memory;
    std::optional<Program> programs[3];  ///< by DecoderRun

    std::size_t batch = 1;
    std::int64_t length = 0;  ///< tokens in the cache, padding included
    std::vector<Ring> rings;
    std::vector<std::int32_t> keys;  ///< (batch, max_tokens)
    std::vector<std::int64_t> padding;
    std::vector<std::int32_t> positions;  ///< of the next tokens, where they are learned
    std::vector<std::int32_t> next;
    std::vector<std::int32_t> candidate_tokens;
    std::vector<float> candidate_logits;

    Program& program(DecoderRun run) { return *programs[static_cast<std::size_t>(run)]; }

    void check_token(std::int32_t id) const {
        if (id < 0 || id >= config.vocab_size) {
            throw Error(
                "token " + std::to_string(id) + " is outside the vocabulary of " + std::to_string(config.vocab_size),
                kName);
        }
    }

    void check_prompt(const std::vector<std::int32_t>& tokens) const {
        if (tokens.empty()) {
            throw Error("the prompt is empty", kName);
        }
        if (tokens.size() > static_cast<std::size_t>(options.max_tokens)) {
            throw Error("a prompt of " + std::to_string(tokens.size()) + " tokens; at most " +
                            std::to_string(options.max_tokens) + " fit",
                        kName);
        }
        std::for_each(tokens.begin(), tokens.end(), [&](std::int32_t id) { check_token(id); });
    }

    /// An empty cache for sequences of these lengths, which end together.
    void begin(std::span<const std::vector<std::int32_t>> prompts) {
        if (prompts.empty() || prompts.size() > static_cast<std::size_t>(options.max_batch)) {
            throw Error("a batch of " + std::to_string(prompts.size()) + "; 1 to " + std::to_string(options.max_batch) +
                            " are possible",
                        kName);
        }
        std::size_t longest = 0;
        for (const auto& p : prompts) {
            check_prompt(p);
            longest = std::max(longest, p.size());
        }
        batch = prompts.size();
        length = 0;
        padding.clear();
        keys.assign(batch * static_cast<std::size_t>(options.max_tokens), 1);
        for (std::size_t b = 0; b < batch; ++b) {
            const std::size_t pad = longest - prompts[b].size();
            padding.push_back(static_cast<std::int64_t>(pad));
            std::fill_n(keys.begin() + static_cast<std::ptrdiff_t>(b * static_cast<std::size_t>(options.max_tokens)),
                        pad, 0);
        }
        for (const DecoderRun run : runs_of(options)) {
            program(run).set("batch", static_cast<std::int64_t>(batch));
            if (options.max_batch > 1) {
                program(run).upload("keys", keys);
            }
        }
    }

    /// Runs over the next tokens (batch, count), row-major.
    void advance(DecoderRun run, std::span<const std::int32_t> tokens) {
        Program& p = program(run);
        const std::size_t count = tokens.size() / batch;
        p.set("start", length);
        for (const Ring& ring : rings) {
            ring.set(p, run, length, static_cast<std::int64_t>(count));
        }
        if (run != DecoderRun::step) {
            p.set("tokens", static_cast<std::int64_t>(count));
        }
        p.upload("tokens", tokens);
        if (options.max_batch > 1 && !config.rope) {
            positions.clear();
            for (std::size_t b = 0; b < batch; ++b) {
                for (std::size_t i = 0; i < count; ++i) {
                    const std::int64_t at = length + static_cast<std::int64_t>(i) - padding[b];
                    positions.push_back(static_cast<std::int32_t>(std::max<std::int64_t>(at, 0)));
                }
            }
            p.upload("positions", positions);
        }
        p.run();
        length += static_cast<std::int64_t>(count);
    }

    void read_answers(DecoderRun run) {
        const auto candidates = batch * static_cast<std::size_t>(options.candidates);
        next.resize(batch);
        candidate_tokens.resize(candidates);
        candidate_logits.resize(candidates);
        program(run).download("next", std::span(next));
        if (candidates > 0) {
            program(run).download("candidate_tokens", std::span(candidate_tokens));
            program(run).download("candidate_logits", std::span(candidate_logits));
        }
    }

    /// The prompts in chunks; `after` each.
    template <class After>
    void read(std::span<const std::vector<std::int32_t>> prompts, DecoderRun run, After after) {
        begin(prompts);
        const auto longest = prompts[0].size() + static_cast<std::size_t>(padding[0]);
        for (std::size_t at = 0; at < longest;) {
            const std::size_t count = std::min(longest - at, static_cast<std::size_t>(options.chunk));
            std::vector<std::int32_t> tokens;
            for (std::size_t b = 0; b < batch; ++b) {
                const auto pad = static_cast<std::size_t>(padding[b]);
                for (std::size_t i = at; i < at + count; ++i) {
                    tokens.push_back(i < pad ? 0 : prompts[b][i - pad]);
                }
            }
            advance(run, tokens);
            at += count;
            after();
            if (options.progress) {
                options.progress(at, longest);
            }
        }
    }
};

Decoder::Decoder(const Device& device, const Weights& weights, const DecoderConfig& config,
                 const DecoderOptions& options) {
    auto parts = std::make_unique<Parts>();
    parts->config = config;
    parts->options = settled(options, config);
    const DecoderOptions& o = parts->options;
    parts->rings = rings_of(config, o);
    parts->memory = plan_decoder(device, config, o);  // which says what would fit
    if (o.arithmetic == Arithmetic::int8) {
        parts->memory = planned(device, config, o, weights);
    }
    parts->memory.weights = weights.bytes();
    require_memory(device, parts->memory);
    Graph graphs[3];
    for (const DecoderRun run : runs_of(o)) {
        describe_decoder(graphs[static_cast<std::size_t>(run)], config, o, run);
    }
    CompileOptions compile;
    compile.profile = o.profile;
    compile.arithmetic = o.arithmetic;
    compile.state = device.make_state({&graphs[0]});
    for (const DecoderRun run : runs_of(o)) {
        compile.name = std::string("decoder ") + name_of(run);
        parts->programs[static_cast<std::size_t>(run)] =
            device.compile(graphs[static_cast<std::size_t>(run)], weights, compile);
    }
    parts_ = std::move(parts);
}

Decoder::Decoder(Decoder&&) noexcept = default;
Decoder& Decoder::operator=(Decoder&&) noexcept = default;
Decoder::~Decoder() = default;

void Decoder::prompt(std::span<const std::vector<std::int32_t>> prompts) {
    parts_->read(prompts, DecoderRun::prompt, [] {});
    parts_->read_answers(DecoderRun::prompt);
}

void Decoder::prompt(const std::vector<std::int32_t>& tokens) { prompt(std::span(&tokens, 1)); }

void Decoder::step(std::span<const std::int32_t> tokens) {
    if (tokens.size() != parts_->batch) {
        throw Error(std::to_string(tokens.size()) + " tokens for " + std::to_string(parts_->batch) + " sequences",
                    kName);
    }
    if (room() < 1) {
        throw Error("the cache is full: it holds " + std::to_string(parts_->options.max_tokens) + " tokens", kName);
    }
    for (const std::int32_t id : tokens) {
        parts_->check_token(id);
    }
    parts_->advance(DecoderRun::step, tokens);
    parts_->read_answers(DecoderRun::step);
}

std::span<const std::int32_t> Decoder::next() const noexcept { return parts_->next; }

Candidates Decoder::candidates(std::size_t sequence) const {
    const auto k = static_cast<std::size_t>(parts_->options.candidates);
    if (k == 0 || (sequence + 1) * k > parts_->candidate_tokens.size()) {
        throw Error("no candidates of sequence " + std::to_string(sequence) + "; DecoderOptions::candidates is " +
                        std::to_string(k),
                    kName);
    }
    return {std::span(parts_->candidate_tokens).subspan(sequence * k, k),
            std::span(parts_->candidate_logits).subspan(sequence * k, k)};
}

std::int64_t Decoder::room() const noexcept { return parts_->options.max_tokens - parts_->length; }

std::vector<float> Decoder::score(const std::vector<std::int32_t>& tokens) {
    if (!parts_->options.score) {
        throw Error("DecoderOptions::score was not asked for", kName);
    }
    std::vector<float> logits;
    parts_->read(std::span(&tokens, 1), DecoderRun::score, [&] {
        const std::vector<float> part = parts_->program(DecoderRun::score).download("logits");
        logits.insert(logits.end(), part.begin(), part.end());
    });
    return logits;
}

const DecoderConfig& Decoder::config() const noexcept { return parts_->config; }
const DecoderMemory& Decoder::memory() const noexcept { return parts_->memory; }
Program& Decoder::prompt_program() noexcept { return parts_->program(DecoderRun::prompt); }
Program& Decoder::step_program() noexcept { return parts_->program(DecoderRun::step); }

}  // namespace vkf
