// SPDX-License-Identifier: Apache-2.0
// Values and sizes that keep the graph which they are of.
#pragma once

#include "nanobind.h"

#include <cstddef>
#include <optional>

namespace py {

/// A value with the graph that it is valid in.
struct Value {
    vkf::Value value;
    nb::object graph;
};

/// y, which stands for the whole result, and what else an attention gives.
struct AttentionResult : Value {
    vkf::Value weights, log_sum_exp;
};

/// A size that symbols are in, with the graph that knows their names.
struct Dim {
    vkf::Dim dim;
    nb::object graph;
};

/// The Python object of the graph. Graphs that others own (a DecoderPlan's) have none.
nb::object graph_object(const vkf::Value& value);
nb::object wrap(const vkf::Value& value);
nb::object wrap(const vkf::AttentionResult& result);
nb::object wrap(const vkf::Dim& dim, const nb::object& graph);
nb::tuple wrap(const vkf::Shape& shape, const nb::object& graph);
/// A symbol's size when it is one by itself.
std::optional<std::size_t> only_symbol(const vkf::Dim& dim, std::size_t symbols);

/// A call policy: throws where a size with symbols is of another graph than the values and graphs
/// beside it. C++'s sizes do not know.
struct OneGraph {
    static void precall(PyObject** arguments, std::size_t count, nb::detail::cleanup_list*) { check(arguments, count); }
    template <class Result>
    static void postcall(PyObject**, std::size_t, Result&&) {}
    static void check(PyObject** arguments, std::size_t count);
};
constexpr nb::call_policy<OneGraph> kOneGraph{};
/// Throws where a size is of another graph.
void require_graph(const Dim& dim, nb::handle graph);

}  // namespace py
