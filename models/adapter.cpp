// SPDX-License-Identifier: Apache-2.0
#include "models/adapter.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "models/adapter_states.h"
#include "models/files/config_reader.h"
#include "models/files/model_folder.h"
#include "runtime/base/owned_json.h"
#include "runtime/base/paths.h"
#include "runtime/base/text.h"
#include "runtime/graph/packed.h"
#include "runtime/graph/sixteen.h"

namespace vkf {

namespace {

namespace fs = std::filesystem;

constexpr const char* kAdapterConfig = "adapter_config.json";
constexpr const char* kAdapterTensors = "adapter_model.safetensors";
constexpr std::string_view kPeftPrefix = "base_model.model.";

struct AdapterConfig {
    double alpha = 0;
    bool root = false;  ///< rsLoRA: over the root of the rank
};

/// Fields that say nothing of the numbers an adapter adds to a layer whose A and B are there.
constexpr const char* kHarmlessFields[] = {"auto_mapping",
                                           "base_model_name_or_path",
                                           "corda_config",
                                           "ensure_weight_tying",
                                           "eva_config",
                                           "exclude_modules",
                                           "fan_in_fan_out",
                                           "inference_mode",
                                           "layers_pattern",
                                           "layers_to_transform",
                                           "loftq_config",
                                           "lora_dropout",
                                           "megatron_config",
                                           "megatron_core",
                                           "peft_version",
                                           "qalora_group_size",
                                           "r",
                                           "rank_pattern",
                                           "revision",
                                           "target_modules",
                                           "task_type"};

bool says_nothing(const nlohmann::json& value) {
    return value.is_null() || value == false || (value.is_structured() && value.empty());
}

/// Refuses the ways to begin in which PEFT takes something out of the model's own weights, for PEFT
/// does so again where it loads the adapter: "olora", "pissa", "corda", "loftq".
void check_beginning(ConfigReader& r) {
    constexpr const char* kField = "init_lora_weights";
    constexpr std::string_view kLeaveTheModel[] = {"gaussian", "eva", "orthogonal"};
    const nlohmann::json* value = r.find(kField);
    if (value == nullptr || value->is_boolean()) {
        return;
    }
    const auto same = [&](std::string_view name) { return *value == name; };
    if (std::none_of(std::begin(kLeaveTheModel), std::end(kLeaveTheModel), same)) {
        r.fail(kField, "is not supported: loading such an adapter changes the model's own weights");
    }
}

AdapterConfig read_adapter_config(const fs::path& path) {
    const std::string file = utf8_name(path);
    const OwnedJson root = parse_config(file_text(path, kMostConfigBytes), file);
    ConfigReader r(root, file);
    r.only("peft_type", "LORA");
    r.need("peft_type");
    r.only("bias", "none");
    r.need("lora_alpha");
    check_beginning(r);
    AdapterConfig config{r.number("lora_alpha", 0), r.flag("use_rslora", false)};
    const std::set<std::string> known{"peft_type", "bias", "lora_alpha", "use_rslora", "init_lora_weights"};
    for (const auto& [name, value] : root.items()) {
        const bool harmless =
            std::find(std::begin(kHarmlessFields), std::end(kHarmlessFields), name) != std::end(kHarmlessFields);
        if (known.count(name) == 0 && !harmless && !says_nothing(value)) {
            r.fail(name, "is not supported");
        }
    }
    return config;
}

/// Puts a matrix (rows, columns) into the corner of zeros of another shape.
std::vector<float> in_corner(const std::vector<float>& x, const std::vector<std::int64_t>& from,
                             const std::vector<std::int64_t>& to) {
    std::vector<float> y(static_cast<std::size_t>(to[0] * to[1]));
    for (std::int64_t r = 0; r < from[0]; ++r) {
        std::copy_n(x.begin() + r * from[1], from[1], y.begin() + r * to[1]);
    }
    return y;
}

/// Made before a file is written, for a name that is not UTF-8 has no text.
std::string config_text(const nlohmann::json& config, const fs::path& path) {
    try {
        return config.dump(2) + "\n";
    } catch (const nlohmann::json::type_error&) {
        throw Error("the model's name is not UTF-8", utf8_name(path));
    }
}

}  // namespace

Adapter::Adapter(const fs::path& folder) : name_(utf8_name(folder)), file_(Safetensors(folder / kAdapterTensors)) {
    read_layers();
    const AdapterConfig config = read_adapter_config(folder / kAdapterConfig);
    options_.rank = 1;
    for (auto& [name, layer] : layers_) {
        const std::int64_t rank = layer.a->shape[0];
        const auto n = static_cast<double>(rank);
        layer.scale = static_cast<float>(config.alpha / (config.root ? std::sqrt(n) : n));
        if (!std::isfinite(layer.scale)) {
            throw Error("lora_alpha is too large", utf8_name(folder / kAdapterConfig));
        }
        options_.rank = std::max(options_.rank, rank);
        options_.targets.push_back(name);
    }
    options_.alpha = static_cast<float>(options_.rank);
}

void Adapter::read_layers() {
    const auto fail = [&](const HostTensor& t, const std::string& what) {
        throw Error("tensor " + t.name + " " + what, file_.file());
    };
    for (const HostTensor& t : file_.tensors()) {
        std::string_view name = t.name;
        name = name.starts_with(kPeftPrefix) ? name.substr(kPeftPrefix.size()) : name;
        const std::string layer = adapted_layer(name);
        if (layer.empty()) {
            fail(t, "is neither lora_A nor lora_B of a layer");
        }
        if (t.shape.size() != 2 || t.type != WeightType::f32 || !is_floating(t.dtype)) {
            fail(t, "is no matrix of F32, F16 or BF16");
        }
        const HostTensor*& half = name.ends_with(kLoraA) ? layers_[layer].a : layers_[layer].b;
        if (half != nullptr) {
            fail(t, "is there twice, as " + half->name + " too");
        }
        half = &t;
    }
    for (const auto& [name, layer] : layers_) {
        if (layer.a == nullptr || layer.b == nullptr) {
            throw Error("layer " + name + " has no lora_" + (layer.a == nullptr ? "A" : "B"), file_.file());
        }
        if (layer.a->shape[0] != layer.b->shape[1] || layer.a->shape[0] < 1) {
            fail(*layer.a, shape_text(layer.a->shape) + " does not fit lora_B " + shape_text(layer.b->shape));
        }
    }
    if (layers_.empty()) {
        throw Error("has no layer", file_.file());
    }
}

std::map<std::string, const Adapter::Layer*> Adapter::layers_in(const State& state) const {
    std::set<std::string> names;
    for (const StoredTensor& kept : state.layout().tensors()) {
        if (!adapted_layer(kept.name).empty() && (kept.shape.size() != 2 || kept.dtype != DType::f32)) {
            throw Error("state " + kept.name + " " + shape_text(kept.shape) + " " + std::string(name_of(kept.dtype)) +
                            " is no matrix of F32",
                        name_);
        }
        names.insert(adapted_layer(kept.name));
    }
    const auto fail = [&](const std::string& what, const std::string& layer) { throw Error(what + layer, name_); };
    const auto fits = [&](const std::string& layer, std::string_view half, const HostTensor& given,
                          std::size_t rank_dim) {
        const StoredTensor* kept = state.find(layer + std::string(half));
        if (kept == nullptr) {
            fail("the model has no adapter at ", layer);
        }
        if (given.shape[rank_dim] > kept->shape[rank_dim] || given.shape[1 - rank_dim] != kept->shape[1 - rank_dim]) {
            throw Error("tensor " + given.name + " " + shape_text(given.shape) + " does not fit " +
                            shape_text(kept->shape) + " of the model",
                        name_);
        }
    };
    std::map<std::string, const Layer*> found;
    for (const auto& [name, layer] : layers_) {
        std::string in_state = name;
        for (const std::string& longer : names) {
            if (names.count(name) != 0 || !longer.ends_with("." + name)) {
                continue;
            }
            if (in_state != name) {
                fail("the model has more than one adapter at ", name);
            }
            in_state = longer;
        }
        fits(in_state, kLoraA, *layer.a, 0);
        fits(in_state, kLoraB, *layer.b, 1);
        if (!found.emplace(in_state, &layer).second) {
            fail("two layers are for ", in_state);
        }
    }
    return found;
}

void Adapter::write(State& state) const {
    const std::map<std::string, const Layer*> layers = layers_in(state);
    for (const StoredTensor& kept : state.layout().tensors()) {
        const std::string name = adapted_layer(kept.name);
        if (name.empty()) {
            continue;
        }
        const auto found = layers.find(name);
        std::vector<float> numbers(static_cast<std::size_t>(kept.shape[0] * kept.shape[1]));
        if (found != layers.end()) {
            const bool is_a = kept.name.ends_with(kLoraA);
            const HostTensor& given = is_a ? *found->second->a : *found->second->b;
            numbers = in_corner(widened_numbers(given), given.shape, kept.shape);
            for (float& x : numbers) {
                x *= is_a ? 1.0f : found->second->scale;
            }
        }
        state.write(kept.name, std::as_bytes(std::span(numbers)));
    }
}

void clear_adapter(State& state) {
    for (const StoredTensor& kept : state.layout().tensors()) {
        if (!adapted_layer(kept.name).empty()) {
            const std::vector<std::byte> zeros(static_cast<std::size_t>(kept.bytes));
            state.write(kept.name, zeros);
        }
    }
}

void save_adapter(const fs::path& folder, const State& state, const LoraOptions& options, const std::string& base) {
    std::vector<HostTensor> tensors;
    std::vector<std::string> names;
    std::set<std::string> modules;
    for (const StoredTensor& t : state.layout().tensors()) {
        if (const std::string layer = adapted_layer(t.name); !layer.empty()) {
            tensors.push_back({std::string(kPeftPrefix) + t.name, t.dtype, t.shape, {}});
            names.push_back(t.name);
            modules.insert(layer);
        }
    }
    if (tensors.empty()) {
        throw Error("the state has no adapter to save in " + utf8_name(folder), "save_adapter");
    }
    OwnedJson config;
    config["peft_type"] = "LORA";
    config["task_type"] = "CAUSAL_LM";
    config["base_model_name_or_path"] = base;
    config["r"] = options.rank;
    config["lora_alpha"] = options.alpha;
    config["lora_dropout"] = 0.0;
    config["bias"] = "none";
    config["fan_in_fan_out"] = false;
    config["inference_mode"] = true;
    nlohmann::json& targets = config["target_modules"] = nlohmann::json::array();
    for (const std::string& module : modules) {
        targets.push_back(module);
    }
    const std::string text = config_text(config, folder / kAdapterConfig);
    make_folder(folder);
    std::vector<std::byte> bytes;
    write_safetensors(folder / kAdapterTensors, tensors,
                      [&](std::size_t i) {
                          bytes = state.read(names[i]);
                          return std::span<const std::byte>(bytes);
                      },
                      {{"format", "pt"}});
    write_text(folder / kAdapterConfig, text);
}

}  // namespace vkf
