// SPDX-License-Identifier: Apache-2.0
#include "runtime/graph/views.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "runtime/graph/edit.h"
#include "runtime/graph/info_of.h"

namespace vkf {

namespace {

std::size_t checked_dim(const char* op, const Value& x, int dim) {
    const int rank = static_cast<int>(x.rank());
    const int i = dim < 0 ? dim + rank : dim;
    if (i < 0 || i >= rank) {
        throw Error("dimension " + std::to_string(dim) + " of " + x.str() + " does not exist", op);
    }
    return static_cast<std::size_t>(i);
}

/// Fills the one size given as -1.
void infer_size(const Value& x, Shape& shape) {
    const auto unknown = std::find(shape.begin(), shape.end(), Dim(-1));
    if (unknown == shape.end()) {
        return;
    }
    if (std::find(unknown + 1, shape.end(), Dim(-1)) != shape.end()) {
        throw Error("shape " + x.graph().str(shape) + " for " + x.str() + " leaves two sizes open: one may be -1",
                    "reshape");
    }
    Dim rest = 1;
    for (auto d = shape.begin(); d != shape.end(); ++d) {
        if (d != unknown) {
            rest = rest * *d;
        }
    }
    Dim inferred;
    if (rest == Dim(0) || !elements(x.shape()).divided_by(rest, inferred)) {
        throw Error(x.str() + " cannot take shape " + x.graph().str(shape), "reshape");
    }
    *unknown = inferred;
}

/// Strides for one run of new sizes that lies on a run of old dimensions forming one arithmetic
/// progression.
void lay_out(const Shape& sizes, std::size_t first, std::size_t last, const Dim& inner_stride, Shape& strides) {
    Dim stride = inner_stride;
    for (std::size_t i = last; i-- > first;) {
        strides[i] = stride;
        stride = stride * sizes[i];
    }
}

}  // namespace

Value reshape(Value x, Shape shape) {
    Graph& g = x.graph();
    infer_size(x, shape);
    if (!(elements(x.shape()) == elements(shape))) {
        throw Error(x.str() + " cannot take shape " + g.str(shape) + ": the element counts differ", "reshape");
    }
    const ValueInfo old = info_of(x);
    Shape sizes, steps;  // the old dimensions without those of size 1, which say nothing
    for (std::size_t i = 0; i < old.shape.size(); ++i) {
        if (!(old.shape[i] == Dim(1))) {
            sizes.push_back(old.shape[i]);
            steps.push_back(old.strides[i]);
        }
    }
    Shape strides(shape.size(), Dim(0));
    std::size_t o = 0;
    std::size_t n = 0;
    while (o < sizes.size() && n < shape.size()) {
        std::size_t o_end = o + 1;
        std::size_t n_end = n + 1;
        Dim have = sizes[o];
        Dim want = shape[n];
        // grow both runs until they hold equally many elements; sizes are compared at their maxima,
        // equality is exact
        while (!(have == want)) {
            // old sizes hold no 1, which a symbol of maximum 1 would tie with
            const bool grow_new = want == Dim(1) || g.max_of(want) < g.max_of(have) || o_end == sizes.size();
            if (grow_new && n_end < shape.size()) {
                want = want * shape[n_end++];
            } else if (o_end < sizes.size()) {
                have = have * sizes[o_end++];
            } else {
                throw Error(x.str() + " cannot take shape " + g.str(shape) + ": the sizes do not line up", "reshape");
            }
        }
        for (std::size_t i = o; i + 1 < o_end; ++i) {
            if (!(steps[i] == steps[i + 1] * sizes[i + 1])) {
                throw Error(x.str() + " cannot take shape " + g.str(shape) +
                                " without a copy: its dimensions do not lie densely; use contiguous()",
                            "reshape");
            }
        }
        lay_out(shape, n, n_end, steps[o_end - 1], strides);
        o = o_end;
        n = n_end;
    }
    return g.add_view(x, std::move(shape), std::move(strides), old.offset);
}

Value permute(Value x, const std::vector<std::size_t>& order) {
    const ValueInfo old = info_of(x);
    std::vector<std::size_t> sorted = order;
    std::sort(sorted.begin(), sorted.end());
    std::vector<std::size_t> all(x.rank());
    std::iota(all.begin(), all.end(), std::size_t{0});
    if (sorted != all) {
        throw Error(
            "the order given is not a permutation of the " + std::to_string(x.rank()) + " dimensions of " + x.str(),
            "permute");
    }
    Shape shape, strides;
    for (const std::size_t i : order) {
        shape.push_back(old.shape[i]);
        strides.push_back(old.strides[i]);
    }
    return x.graph().add_view(x, std::move(shape), std::move(strides), old.offset);
}

Value transpose(Value x, int a, int b) {
    std::vector<std::size_t> order(x.rank());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::swap(order[checked_dim("transpose", x, a)], order[checked_dim("transpose", x, b)]);
    return permute(x, order);
}

Value slice(Value x, int dim, Dim start, Dim length) {
    Graph& g = x.graph();
    const std::size_t d = checked_dim("slice", x, dim);
    ValueInfo view = info_of(x);
    // by themselves first: their sum may not fit in 64 bits
    const std::int64_t most = g.max_of(view.shape[d]);
    for (const Dim& d0 : {start, length}) {
        if (d0.is_constant() && (d0.constant() < 0 || d0.constant() > most)) {
            throw Error("slice of " + g.str(length) + " from " + g.str(start) + " on, of dimension " +
                            std::to_string(d) + " of " + x.str() + ", lies outside it",
                        "slice");
        }
    }
    const Dim end = start + length;
    const std::string what =
        "slice " + g.str(start) + ".." + g.str(end) + " of dimension " + std::to_string(d) + " of " + x.str();
    if (end.is_constant() && view.shape[d].is_constant() && end.constant() > view.shape[d].constant()) {
        throw Error(what + " lies outside it", "slice");
    }
    const GraphEdit::Addition addition(g);
    for (const Dim& d0 : {start, length}) {
        if (!d0.is_constant()) {
            g.constrain(Dim(0), d0, what);
        }
    }
    if (!(end == view.shape[d]) && !(end.is_constant() && view.shape[d].is_constant())) {
        g.constrain(end, view.shape[d], what);
    }
    view.offset = view.offset + start * view.strides[d];
    view.shape[d] = std::move(length);
    return g.add_view(x, std::move(view.shape), std::move(view.strides), std::move(view.offset));
}

Value broadcast_to(Value x, const Shape& shape) {
    Graph& g = x.graph();
    const ValueInfo old = info_of(x);
    if (old.shape.size() > shape.size()) {
        throw Error(x.str() + " has more dimensions than " + g.str(shape), "broadcast_to");
    }
    const std::size_t lead = shape.size() - old.shape.size();
    Shape strides(shape.size(), Dim(0));
    for (std::size_t i = 0; i < old.shape.size(); ++i) {
        if (old.shape[i] == shape[lead + i]) {
            strides[lead + i] = old.strides[i];
        } else if (!(old.shape[i] == Dim(1))) {
            throw Error(x.str() + " does not broadcast to " + g.str(shape) + ": dimension " + std::to_string(lead + i) +
                            " is " + g.str(old.shape[i]) + " against " + g.str(shape[lead + i]),
                        "broadcast_to");
        }
    }
    return g.add_view(x, shape, std::move(strides), old.offset);
}

Value split_heads(Value x, std::int64_t heads) {
    if (x.rank() < 2) {
        throw Error(x.str() + " has no rows and columns to split", "split_heads");
    }
    Dim head_dim;
    if (heads < 1 || !x.size(-1).divided_by(Dim(heads), head_dim)) {
        throw Error("width " + x.graph().str(x.size(-1)) + " of " + x.str() + " does not divide into " +
                        std::to_string(heads) + " heads",
                    "split_heads");
    }
    Shape shape = x.shape();
    shape.back() = Dim(heads);
    shape.push_back(head_dim);
    return transpose(reshape(x, shape), -3, -2);
}

Value merge_heads(Value x) {
    if (x.rank() < 3) {
        throw Error(x.str() + " has no heads to merge", "merge_heads");
    }
    const Value rows_first = transpose(x, -3, -2);
    Shape shape = rows_first.shape();
    shape[shape.size() - 2] = shape[shape.size() - 2] * shape.back();
    shape.pop_back();
    return reshape(rows_first, shape);
}

Shape broadcast_shapes(const char* op, const Value& a, const Value& b) {
    const Shape& s = a.shape();
    const Shape& t = b.shape();
    Shape out(std::max(s.size(), t.size()), Dim(1));
    for (std::size_t i = 0; i < out.size(); ++i) {  // from the innermost
        const Dim x = i < s.size() ? s[s.size() - 1 - i] : Dim(1);
        const Dim y = i < t.size() ? t[t.size() - 1 - i] : Dim(1);
        if (!(x == y) && !(x == Dim(1)) && !(y == Dim(1))) {
            throw Error(a.str() + " and " + b.str() + " do not broadcast: dimension " +
                            std::to_string(out.size() - 1 - i) + " is " + a.graph().str(x) + " against " +
                            a.graph().str(y),
                        op);
        }
        out[out.size() - 1 - i] = x == Dim(1) ? y : x;
    }
    return out;
}

bool is_contiguous(const Value& x) { return is_contiguous(info_of(x).shape, info_of(x).strides); }

}  // namespace vkf
