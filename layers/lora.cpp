// SPDX-License-Identifier: Apache-2.0
#include "layers/lora.h"

#include <algorithm>

#include "ops/checks.h"
#include "runtime/base/pattern.h"

namespace vkf {

namespace {

constexpr const char* kLora = "lora";

bool is_target(const std::string& target, const std::string& layer) {
    return fits(target, layer) || layer.ends_with("." + target);
}

}  // namespace

struct Lora::Parts {
    /// What is beside one layer.
    struct Adapter {
        std::string layer;
        Value a, b;

        /// False where the layer was refused, of which nothing is in the graph.
        bool is_there() const { return a.graph().values()[b.id()].storage != kNoStorage; }
    };
    LoraOptions options;
    std::vector<Adapter> adapters = {};

    bool takes(const std::string& layer) const {
        return std::any_of(options.targets.begin(), options.targets.end(),
                           [&](const std::string& target) { return is_target(target, layer); });
    }

    Value adapted(Value x, Value y) {
        Graph& g = x.graph();
        const std::string weight = g.scoped("weight"), layer = weight.substr(0, weight.rfind('.'));
        if (!takes(layer)) {
            return y;
        }
        const Value a = g.state("lora_A.weight", {options.rank, x.size(-1)});
        const Value b = g.state("lora_B.weight", {y.size(-1), options.rank});
        // a layer may be described again, also where it was refused before
        std::erase_if(adapters, [&](const Adapter& other) { return !other.is_there(); });
        const auto is_same = [&](const Adapter& other) { return other.a.id() == a.id(); };
        if (std::none_of(adapters.begin(), adapters.end(), is_same)) {
            adapters.push_back({layer, a, b});
        }
        const float scale = options.alpha / static_cast<float>(options.rank);
        const Value rows = x.rank() == 1 ? reshape(x, {1, x.size(0)}) : x;
        const Value low = matmul(linear(rows, a), b, {.scale = scale, .transpose_b = true});
        return y + (x.rank() == 1 ? reshape(low, y.shape()) : low);
    }
};

Lora::Lora(Graph& graph, const LoraOptions& options) : parts_(std::make_shared<Parts>(Parts{options})) {
    using namespace support;
    require(options.rank >= 1, kLora, "rank = " + std::to_string(options.rank) + " is below 1");
    require_finite(kLora, "alpha", options.alpha);
    require(!options.targets.empty(), kLora, "no layer is named that is to have an adapter");
    require(!graph.linear_hook(), kLora,
            "the graph's linear layers have a hook already, of another Lora or by after_linear(); one Lora can have "
            "targets of all kinds");
    graph.after_linear([parts = parts_](Value x, Value y) { return parts->adapted(x, y); });
}

std::vector<Value> Lora::parameters() const {
    std::vector<Parts::Adapter> there = parts_->adapters;
    std::erase_if(there, [&](const Parts::Adapter& adapter) { return !adapter.is_there(); });
    for (const std::string& target : parts_->options.targets) {
        const auto fits = [&](const Parts::Adapter& adapter) { return is_target(target, adapter.layer); };
        support::require(std::any_of(there.begin(), there.end(), fits), kLora,
                         "no linear layer fits \"" + target + "\"");
    }
    std::vector<Value> parameters;
    for (const Parts::Adapter& adapter : there) {
        parameters.insert(parameters.end(), {adapter.a, adapter.b});
    }
    return parameters;
}

}  // namespace vkf
