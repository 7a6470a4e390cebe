// SPDX-License-Identifier: Apache-2.0
#include "models/files/parameters.h"

#include <algorithm>
#include <deque>
#include <map>
#include <set>

#include "runtime/base/text.h"
#include "runtime/compile/weight_order.h"
#include "runtime/graph/packed.h"

namespace vkf {

namespace {

class Finder {
public:
    Finder(const Checkpoint& checkpoint, const ParameterRules& rules, std::optional<WeightType> matrices)
        : checkpoint_(checkpoint), rules_(rules), matrices_(matrices) {}

    /// Every parameter of the graph; nothing else may be in the files.
    std::vector<Parameter> run(const Graph& graph) const {
        std::vector<Parameter> all;
        std::set<std::string> used;
        std::map<std::string_view, const StorageInfo*> weights;
        for (const StorageInfo& s : graph.storages()) {
            if (s.kind == StorageKind::weight) {
                weights.emplace(s.name, &s);
            }
        }
        for (const std::string& name : weight_order(graph)) {
            all.push_back(parameter(*weights.at(name)));
            used.insert(all.back().source->name);
        }
        for (const std::string& name : checkpoint_.names()) {
            if (used.count(name) == 0 && !holds(rules_.ignored, name)) {
                throw Error("is not a parameter that " + rules_.model_type + " with this config.json has", where(name));
            }
        }
        return all;
    }

    std::string where(const std::string& name) const { return utf8_name(checkpoint_.folder()) + ": tensor " + name; }

private:
    static bool holds(const ParameterRules::Named& rule, const std::string& name) { return rule && rule(name); }

    /// Under its whole name, or as files of the bare model have it.
    const HostTensor* find_either(const std::string& name) const {
        const HostTensor* t = checkpoint_.find(name);
        const std::string& prefix = rules_.optional_prefix;
        return t == nullptr && name.starts_with(prefix) ? checkpoint_.find(name.substr(prefix.size())) : t;
    }

    const HostTensor& find(const std::string& name) const {
        const HostTensor* t = find_either(name);
        if (t == nullptr && rules_.older_name) {
            const std::string older = rules_.older_name(name);
            t = older.empty() ? nullptr : find_either(older);
        }
        if (t == nullptr) {
            throw Error("is missing", where(name));
        }
        return *t;
    }

    Parameter parameter(const StorageInfo& wanted) const {
        Parameter p{wanted.name, &find(wanted.name)};
        for (const Dim& d : wanted.shape) {
            p.shape.push_back(d.constant());
        }
        const bool matrix = p.shape.size() == 2;
        const WeightType packed = p.source->type;
        p.transpose = matrix && packed == WeightType::f32 && holds(rules_.stored_transposed, wanted.name);
        p.add_one = holds(rules_.stored_minus_one, wanted.name);
        std::vector<std::int64_t> in_file = p.shape;
        if (p.transpose) {
            std::reverse(in_file.begin(), in_file.end());
        }
        if (p.source->shape != in_file) {
            throw Error("is " + shape_text(p.source->shape) + ", by config.json it should be " + shape_text(in_file),
                        where(p.source->name));
        }
        const DType dtype = p.source->dtype;
        if (dtype != DType::f32 && dtype != DType::f16 && dtype != DType::bf16) {
            throw Error("is " + std::string(name_of(dtype)) + "; F32, F16 and BF16 are read", where(p.source->name));
        }
        p.type = kept_type(p, matrix && !holds(rules_.looked_up, wanted.name));
        return p;
    }

    /// What a parameter is kept as: only matrices that are multiplied may be packed.
    WeightType kept_type(const Parameter& p, bool multiplied) const {
        const WeightType packed = p.source->type;
        if (packed == WeightType::f32) {
            return multiplied ? matrices_.value_or(type_in_file(*p.source)) : WeightType::f32;
        }
        if (!multiplied || p.add_one) {
            throw Error("is packed as " + std::string(name_of(packed)) + "; this one is read as numbers",
                        where(p.source->name));
        }
        if (matrices_ && *matrices_ != packed) {
            throw Error("is saved as " + std::string(name_of(packed)) + "; " + std::string(name_of(*matrices_)) +
                            " was asked for",
                        where(p.source->name));
        }
        return packed;
    }

    static WeightType type_in_file(const HostTensor& t) {
        return t.dtype == DType::f16 ? WeightType::f16 : t.dtype == DType::f32 ? WeightType::f32 : WeightType::bf16;
    }

    const Checkpoint& checkpoint_;
    const ParameterRules& rules_;
    std::optional<WeightType> matrices_;
};

/// The numbers of a parameter that does not go as it is.
std::vector<float> converted(const Parameter& p) {
    std::vector<float> x(static_cast<std::size_t>(p.source->data.size() / size_of(p.source->dtype)));
    widen(*p.source, 0, x);
    if (p.add_one) {
        std::for_each(x.begin(), x.end(), [](float& v) { v += 1.0f; });
    }
    if (!p.transpose) {
        return x;
    }
    const auto rows = static_cast<std::size_t>(p.shape[0]);
    const auto columns = static_cast<std::size_t>(p.shape[1]);
    std::vector<float> y(x.size());
    for (std::size_t r = 0; r < rows; ++r) {
        for (std::size_t c = 0; c < columns; ++c) {
            y[r * columns + c] = x[c * rows + r];
        }
    }
    return y;
}

}  // namespace

std::uint64_t Parameter::bytes() const {
    const std::uint64_t rows = static_cast<std::uint64_t>(shape[0]);
    const std::uint64_t columns = shape.size() == 2 ? static_cast<std::uint64_t>(shape[1]) : 1;
    return type == WeightType::f32 ? rows * columns * sizeof(float)
                                   : rows * packed_row_words(type, columns) * sizeof(std::uint32_t);
}

std::uint64_t parameter_bytes(const std::vector<Parameter>& parameters, std::uint64_t alignment) {
    std::uint64_t bytes = 0;
    for (const Parameter& p : parameters) {
        bytes += (p.bytes() + alignment - 1) / alignment * alignment;
    }
    return bytes;
}

std::vector<Parameter> find_parameters(const Graph& graph, const Checkpoint& checkpoint, const ParameterRules& rules,
                                       std::optional<WeightType> matrices) {
    return Finder(checkpoint, rules, matrices).run(graph);
}

HostTensor tensor_of(const Parameter& parameter, std::vector<float>& owned) {
    if (!parameter.transpose && !parameter.add_one) {
        return {parameter.name, parameter.source->dtype, parameter.shape, parameter.source->data,
                parameter.source->type};
    }
    owned = converted(parameter);
    return {parameter.name, DType::f32, parameter.shape, std::as_bytes(std::span(owned))};
}

Weights load_parameters(const Device& device, const std::vector<Parameter>& parameters, const LoadProgress& progress,
                        PackOn pack_on) {
    std::vector<HostTensor> tensors;
    std::deque<std::vector<float>> owned;  // what was converted; tensors point into it
    std::map<std::string, WeightType, std::less<>> types;
    for (const Parameter& p : parameters) {
        types[p.name] = p.type;
        tensors.push_back(tensor_of(p, owned.emplace_back()));
    }
    LoadOptions options;
    options.progress = progress;
    options.pack_on = pack_on;
    options.choose = [&](const HostTensor& t) { return std::optional(types.find(t.name)->second); };
    return device.load(tensors, options);
}

}  // namespace vkf
