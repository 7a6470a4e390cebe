// SPDX-License-Identifier: Apache-2.0
// A decoder's programs for given sizes. They are described, and their memory is known, before a
// weight is loaded or a kernel compiled.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "../layers/lora.h"
#include "../parallel/communicator.h"
#include "../runtime/compile/load_options.h"
#include "../runtime/device/weights.h"
#include "../runtime/graph/shard.h"
#include "decoder_model.h"
#include "model_memory.h"

namespace vkf {

/// How ranks share out a decoder.
enum class Split : std::uint8_t {
    /// Every rank has a part of each layer (tensor parallel, Shoeybi et al. 2019): heads, inner
    /// widths and the vocabulary are shared out. Two all-reduces a layer.
    tensor,
    /// Every rank has some of the layers, one behind the other (pipeline parallel, Huang et al.
    /// 2019). Hidden states go from rank to rank once a run, and while one reads a chunk of a
    /// prompt, the one before reads the next.
    layers,
};

struct DecoderOptions {
    std::int64_t max_batch = 1;  ///< sequences beside each other, 1 to 4096
    /// Most tokens of a sequence, prompt included: the cache holds that many. 0: as many as the
    /// model was trained for, which may be more than the device has memory for.
    std::int64_t max_tokens = 0;
    std::int64_t chunk = 256;  ///< tokens of a prompt that one run takes, 1 to 2^20
    /// Number of likeliest tokens that Decoder::candidates() gives, with their logits, up to 128.
    /// 0: none; then only the likeliest token comes back.
    std::int64_t candidates = 0;
    /// The type that keys and values are kept as: f32, f16, bf16 or int8.
    WeightType kv = WeightType::f32;
    /// The arithmetic that products of prompts may use: CompileOptions::arithmetic.
    Arithmetic arithmetic = Arithmetic::f32;
    /// Layers with room for a LoRA adapter, which Decoder::set_adapter() gives: Adapter::options().
    /// Alpha is not looked at, for adapters bring their own.
    std::optional<LoraOptions> lora = {};
    /// The ranks that compute the model together, as `split` says; weights and caches are shared
    /// out too. Every rank makes a decoder of the same model with the same options, on a device of
    /// its own, and calls it alike; what comes back is the same on all. Unset: this decoder alone.
    std::shared_ptr<Communicator> communicator = {};
    Split split = Split::tensor;
    /// How fast each rank's device is, in any unit: layers, or heads, widths and tokens of the
    /// vocabulary are shared out in proportion, one at least to each. Empty: alike.
    std::vector<double> speeds = {};
    bool score = false;    ///< also build what Decoder::score() needs
    bool profile = false;  ///< timestamps around every dispatch
    /// Progress: called after each chunk of a prompt with the tokens read and the tokens in all. An
    /// exception that it throws ends the reading.
    LoadProgress progress = {};
};

/// A plan describes and plans each program once. It is cheap to copy and never changes.
class VKF_API DecoderPlan {
public:
    /// Plans for the weights that load_decoder() will load with these options. Reads no byte of
    /// them. The plan keeps the functions of `load`, which are called when weights are loaded with
    /// it; decoders that are made of it do not. LoadOptions::choose gets matrices under the graph's
    /// names, without data, once each, and none that is packed already. Throws Error where a size
    /// does not fit the model, as load_decoder() does, or where a tensor is too large for any
    /// graph or for the device; then the error names a `chunk` that fits, or else a max_tokens,
    /// where there is one.
    DecoderPlan(const Device& device, const Checkpoint& checkpoint, const DecoderModel& model,
                const DecoderOptions& options = {}, const LoadOptions& load = {});
    /// Plans for weights of this layout: Weights::layout(). WeightLayout::none() stands for weights
    /// in fp32. `load` is for load_decoder(), which must get the same layout by it.
    DecoderPlan(const Device& device, const WeightLayout& weights, const DecoderModel& model,
                const DecoderOptions& options = {}, const LoadOptions& load = {});

    const DecoderModel& model() const noexcept;
    /// The options, with every default filled in.
    const DecoderOptions& options() const noexcept;
    /// The options with which weights are loaded.
    const LoadOptions& load() const noexcept;
    /// The layout in which the weights will lie.
    const WeightLayout& weights() const noexcept;
    /// The layers that this rank has; all, but for Split::layers.
    Part layers() const;
    /// The tasks that have a program: prompt, step and, where it was asked for, score.
    std::vector<DecoderTask> tasks() const;
    /// The graph of a task. Inputs: tokens (batch, tokens) i32; where max_batch > 1 also keys
    /// (batch, max_tokens) i32, which is 1 where the cache holds a token of the sequence, and for
    /// learned positions also positions (batch, tokens) i32. Outputs: next (batch) i32, which is
    /// ~id where the logit of the likeliest id is not finite; where candidates are asked for also
    /// candidate_tokens i32 and candidate_logits f32 (batch, candidates). Of several ranks these
    /// two alone, (batch, ranks * candidates): what each found in its part of the vocabulary, one
    /// candidate at least. For score logits (batch, tokens, vocabulary) instead. Of Split::layers
    /// ranks behind the first have an input hidden (batch, tokens, width) instead of tokens, and
    /// ranks before the last an output next_hidden alone. Sizes: batch, tokens (not for step) and
    /// start, the number of tokens in the cache. A layer that sees only a window keeps window - 1 +
    /// chunk tokens in a ring, where that is less than max_tokens. For each window there are sizes
    /// windowN_kept and others: sizes() gives them.
    const Graph& graph(DecoderTask task) const;
    /// All sizes of graph(task), by their names, for a run that reads `tokens` of each of `batch`
    /// sequences, behind `start` tokens that the cache holds. Decoder sets them itself; who runs or
    /// records the graphs' programs sets these. Throws Error for numbers that the plan was not
    /// made for.
    std::vector<std::pair<std::string, std::int64_t>> sizes(DecoderTask task, std::int64_t batch, std::int64_t start,
                                                            std::int64_t tokens) const;

    /// The device memory that the programs and weights will take, exact to the byte.
    const ModelMemory& memory() const noexcept;

private:
    struct Parts;
    friend struct Insides;
    friend class Decoder;
    friend Weights load_decoder(const Device& device, const Checkpoint& checkpoint, const DecoderPlan& plan);
    const Plan& plan(DecoderTask task) const;  // the plan of graph(task), for the device
    /// The plan without the functions of load(), for what loads nothing more.
    DecoderPlan without_functions() const;
    /// Half of max_tokens, or half of that, ..., with which it fits the device's memory.
    std::optional<std::int64_t> max_tokens_that_fit(const Device& device) const;

    std::shared_ptr<const Parts> parts_;
    std::shared_ptr<const LoadOptions> load_;
};

/// Uploads the tensors of a checkpoint that a decoder needs, under the checkpoint's names, as the
/// plan says. Throws Error naming a tensor that is missing, has another shape or type, or is
/// unknown to the model and might change the numbers.
VKF_API Weights load_decoder(const Device& device, const Checkpoint& checkpoint, const DecoderPlan& plan);
/// Loads without a plan, for several decoders: weights do not depend on a plan's sizes. Calls
/// LoadOptions::choose as DecoderPlan does.
VKF_API Weights load_decoder(const Device& device, const Checkpoint& checkpoint, const DecoderModel& model,
                             const LoadOptions& load = {});
/// Writes a folder from which load_decoder() loads the same weights without converting them:
/// config.json, the tokenizer's files, and model.safetensors with the matrices packed as `load`
/// says. Its progress counts the bytes written. Needs no device: PackOn::device is an Error. Throws
/// Error too as load_decoder() does, where the folder has a model already or a file cannot be
/// written, and where the checkpoint's config.json is gone.
VKF_API void save_decoder(const std::filesystem::path& folder, const Checkpoint& checkpoint, const DecoderModel& model,
                          const LoadOptions& load);

}  // namespace vkf
