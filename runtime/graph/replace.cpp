// SPDX-License-Identifier: Apache-2.0
// How other nodes take the place of some, and what read the old ones reads the new ones.
#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "runtime/graph/edit.h"
#include "runtime/graph/graph.h"
#include "runtime/graph/node.h"
#include "runtime/graph/op.h"

namespace vkf {

std::string scope_of(const NodeInfo& node) {
    const std::string_view name = node.op->name;
    return node.label.size() > name.size() + 1 && node.label.ends_with(name)
               ? node.label.substr(0, node.label.size() - name.size() - 1)
               : std::string();
}

void Graph::replace(const std::vector<NodeId>& nodes, const Make& make, NodeId at) {
    std::vector<NodeInfo> old;
    for (const NodeId id : nodes) {
        old.push_back(nodes_[id]);
    }
    const std::size_t first_new = nodes_.size();
    const std::size_t storages = storages_.size();
    std::size_t first_value = values_.size();
    std::vector<std::string> scopes;
    if (std::string scope = scope_of(old.front()); !scope.empty()) {
        scopes.push_back(std::move(scope));
    }
    const std::vector<Value> made = [&] {
        const GraphEdit::Scopes of_old(*this, std::move(scopes));
        return make(*this, old);
    }();
    for (std::size_t i = first_new; i < nodes_.size(); ++i) {
        nodes_[i].again = old.front().again;
    }
    recomputed_.clear();  // nodes get other numbers
    std::size_t next = 0;
    for (const NodeInfo& node : old) {
        for (const ValueId output : node.outputs) {
            if (next < made.size() && made[next]) {
                merge(output, made[next], storages, first_value, node.label);
            }
            ++next;
        }
    }
    const auto node_at = [&](std::size_t i) { return nodes_.begin() + static_cast<std::ptrdiff_t>(i); };
    const auto moved = [](auto first, auto last) {
        return std::vector<NodeInfo>(std::make_move_iterator(first), std::make_move_iterator(last));
    };
    std::vector<NodeInfo> added = moved(node_at(first_new), nodes_.end());
    nodes_.erase(node_at(first_new), nodes_.end());
    // what is between the first and the last that go, and the new ones; what is behind moves once
    const std::size_t begin = nodes.front(), end = nodes.back() + std::size_t{1};
    std::vector<NodeInfo> between;
    auto gone = nodes.begin();
    for (std::size_t i = begin; i < end; ++i) {
        if (gone != nodes.end() && *gone == i) {
            ++gone;
        } else {
            between.push_back(std::move(nodes_[i]));
        }
        if (i == at) {
            std::move(added.begin(), added.end(), std::back_inserter(between));
        }
    }
    const std::size_t room = std::min(end - begin, between.size());
    std::move(between.begin(), between.begin() + static_cast<std::ptrdiff_t>(room), node_at(begin));
    if (room < between.size()) {
        nodes_.insert(node_at(end), std::make_move_iterator(between.begin() + static_cast<std::ptrdiff_t>(room)),
                      std::make_move_iterator(between.end()));
    } else {
        nodes_.erase(node_at(begin + room), node_at(end));
    }
}

bool ValueInfo::is_rows() const {
    return !shape.empty() && shape.back().is_constant() && shape.back().constant() > 0 && offset == Dim(0) &&
           strides == contiguous_strides(shape);
}

std::optional<ValueInfo> ValueInfo::in_columns(std::int64_t width, std::int64_t pitch, std::int64_t first) const {
    ValueInfo out = *this;
    const std::int64_t column = (offset.constant() % width + width) % width;
    Dim rows;
    if (!(offset - Dim(column)).divided_by(Dim(width), rows)) {
        return std::nullopt;
    }
    out.offset = rows * Dim(pitch) + Dim(first + column);
    std::int64_t last = column;
    for (std::size_t i = 0; i < shape.size(); ++i) {
        if (strides[i].divided_by(Dim(width), rows)) {
            out.strides[i] = rows * Dim(pitch);
        } else if (strides[i].is_constant() && shape[i].is_constant()) {
            last += strides[i].constant() * (shape[i].constant() - 1);
        } else {
            return std::nullopt;
        }
    }
    return last < width ? std::optional(out) : std::nullopt;
}

/// The storage in which `made` is computed becomes that of the old output; or, where `made` is
/// columns of wider rows, the old output becomes those columns. Storages from `first_new` on, and
/// views on such from `first_value` on, were added for it.
void Graph::merge(ValueId output, const Value& made, std::size_t first_new, std::size_t& first_value,
                  const std::string& label) {
    const ValueInfo before = values_[output];
    const ValueInfo now = values_[made.id()];
    const auto refuse = [&](const char* why) {
        throw Error(made.str() + " cannot take the place of " + Value(*this, output).str() + ": " + why, label);
    };
    if (now.storage < first_new || storages_[now.storage].kind != StorageKind::intermediate) {
        refuse("it is not computed for it");
    }
    bool alike = before.shape == now.shape && before.offset == now.offset &&
                 storages_[before.storage].dtype == storages_[now.storage].dtype &&
                 elements(storages_[before.storage].shape) == elements(storages_[now.storage].shape);
    for (std::size_t i = 0; alike && i < before.shape.size(); ++i) {
        alike = before.shape[i] == Dim(1) || before.strides[i] == now.strides[i];
    }
    if (alike) {
        const auto take = [&](ValueInfo& v) { v.storage = v.storage == now.storage ? before.storage : v.storage; };
        std::for_each(values_.begin() + static_cast<std::ptrdiff_t>(first_value), values_.end(), take);
        return;
    }
    const Shape& rows = storages_[now.storage].shape;
    const bool named = storages_[before.storage].kind != StorageKind::intermediate;
    const bool fixed = !rows.empty() && rows.back().is_constant() && now.offset.is_constant();
    if (named || !fixed || !before.is_rows() || before.shape.size() != now.shape.size()) {
        refuse("they are not laid out alike");
    }
    const std::int64_t width = before.shape.back().constant(), pitch = rows.back().constant();
    const std::optional<ValueInfo> columns = before.in_columns(width, pitch, now.offset.constant());
    for (std::size_t i = 0; i < now.shape.size(); ++i) {
        if (!columns || !(now.shape[i] == Dim(1) || now.strides[i] == columns->strides[i])) {
            refuse("they are not laid out alike");
        }
    }
    for (ValueInfo& v : values_) {
        if (v.storage != before.storage) {
            continue;
        }
        // A view that runs across rows is read by nobody: see RewriteSite::why_not_columns().
        v = v.in_columns(width, pitch, now.offset.constant()).value_or(v);
        v.storage = now.storage;
    }
    first_value = 0;  // older values are such views now
}

}  // namespace vkf
