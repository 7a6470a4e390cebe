// SPDX-License-Identifier: Apache-2.0
// Sizes, values, graphs and views.
#include <vkformer/advanced/node.h>
#include <vkformer/advanced/op.h>

#include "bind.h"

#include <nanobind/stl/function.h>

#include <cstdint>
#include <cstring>

namespace py {

nb::object graph_object(const vkf::Value& value) { return nb::find(value.graph()); }

nb::object wrap(const vkf::Value& value) { return nb::cast(Value{value, graph_object(value)}); }

nb::object wrap(const vkf::AttentionResult& result) {
    return nb::cast(AttentionResult{{result.y, graph_object(result.y)}, result.weights, result.log_sum_exp});
}

nb::object wrap(const vkf::Dim& dim, const nb::object& graph) {
    if (dim.is_constant()) return nb::int_(dim.constant());
    return nb::cast(Dim{dim, graph});
}

nb::tuple wrap(const vkf::Shape& shape, const nb::object& graph) {
    nb::list sizes;
    for (const vkf::Dim& size : shape) sizes.append(wrap(size, graph));
    return nb::tuple(sizes);
}

std::optional<std::size_t> only_symbol(const vkf::Dim& dim, std::size_t symbols) {
    for (std::size_t i = 0; i < symbols; ++i) {
        if (dim == vkf::Dim::symbol(static_cast<std::uint16_t>(i))) return i;
    }
    return {};
}

Type::operator vkf::DType() const {
    const std::string bare = text.substr(text.rfind('.') + 1);
    for (std::size_t i = 0; i <= static_cast<std::size_t>(vkf::DType::boolean); ++i) {
        const auto type = static_cast<vkf::DType>(i);
        std::string short_name(vkf::name_of(type));
        if (bare == short_name || bare == name(type)) return type;
        for (char& c : short_name) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
        if (bare == short_name) return type;
    }
    fail("dtype is \"" + text + "\"; graphs have float32, float16, bfloat16 and int32");
}

const char* name(vkf::DType type) {
    switch (type) {
        case vkf::DType::f64: return "float64";
        case vkf::DType::f32: return "float32";
        case vkf::DType::f16: return "float16";
        case vkf::DType::bf16: return "bfloat16";
        case vkf::DType::i64: return "int64";
        case vkf::DType::i32: return "int32";
        case vkf::DType::i16: return "int16";
        case vkf::DType::i8: return "int8";
        case vkf::DType::u8: return "uint8";
        case vkf::DType::boolean: return "bool";
    }
    return "?";
}

namespace {

nb::dict described(const vkf::Graph& graph, const nb::object& self, vkf::StorageKind kind) {
    nb::dict out;
    for (const vkf::StorageInfo& s : graph.storages()) {
        if (s.kind == kind) out[nb::cast(s.name)] = nb::make_tuple(wrap(s.shape, self), name(s.dtype));
    }
    return out;
}

std::string text_of(const vkf::Graph& graph) {
    std::string out = "Graph of " + std::to_string(graph.nodes().size()) + " nodes";
    const auto list = [&](const char* title, vkf::StorageKind kind) {
        std::string text;
        std::size_t count = 0;
        for (const vkf::StorageInfo& s : graph.storages()) {
            if (s.kind != kind) continue;
            if (++count <= 8) text += (count == 1 ? "" : ", ") + s.name + " " + graph.str(s.shape);
        }
        if (count > 8) text += ", ... (" + std::to_string(count) + " in all)";
        if (count != 0) out += std::string("\n  ") + title + ": " + text;
    };
    std::string symbols;
    for (const vkf::SymbolInfo& s : graph.symbols()) {
        symbols += (symbols.empty() ? "" : ", ") + s.name + " <= " + std::to_string(s.max);
    }
    if (!symbols.empty()) out += "\n  symbols: " + symbols;
    list("inputs", vkf::StorageKind::input);
    list("weights", vkf::StorageKind::weight);
    list("states", vkf::StorageKind::state);
    list("outputs", vkf::StorageKind::output);
    return out;
}

/// What after_linear() was given.
struct LinearHook {
    std::shared_ptr<nb::object> function;

    vkf::Value operator()(vkf::Value x, vkf::Value y) const {
        constexpr const char* kWhat = "after_linear: what its function gave";
        const Locked lock;
        // it may put another hook in its place
        const std::shared_ptr<nb::object> kept = function;
        const nb::object given = (*kept)(x, y);
        const auto value = cast_as<vkf::Value>(given, kWhat, "a Value");
        // what is of another graph may go with `given`
        if (!value) throw nb::type_error((std::string(kWhat) + ": is None; a Value is wanted").c_str());
        if (&value.graph() != &y.graph()) fail(value.str() + " is a value of another graph", "after_linear");
        return value;
    }
};

/// The function of Python's that a graph calls, and which may keep that graph; null: none.
const LinearHook* hook_of(PyObject* self) {
    const auto [ready, owned] = nb::inst_state(self);
    return ready && owned ? nb::inst_ptr<vkf::Graph>(self)->linear_hook().target<LinearHook>() : nullptr;
}

int visit_graph(PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(self));
    if (const LinearHook* hook = hook_of(self)) Py_VISIT(hook->function->ptr());
    return 0;
}

int clear_graph(PyObject* self) {
    if (hook_of(self) != nullptr) nb::inst_ptr<vkf::Graph>(self)->after_linear({});
    return 0;
}

PyType_Slot graph_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(visit_graph)},
                             {Py_tp_clear, reinterpret_cast<void*>(clear_graph)},
                             {0, nullptr}};

vkf::Value constant(vkf::Graph& graph, const std::string& name, nb::handle data) {
    const Array array = device_array_of(data, name);
    if (array.dtype == vkf::DType::i32) return graph.constant(name, array.shape, array.as<std::int32_t>());
    const Array floats = array_as(array, vkf::DType::f32, name);
    return graph.constant(name, floats.shape, floats.as<float>());
}

void bind_graph_class(nb::module_& m) {
    using G = vkf::Graph;
    nb::class_<G>(m, "Graph",
                  "The description of a computation: values and nodes, no Vulkan. Described once, compiled for as many "
                  "devices as wanted. It belongs to one thread.",
                  nb::is_weak_referenceable(), nb::type_slots(graph_slots))
        .def(nb::init<>())
        .def(
            "symbol",
            [](nb::object self, const std::string& name, std::int64_t max) {
                return Dim{nb::cast<G&>(self).symbol(name, max), self};
            },
            "name"_a, "max"_a, nb::sig("def symbol(self, name: str, max: int) -> Dim"),
            "A size that can be set before each run, from 0 to max.")
        .def(
            "input",
            [](G& g, const std::string& name, const vkf::Shape& shape, const Type& dtype) {
                return g.input(name, shape, dtype);
            },
            "name"_a, "shape"_a, "dtype"_a = Type{"float32"}, kOneGraph,
            "A tensor that the caller gives before each run: float32, float16, bfloat16 or int32. A graph computes in "
            "float32: to(x, \"float32\") reads the 16-bit types.")
        .def(
            "weight",
            [](G& g, const std::string& name, const vkf::Shape& shape, const Type& dtype) {
                return g.weight(name, shape, dtype);
            },
            "name"_a, "shape"_a, "dtype"_a = Type{"float32"},
            "A trained parameter, found by name in the Weights that the graph is compiled with. The same name gives "
            "the same value.")
        .def(
            "state",
            [](G& g, const std::string& name, const vkf::Shape& shape, const Type& dtype) {
                return g.state(name, shape, dtype);
            },
            "name"_a, "shape"_a, "dtype"_a = Type{"float32"}, kOneGraph,
            "A tensor that outlives a run (a KV cache); zero at first. The same name gives the same value.")
        .def("constant", constant, "name"_a, "data"_a, nb::sig("def constant(self, name: str, data: object) -> Value"),
             "A tensor whose numbers are known now; they are kept with the program. data: an array.")
        .def("output", &G::output, "name"_a, "value"_a,
             "Gives a computed value a name under which it can be downloaded. A view of another order must go "
             "through contiguous() first.")
        .def(
            "after_linear",
            [](G& g, nb::object hook) {
                if (hook.is_none()) return g.after_linear({});
                g.after_linear(LinearHook{held(std::move(hook))});
            },
            "hook"_a.none(),
            nb::sig("def after_linear(self, hook: typing.Callable[[Value, Value], Value] | None) -> None"),
            "What each linear layer that is described from now on does with its result: hook(x, y) gives the value "
            "to go on with, of y's shape. None removes the hook.")
        .def(
            "weight_shard",
            [](G& g, const std::string& name, const vkf::Shape& shape, std::size_t dim, std::int64_t whole,
               const std::vector<std::pair<std::int64_t, std::int64_t>>& parts) {
                vkf::Shard shard{dim, whole, {}};
                for (const auto& [first, count] : parts) shard.parts.push_back({first, count});
                return g.weight(name, shape, shard);
            },
            "name"_a, "shape"_a, "dim"_a, "whole"_a, "parts"_a,
            "A parameter of which this rank has a part: along `dim`, of `whole` elements, the parts (first, count).")
        .def(
            "set_rank",
            [](G& g, int rank, int ranks, const std::vector<double>& speeds) {
                g.set_rank({rank, ranks, speeds});
            },
            "rank"_a, "ranks"_a, "speeds"_a = std::vector<double>(),
            "The rank that layers describe from now on: they share heads, widths and vocabularies out, in proportion "
            "to the ranks' speeds.")
        .def_prop_ro(
            "rank", [](const G& g) { return g.rank().rank; }, "The rank of a communicator that layers describe.")
        .def("push_scope", &G::push_scope, "name"_a, "Use through Scope.")
        .def("pop_scope", &G::pop_scope, "Use through Scope.")
        .def(
            "scoped", [](const G& g, const std::string& name) { return g.scoped(name); }, "name"_a,
            "The name with the open scopes before it.")
        .def("begin_recompute", &G::begin_recompute, "Use through Recompute.")
        .def("end_recompute", &G::end_recompute, "Use through Recompute.")
        .def_prop_ro("in_recompute", &G::in_recompute, "True inside a block of Recompute.")
        .def_prop_ro(
            "symbols",
            [](const G& g) {
                nb::dict out;
                for (const vkf::SymbolInfo& s : g.symbols()) out[nb::cast(s.name)] = s.max;
                return out;
            },
            nb::sig("def symbols(self) -> dict[str, int]"), "Names and maxima.")
        .def("symbol_names", &G::symbol_names, "Names of the symbols, in their order.")
        .def_prop_ro(
            "nodes",
            [](const G& g) {
                std::vector<std::string> labels;
                for (const vkf::NodeInfo& node : g.nodes()) labels.push_back(node.label);
                return labels;
            },
            "Labels of the nodes, in their order.")
        .def_prop_ro(
            "inputs", [](nb::object g) { return described(nb::cast<G&>(g), g, vkf::StorageKind::input); },
            nb::sig("def inputs(self) -> dict[str, tuple[tuple[int | Dim, ...], str]]"), "Shapes and types, by name.")
        .def_prop_ro(
            "outputs", [](nb::object g) { return described(nb::cast<G&>(g), g, vkf::StorageKind::output); },
            nb::sig("def outputs(self) -> dict[str, tuple[tuple[int | Dim, ...], str]]"), "Shapes and types, by name.")
        .def_prop_ro(
            "weights", [](nb::object g) { return described(nb::cast<G&>(g), g, vkf::StorageKind::weight); },
            nb::sig("def weights(self) -> dict[str, tuple[tuple[int, ...], str]]"), "Shapes and types, by name.")
        .def_prop_ro(
            "states", [](nb::object g) { return described(nb::cast<G&>(g), g, vkf::StorageKind::state); },
            nb::sig("def states(self) -> dict[str, tuple[tuple[int | Dim, ...], str]]"), "Shapes and types, by name.")
        .def("max_of", &G::max_of, "dim"_a, kOneGraph, "The largest a size can be.")
        .def(
            "text", [](const G& g, const vkf::Dim& dim) { return g.str(dim); }, "dim"_a, kOneGraph,
            "A size as text, with the names of its symbols.")
        .def("__repr__", [](const G& g) { return text_of(g); });
}

void bind_views(nb::module_& m) {
    m.def("reshape", &vkf::reshape, "x"_a, "shape"_a, kOneGraph,
          "The same elements in the same order under another shape; one size may be -1. ValueError where the strides "
          "of x cannot express it: contiguous(x) first. torch.Tensor.view.");
    m.def("transpose", &vkf::transpose, "x"_a, "dim0"_a, "dim1"_a,
          "Swaps two dimensions; negative counts from the innermost. torch.transpose.");
    m.def("permute", &vkf::permute, "x"_a, "order"_a,
          "Dimension i of the result is dimension order[i] of x. torch.permute.");
    m.def("slice", &vkf::slice, "x"_a, "dim"_a, "start"_a, "length"_a, kOneGraph,
          "Elements start .. start+length-1 of a dimension. torch.narrow.");
    m.def("broadcast_to", &vkf::broadcast_to, "x"_a, "shape"_a, kOneGraph,
          "x under the shape as NumPy broadcasts. torch.broadcast_to.");
    m.def("split_heads", &vkf::split_heads, "x"_a, "heads"_a, "(..., L, H*d) -> (..., H, L, d).");
    m.def("merge_heads", &vkf::merge_heads, "x"_a, "(..., H, L, d) -> (..., L, H*d), the inverse of split_heads.");
    m.def(
        "broadcast_shapes",
        [](const std::string& op, const vkf::Value& a, const vkf::Value& b) {
            return wrap(vkf::broadcast_shapes(op.c_str(), a, b), graph_object(a));
        },
        "op"_a, "a"_a, "b"_a, nb::sig("def broadcast_shapes(op: str, a: Value, b: Value) -> tuple[int | Dim, ...]"),
        "The shape two operands have together. ValueError names op, values and the dimension.");
    m.def(
        "_ready",
        [](const vkf::Value& x) {
            const vkf::Graph& g = x.graph();
            x.shape();  // throws where it is of nothing
            const vkf::StorageInfo& storage = g.storages()[g.values()[x.id()].storage];
            const bool whole = storage.kind == vkf::StorageKind::intermediate && vkf::is_contiguous(x) &&
                               vkf::elements(x.shape()) == vkf::elements(storage.shape);
            return whole ? x : vkf::contiguous(x);
        },
        "x"_a, "The value, or a copy where an output cannot be what it is.");
    m.def(
        "is_contiguous", [](const vkf::Value& x) { return vkf::is_contiguous(x); }, "x"_a,
        "True when the value's elements lie densely in row-major order.");
}

}  // namespace

void bind_graph(nb::module_& m) {
    bind_values(m);
    bind_graph_class(m);
    bind_views(m);
}

}  // namespace py
