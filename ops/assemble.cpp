// SPDX-License-Identifier: Apache-2.0
#include "ops/assemble.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "ops/add_op.h"
#include "ops/elementwise.h"
#include "ops/gradient.h"
#include "ops/stored_order.h"
#include "runtime/compile/lowering.h"

namespace vkf {

namespace {

using namespace support;

struct AssembleParams {
    std::vector<ValueInfo> windows;  ///< one an input; their storage says nothing
};

/// Columns of a matrix: the window's elements are `width` of every `pitch`, from `first` on.
struct Columns {
    std::int64_t first, width, pitch;
};

/// The window as columns of all rows of a tensor of so many elements; none where it is not that.
std::optional<Columns> columns_of(const ValueInfo& window, const Dim& count) {
    std::vector<bool> taken(window.shape.size(), false);
    const auto next = [&](const Dim* stride) -> std::optional<std::size_t> {
        for (std::size_t i = window.shape.size(); i-- > 0;) {
            if (!taken[i] && !(window.shape[i] == Dim(1)) && (stride == nullptr || window.strides[i] == *stride)) {
                taken[i] = true;
                return i;
            }
        }
        return std::nullopt;
    };
    Dim stride = 1;
    while (const auto i = next(&stride)) {
        stride = stride * window.shape[*i];
    }
    const Dim width = stride;
    // the next dimension's stride is the pitch; the others follow without a gap
    Dim pitch = count;
    std::optional<std::size_t> outer;
    for (std::size_t i = window.shape.size(); i-- > 0;) {
        const bool open = !taken[i] && !(window.shape[i] == Dim(1));
        Dim quotient;
        if (open && (!outer || window.strides[*outer].divided_by(window.strides[i], quotient))) {
            outer = i;
        }
    }
    if (outer) {
        pitch = window.strides[*outer];
        stride = pitch;
        while (const auto i = next(&stride)) {
            stride = stride * window.shape[*i];
        }
    } else {
        stride = count;
    }
    if (next(nullptr) || !(stride == count) || !width.is_constant() || !pitch.is_constant() ||
        !window.offset.is_constant() || window.offset.constant() + width.constant() > pitch.constant()) {
        return std::nullopt;
    }
    return Columns{window.offset.constant(), width.constant(), pitch.constant()};
}

/// True where the windows are all elements of the tensor, each once.
bool tile(const std::vector<ValueInfo>& windows, const Dim& count) {
    std::vector<Columns> columns;
    for (const ValueInfo& window : windows) {
        const std::optional<Columns> found = columns_of(window, count);
        if (!found || (!columns.empty() && found->pitch != columns.front().pitch)) {
            return false;
        }
        columns.push_back(*found);
    }
    std::sort(columns.begin(), columns.end(), [](const Columns& a, const Columns& b) { return a.first < b.first; });
    std::int64_t end = 0;
    for (const Columns& c : columns) {
        if (c.first != end) {
            return false;
        }
        end += c.width;
    }
    return !columns.empty() && end == columns.front().pitch;
}

void lower(Lowering& l) {
    const auto& windows = l.params<AssembleParams>().windows;
    const ValueId out = l.output(0);
    const bool once = tile(windows, elements(l.info(out).shape));
    if (!once) {
        lower_zero(l, out);
    }
    for (std::size_t i = 0; i < windows.size(); ++i) {
        const ValueInfo& w = windows[i];
        const ValueId to = l.window(out, w.shape, w.strides, w.offset);
        once ? lower_copy(l, l.input(i), to) : lower_add(l, to, l.input(i), to);
    }
}

/// What comes in, seen through the window of each part.
std::vector<Value> gradient(const GradientSite& site) {
    const auto& windows = site.params<AssembleParams>().windows;
    const Value incoming = dense(site.gradient());
    const Dim first = site.graph().values()[incoming.id()].offset;
    std::vector<Value> found;
    for (const ValueInfo& w : windows) {
        found.push_back(site.graph().add_view(incoming, w.shape, w.strides, first + w.offset));
    }
    return found;
}

constexpr OpType kAssemble{.name = "assemble", .lower = lower, .can_read = can_read_any, .gradient = gradient};
constexpr OpType kZeros{.name = "zeros", .lower = lower, .gradient = no_gradient};

}  // namespace

Value support::assemble(Graph& graph, const Shape& shape, const std::vector<Window>& windows) {
    AssembleParams p;
    std::vector<Value> parts;
    for (const Window& window : windows) {
        parts.push_back(window.part);
        p.windows.push_back(window.view);
    }
    return graph
        .add_node(windows.empty() ? kZeros : kAssemble, parts, params(std::move(p)), {{DType::f32, shape, {}, {}}})
        .front();
}

Value support::zeros(Graph& graph, const Shape& shape) { return assemble(graph, shape, {}); }

}  // namespace vkf
