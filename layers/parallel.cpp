// SPDX-License-Identifier: Apache-2.0
#include "layers/parallel.h"

#include "layers/checks.h"
#include "layers/linear.h"
#include "layers/sharing.h"
#include "ops/embedding_part.h"

namespace vkf {

Value column_parallel_linear(Value x, const std::string& name, std::int64_t out,
                             const ColumnParallelLinearOptions& options) {
    Graph& g = x.graph();
    if (is_whole(g)) {
        return linear_layer(x, name, out, options.bias, options.activation);
    }
    const Part own = share_of_width(out, g.rank());
    const Value y = linear_rows(x, name, {0, out, {own}}, options.bias, options.activation);
    if (!options.gather_output) {
        return y;
    }
    return concat(all_gather(y, shares_of_width(out, g.rank())), -1);
}

Value row_parallel_linear(Value x, const std::string& name, std::int64_t in, std::int64_t out,
                          const RowParallelLinearOptions& options) {
    constexpr const char* kName = "row_parallel_linear";
    Graph& g = x.graph();
    const std::int64_t given = fixed_last(kName, x);
    const Part own = share_of_width(in, g.rank());
    const std::int64_t wanted = options.input_is_parallel ? own.count : in;
    if (given != wanted) {
        throw Error(x.str() + " must have " + std::to_string(wanted) + " columns, of " + std::to_string(in) +
                        " shared out over " + std::to_string(g.rank().ranks) + " ranks",
                    kName);
    }
    if (is_whole(g)) {
        return linear_layer(x, name, out, options.bias);
    }
    const Value mine = options.input_is_parallel ? x : slice(x, -1, own.first, own.count);
    return linear_columns(mine, name, {1, in, {own}}, out, options.bias);
}

Value vocab_parallel_embedding(Value ids, const std::string& name, std::int64_t vocabulary, std::int64_t width,
                               float scale) {
    Graph& g = ids.graph();
    if (is_whole(g)) {
        return embedding(ids, g.weight(name, {vocabulary, width}), scale);
    }
    const Part own = share_of_vocabulary(vocabulary, g.rank());
    const Value table = g.weight(name, {own.count, width}, {0, vocabulary, {own}});
    return all_reduce(embedding_part(ids, table, scale, own.first, vocabulary));
}

}  // namespace vkf
