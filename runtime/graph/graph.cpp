// SPDX-License-Identifier: Apache-2.0
#include "runtime/graph/graph.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "runtime/base/made.h"
#include "runtime/graph/node.h"
#include "runtime/graph/op.h"

namespace vkf {

namespace {

// kernels index in 32 bits
constexpr std::int64_t kMaxElements = std::numeric_limits<std::uint32_t>::max();
// with symbols: far enough below 2^63 for each of the terms that the size is the sum of
constexpr std::int64_t kMostSize = std::int64_t{1} << 60;
// ids have 16 bits, and a run looks at all
constexpr std::size_t kMostSymbols = 4096;

/// Throws where the size has a symbol that the graph has not.
void require_own(const Dim& dim, std::span<const SymbolInfo> symbols) {
    if (dim.symbols() > symbols.size()) {
        throw Error("a size is made of symbol " + std::to_string(dim.symbols() - 1) + ", and the graph has " +
                        std::to_string(symbols.size()) + ": it is of another graph",
                    "Graph");
    }
}

}  // namespace

Graph& Value::graph() const {
    if (!graph_) {
        throw Error("an empty Value was used where a tensor is needed");
    }
    return *graph_;
}

const Shape& Value::shape() const {
    const ValueInfo& info = graph().values()[id_];
    if (info.storage == kNoStorage) {
        throw Error("a Value was used of a layer that was refused, of which nothing is in the graph");
    }
    return info.shape;
}

const Dim& Value::size(int dim) const {
    const Shape& s = shape();
    const int rank = static_cast<int>(s.size());
    const int i = dim < 0 ? dim + rank : dim;
    if (i < 0 || i >= rank) {
        throw Error("dimension " + std::to_string(dim) + " of " + str() + " does not exist");
    }
    return s[static_cast<std::size_t>(i)];
}

DType Value::dtype() const {
    shape();  // throws where it is of nothing
    return graph().storages()[graph().values()[id_].storage].dtype;
}

std::string Value::str() const {
    shape();  // throws where it is of nothing
    const StorageInfo& storage = graph().storages()[graph().values()[id_].storage];
    const std::string name = storage.name.empty() ? "value" : storage.name;
    return name + " " + graph().str(shape()) + " " + std::string(name_of(storage.dtype));
}

Graph::Graph() { ++made_counts.graphs; }
Graph::Graph(Clone) {}
Graph::~Graph() = default;

Dim Graph::symbol(const std::string& name, std::int64_t max) {
    if (name.empty()) {
        throw Error("symbol without a name", "Graph");
    }
    if (max < 1 || max > kMaxElements) {
        throw Error("symbol " + name + ": maximum " + std::to_string(max) + " is not in 1..2^32-1", "Graph");
    }
    for (std::size_t i = 0; i < symbols_.size(); ++i) {
        if (symbols_[i].name == name) {
            if (symbols_[i].max != max) {
                throw Error("symbol " + name + " has maximum " + std::to_string(symbols_[i].max) + ", now " +
                                std::to_string(max) + " is asked for",
                            "Graph");
            }
            return Dim::symbol(static_cast<std::uint16_t>(i));
        }
    }
    if (symbols_.size() == kMostSymbols) {
        throw Error("symbol " + name + ": a graph has " + std::to_string(kMostSymbols) + " at most", "Graph");
    }
    symbols_.push_back({name, max});
    return Dim::symbol(static_cast<std::uint16_t>(symbols_.size() - 1));
}

std::int64_t max_of(const Dim& dim, std::span<const SymbolInfo> symbols) {
    if (dim.is_constant()) {
        return dim.constant();
    }
    std::vector<std::int64_t> maxima;
    for (const SymbolInfo& s : symbols) {
        maxima.push_back(s.max);
    }
    require_own(dim, symbols);
    const std::int64_t most = dim.upper_bound(maxima);
    if (most > kMostSize || dim.lower_bound(maxima) < -kMostSize) {
        std::vector<std::string> names;
        for (const SymbolInfo& s : symbols) {
            names.push_back(s.name);
        }
        throw Error("a size " + dim.str(names) + " is too large: it may not fit in 64 bits", "Graph");
    }
    return most;
}

std::int64_t Graph::max_of(const Dim& dim) const { return vkf::max_of(dim, symbols_); }

std::vector<std::string> Graph::symbol_names() const {
    std::vector<std::string> names;
    for (const SymbolInfo& s : symbols_) {
        names.push_back(s.name);
    }
    return names;
}

std::string Graph::str(const Dim& dim) const { return dim.str(symbol_names()); }

std::string Graph::str(const Shape& shape) const {
    std::string out = "(";
    for (std::size_t i = 0; i < shape.size(); ++i) {
        out += (i ? ", " : "") + str(shape[i]);
    }
    return out + ")";
}

void Graph::check_shape(const std::string& name, const Shape& shape) const {
    if (shape.size() > kMaxRank) {
        throw Error(name + " " + str(shape) + " has rank " + std::to_string(shape.size()) + "; the most is " +
                        std::to_string(kMaxRank),
                    "Graph");
    }
    double count = 1;
    for (const Dim& d : shape) {
        const std::int64_t size = max_of(d);
        if (size <= 0) {
            throw Error(name + " " + str(shape) + " has a size that is not positive", "Graph");
        }
        count *= static_cast<double>(size);
    }
    if (count > static_cast<double>(kMaxElements)) {
        throw Error(name + " " + str(shape) + " has more than 2^32-1 elements", "Graph");
    }
}

void Graph::check_fixed(const std::string& name, const Shape& shape) const {
    for (const Dim& d : shape) {
        if (!d.is_constant()) {
            throw Error(name + " " + str(shape) + " has a symbolic size", "Graph");
        }
    }
}

std::vector<Value> Graph::add_node(const OpType& op, std::vector<Value> inputs, std::shared_ptr<const void> params,
                                   const std::vector<OutputSpec>& outputs) {
    NodeInfo node;
    node.op = &op;
    node.label = scoped(op.name);
    node.params = std::move(params);
    for (const Value& v : inputs) {
        if (&v.graph() != this) {
            throw Error("input " + v.str() + " belongs to another graph", op.name);
        }
        v.shape();  // throws where it is of nothing
        node.inputs.push_back(v.id());
    }
    std::vector<Value> results;
    for (const OutputSpec& spec : outputs) {
        results.push_back(add_output(node, spec));
    }
    nodes_.push_back(std::move(node));
    return results;
}

Value Graph::add_output(NodeInfo& node, const OutputSpec& spec) {
    Value out;
    if (spec.into) {
        if (&spec.into.graph() != this) {
            throw Error(spec.into.str() + ", which is written in place, belongs to another graph", node.op->name);
        }
        spec.into.shape();  // throws where it is of nothing
        const ValueInfo& window = values_[spec.into.id()];
        if (storages_[window.storage].kind != StorageKind::state) {
            throw Error("only a state can be written in place, not " + spec.into.str(), node.op->name);
        }
        out = add_view(spec.into, window.shape, window.strides, window.offset);
        node.writes.push_back(out.id());
    } else {
        Shape stored = spec.shape;
        for (std::size_t i = 0; i < spec.stored_order.size(); ++i) {
            stored[i] = spec.shape[spec.stored_order[i]];
        }
        out = add_storage({StorageKind::intermediate, {}, spec.dtype, stored});
        if (!spec.stored_order.empty()) {
            const Shape stored_strides = values_[out.id()].strides;
            Shape strides(stored_strides.size());
            for (std::size_t i = 0; i < strides.size(); ++i) {
                strides[spec.stored_order[i]] = stored_strides[i];
            }
            out = add_view(out, spec.shape, std::move(strides), 0);
        }
    }
    node.outputs.push_back(out.id());
    return out;
}

Value Graph::widen(NodeId id, std::shared_ptr<const void> params, const OutputSpec& output) {
    NodeInfo node = nodes_[id];
    node.params = std::move(params);
    const Value added = add_output(node, output);
    nodes_[id] = std::move(node);
    return added;
}

NodeId Graph::repeat(NodeId id, std::vector<ValueId> inputs, std::uint32_t again) {
    NodeInfo node = nodes_[id];
    node.label = scoped("recomputed." + node.label);
    node.inputs = std::move(inputs);
    node.again = again;
    for (ValueId& output : node.outputs) {
        const ValueInfo like = values_[output];
        const StorageInfo& of = storages_[like.storage];
        const Value home = add_storage({StorageKind::intermediate, {}, of.dtype, of.shape});
        output = add_view(home, like.shape, like.strides, like.offset).id();
    }
    nodes_.push_back(std::move(node));
    return static_cast<NodeId>(nodes_.size() - 1);
}

Value Graph::add_view(const Value& base, Shape shape, Shape strides, Dim offset) {
    check_shape("view of " + base.str(), shape);
    for (const Dim& stride : strides) {
        max_of(stride);  // throws where that may not fit
    }
    max_of(offset);
    ValueInfo view;
    view.storage = values_[base.id()].storage;
    view.shape = std::move(shape);
    view.strides = std::move(strides);
    view.offset = std::move(offset);
    values_.push_back(std::move(view));
    return Value(*this, static_cast<ValueId>(values_.size() - 1));
}

void Graph::constrain(Dim value, Dim limit, std::string what) {
    max_of(value);  // throws where that may not fit
    max_of(limit);
    constraints_.push_back({std::move(value), std::move(limit), std::move(what)});
}

void Graph::check_content(const Value& value, std::string what, Dim limit,
                          std::string (*fault)(std::span<const std::int32_t> numbers, std::int64_t limit)) {
    value.shape();  // throws where it is of nothing
    const ValueInfo& window = values_[value.id()];
    const StorageId id = window.storage;
    const StorageInfo& s = storages_[id];
    const bool whole = window.offset == Dim(0) && is_contiguous(window.shape, window.strides) &&
                       elements(window.shape) == elements(s.shape);
    if (!whole) {
        return;
    }
    if (s.kind == StorageKind::input) {
        content_checks_.push_back({id, std::move(what), std::move(limit), fault});
    } else if (s.kind == StorageKind::constant) {
        const std::vector<std::byte> bytes = s.data->bytes();
        std::vector<std::int32_t> numbers(bytes.size() / sizeof(std::int32_t));
        std::memcpy(numbers.data(), bytes.data(), numbers.size() * sizeof(std::int32_t));
        if (const std::string wrong = fault(numbers, max_of(limit)); !wrong.empty()) {
            throw Error(wrong, what + " " + value.str());
        }
    }
}

std::unique_ptr<Graph> Graph::clone() const {
    std::unique_ptr<Graph> copy(new Graph(Clone{}));
    copy->symbols_ = symbols_;
    copy->storages_ = storages_;
    copy->values_ = values_;
    copy->named_ = named_;
    copy->constants_ = constants_;
    copy->nodes_ = nodes_;
    copy->constraints_ = constraints_;
    copy->content_checks_ = content_checks_;
    copy->outputs_ = outputs_;
    copy->rank_ = rank_;
    // no blocks of nodes: a copy is changed, and its nodes get other numbers
    return copy;
}

void Graph::go_back(Graph& before) noexcept {
    storages_.resize(before.storages_.size());
    // an output was none before
    std::move(before.storages_.begin(), before.storages_.end(), storages_.begin());
    forget_values(before.values_.size());
    symbols_ = std::move(before.symbols_);
    named_ = std::move(before.named_);
    constants_ = std::move(before.constants_);
    nodes_ = std::move(before.nodes_);
    constraints_ = std::move(before.constraints_);
    content_checks_ = std::move(before.content_checks_);
    outputs_ = std::move(before.outputs_);
}

void Graph::forget_values(std::size_t from) noexcept {
    for (std::size_t i = from; i < values_.size(); ++i) {
        values_[i] = ValueInfo();
        values_[i].storage = kNoStorage;
    }
}

Graph::Extent Graph::extent() const noexcept {
    return {symbols_.size(),     storages_.size(),       values_.size(),     constants_.size(), nodes_.size(),
            constraints_.size(), content_checks_.size(), recomputed_.size(), outputs_.size()};
}

void Graph::shrink(const Extent& to) noexcept {
    const auto cut = [](auto& list, std::size_t size) {
        list.erase(list.begin() + static_cast<std::ptrdiff_t>(size), list.end());
    };
    // a hook may make an output of what was there before
    for (std::size_t i = to.outputs; i < outputs_.size(); ++i) {
        StorageInfo& s = storages_[values_[outputs_[i]].storage];
        s.kind = StorageKind::intermediate;
        s.name.clear();
        std::erase(named_, outputs_[i]);
    }
    std::erase_if(named_, [&](ValueId id) { return id >= to.values; });
    cut(outputs_, to.outputs);
    forget_values(to.values);
    cut(symbols_, to.symbols);
    cut(storages_, to.storages);
    cut(constants_, to.constants);
    cut(nodes_, to.nodes);
    cut(constraints_, to.constraints);
    cut(content_checks_, to.content_checks);
    cut(recomputed_, to.recomputed);
}

void Graph::push_scope(const std::string& name) { scopes_.push_back(name); }

void Graph::pop_scope() {
    if (scopes_.empty()) {
        throw Error("no scope is open", "Graph");
    }
    scopes_.pop_back();
}

void Graph::close_scope() noexcept {
    if (!scopes_.empty()) {
        scopes_.pop_back();
    }
}

void Graph::begin_recompute() {
    // Room for what ends, so that the end of a Recompute throws nothing.
    const std::size_t ended = recomputed_.size() + open_blocks_.size() + 1;
    if (recomputed_.capacity() < ended) {
        recomputed_.reserve(2 * ended);
    }
    open_blocks_.push_back(static_cast<NodeId>(nodes_.size()));
}

void Graph::end_recompute() {
    if (open_blocks_.empty()) {
        throw Error("no block that is computed again is open", "Graph");
    }
    close_recompute();
}

void Graph::close_recompute() noexcept {
    if (!open_blocks_.empty()) {
        recomputed_.push_back({open_blocks_.back(), static_cast<NodeId>(nodes_.size())});
        open_blocks_.pop_back();
    }
}

std::string Graph::scoped(std::string_view name) const {
    std::string out;
    for (const std::string& s : scopes_) {
        if (!s.empty()) {
            out += s + ".";
        }
    }
    return out += name;
}

}  // namespace vkf
