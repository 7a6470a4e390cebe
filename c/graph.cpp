// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "c/border.h"
#include "runtime/graph/views.h"

namespace vkf::c {

Dim dim_of(const vkf_dim& dim, const Graph& graph) {
    if (dim.coefficient == 0) {
        return dim.constant;
    }
    if (dim.symbol >= graph.symbols().size()) {
        throw Error("symbol " + std::to_string(dim.symbol) + " is not of this graph");
    }
    return Dim(dim.constant) + Dim(dim.coefficient) * Dim::symbol(static_cast<std::uint16_t>(dim.symbol));
}

Shape shape_of(std::uint32_t rank, const vkf_dim* shape, const Graph& graph) {
    if (rank > kMaxRank) {
        throw Error("rank " + std::to_string(rank) + " is more than " + std::to_string(kMaxRank));
    }
    Shape out;
    for (std::uint32_t i = 0; i < rank; ++i) {
        out.push_back(dim_of((&need(shape, "shape"))[i], graph));
    }
    return out;
}

/// The other way; throws for what has more terms.
vkf_dim dim_to_c(const Dim& dim, const Graph& graph) {
    if (dim.is_constant()) {
        return {dim.constant(), 0, 0};
    }
    std::vector<std::int64_t> at(graph.symbols().size());
    for (std::uint32_t symbol = 0; symbol < at.size(); ++symbol) {
        at[symbol] = 1;
        const vkf_dim out{dim.constant(), dim.eval(at) - dim.constant(), symbol};
        at[symbol] = 0;
        if (dim_of(out, graph) == dim) {
            return out;
        }
    }
    throw Error("the size " + graph.str(dim) + " is not constant + coefficient * symbol");
}

Value value_or_none(vkf_value value) {
    if (!value.graph) {
        return {};
    }
    if (value.id >= value.graph->values().size()) {
        throw Error("tensor " + std::to_string(value.id) + " of a graph that has " +
                    std::to_string(value.graph->values().size()));
    }
    return {*value.graph, value.id};
}

Value value_of(vkf_value value, const char* what) {
    need(value.graph, what);
    return value_or_none(value);
}

vkf_value to_c(const Value& value) {
    if (!value) {
        return {};
    }
    return {static_cast<vkf_graph*>(&value.graph()), value.id()};
}

}  // namespace vkf::c

using namespace vkf::c;
using vkf::Dim;
using vkf::DType;
using vkf::Value;

vkf_result vkf_graph_create(vkf_graph** graph) {
    return make(__func__, graph, [] { return new vkf_graph; });
}

void vkf_graph_destroy(vkf_graph* graph) { delete graph; }

vkf_result vkf_graph_symbol(vkf_graph* graph, const char* name, int64_t max, vkf_dim* symbol) {
    return give(__func__, symbol,
                [&] { return dim_to_c(need(graph, "graph").symbol(text(name, "name"), max), *graph); });
}

vkf_result vkf_graph_input(vkf_graph* graph, const char* name, vkf_dtype dtype, uint32_t rank, const vkf_dim* shape,
                           vkf_value* value) {
    return give_value(__func__, value, [&] {
        return need(graph, "graph").input(text(name, "name"), shape_of(rank, shape, *graph), dtype_of(dtype));
    });
}

vkf_result vkf_graph_weight(vkf_graph* graph, const char* name, vkf_dtype dtype, uint32_t rank, const vkf_dim* shape,
                            vkf_value* value) {
    return give_value(__func__, value, [&] {
        return need(graph, "graph").weight(text(name, "name"), shape_of(rank, shape, *graph), dtype_of(dtype));
    });
}

vkf_result vkf_graph_state(vkf_graph* graph, const char* name, vkf_dtype dtype, uint32_t rank, const vkf_dim* shape,
                           vkf_value* value) {
    return give_value(__func__, value, [&] {
        return need(graph, "graph").state(text(name, "name"), shape_of(rank, shape, *graph), dtype_of(dtype));
    });
}

vkf_result vkf_graph_constant(vkf_graph* graph, const char* name, vkf_dtype dtype, uint32_t rank, const int64_t* shape,
                              const void* data, vkf_value* value) {
    return give_value(__func__, value, [&]() -> Value {
        need(graph, "graph");
        std::vector<std::int64_t> sizes;
        if (rank != 0) {
            sizes.assign(&need(shape, "shape"), shape + rank);
        }
        const DType type = dtype_of(dtype);
        const auto bytes = vkf::byte_size(type, sizes);
        if (!bytes) {
            throw vkf::Error("the shape has a negative size or is too large", text(name, "name"));
        }
        const auto* numbers = *bytes != 0 ? &need(static_cast<const std::byte*>(data), "data") : nullptr;
        const auto constant = [&](auto number) {
            std::vector<decltype(number)> copy(*bytes / sizeof(number));
            if (*bytes != 0) {
                std::memcpy(copy.data(), numbers, *bytes);
            }
            return graph->constant(text(name, "name"), sizes, std::span<const decltype(number)>(copy));
        };
        switch (type) {
            case DType::f32: return constant(float{});
            case DType::i32: return constant(std::int32_t{});
            default: throw vkf::Error("a constant is F32 or I32", text(name, "name"));
        }
    });
}

vkf_result vkf_graph_output(const char* name, vkf_value value) {
    return guard(__func__, [&] {
        const Value v = value_of(value, "value");
        v.graph().output(text(name, "name"), v);
    });
}

vkf_result vkf_graph_push_scope(vkf_graph* graph, const char* name) {
    return guard(__func__, [&] {
        need(graph, "graph").push_scope(text(name, "name"));
        ++graph->scopes;
    });
}

vkf_result vkf_graph_pop_scope(vkf_graph* graph) {
    return guard(__func__, [&] {
        if (need(graph, "graph").scopes == 0) {
            throw vkf::Error("no scope is open");
        }
        graph->pop_scope();
        --graph->scopes;
    });
}

vkf_result vkf_value_shape(vkf_value value, vkf_dim shape[VKF_MAX_RANK], uint32_t* rank) {
    return guard(__func__, [&] {
        const Value v = value_of(value, "value");
        std::array<vkf_dim, VKF_MAX_RANK> sizes{};
        for (std::size_t i = 0; shape && i < v.rank(); ++i) {
            sizes[i] = dim_to_c(v.shape()[i], v.graph());
        }
        need(rank, "rank") = static_cast<std::uint32_t>(v.rank());
        std::copy_n(sizes.begin(), shape ? v.rank() : 0, shape);
    });
}

vkf_result vkf_value_dtype(vkf_value value, vkf_dtype* dtype) {
    return give(__func__, dtype, [&] { return dtype_to_c(value_of(value, "value").dtype()); });
}

vkf_result vkf_value_text(vkf_value value, char* text, size_t capacity, size_t* needed) {
    return guard(__func__, [&] { give_text(value_of(value, "value").str(), text, capacity, needed); });
}

vkf_result vkf_reshape(vkf_value x, uint32_t rank, const vkf_dim* shape, vkf_value* y) {
    return give_value(__func__, y, [&] {
        const Value v = value_of(x, "x");
        return reshape(v, shape_of(rank, shape, v.graph()));
    });
}

vkf_result vkf_transpose(vkf_value x, int32_t a, int32_t b, vkf_value* y) {
    return give_value(__func__, y, [&] { return transpose(value_of(x, "x"), a, b); });
}

vkf_result vkf_permute(vkf_value x, uint32_t rank, const uint32_t* order, vkf_value* y) {
    return give_value(__func__, y, [&] {
        const Value v = value_of(x, "x");
        std::vector<std::size_t> places;
        if (rank != 0) {
            places.assign(&need(order, "order"), order + rank);
        }
        return permute(v, places);
    });
}

vkf_result vkf_slice(vkf_value x, int32_t dim, vkf_dim start, vkf_dim length, vkf_value* y) {
    return give_value(__func__, y, [&] {
        const Value v = value_of(x, "x");
        return slice(v, dim, dim_of(start, v.graph()), dim_of(length, v.graph()));
    });
}

vkf_result vkf_broadcast_to(vkf_value x, uint32_t rank, const vkf_dim* shape, vkf_value* y) {
    return give_value(__func__, y, [&] {
        const Value v = value_of(x, "x");
        return broadcast_to(v, shape_of(rank, shape, v.graph()));
    });
}

vkf_result vkf_split_heads(vkf_value x, int64_t heads, vkf_value* y) {
    return give_value(__func__, y, [&] { return split_heads(value_of(x, "x"), heads); });
}

vkf_result vkf_merge_heads(vkf_value x, vkf_value* y) {
    return give_value(__func__, y, [&] { return merge_heads(value_of(x, "x")); });
}
