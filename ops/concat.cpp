// SPDX-License-Identifier: Apache-2.0
#include "ops/add_op.h"
#include "ops/checks.h"
#include "ops/elementwise.h"
#include "ops/gradient.h"

namespace vkf {

namespace {

using namespace support;

struct ConcatParams {
    std::size_t dim;
};

/// Every part is copied into its own window of the result.
void lower(Lowering& l) {
    const std::size_t dim = l.params<ConcatParams>().dim;
    Dim start = 0;
    for (std::size_t i = 0; i < l.inputs(); ++i) {
        const Dim length = l.info(l.input(i)).shape[dim];
        lower_copy(l, l.input(i), l.slice(l.output(0), dim, start, length));
        start = start + length;
    }
}

std::vector<Value> gradient(const GradientSite& site) {
    const std::size_t dim = site.params<ConcatParams>().dim;
    std::vector<Value> out;
    Dim start = 0;
    for (std::size_t i = 0; i < site.inputs(); ++i) {
        const Dim length = site.input(i).shape()[dim];
        out.push_back(slice(site.gradient(), static_cast<int>(dim), start, length));
        start = start + length;
    }
    return out;
}

constexpr OpType kConcat{.name = "concat", .lower = lower, .can_read = can_read_any, .gradient = gradient};

}  // namespace

Value concat(const std::vector<Value>& parts, int dim) {
    require(!parts.empty(), kConcat.name, "there are no parts");
    const Value& first = parts.front();
    const int rank = static_cast<int>(first.rank());
    const int d = dim < 0 ? dim + rank : dim;
    require(d >= 0 && d < rank, kConcat.name,
            "dimension " + std::to_string(dim) + " of " + first.str() + " does not exist");
    Shape shape = first.shape();
    const auto at = static_cast<std::size_t>(d);
    for (std::size_t i = 1; i < parts.size(); ++i) {
        Shape other = parts[i].shape();
        const bool ranks = other.size() == shape.size();
        const Dim length = ranks ? other[at] : Dim(0);
        if (ranks) {
            other[at] = shape[at];
        }
        require(ranks && other == shape && parts[i].dtype() == first.dtype(), kConcat.name,
                parts[i].str() + " does not fit behind " + first.str() + " along dimension " + std::to_string(d));
        shape[at] = shape[at] + length;
    }
    return add_op(kConcat, parts, ConcatParams{at}, shape, first.dtype());
}

}  // namespace vkf
