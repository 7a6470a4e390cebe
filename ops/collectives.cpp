// SPDX-License-Identifier: Apache-2.0
#include "ops/collectives.h"

#include "ops/add_op.h"
#include "ops/all_reduce.h"
#include "ops/checks.h"
#include "ops/elementwise.h"
#include "ops/gradient.h"
#include "runtime/compile/lowering.h"

namespace vkf {

namespace {

using namespace support;

constexpr const char* kAllReduceName = "all_reduce";
constexpr const char* kAllGatherName = "all_gather";
constexpr const char* kBroadcastName = "broadcast";

struct AllReduceParams {};

struct AllGatherParams {
    std::vector<std::uint32_t> columns;
};

struct BroadcastParams {
    std::uint32_t from;
};

/// Emits the collective on the values themselves, or on copies where they lie elsewhere.
void lower_on_exchanged(Lowering& l, Collective what, const std::vector<std::uint32_t>& words) {
    const ValueId x = l.input(0), y = l.output(0);
    ValueId in = x;
    if (!l.is_exchangeable(x)) {
        in = l.scratch(l.dtype(x), l.info(x).shape);
        lower_copy(l, x, in);
    }
    const bool there = l.is_exchangeable(y);
    const ValueId out = there ? y : l.scratch(l.dtype(y), l.info(y).shape);
    l.collective(what, in, out, words);
    if (!there) {
        lower_copy(l, out, y);
    }
}

void lower_all_reduce(Lowering& l) { lower_on_exchanged(l, Collective::all_reduce, {}); }

void lower_all_gather(Lowering& l) {
    lower_on_exchanged(l, Collective::all_gather, l.params<AllGatherParams>().columns);
}

void lower_broadcast(Lowering& l) { lower_on_exchanged(l, Collective::broadcast, {l.params<BroadcastParams>().from}); }

void require_word(const char* name, Value x) {
    require(x.dtype() == DType::f32 || x.dtype() == DType::i32, name, x.str() + " must be F32 or I32");
}

std::vector<Value> all_reduce_gradient(const GradientSite& site) { return {site.gradient()}; }

constexpr OpType kAllGather{.name = kAllGatherName, .lower = lower_all_gather};
constexpr OpType kBroadcast{.name = kBroadcastName, .lower = lower_broadcast};

}  // namespace

bool support::is_collective(const OpType* op) { return op == &kAllReduce || op == &kAllGather || op == &kBroadcast; }

const OpType support::kAllReduce{.name = kAllReduceName, .lower = lower_all_reduce, .gradient = all_reduce_gradient};

Value all_reduce(Value x) {
    require_dtype(kAllReduceName, x, DType::f32);
    return add_op(kAllReduce, {dense(x)}, AllReduceParams{}, x.shape());
}

std::vector<Value> all_gather(Value x, const std::vector<std::int64_t>& columns) {
    Graph& g = x.graph();
    require_word(kAllGatherName, x);
    require(x.rank() >= 1, kAllGatherName, x.str() + " has no last dimension");
    const auto rank = static_cast<std::size_t>(g.rank().rank);
    require(
        columns.size() == static_cast<std::size_t>(g.rank().ranks), kAllGatherName,
        "columns of " + std::to_string(columns.size()) + " ranks, the graph is of " + std::to_string(g.rank().ranks));
    for (const std::int64_t c : columns) {
        require(c > 0 && c <= INT32_MAX, kAllGatherName, "a rank has " + std::to_string(c) + " columns");
    }
    require(x.size(-1) == Dim(columns[rank]), kAllGatherName,
            x.str() + " must have " + std::to_string(columns[rank]) + " columns, rank " + std::to_string(rank) + "'s");
    Dim rows = 1;
    for (std::size_t i = 0; i + 1 < x.rank(); ++i) {
        rows = rows * x.shape()[i];
    }
    Dim all = 0;
    for (const std::int64_t c : columns) {
        all = all + rows * Dim(c);
    }
    const Value gathered =
        add_op(kAllGather, {dense(x)}, AllGatherParams{{columns.begin(), columns.end()}}, {all}, x.dtype());
    std::vector<Value> parts;
    Dim first = 0;
    for (const std::int64_t c : columns) {
        Shape shape = x.shape();
        shape.back() = Dim(c);
        parts.push_back(g.add_view(gathered, shape, contiguous_strides(shape), first));
        first = first + rows * Dim(c);
    }
    return parts;
}

Value broadcast(Value x, int from) {
    require_word(kBroadcastName, x);
    require(from >= 0, kBroadcastName, "there is no rank " + std::to_string(from));
    return add_op(kBroadcast, {dense(x)}, BroadcastParams{static_cast<std::uint32_t>(from)}, x.shape(), x.dtype());
}

}  // namespace vkf
