// SPDX-License-Identifier: Apache-2.0
#include "models/files/parameters.h"

#include <algorithm>
#include <set>
#include <utility>

#include "runtime/base/mapped_bytes.h"
#include "runtime/base/text.h"
#include "runtime/compile/weight_order.h"
#include "runtime/graph/packed.h"
#include "runtime/graph/shard.h"

namespace vkf {

namespace {

/// Whether two tensors have the same type, shape and bytes.
bool same_tensor(const HostTensor& a, const HostTensor& b) {
    if (a.dtype != b.dtype || a.type != b.type || a.shape != b.shape || a.data.size() != b.data.size()) {
        return false;
    }
    std::vector<std::byte> copy;
    std::size_t at = 0;
    bool same = true;
    in_parts(a.data, 1, [&](std::span<const std::byte> part) {
        copy.resize(part.size());
        copy_bytes(b.data.subspan(at, part.size()), copy.data());
        same = same && std::equal(part.begin(), part.end(), copy.begin());
        at += part.size();
    });
    return same;
}

class Finder {
public:
    Finder(const Graph& graph, const Checkpoint& checkpoint, const ParameterRules& rules, const LoadOptions& load)
        : graph_(graph), checkpoint_(checkpoint), rules_(rules), load_(load) {}

    /// Finds every parameter of the graph. Throws where anything else is in the files.
    std::vector<Parameter> run() const {
        std::vector<Parameter> all;
        std::set<std::string> used;
        for (const StorageId s : weight_order(graph_)) {
            all.push_back(parameter(graph_.storages()[s]));
            used.insert(all.back().source.name);
        }
        for (const std::string& name : checkpoint_.names()) {
            if (used.count(name) == 0 && !holds(rules_.ignored, name) && !is_copy(name)) {
                throw Error("is not a parameter that " + rules_.model_type + " with this config.json has", where(name));
            }
        }
        return all;
    }

    std::string where(const std::string& name) const { return utf8_name(checkpoint_.folder()) + ": tensor " + name; }

private:
    static bool holds(const ParameterRules::Named& rule, const std::string& name) { return rule && rule(name); }

    /// Finds a tensor under its whole name, or as files of the bare model have it.
    const HostTensor* find_either(const std::string& name) const {
        const HostTensor* t = checkpoint_.find(name);
        const std::string& prefix = rules_.optional_prefix;
        return t == nullptr && name.starts_with(prefix) ? checkpoint_.find(name.substr(prefix.size())) : t;
    }

    /// Whether a tensor is a copy that files may hold. Throws where it is no copy in these.
    bool is_copy(const std::string& name) const {
        const auto copy = rules_.copies.find(name);
        if (copy == rules_.copies.end()) {
            return false;
        }
        const HostTensor& original = find(copy->second);
        if (!same_tensor(*checkpoint_.find(name), original)) {
            throw Error("differs from " + original.name +
                            ", to which config.json ties it; tie_word_embeddings = false loads both",
                        where(name));
        }
        return true;
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
        Parameter p{find(wanted.name)};
        HostTensor given{wanted.name, p.source.dtype, {}, {}, p.source.type};
        for (const Dim& d : wanted.shape) {
            given.shape.push_back(d.constant());
        }
        const bool matrix = given.shape.size() == 2;
        p.transpose = matrix && given.type == WeightType::f32 && holds(rules_.stored_transposed, wanted.name);
        p.add_one = holds(rules_.stored_minus_one, wanted.name);
        p.shard = wanted.shard;
        std::vector<std::int64_t> in_file = given.shape;
        if (p.shard) {
            in_file[p.shard->dim] = p.shard->whole;
        }
        if (p.transpose) {
            std::reverse(in_file.begin(), in_file.end());
        }
        if (p.source.shape != in_file) {
            throw Error("is " + shape_text(p.source.shape) + ", by config.json it should be " + shape_text(in_file),
                        where(p.source.name));
        }
        if (given.dtype != DType::f32 && given.dtype != DType::f16 && given.dtype != DType::bf16) {
            throw Error("is " + std::string(name_of(given.dtype)) + "; F32, F16 and BF16 are read",
                        where(p.source.name));
        }
        const bool multiplied = matrix && !holds(rules_.looked_up, wanted.name);
        check_packed(p, multiplied);
        p.kept = stored_as(given, multiplied ? asked_for(given) : WeightType::f32);
        if (p.shard && !packed_shard(p.kept.type, *p.shard)) {
            const bool pairs = p.kept.type == WeightType::f16 || p.kept.type == WeightType::bf16;
            throw Error("cannot be kept as " + std::string(name_of(p.kept.type)) + " by " +
                            std::to_string(graph_.rank().ranks) + " ranks: a part of its " +
                            std::to_string(p.shard->whole) + " columns would end inside a " +
                            (pairs ? "word of two numbers" : "group that shares a scale"),
                        where(p.source.name));
        }
        return p;
    }

    /// The type that a matrix that is multiplied is to be kept as.
    std::optional<WeightType> asked_for(const HostTensor& matrix) const {
        const std::optional<WeightType> chosen = load_.choose && packable(matrix) ? load_.choose(matrix) : std::nullopt;
        return chosen ? chosen : load_.matrices;
    }

    /// Only matrices that are multiplied may be packed, and stay what they were packed as.
    void check_packed(const Parameter& p, bool multiplied) const {
        const WeightType packed = p.source.type;
        if (packed == WeightType::f32) {
            return;
        }
        if (!multiplied || p.add_one) {
            throw Error("is packed as " + std::string(name_of(packed)) + "; this one is read as numbers",
                        where(p.source.name));
        }
        if (load_.matrices && *load_.matrices != packed) {
            throw Error("is saved as " + std::string(name_of(packed)) + "; " + std::string(name_of(*load_.matrices)) +
                            " was asked for",
                        where(p.source.name));
        }
    }

    const Graph& graph_;
    const Checkpoint& checkpoint_;
    const ParameterRules& rules_;
    const LoadOptions& load_;
};

Parameter cut_out(const Parameter& whole, std::vector<float>& owned);

/// Turns a matrix of so many rows.
std::vector<float> turned(const std::vector<float>& x, std::int64_t rows) {
    std::vector<float> y(x.size());
    const auto height = static_cast<std::size_t>(rows);
    const std::size_t width = x.size() / std::max<std::size_t>(height, 1);
    for (std::size_t r = 0; r < height; ++r) {
        for (std::size_t c = 0; c < width; ++c) {
            y[c * height + r] = x[r * width + c];
        }
    }
    return y;
}

/// The rows of a matrix packed as the whole would be, of which a part of the columns is cut: so a
/// row's scale is that of the whole row, on every rank.
void pack_and_cut(Parameter& p, std::vector<float>& owned) {
    HostTensor row = p.source;
    row.shape = {1, p.shard->whole};
    const std::uint64_t row_bytes = *byte_size(row);
    std::vector<std::uint32_t> words(packed_row_words(p.kept.type, static_cast<std::uint64_t>(p.shard->whole)));
    std::vector<float> rows, part;
    for (std::int64_t r = 0; r < p.source.shape[0]; ++r) {
        row.data = p.source.data.subspan(static_cast<std::size_t>(static_cast<std::uint64_t>(r) * row_bytes),
                                         static_cast<std::size_t>(row_bytes));
        std::fill(words.begin(), words.end(), 0);
        pack_rows(row, p.kept.type, 0, words);
        HostTensor packed{row.name, DType::f32, row.shape, std::as_bytes(std::span(words)), p.kept.type};
        cut(packed, *p.shard, part);
        rows.insert(rows.end(), part.begin(), part.end());
    }
    owned = std::move(rows);
    p.source = {p.source.name, DType::f32, p.kept.shape, std::as_bytes(std::span(owned)), p.kept.type};
}

/// The parameter of which the source is this rank's part; itself where it is whole.
Parameter cut_out(const Parameter& whole, std::vector<float>& owned) {
    Parameter p = whole;
    p.shard = {};
    if (!whole.shard) {
        return p;
    }
    Shard shard = *whole.shard;
    const bool rescaled = whole.kept.type == WeightType::int8 && shard.dim == 1 && whole.source.type == WeightType::f32;
    if (rescaled && !whole.add_one) {
        std::vector<float> numbers;
        if (whole.transpose) {  // rows are what the file has as columns
            Parameter all = whole;
            all.shard = {};
            numbers = numbers_of(all);
            p.source.dtype = DType::f32;
            std::swap(p.source.shape[0], p.source.shape[1]);
            p.source.data = std::as_bytes(std::span(numbers));
            p.transpose = false;
        }
        p.shard = shard;
        pack_and_cut(p, owned);
        p.shard = {};
        return p;
    }
    shard.dim = whole.transpose ? 1 - shard.dim : shard.dim;
    p.source = cut(whole.source, shard, owned);
    return p;
}

}  // namespace

WeightLayout layout_of(const std::vector<Parameter>& parameters, const Capabilities& device) {
    std::vector<StoredTensor> kept;
    for (const Parameter& p : parameters) {
        kept.push_back(p.kept);
    }
    return WeightLayout(std::move(kept), device.storage_alignment, device.max_allocation);
}

std::vector<Parameter> find_parameters(const Graph& graph, const Checkpoint& checkpoint, const ParameterRules& rules,
                                       const LoadOptions& load) {
    return Finder(graph, checkpoint, rules, load).run();
}

HostTensor tensor_of(const Parameter& parameter, std::vector<float>& owned) {
    const Parameter p = cut_out(parameter, owned);
    if (!p.transpose && !p.add_one) {
        return {p.kept.name, p.source.dtype, p.kept.shape, p.source.data, p.source.type};
    }
    owned = numbers_of(p);
    return {p.kept.name, DType::f32, p.kept.shape, std::as_bytes(std::span(owned))};
}

std::vector<float> numbers_of(const Parameter& parameter) {
    std::vector<float> owned;
    const Parameter p = cut_out(parameter, owned);
    std::vector<float> x(static_cast<std::size_t>(p.source.data.size() / size_of(p.source.dtype)));
    widen(p.source, 0, x);
    if (p.add_one) {
        std::for_each(x.begin(), x.end(), [](float& v) { v += 1.0f; });
    }
    return p.transpose ? turned(x, p.source.shape[0]) : x;
}

void to_file(const Parameter& p, std::vector<float>& numbers) {
    if (p.add_one) {
        std::for_each(numbers.begin(), numbers.end(), [](float& v) { v -= 1.0f; });
    }
    if (p.transpose) {
        numbers = turned(numbers, p.kept.shape[0]);
    }
}

FoundParameters::FoundParameters(std::vector<Parameter> parameters, const Checkpoint& checkpoint,
                                 const ParameterRules& rules)
    : parameters_(std::move(parameters)), names_(checkpoint.names()), copies_(rules.copies) {
    std::erase_if(copies_, [&](const auto& copy) { return checkpoint.find(copy.first) == nullptr; });
    for (Parameter& p : parameters_) {
        p.source.data = {};
    }
}

std::optional<std::vector<Parameter>> FoundParameters::in(const Checkpoint& checkpoint) const {
    if (names_.empty() || checkpoint.names() != names_) {
        return std::nullopt;
    }
    std::vector<Parameter> all = parameters_;
    for (Parameter& p : all) {
        const HostTensor& there = *checkpoint.find(p.source.name);
        if (there.dtype != p.source.dtype || there.shape != p.source.shape || there.type != p.source.type) {
            return std::nullopt;
        }
        p.source.data = there.data;
    }
    for (const auto& [copy, of] : copies_) {
        const auto original =
            std::find_if(all.begin(), all.end(), [&, &of = of](const Parameter& p) { return p.kept.name == of; });
        if (original == all.end() || !same_tensor(*checkpoint.find(copy), original->source)) {
            return std::nullopt;
        }
    }
    return all;
}

}  // namespace vkf
