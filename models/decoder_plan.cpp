// SPDX-License-Identifier: Apache-2.0
#include "models/decoder_plan.h"

#include <algorithm>
#include <array>
#include <bit>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "layers/sharing.h"
#include "models/blocks/cache_ring.h"
#include "models/blocks/cached_run.h"
#include "models/check_within.h"
#include "models/decoder_name.h"
#include "models/decoder_parameters.h"
#include "models/families/family.h"
#include "models/load_parameters.h"
#include "ops/argmax_of_finite.h"
#include "ops/collectives.h"
#include "runtime/base/mapped_bytes.h"
#include "runtime/base/text.h"
#include "runtime/compile/plan.h"
#include "shaders/top_k.h"

namespace vkf {

namespace {

/// True where ranks have layers one behind the other.
bool has_layers_apart(const DecoderOptions& o) {
    return o.communicator && o.split == Split::layers && o.communicator->ranks() > 1;
}

Rank rank_of(const DecoderOptions& o) {
    return o.communicator ? Rank{o.communicator->rank(), o.communicator->ranks(), o.speeds} : Rank{0, 1, o.speeds};
}

/// The layers that are this rank's. Throws Error where they cannot be shared out.
Part own_layers(const DecoderFacts& facts, const DecoderOptions& o) {
    const auto layers = static_cast<std::int64_t>(facts.layers.size());
    return has_layers_apart(o) ? share_of_layers(layers, rank_of(o)) : Part{0, layers};
}

/// Throws Error where several ranks cannot have such a decoder, or another rank has another.
void check_ranks(const DecoderOptions& o, const DecoderFacts& facts) {
    if (o.lora) {
        throw Error("an adapter cannot be shared out over ranks", kDecoder);
    }
    std::string model = facts.model_type + ", vocabulary " + std::to_string(facts.vocab_size) + ", positions " +
                        std::to_string(facts.max_positions);
    for (const LayerCache& layer : facts.layers) {
        model += "; " + std::to_string(layer.kv_heads) + " x " + std::to_string(layer.head_dim) + ", window " +
                 std::to_string(layer.window);
    }
    o.communicator->agree("version of vkformer", VKFORMER_PROJECT_VERSION);
    o.communicator->agree("model", model);
    std::string options;
    for (const std::int64_t n :
         {o.max_batch, o.max_tokens, o.chunk, o.candidates, std::int64_t{o.score}, static_cast<std::int64_t>(o.kv),
          static_cast<std::int64_t>(o.arithmetic), static_cast<std::int64_t>(o.split)}) {
        options += std::to_string(n) + " ";
    }
    for (const double speed : o.speeds) {  // every bit of them
        options += std::to_string(std::bit_cast<std::uint64_t>(speed)) + " ";
    }
    o.communicator->agree("set of options", options);
    check_rank(rank_of(o));
    if (o.split == Split::layers) {
        return;
    }
    const std::vector<std::int64_t> tokens = shares_of_vocabulary(facts.vocab_size, rank_of(o));
    const std::int64_t fewest = *std::min_element(tokens.begin(), tokens.end());
    if (o.candidates > fewest) {
        throw Error("candidates = " + std::to_string(o.candidates) + " is more than the " + std::to_string(fewest) +
                        " tokens that a rank of " + std::to_string(o.communicator->ranks()) + " has",
                    kDecoder);
    }
}

/// Names, types and shapes of a checkpoint's tensors, and the first bytes of each.
std::string described(const Checkpoint& checkpoint) {
    constexpr std::size_t kSample = 64;
    std::string text;
    for (const std::string& name : checkpoint.names()) {
        const HostTensor& t = *checkpoint.find(name);
        const std::span<const std::byte> sample = t.data.first(std::min(kSample, t.data.size()));
        std::string bytes(sample.size(), '\0');
        copy_bytes(sample, reinterpret_cast<std::byte*>(bytes.data()));
        text += name + " " + shape_text(t.shape) + " " + std::string(name_of(t.dtype)) + " " + bytes + "\n";
    }
    return text;
}

/// Fills in the options that were left open, and checks them against the model.
DecoderOptions settled(DecoderOptions o, const DecoderFacts& facts) {
    o.max_tokens = o.max_tokens == 0 ? facts.max_positions : o.max_tokens;
    check_within(kDecoder, "max_tokens", o.max_tokens, 1, facts.max_positions);
    check_within(kDecoder, "max_batch", o.max_batch, 1, 4096);
    check_within(kDecoder, "candidates", o.candidates, 0, std::min<std::int64_t>(shader::kTopKMost, facts.vocab_size));
    if (o.kv == WeightType::int4) {
        throw Error("keys and values are kept as f32, f16, bf16 or int8, not int4", kDecoder);
    }
    check_within(kDecoder, "chunk", o.chunk, 1, std::int64_t{1} << 20);
    o.chunk = std::min(o.chunk, o.max_tokens);
    if (o.communicator && o.communicator->ranks() > 1) {
        check_ranks(o, facts);
    } else {
        check_rank(rank_of(o));
    }
    own_layers(facts, o);  // throws where they cannot be shared out
    if (o.lora) {
        o.lora->alpha = static_cast<float>(o.lora->rank);
    }
    return o;
}

void describe(Graph& g, const DecoderModel& model, const DecoderOptions& o, DecoderTask task) {
    if (o.communicator && o.split == Split::tensor) {
        g.set_rank(rank_of(o));
    }
    const Part layers = own_layers(model.facts(), o);
    const std::int64_t hidden = layers.first == 0 ? 0 : model.facts().width;
    const CachedRunSizes sizes{o.max_batch, o.max_tokens, o.chunk, o.kv, hidden};
    CachedRun run(g, task, sizes, model.facts().layers);
    const std::optional<Lora> lora = o.lora ? std::optional<Lora>(std::in_place, g, *o.lora) : std::nullopt;
    const Value logits = family_of(model).describe(run, layers);
    if (lora) {
        lora->parameters();  // throws where a target fits no layer
    }
    if (layers.first + layers.count < static_cast<std::int64_t>(model.facts().layers.size())) {
        g.output("next_hidden", logits);
        return;
    }
    const int ranks = g.rank().ranks;
    if (task == DecoderTask::score) {
        const auto all = [&] { return all_gather(logits, shares_of_vocabulary(model.facts().vocab_size, g.rank())); };
        g.output("logits", ranks == 1 ? logits : concat(all(), -1));
        return;
    }
    const Value row = reshape(logits, {logits.size(0), logits.size(-1)});
    if (ranks > 1) {
        const std::int64_t k = std::max<std::int64_t>(1, o.candidates);
        const TopK best = top_k(row, k);
        const std::vector<std::int64_t> columns(static_cast<std::size_t>(ranks), k);
        g.output("candidate_logits", concat(all_gather(best.values, columns), -1));
        g.output("candidate_tokens", concat(all_gather(best.indices, columns), -1));
        return;
    }
    g.output("next", argmax_of_finite(row));
    if (o.candidates > 0) {
        const TopK best = top_k(row, o.candidates);
        g.output("candidate_logits", best.values);
        g.output("candidate_tokens", best.indices);
    }
}

std::vector<DecoderTask> tasks_of(const DecoderOptions& o) {
    std::vector<DecoderTask> tasks{DecoderTask::prompt, DecoderTask::step};
    if (o.score) {
        tasks.push_back(DecoderTask::score);
    }
    return tasks;
}

std::unique_ptr<Graph> graph_of(const DecoderModel& model, const DecoderOptions& o, DecoderTask task) {
    auto graph = std::make_unique<Graph>();
    describe(*graph, model, o, task);
    return graph;
}

/// A graph that has the weights, which do not depend on sizes: the smallest one.
std::unique_ptr<Graph> small_graph_of(const DecoderModel& model, DecoderOptions o) {
    o.max_batch = o.max_tokens = o.chunk = 1;
    return graph_of(model, o, DecoderTask::step);
}

/// Finds the parameters without a plan.
std::vector<Parameter> parameters_of(const Checkpoint& checkpoint, const DecoderModel& model, const LoadOptions& load) {
    return decoder_parameters(*small_graph_of(model, {}), checkpoint, model, load);
}

/// Finds the parameters of a rank: those that its graph has. The files are checked against all.
std::vector<Parameter> parameters_of(const Graph& graph, const Checkpoint& checkpoint, const DecoderModel& model,
                                     const DecoderOptions& options, const LoadOptions& load) {
    if (!has_layers_apart(options)) {
        return decoder_parameters(graph, checkpoint, model, load);
    }
    std::vector<Parameter> parameters = parameters_of(checkpoint, model, load);
    std::set<std::string> own;
    for (const StorageInfo& s : graph.storages()) {
        if (s.kind == StorageKind::weight) {
            own.insert(s.name);
        }
    }
    std::erase_if(parameters, [&](const Parameter& p) { return !own.contains(p.kept.name); });
    return parameters;
}

}  // namespace

struct DecoderPlan::Parts {
    DecoderModel model;
    DecoderOptions options;
    /// parameters in the checkpoint that was planned for; else none
    FoundParameters found = {};
    std::array<std::unique_ptr<Graph>, 3> graphs;  ///< graphs, by DecoderTask
    std::array<Plan, 3> plans;
    WeightLayout weights = WeightLayout::none();
    ModelMemory memory;

    Parts(const DecoderModel& m, const DecoderOptions& o) : model(m), options(o) {}

    /// Finds the parameters in a checkpoint. Where no graph can have these sizes, plan() says so.
    std::vector<Parameter> parameters(const Checkpoint& checkpoint, const LoadOptions& load) {
        std::unique_ptr<Graph>& prompt = graphs[static_cast<std::size_t>(DecoderTask::prompt)];
        std::unique_ptr<Graph> small;
        try {
            prompt = graph_of(model, options, DecoderTask::prompt);
        } catch (const Error&) {
            small = small_graph_of(model, options);
        }
        return parameters_of(small ? *small : *prompt, checkpoint, model, options, load);
    }

    /// Describes each task, and plans it for weights that lie so. Throws Error where a tensor is
    /// too large for any graph or for the device.
    void plan(const Capabilities& device, const WeightLayout& layout) {
        weights = layout;
        for (const DecoderTask task : tasks_of(options)) {
            const auto at = static_cast<std::size_t>(task);
            if (!graphs[at]) {
                graphs[at] = graph_of(model, options, task);
            }
            plans[at] = make_plan(*graphs[at], device, weights, {.arithmetic = options.arithmetic});
            memory.add(plans[at].memory);
        }
        memory.weights = weights.tensors().empty() ? memory.weights : weights.bytes();
    }

    /// Finds a chunk, half of the one asked for or half of that, ..., with which no tensor is too
    /// large; nothing where the chunk is not the reason.
    std::optional<std::int64_t> chunk_that_fits(const Capabilities& device) const;
    /// Finds a max_tokens likewise, with which all of it fits the device's memory.
    std::optional<std::int64_t> max_tokens_that_fit(const Capabilities& device) const;
    /// plan(), or throws Error with a chunk or a max_tokens that fits.
    void plan_or_name_sizes(const Capabilities& device, const WeightLayout& layout);
};

std::optional<std::int64_t> DecoderPlan::Parts::chunk_that_fits(const Capabilities& device) const {
    DecoderOptions o = options;
    while (o.chunk > 1) {
        o.chunk /= 2;
        try {
            Parts(model, o).plan(device, weights);
            return o.chunk;
        } catch (const Error&) {
        }
    }
    return std::nullopt;
}

std::optional<std::int64_t> DecoderPlan::Parts::max_tokens_that_fit(const Capabilities& device) const {
    const auto fits = [&](std::int64_t max_tokens) {
        DecoderOptions o = options;
        o.max_tokens = max_tokens;
        o.chunk = std::min(o.chunk, max_tokens);
        try {
            Parts smaller(model, o);
            smaller.plan(device, weights);
            return smaller.memory.total() <= device.device_memory;
        } catch (const Error&) {
            return false;
        }
    };
    if (weights.bytes() > device.device_memory || !fits(1)) {
        return std::nullopt;
    }
    std::int64_t most = options.max_tokens / 2;
    while (most > 1 && !fits(most)) {
        most /= 2;
    }
    return std::max<std::int64_t>(most, 1);
}

void DecoderPlan::Parts::plan_or_name_sizes(const Capabilities& device, const WeightLayout& layout) {
    try {
        plan(device, layout);
    } catch (const Error& error) {
        const char* name = "chunk";
        std::optional<std::int64_t> fits = chunk_that_fits(device);
        if (!fits) {
            name = "max_tokens";
            fits = max_tokens_that_fit(device);
        }
        if (!fits) {
            throw;
        }
        throw Error(std::string(error.what()) + "; with " + name + " = " + std::to_string(*fits) + " it fits",
                    kDecoder);
    }
}

DecoderPlan::DecoderPlan(const Device& device, const Checkpoint& checkpoint, const DecoderModel& model,
                         const DecoderOptions& options, const LoadOptions& load)
    : load_(std::make_shared<const LoadOptions>(load)) {
    const Capabilities& on = device.capabilities();
    const auto parts = std::make_shared<Parts>(model, settled(options, facts_of(model)));
    if (options.communicator) {
        options.communicator->agree("config.json", checkpoint.config());
        options.communicator->agree("set of weights", described(checkpoint));
        options.communicator->agree("type of matrices",
                                    load.matrices ? std::string(name_of(*load.matrices)) : "the file's");
    }
    std::vector<Parameter> parameters = parts->parameters(checkpoint, load);
    parts->plan_or_name_sizes(on, layout_of(parameters, on));
    parts->found = FoundParameters(std::move(parameters), checkpoint, decoder_rules(model));
    parts_ = parts;
}

DecoderPlan::DecoderPlan(const Device& device, const WeightLayout& weights, const DecoderModel& model,
                         const DecoderOptions& options, const LoadOptions& load)
    : load_(std::make_shared<const LoadOptions>(load)) {
    const auto parts = std::make_shared<Parts>(model, settled(options, facts_of(model)));
    parts->plan_or_name_sizes(device.capabilities(), weights);
    parts_ = parts;
}

const DecoderModel& DecoderPlan::model() const noexcept { return parts_->model; }
const DecoderOptions& DecoderPlan::options() const noexcept { return parts_->options; }
const LoadOptions& DecoderPlan::load() const noexcept { return *load_; }
const WeightLayout& DecoderPlan::weights() const noexcept { return parts_->weights; }
const ModelMemory& DecoderPlan::memory() const noexcept { return parts_->memory; }
Part DecoderPlan::layers() const { return own_layers(model().facts(), options()); }
std::vector<DecoderTask> DecoderPlan::tasks() const { return tasks_of(parts_->options); }

const Graph& DecoderPlan::graph(DecoderTask task) const {
    const std::unique_ptr<Graph>& graph = parts_->graphs[static_cast<std::size_t>(task)];
    if (!graph) {
        throw Error("DecoderOptions::score was not asked for", kDecoder);
    }
    return *graph;
}

std::vector<std::pair<std::string, std::int64_t>> DecoderPlan::sizes(DecoderTask task, std::int64_t batch,
                                                                     std::int64_t start, std::int64_t tokens) const {
    const DecoderOptions& o = options();
    const std::int64_t most = task == DecoderTask::step ? 1 : o.chunk;
    const bool fits = batch >= 1 && batch <= o.max_batch && tokens >= 1 && tokens <= most && start >= 0 &&
                      start <= o.max_tokens - tokens;
    if (!fits) {
        throw Error("batch " + std::to_string(batch) + ", start " + std::to_string(start) + ", tokens " +
                        std::to_string(tokens) + ": the plan is for batches of up to " + std::to_string(o.max_batch) +
                        ", " + std::to_string(most) + " tokens a run and " + std::to_string(o.max_tokens) + " in all",
                    kDecoder);
    }
    graph(task);  // throws where there is none
    std::vector<std::pair<std::string, std::int64_t>> out{{"batch", batch}, {"start", start}};
    if (task != DecoderTask::step) {
        out.emplace_back("tokens", tokens);
    }
    const Part own = layers();
    const auto all = std::span(model().facts().layers);
    for (const CacheRing& ring :
         rings_of(all.subspan(static_cast<std::size_t>(own.first), static_cast<std::size_t>(own.count)), o.max_tokens,
                  o.chunk)) {
        for (const auto& [name, value] : ring.sizes(task, start, tokens)) {
            out.emplace_back(name, value);
        }
    }
    return out;
}

DecoderPlan DecoderPlan::without_functions() const {
    LoadOptions load = *load_;
    load.choose = nullptr;
    load.progress = nullptr;
    DecoderPlan out = *this;
    out.load_ = std::make_shared<const LoadOptions>(std::move(load));
    return out;
}

std::optional<std::int64_t> DecoderPlan::max_tokens_that_fit(const Device& device) const {
    return parts_->max_tokens_that_fit(device.capabilities());
}

const Plan& DecoderPlan::plan(DecoderTask task) const {
    graph(task);  // throws where it was not asked for
    return parts_->plans[static_cast<std::size_t>(task)];
}

Weights load_decoder(const Device& device, const Checkpoint& checkpoint, const DecoderPlan& plan) {
    const LoadOptions& load = plan.load();
    if (const std::optional<std::vector<Parameter>> found = plan.parts_->found.in(checkpoint)) {
        return load_parameters(device, *found, plan.weights(), load.progress, load.pack_on);
    }
    const std::vector<Parameter> parameters =
        parameters_of(plan.graph(DecoderTask::prompt), checkpoint, plan.model(), plan.options(), load);
    const WeightLayout layout = layout_of(parameters, device.capabilities());
    const std::vector<StoredTensor>& planned = plan.weights().tensors();
    if (!planned.empty() && layout.tensors() != planned) {
        throw Error("the plan was made for weights that lie otherwise than this checkpoint's would", kDecoder);
    }
    return load_parameters(device, parameters, layout, load.progress, load.pack_on);
}

Weights load_decoder(const Device& device, const Checkpoint& checkpoint, const DecoderModel& model,
                     const LoadOptions& load) {
    const std::vector<Parameter> parameters = parameters_of(checkpoint, model, load);
    return load_parameters(device, parameters, layout_of(parameters, device.capabilities()), load.progress,
                           load.pack_on);
}

void save_decoder(const std::filesystem::path& folder, const Checkpoint& checkpoint, const DecoderModel& model,
                  const LoadOptions& load) {
    if (load.pack_on == PackOn::device) {
        throw Error("what is saved is packed on the host, not on a device", "save_decoder");
    }
    save_parameters(folder, checkpoint, parameters_of(checkpoint, model, load), load.progress);
}

}  // namespace vkf
