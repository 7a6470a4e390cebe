// SPDX-License-Identifier: Apache-2.0
// Sizes, and values with their operators.
#include <vkformer/advanced/node.h>

#include "bind.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <tuple>
#include <vector>

namespace py {

namespace {

std::string text_of(const Dim& d) {
    if (!d.graph.is_valid()) return "a size";
    return nb::cast<vkf::Graph&>(d.graph).str(d.dim);
}

template <class F>
nb::object combined(const Dim& a, const vkf::Dim& b, F f) {
    return wrap(f(a.dim, b), a.graph);
}

/// Lets Python's collector see the graph that a value or a size keeps: its hook may keep these.
template <class Kept>
int visit_graph_of(PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(self));
    if (nb::inst_ready(self)) Py_VISIT(nb::inst_ptr<Kept>(self)->graph.ptr());
    return 0;
}
template <class Kept>
PyType_Slot kept_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(visit_graph_of<Kept>)}, {0, nullptr}};

/// A value and a number with an operator between, as they are written.
struct Written {
    const vkf::Value& value;
    const char* sign;
    double number;
    bool number_first = false;

    [[noreturn]] void refuse(const char* what) const {
        const std::string text = nb::repr(nb::float_(number)).c_str(), between = std::string(" ") + sign + " ";
        fail((number_first ? text + between + value.str() : value.str() + between + text) + ": " + what);
    }
    /// The number as fp32, of which infinity is one too where it is meant.
    float narrowed() const {
        const auto narrow = static_cast<float>(number);
        if (std::isfinite(number) && !std::isfinite(narrow)) refuse("fp32 has no such number");
        return narrow;
    }
};

vkf::Value times(const Written& w) {
    const float factor = w.narrowed();
    if (!std::isfinite(factor)) w.refuse("the factor is not finite");
    return vkf::scale(w.value, factor);
}

vkf::Value over(const Written& w) {
    const auto inverse = static_cast<float>(1 / w.number);
    if (!std::isfinite(inverse)) w.refuse("its inverse, which is multiplied by, is not finite in fp32");
    return vkf::scale(w.value, inverse);
}

/// The number, or what is left of 0 without it, as a tensor beside the value.
vkf::Value constant(const Written& w, float factor = 1) {
    const float number = factor * w.narrowed();
    vkf::Graph& graph = w.value.graph();
    const std::vector<std::int64_t> shape(w.value.rank() == 0 ? 0 : 1, 1);  // the rank stays
    return graph.constant("number_" + std::to_string(graph.storages().size()), shape,
                          std::span<const float>(&number, 1));
}

/// x[a, 1:n, ...]: numbers drop a dimension, and slices have steps of 1.
vkf::Value indexed(vkf::Value x, nb::handle index) {
    const nb::tuple parts = nb::isinstance<nb::tuple>(index) ? nb::borrow<nb::tuple>(index) : nb::make_tuple(index);
    std::size_t given = 0;
    for (const nb::handle part : parts) given += part.is(nb::ellipsis()) ? 0 : 1;
    if (parts.size() > given + 1) fail(x.str() + ": an index has one ellipsis at most");
    if (given > x.rank()) fail(x.str() + " has no " + std::to_string(given) + " dimensions");
    std::size_t dim = 0;
    std::vector<std::size_t> dropped;
    std::vector<std::tuple<std::size_t, vkf::Dim, vkf::Dim>> windows;  // dimension, start, length
    for (const nb::handle part : parts) {
        if (part.is(nb::ellipsis())) {
            dim += x.rank() - given;
            continue;
        }
        const vkf::Dim size = x.shape()[dim];
        const auto place = [&](nb::handle bound) {
            if (nb::isinstance<Dim>(bound)) require_graph(nb::cast<Dim&>(bound), graph_object(x));
            const auto found = cast_as<vkf::Dim>(bound, "index", "a number, a size or a slice");
            return found.is_constant() && found.constant() < 0 ? size + found : found;
        };
        const auto end = [&](nb::handle bound, const vkf::Dim& otherwise) {
            return bound.is_none() ? otherwise : place(bound);
        };
        if (PySlice_Check(part.ptr()) != 0) {
            const nb::object step = part.attr("step");
            if (!step.is_none() && !step.equal(nb::int_(1))) fail(x.str() + ": slices have steps of 1");
            const vkf::Dim start = end(part.attr("start"), vkf::Dim(0)), stop = end(part.attr("stop"), size);
            if (!(start == vkf::Dim(0) && stop == size)) windows.emplace_back(dim, start, stop - start);
        } else {
            windows.emplace_back(dim, place(part), vkf::Dim(1));
            dropped.push_back(dim);
        }
        ++dim;
    }
    // Plain numbers first: one that is refused leaves no condition of another that has symbols.
    std::stable_partition(windows.begin(), windows.end(), [](const auto& window) {
        return std::get<1>(window).is_constant() && std::get<2>(window).is_constant();
    });
    for (const auto& [at, start, rows] : windows) x = vkf::slice(x, static_cast<int>(at), start, rows);
    if (dropped.empty()) return x;
    vkf::Shape shape;
    for (std::size_t i = 0; i < x.rank(); ++i) {
        if (std::find(dropped.begin(), dropped.end(), i) == dropped.end()) shape.push_back(x.shape()[i]);
    }
    return vkf::reshape(x, shape);
}

/// The number of rows, where it is one.
std::size_t length(const vkf::Value& x) {
    if (x.rank() == 0) throw nb::type_error((x.str() + " has no dimension, and so no length").c_str());
    if (!x.shape()[0].is_constant()) {
        throw nb::type_error((x.str() + ": its length is told by the arrays of each run; take size(0)").c_str());
    }
    return static_cast<std::size_t>(x.shape()[0].constant());
}

/// The size with these numbers for the symbols. Its terms of one sign are added up by bounds, which
/// stop where 64 bits end; sums of Dims throw there.
std::int64_t evaluated(const Dim& d, const std::vector<std::int64_t>& numbers) {
    using Limits = std::numeric_limits<std::int64_t>;
    const vkf::Dim terms = d.dim - vkf::Dim(d.dim.constant());
    const std::int64_t up = terms.upper_bound(numbers), down = terms.lower_bound(numbers);
    if (up == Limits::max() || down == Limits::min()) fail(text_of(d) + " is more than 64 bits hold");
    return (vkf::Dim(up) + vkf::Dim(down) + vkf::Dim(d.dim.constant())).constant();
}

void bind_dim(nb::module_& m) {
    nb::class_<Dim>(m, "Dim",
                    "A size that depends on named symbols: a polynomial with integer coefficients, such as 8*tokens + "
                    "8. Made by Graph.symbol() and by arithmetic. Two are equal where they are for every choice of "
                    "the symbols.",
                    nb::type_slots(kept_slots<Dim>))
        .def(
            "__add__",
            [](const Dim& a, const vkf::Dim& b) { return combined(a, b, [](auto& x, auto& y) { return x + y; }); },
            nb::is_operator(), kOneGraph)
        .def(
            "__radd__",
            [](const Dim& a, const vkf::Dim& b) { return combined(a, b, [](auto& x, auto& y) { return y + x; }); },
            nb::is_operator(), kOneGraph)
        .def(
            "__sub__",
            [](const Dim& a, const vkf::Dim& b) { return combined(a, b, [](auto& x, auto& y) { return x - y; }); },
            nb::is_operator(), kOneGraph)
        .def(
            "__rsub__",
            [](const Dim& a, const vkf::Dim& b) { return combined(a, b, [](auto& x, auto& y) { return y - x; }); },
            nb::is_operator(), kOneGraph)
        .def(
            "__mul__",
            [](const Dim& a, const vkf::Dim& b) { return combined(a, b, [](auto& x, auto& y) { return x * y; }); },
            nb::is_operator(), kOneGraph)
        .def(
            "__rmul__",
            [](const Dim& a, const vkf::Dim& b) { return combined(a, b, [](auto& x, auto& y) { return y * x; }); },
            nb::is_operator(), kOneGraph)
        .def(
            "__floordiv__",
            [](const Dim& a, const vkf::Dim& b) {
                vkf::Dim out;
                if (!a.dim.divided_by(b, out))
                    fail(text_of(a) + " is not divisible by that for every choice of its symbols");
                return wrap(out, a.graph);
            },
            nb::is_operator(), kOneGraph,
            "The exact quotient. ValueError where there is none for every choice of the symbols.")
        .def(
            "__eq__",
            [](const Dim& a, nb::handle b) {
                if (nb::isinstance<Dim>(b)) require_graph(nb::cast<Dim&>(b), a.graph);
                vkf::Dim other;
                return nb::try_cast<vkf::Dim>(b, other) && a.dim == other;
            },
            "other"_a.none())
        .def("__hash__", [](const Dim& a) { return nb::hash(nb::str(text_of(a).c_str())); })
        .def(
            "eval",
            [](const Dim& d, const std::map<std::string, std::int64_t>& values) {
                std::vector<std::int64_t> numbers;
                const auto& graph = nb::cast<vkf::Graph&>(d.graph);
                const std::vector<std::string> names = graph.symbol_names();
                for (const auto& [symbol, number] : values) {
                    const auto at = std::find(names.begin(), names.end(), symbol);
                    if (at == names.end()) fail("there is no such symbol", symbol);
                    if (number < 0) fail("is " + std::to_string(number) + "; sizes are not negative", symbol);
                    const std::int64_t most = graph.symbols()[static_cast<std::size_t>(at - names.begin())].max;
                    if (number > most) {
                        fail("is " + std::to_string(number) + "; its largest is " + std::to_string(most), symbol);
                    }
                }
                for (const std::string& symbol : names) {
                    const auto at = values.find(symbol);
                    numbers.push_back(at == values.end() ? 0 : at->second);
                }
                return evaluated(d, numbers);
            },
            "values"_a, "The size with these numbers for the symbols, by name; 0 for those that are not named.")
        .def_prop_ro(
            "upper_bound", [](const Dim& d) { return nb::cast<vkf::Graph&>(d.graph).max_of(d.dim); },
            "The largest it can be, each symbol between 0 and its maximum.")
        .def_prop_ro(
            "graph", [](const Dim& d) { return d.graph; }, nb::sig("def graph(self) -> Graph"),
            "The graph whose symbols it is made of.")
        .def("__repr__", [](const Dim& d) { return text_of(d); });
}

void bind_value(nb::module_& m) {
    using V = const Value&;
    nb::class_<Value> value(m, "Value", "A tensor in a graph: cheap to copy; it keeps its graph.",
                            nb::type_slots(kept_slots<Value>));
    // NumPy's operators leave theirs to ours, which refuse what they do not know
    value.attr("__array_ufunc__") = nb::none();
    value
        .def_prop_ro(
            "graph", [](V v) { return v.graph; }, nb::sig("def graph(self) -> Graph"), "The graph that it is of.")
        .def_prop_ro(
            "id", [](V v) { return v.value.id(); }, "Its number in the graph.")
        .def_prop_ro(
            "shape", [](V v) { return wrap(v.value.shape(), v.graph); },
            nb::sig("def shape(self) -> tuple[int | Dim, ...]"), "Sizes, outermost first.")
        .def_prop_ro(
            "rank", [](V v) { return v.value.rank(); }, "How many dimensions it has.")
        .def_prop_ro(
            "ndim", [](V v) { return v.value.rank(); }, "How many dimensions it has.")
        .def(
            "size", [](V v, int dim) { return wrap(v.value.size(dim), v.graph); }, "dim"_a,
            nb::sig("def size(self, dim: int) -> int | Dim"),
            "Size of a dimension; negative counts from the innermost.")
        .def_prop_ro(
            "dtype", [](V v) { return name(v.value.dtype()); }, "NumPy's name of the type of elements.")
        .def_prop_ro(
            "name",
            [](V v) {
                const vkf::Graph& g = v.value.graph();
                v.value.shape();  // throws where it is of nothing
                return g.storages()[g.values()[v.value.id()].storage].name;
            },
            "The name of the storage it is a window on; empty where it has none.")
        .def_prop_ro(
            "kind",
            [](V v) {
                const vkf::Graph& g = v.value.graph();
                v.value.shape();  // throws where it is of nothing
                return name(g.storages()[g.values()[v.value.id()].storage].kind);
            },
            "The owner of its bytes: input, weight, state, constant, intermediate or output.")
        .def(
            "is_contiguous", [](V v) { return vkf::is_contiguous(v.value); },
            "True when the elements lie densely in row-major order.")
        .def(
            "reshape", [](V v, const vkf::Shape& shape) { return vkf::reshape(v.value, shape); }, "shape"_a, kOneGraph,
            "The same elements in the same order under another shape; one size may be -1. torch.Tensor.view.")
        .def(
            "transpose", [](V v, int a, int b) { return vkf::transpose(v.value, a, b); }, "dim0"_a, "dim1"_a,
            "Swaps two dimensions; negative counts from the innermost. torch.transpose.")
        .def(
            "permute", [](V v, const std::vector<std::size_t>& order) { return vkf::permute(v.value, order); },
            "dims"_a, "Dimension i of the result is dimension dims[i]. torch.Tensor.permute.")
        .def(
            "contiguous", [](V v) { return vkf::contiguous(v.value); }, "A dense copy of any view.")
        .def(
            "to", [](V v, const Type& dtype) { return vkf::to(v.value, dtype); }, "dtype"_a,
            "As another type: float32, float16 or bfloat16; int32 stays what it is. torch.Tensor.to.")
        .def(
            "__getitem__", [](V v, nb::handle index) { return indexed(v.value, index); }, "index"_a.none(),
            "A window: x[0, 1:n, ...]. Ends may be sizes with symbols.")
        .def(
            "__add__", [](V a, const vkf::Value& b) { return a.value + b; }, nb::is_operator())
        .def(
            "__add__",
            [](V a, double b) {
                return a.value + constant({a.value, "+", b});
            },
            nb::is_operator())
        .def(
            "__radd__",
            [](V a, double b) {
                return a.value + constant({a.value, "+", b, true});
            },
            nb::is_operator())
        .def(
            "__sub__", [](V a, const vkf::Value& b) { return a.value + vkf::scale(b, -1); }, nb::is_operator())
        .def(
            "__sub__",
            [](V a, double b) {
                return a.value + constant({a.value, "-", b}, -1);
            },
            nb::is_operator())
        .def(
            "__rsub__",
            [](V a, double b) {
                // throws before anything is described
                const vkf::Value given = constant({a.value, "-", b, true});
                return vkf::scale(a.value, -1) + given;
            },
            nb::is_operator())
        .def(
            "__mul__", [](V a, const vkf::Value& b) { return a.value * b; }, nb::is_operator())
        .def(
            "__mul__",
            [](V a, double b) {
                return times({a.value, "*", b});
            },
            nb::is_operator())
        .def(
            "__rmul__",
            [](V a, double b) {
                return times({a.value, "*", b, true});
            },
            nb::is_operator())
        .def(
            "__truediv__",
            [](V a, double b) {
                return over({a.value, "/", b});
            },
            nb::is_operator())
        .def("__neg__", [](V a) { return vkf::scale(a.value, -1); })
        .def(
            "__matmul__", [](V a, const vkf::Value& b) { return vkf::matmul(a.value, b); }, nb::is_operator())
        .def(
            "__array__",
            [](V v, const nb::object&, const nb::object&) -> nb::object {
                throw nb::type_error((v.value.str() + " is a value of a graph, and has no numbers").c_str());
            },
            "dtype"_a = nb::none(), "copy"_a = nb::none(),
            nb::sig("def __array__(self, dtype: object = None, copy: bool | None = None) -> typing.NoReturn"))
        .def("__len__", [](V v) { return length(v.value); })
        .def(
            "__iter__",
            [](nb::object self) {  // a row when it is asked for: each is a view in the graph
                const nb::module_ builtins = nb::module_::import_("builtins");
                const nb::object rows = builtins.attr("range")(length(nb::cast<V>(self).value));
                return nb::object(builtins.attr("map")(self.attr("__getitem__"), rows));
            },
            nb::sig("def __iter__(self) -> typing.Iterator[Value]"))
        .def(
            "__bool__", [](V) { return true; }, "True: a value is there, whatever its length.")
        .def("__repr__", [](V v) { return "<Value " + v.value.str() + ">"; });

    nb::class_<AttentionResult, Value>(m, "AttentionResult",
                                       "What attention gives. It is its y, wherever a Value is expected.")
        .def_prop_ro(
            "y", [](const AttentionResult& r) { return r.value; },
            "What attention gives: (B, L, E), or heads first, as the function says.")
        .def_prop_ro(
            "weights", [](const AttentionResult& r) { return r.weights; }, nb::sig("def weights(self) -> Value | None"),
            "The attention weights, as softmax() gives them: a masked one is -0.0. None for sequences of "
            "different lengths. Where a program uses them, attention is composed of other ops.")
        .def_prop_ro(
            "log_sum_exp", [](const AttentionResult& r) { return r.log_sum_exp; },
            nb::sig("def log_sum_exp(self) -> Value | None"), "(B, H, L), where it was asked for.");
}

}  // namespace

void bind_values(nb::module_& m) {
    bind_dim(m);
    bind_value(m);
}

}  // namespace py
