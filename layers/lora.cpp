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
    LoraOptions options;
    std::vector<bool> found;
    std::vector<Value> parameters = {};

    bool takes(const std::string& layer) {
        bool taken = false;
        for (std::size_t i = 0; i < found.size(); ++i) {
            if (is_target(options.targets[i], layer)) {
                found[i] = taken = true;
            }
        }
        return taken;
    }

    Value adapted(Value x, Value y) {
        Graph& g = x.graph();
        const std::string weight = g.scoped("weight");
        if (!takes(weight.substr(0, weight.rfind('.')))) {
            return y;
        }
        const Value a = g.state("lora_A.weight", {options.rank, x.size(-1)});
        const Value b = g.state("lora_B.weight", {y.size(-1), options.rank});
        const auto is_a = [&](const Value& v) { return v.id() == a.id(); };
        // where a layer is described again they are there
        if (std::none_of(parameters.begin(), parameters.end(), is_a)) {
            parameters.insert(parameters.end(), {a, b});
        }
        const float scale = options.alpha / static_cast<float>(options.rank);
        const Value rows = x.rank() == 1 ? reshape(x, {1, x.size(0)}) : x;
        const Value low = matmul(linear(rows, a), b, {.scale = scale, .transpose_b = true});
        return y + (x.rank() == 1 ? reshape(low, y.shape()) : low);
    }
};

Lora::Lora(Graph& graph, const LoraOptions& options)
    : parts_(std::make_shared<Parts>(Parts{options, std::vector<bool>(options.targets.size(), false)})) {
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
    for (std::size_t i = 0; i < parts_->found.size(); ++i) {
        support::require(parts_->found[i], kLora, "no linear layer fits \"" + parts_->options.targets[i] + "\"");
    }
    return parts_->parameters;
}

}  // namespace vkf
