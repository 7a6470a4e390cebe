// SPDX-License-Identifier: Apache-2.0
// What a graph stores under names: inputs, weights, states, constants and outputs.
#include <algorithm>
#include <utility>

#include "runtime/graph/graph.h"
#include "runtime/graph/info_of.h"
#include "runtime/graph/node.h"
#include "runtime/graph/sixteen.h"

namespace vkf {

namespace {

const char* kind_name(StorageKind kind) {
    switch (kind) {
        case StorageKind::input: return "input";
        case StorageKind::weight: return "weight";
        case StorageKind::state: return "state";
        case StorageKind::constant: return "constant";
        case StorageKind::intermediate: return "value";
        case StorageKind::output: return "output";
    }
    return "?";
}

/// Checks the type of what the caller gives, and of what outlives a run.
void check_type(const std::string& what, DType dtype) {
    if (!is_floating(dtype) && dtype != DType::i32) {
        throw Error(what + " cannot be " + std::string(name_of(dtype)) + ": F32, F16, BF16 and I32 are possible",
                    "Graph");
    }
}

class KeptNumbers final : public ConstantData {
public:
    explicit KeptNumbers(std::span<const std::byte> bytes) : bytes_(bytes.begin(), bytes.end()) {}
    std::vector<std::byte> bytes() const override { return bytes_; }
    bool same_as(const ConstantData& other) const override {
        const auto* kept = dynamic_cast<const KeptNumbers*>(&other);
        return kept != nullptr && kept->bytes_ == bytes_;
    }

private:
    std::vector<std::byte> bytes_;
};

}  // namespace

std::vector<ValueId>::const_iterator Graph::named_from(const std::string& name) const {
    return std::lower_bound(named_.begin(), named_.end(), name, [&](ValueId id, const std::string& sought) {
        return storages_[values_[id].storage].name < sought;
    });
}

bool Graph::is_named(std::vector<ValueId>::const_iterator at, const std::string& name) const {
    return at != named_.end() && storages_[values_[*at].storage].name == name;
}

void Graph::check_new_name(const std::string& name, const char* what) const {
    if (name.empty()) {
        throw Error(std::string(what) + " without a name", "Graph");
    }
    if (const auto there = named_from(name); is_named(there, name)) {
        const StorageKind kind = storages_[values_[*there].storage].kind;
        throw Error(std::string(what) + " " + name + ": the graph already has " +
                        (kind == StorageKind::input || kind == StorageKind::output ? "an " : "a ") + kind_name(kind) +
                        " of that name",
                    "Graph");
    }
}

Value Graph::add_storage(StorageInfo info) {
    const std::string name = info.name.empty() ? "value" : info.name;
    check_shape(name, info.shape);
    ValueInfo value;
    value.storage = static_cast<StorageId>(storages_.size());
    value.shape = info.shape;
    try {
        value.strides = contiguous_strides(info.shape);
    } catch (const Error& e) {
        throw Error(name + " " + str(info.shape) + " has " + e.what(), "Graph");
    }
    for (const Dim& stride : value.strides) {
        max_of(stride);  // throws where that may not fit
    }
    const auto id = static_cast<ValueId>(values_.size());
    const StorageInfo& added = storages_.emplace_back(std::move(info));
    try {
        values_.push_back(std::move(value));
        if (added.kind == StorageKind::constant) {
            constants_.push_back(id);
        } else if (added.kind != StorageKind::intermediate) {
            named_.insert(named_from(added.name), id);
        }
    } catch (...) {
        values_.resize(id);
        storages_.pop_back();
        throw;
    }
    return Value(*this, id);
}

Value Graph::input(const std::string& name, Shape shape, DType dtype) {
    check_new_name(name, "input");
    check_type("input " + name, dtype);
    return add_storage({StorageKind::input, name, dtype, std::move(shape)});
}

Value Graph::find_or_add(StorageKind kind, const std::string& name, Shape shape, DType dtype,
                         const std::optional<Shard>& shard) {
    const auto there = named_from(name);
    if (!is_named(there, name) || storages_[values_[*there].storage].kind != kind) {
        check_new_name(name, kind_name(kind));
        StorageInfo info{kind, name, dtype, std::move(shape)};
        info.shard = shard;
        return add_storage(std::move(info));
    }
    const StorageInfo& s = storages_[values_[*there].storage];
    if (s.shard != shard) {
        throw Error(std::string(kind_name(kind)) + " " + name + " is asked for as two parts of a whole", "Graph");
    }
    if (!(s.shape == shape) || s.dtype != dtype) {
        throw Error(std::string(kind_name(kind)) + " " + name + " is " + str(s.shape) + " " +
                        std::string(name_of(s.dtype)) + ", now " + str(shape) + " " + std::string(name_of(dtype)) +
                        " is asked for",
                    "Graph");
    }
    return Value(*this, *there);
}

void Graph::set_rank(const Rank& rank) {
    check_rank(rank);
    rank_ = rank;
}

Value Graph::weight(const std::string& name, Shape shape, const Shard& shard) {
    std::int64_t count = 0;
    for (const Part& p : shard.parts) {
        count += p.count;
    }
    if (shard.dim >= shape.size() || !(shape[shard.dim] == Dim(count))) {
        throw Error(
            "weight " + scoped(name) + " " + str(shape) + " is not as large as its parts, " + std::to_string(count),
            "Graph");
    }
    check_fixed("weight " + scoped(name), shape);
    return find_or_add(StorageKind::weight, scoped(name), std::move(shape), DType::f32, shard);
}

Value Graph::weight(const std::string& name, Shape shape, DType dtype) {
    check_fixed("weight " + scoped(name), shape);
    if (dtype != DType::f32 && dtype != DType::i32) {
        throw Error("weight " + scoped(name) + " cannot be " + std::string(name_of(dtype)) +
                        ": weights are F32 or I32 to a graph, whatever Device::load() keeps them as",
                    "Graph");
    }
    return find_or_add(StorageKind::weight, scoped(name), std::move(shape), dtype);
}

Value Graph::state(const std::string& name, Shape shape, DType dtype) {
    for (Dim& d : shape) {
        d = Dim(max_of(d));  // laid out at its maximum
    }
    check_type("state " + scoped(name), dtype);
    return find_or_add(StorageKind::state, scoped(name), std::move(shape), dtype);
}

Value Graph::add_constant(const std::string& name, const std::vector<std::int64_t>& shape, DType dtype,
                          std::shared_ptr<const ConstantData> data) {
    const Shape dims(shape.begin(), shape.end());
    check_shape(name, dims);
    for (const ValueId id : constants_) {  // equal tables are kept once
        const StorageInfo& s = storages_[values_[id].storage];
        if (s.name == name && s.shape == dims && s.dtype == dtype && s.data->same_as(*data)) {
            return Value(*this, id);
        }
    }
    return add_storage({StorageKind::constant, name, dtype, dims, std::move(data)});
}

Value Graph::keep_constant(const std::string& name, const std::vector<std::int64_t>& shape, DType dtype,
                           std::span<const std::byte> data, std::size_t count) {
    const Shape dims(shape.begin(), shape.end());
    check_shape(name, dims);
    if (elements(dims).constant() != static_cast<std::int64_t>(count)) {
        throw Error("constant " + name + " " + str(dims) + " was given " + std::to_string(count) + " elements",
                    "Graph");
    }
    return add_constant(name, shape, dtype, std::make_shared<const KeptNumbers>(data));
}

Value Graph::constant(const std::string& name, const std::vector<std::int64_t>& shape, std::span<const float> data) {
    return keep_constant(name, shape, DType::f32, std::as_bytes(data), data.size());
}

Value Graph::constant(const std::string& name, const std::vector<std::int64_t>& shape,
                      std::span<const std::int32_t> data) {
    return keep_constant(name, shape, DType::i32, std::as_bytes(data), data.size());
}

void Graph::as_image(const Value& value, ImageAccess image) { storages_[info_of(value).storage].image = image; }

void Graph::output(const std::string& name, Value value) {
    check_new_name(name, "output");
    if (&value.graph() != this) {
        throw Error("output " + name + " is a value of another graph", "Graph");
    }
    StorageInfo& storage = storages_[info_of(value).storage];
    if (storage.kind != StorageKind::intermediate) {
        throw Error("output " + name + ": " + value.str() + " is already " + kind_name(storage.kind) + " " +
                        storage.name + "; use contiguous() for a copy",
                    "Graph");
    }
    const ValueInfo& info = values_[value.id()];
    if (!is_contiguous(info.shape, info.strides) || !(info.offset == Dim(0)) ||
        !(elements(info.shape) == elements(storage.shape))) {
        throw Error(
            "output " + name + ": " + value.str() + " is a view, not a whole tensor; use contiguous() for a copy",
            "Graph");
    }
    std::string kept_name = name;
    Shape shape = value.shape();
    outputs_.reserve(outputs_.size() + 1);  // the last that may throw
    named_.insert(named_from(name), value.id());
    outputs_.push_back(value.id());
    storage.kind = StorageKind::output;
    storage.name = std::move(kept_name);
    storage.shape = std::move(shape);
}

}  // namespace vkf
